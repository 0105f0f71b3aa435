"""What came after the paper, under one protocol: feature matching, siamese augmentation, several images in one."""

from typing import Any

from ..spec.variants import BEYOND, FAST, canonical, spell
from .ablations import CONVNET, DIGITS, SIX
from .cells import RANDOM, Table

BEST = BEYOND[1]


def _without(**changes: Any) -> str:
    """The recipe `beyond` with some of its three changes taken back, as a variant."""
    return canonical(spell(BEST | changes))


ROWS = {  # variants by the words of the page
    "gradients: the recipe `fast`": canonical(spell(FAST[1])),
    "features": _without(siamese="none", factor=1),
    "features, siamese augmentation": _without(factor=1),
    "features, 2 × 2": _without(siamese="none"),
    "gradients, siamese augmentation, 2 × 2": _without(objective="gradient"),
    "features, siamese augmentation, 2 × 2": _without(),
}
DATASETS = ("cifar10", "mnist", "fashionmnist", "svhn10k")
REAL = (RANDOM, "formed", "herding")
THIN = "ConvNet:width=16"
FEW = dict(outer_steps=10, image_lr_end=0.0)
SMOKE = DIGITS | dict(ipc=(1,), network=(*REAL[:2], THIN), test_network=(THIN,))
SMOKE["variant"] = _without(siamese="none", factor=1, **FEW), _without(**FEW)

AFTER = Table(
    name="after",
    label="After the paper",
    question="Which later idea buys how much, at the same number of stored images?",
    grid=CONVNET | dict(dataset=DATASETS, ipc=(1, 10, 50), network=(*REAL, "ConvNet"), variant=tuple(ROWS.values())),
    grids={"smoke": SMOKE},
    more=(
        dict(ipc=(1,), network=("ConvNet",), test_network=SIX, variant=(_without(),)),
        dict(ipc=(1,), network=(RANDOM,), test_network=SIX),
    ),
    repeats={"cpu": (3, 3), "smoke": (1, 1)},
    training={"smoke": dict(augment="dsa"), "cpu": dict(augment="dsa", epochs=300), "paper": dict(augment="dsa", epochs=0)},
)
AFTER_PLAIN = Table(
    name="after_plain",
    label="After the paper",
    question="What do the same sets reach where stage T augments no images?",
    grid=AFTER.grid | dict(ipc=(1,), variant=(canonical(spell(FAST[1])), _without())),
    grids={"smoke": SMOKE},
    repeats=AFTER.repeats,
    training={"smoke": dict(augment="none"), "cpu": dict(augment="none", epochs=300), "paper": dict(augment="none")},
)
