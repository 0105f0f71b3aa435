"""What came after the paper, under one protocol: feature matching, siamese augmentation, several images in one."""

from ..spec.variants import BEYOND, FAST, spell
from .ablations import CONVNET, DIGITS, SIX
from .cells import RANDOM, Table

LEARN = "objective=features,init=real,image_lr={image_lr:g},outer_steps={outer_steps},real_batch={real_batch}".format(**BEYOND[1])
BOTH = "siamese=all,factor=2"
BEST = f"{LEARN},{BOTH}"
ROWS = {  # variants by the words of the page
    "gradients, the recipe `fast`": spell(FAST[1]),
    "features": LEARN,
    "features, siamese augmentation": f"{LEARN},siamese=all",
    "features, 2 × 2": f"{LEARN},factor=2",
    "features, siamese augmentation, 2 × 2": BEST,
    "gradients, siamese augmentation, 2 × 2": LEARN.replace("features", "gradient") + f",{BOTH}",
}
DATASETS = ("cifar10", "mnist", "fashionmnist", "svhn10k")
REAL = (RANDOM, "formed", "herding")
FEW = dict(ipc=(1,), variant=tuple(ROWS.values())[1::3])

AFTER = Table(
    name="after",
    label="After the paper",
    question="Which later idea buys how much, at the same number of stored images?",
    grid=CONVNET | dict(dataset=DATASETS, ipc=(1, 10, 50), network=(*REAL, "ConvNet"), variant=tuple(ROWS.values())),
    grids={"smoke": DIGITS | FEW | dict(network=(*REAL[:2], "ConvNet"))},
    more=(
        dict(ipc=(1,), network=("ConvNet",), test_network=SIX, variant=(BEST,)),
        dict(ipc=(1,), network=(RANDOM,), test_network=SIX),
    ),
    repeats={"cpu": (3, 3), "smoke": (1, 1)},
    training={"smoke": dict(augment="dsa"), "cpu": dict(augment="dsa", epochs=300), "paper": dict(augment="dsa", epochs=0)},
)
AFTER_PLAIN = Table(
    name="after_plain",
    label="After the paper",
    question="What do the same sets reach where stage T augments no images?",
    grid=AFTER.grid | dict(ipc=(1,), variant=(spell(FAST[1]), BEST)),
    grids={"smoke": DIGITS | FEW | dict(network=(*REAL[:2], "ConvNet"))},
    repeats=AFTER.repeats,
    training={"smoke": dict(augment="none"), "cpu": dict(augment="none", epochs=300), "paper": dict(augment="none")},
)
