"""Which hyper-parameters a run takes: a recipe's, and variants as text, "distance=euclidean,init=real".

The recipe `paper` is appendix A's; `fast` comes near to its accuracy in minutes on two cores. The notebook `recipe` has the study
that found it, on held-out training images. `beyond` has what came after the paper (notebook `after`).
A variant is the fifth axis of an experiment's grid; the empty text, or "default", changes nothing.
"""

import dataclasses
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ..errors import SpecError, one_of
from .architectures import Network, OwnNetwork
from .methods import GUIDED, METHODS
from .runs import DIGITS, Condensation, MakeSet, Training, WholeTraining, usual_augmentation

# of a ConvNet, by images per class
FAST = {1: dict(outer_steps=200, image_lr=0.4, image_lr_end=0.1, real_batch=32)}
LATER = dict(objective="features", siamese="all", factor=2, init="real")
BEYOND = {1: LATER | dict(outer_steps=100, image_lr=1.0, image_lr_end=0.1, real_batch=32)}
RECIPES = {"paper": {}, "fast": FAST, "beyond": BEYOND}
DEFAULT = "default"  # what a user may write for the empty text
FIXED = ("ipc", "network")  # axes of their own
KINDS = {f.name: f.type for f in dataclasses.fields(Condensation) if f.name not in FIXED}


def recipe(name: str = "paper", *, network: Any = "ConvNet", **given: Any) -> Condensation:
    """Return a recipe's hyper-parameters of Algorithm 1, spelled out.

    Args:
        name: "paper", "fast" or "beyond".
        network: as text, as a `Network`, or as a class of the user's own.
        given: hyper-parameters in place of the recipe's.

    Raises:
        SpecError: no such recipe, the recipe is not known for such a run, or a value out of its range.
    """
    one_of("recipe", name, RECIPES)
    given["network"] = Network.parse(network)
    own, hyper = {}, Condensation(**given)
    if recipe := RECIPES[name]:
        network = hyper.network.resolve("condense")
        known = network.family == "ConvNet" and network["norm"] == "instance" and hyper.distance == "layerwise"
        if not known or hyper.ipc not in recipe:
            sizes, asked = " or ".join(map(str, recipe)), f"{hyper.network} at {hyper.ipc} with the distance {hyper.distance!r}"
            raise SpecError(
                f"recipe {name!r} is known for a ConvNet with instance norm at {sizes} image per class with the distance "
                f"'layerwise', not for {asked}: leave it out, and give the hyper-parameters themselves"
            )
        own = recipe[hyper.ipc]
    elif hyper.network.family == "MLP" and hyper.distance == "layerwise":
        own = {"image_lr": 0.01}
    return Condensation(**own | given).resolve()


def stage_t(dataset: str, *, network: Any = "ConvNet", augment: str = "auto", **given: Any) -> Training:
    """Return the paper's hyper-parameters of stage T, spelled out.

    Args:
        dataset: a known name, or the full path of the user's own data (`Dataset.source`).
        network: as for `recipe`.
        augment: "auto" is `usual_augmentation`; "dsa" leaves digits unmirrored.
        given: hyper-parameters in place of the paper's.
    """
    network = Network.parse(network)
    augment = usual_augmentation(dataset, network) if augment == "auto" else augment
    augment = "dsa-noflip" if augment == "dsa" and dataset.partition("+")[0] in DIGITS else augment
    return Training(network=network, augment=augment, **given).resolve()


def selection(
    dataset: str,
    method: str = "herding",
    ipc: int = 1,
    network: Any = None,
    epochs: int = 0,
    seed: int = 0,
    image_size: int = 0,
) -> MakeSet:
    """Return the run that chooses real images.

    Args:
        dataset: a data set's name, or the path of the user's own.
        method, ipc, network, epochs, seed, image_size: as for `dclib.select`.

    Raises:
        SpecError: an unknown method, or a number out of its range; a network of the user's own.
    """
    one_of("method", method, [name for name in METHODS if not METHODS[name].learned])
    hyper, guide = Condensation(ipc=ipc), Network.parse(network or "ConvNet")
    if method not in GUIDED:
        if network or epochs:
            raise SpecError(f"method {method!r} trains no network: leave out network and epochs")
        return MakeSet(dataset, method, seed, hyper, image_size)
    if isinstance(guide, OwnNetwork):
        raise SpecError(f"{method} looks at the penultimate features of one of dclib's networks, not {guide.family}'s: name one")
    epochs = epochs or WholeTraining.epochs
    training = WholeTraining(dataset, guide.resolve("train"), epochs=epochs, seed=seed, image_size=image_size)
    return MakeSet(dataset, method, seed, hyper, image_size, whole=training)


@lru_cache(maxsize=256)
def _parsed(text: str) -> tuple[tuple[str, Any], ...]:
    changes: dict[str, Any] = {}
    for part in filter(None, map(str.strip, text.removeprefix(DEFAULT).split(","))):
        name, equals, value = (word.strip() for word in part.partition("="))
        one_of("hyper-parameter in a variant", name, KINDS)
        if not equals or name in changes:
            raise SpecError(f"a variant is written name=value, each name once, not {text!r}")
        try:
            changes[name] = KINDS[name](value)
        except ValueError:
            kind = {int: "a whole number", float: "a number"}[KINDS[name]]
            raise SpecError(f"{name} in a variant must be {kind}, not {value!r}") from None
    Condensation(**changes)  # refuses what no hyper-parameter can be
    return tuple(changes.items())


def parse(text: str) -> dict[str, Any]:
    """Read a variant: the values by the names of `Condensation`'s fields.

    Raises:
        SpecError: an unknown hyper-parameter, or a value that it cannot take.
    """
    return dict(_parsed(text))


def canonical(text: str) -> str:
    """Return the one spelling of a variant: in the order of the fields, without spaces."""
    changes = parse(text)
    return ",".join(f"{name}={changes[name]}" for name in KINDS if name in changes)


def apply(hyper: Condensation, text: str) -> Condensation:
    """Put a variant's values in place of a preset's."""
    return dataclasses.replace(hyper, **parse(text))


def spell(changes: dict[str, Any]) -> str:
    """Return a variant as text."""
    return ",".join(f"{name}={value}" for name, value in changes.items())


def steps(K: Sequence[int], T: Sequence[int]) -> tuple[str, ...]:
    """The variants of so many outer and inner steps, the fewest outer ones first."""
    return tuple(f"outer_steps={k},inner_steps={t}" for t in T for k in K)
