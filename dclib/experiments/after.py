"""What came after the paper, under one protocol: feature matching, siamese augmentation, several images in one."""

from typing import Any

from ..spec.variants import BEYOND, FAST, canonical, spell
from .ablations import CONVNET, DIGITS, SIX
from .cells import RANDOM, Table


def _without(**changes: Any) -> str:
    """The recipe `beyond` with some of its three changes taken back, as a variant."""
    return canonical(spell(BEYOND[1] | changes))


BEST = _without()
ROWS = {  # variants by the words of the page
    "gradients: the recipe `fast`": canonical(spell(FAST[1])),
    "features": _without(siamese="none", factor=1),
    "features, siamese augmentation": _without(factor=1),
    "features, 2 × 2": _without(siamese="none"),
    "gradients, siamese augmentation, 2 × 2": _without(objective="gradient"),
    "features, siamese augmentation, 2 × 2": BEST,
}
DATASETS = ("cifar10", "mnist", "fashionmnist", "svhn10k")
REAL = (RANDOM, "formed", "herding")
THIN = "ConvNet:width=16"
FEW = dict(outer_steps=10, image_lr_end=0.0)
SMOKE = DIGITS | dict(ipc=(1,), network=(*REAL[:2], THIN), test_network=(THIN,))
TRIED = (
    *(_without(outer_steps=50, image_lr=rate, image_lr_end=0.0) for rate in (0.3, 1.0, 3.0)),
    *(_without(outer_steps=steps) for steps in (50, 100, 200, 400)),
    _without(real_batch=128),
)
SMOKE["variant"] = _without(siamese="none", factor=1, **FEW), _without(**FEW)

AFTER = Table(
    name="after",
    label="After the paper",
    question="Which later idea buys how much, at the same number of stored images?",
    grid=CONVNET | dict(dataset=DATASETS, ipc=(1, 10, 50), network=(*REAL, "ConvNet"), variant=tuple(ROWS.values())),
    grids={"smoke": SMOKE, "cpu": dict(ipc=(1, 10))},
    more=(
        dict(ipc=(1,), network=("ConvNet",), test_network=SIX, variant=(BEST,)),
        dict(ipc=(1,), network=(RANDOM,), test_network=SIX),
    ),
    repeats={"cpu": (3, 3), "smoke": (1, 1)},
    training={"smoke": dict(augment="dsa"), "cpu": dict(augment="dsa", epochs=300), "paper": dict(augment="dsa", epochs=0)},
)
AFTER_CHOICE = Table(
    name="after_choice",
    label="After the paper",
    question="Which rate of the images and how many steps suit the three changes together?",
    grid=CONVNET | dict(dataset=("cifar10",), ipc=(1,), network=("ConvNet",), variant=TRIED),
    grids={"smoke": DIGITS | dict(ipc=(1,), network=(THIN,), test_network=(THIN,), variant=(_without(**FEW),))},
    repeats={"cpu": (1, 3)},
    training=AFTER.training,
    held_out=5000,
)
AFTER_PLAIN = Table(
    name="after_plain",
    label="After the paper",
    question="What do the same sets reach where stage T augments no images?",
    grid=AFTER.grid | dict(ipc=(1,), variant=(canonical(spell(FAST[1])), BEST)),
    grids={"smoke": SMOKE},
    repeats=AFTER.repeats,
    training={"smoke": dict(augment="none"), "cpu": dict(augment="none", epochs=300), "paper": dict(augment="none")},
)
