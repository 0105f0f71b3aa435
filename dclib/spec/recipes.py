"""Recipes: hyper-parameters of Algorithm 1 as functions of what a run is.

`paper` is the paper's. `fast` comes near to the paper's accuracy in minutes on two cores; the notebook `recipe` has the study that
found it, on held-out training images.
"""

import dataclasses
from typing import Any

from ..errors import SpecError, one_of
from .runs import Condensation

RECIPES = ("paper", "fast")
FAST = {1: dict(outer_steps=200, image_lr=0.4, image_lr_end=0.1, real_batch=32)}  # ConvNet, by images per class


def changes(recipe: str, hyper: Condensation) -> dict[str, Any]:
    """Return what a recipe changes of the paper's hyper-parameters, by field, for such a network, distance and images per class.

    Raises:
        SpecError: no such recipe, or the study has not covered such a run.
    """
    if one_of("recipe", recipe, RECIPES) == "paper":
        return {}
    network = hyper.network.resolve("condense")
    known = network.family == "ConvNet" and network["norm"] == "instance" and hyper.distance == "layerwise"
    if not known or hyper.ipc not in FAST:
        sizes, asked = " or ".join(map(str, FAST)), f"{hyper.network} at {hyper.ipc} with the distance {hyper.distance!r}"
        raise SpecError(
            f"recipe 'fast' is known for a ConvNet with instance norm at {sizes} image per class with the distance 'layerwise', "
            f"not for {asked}: leave it out, and give the hyper-parameters themselves"
        )
    return FAST[hyper.ipc]


def fast(hyper: Condensation) -> Condensation:
    """Put the values of the recipe `fast` in place of these.

    Raises:
        SpecError: as for `changes`.
    """
    return dataclasses.replace(hyper, **changes("fast", hyper))
