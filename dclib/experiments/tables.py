"""The tables and figures whose cells form a grid, each declared once; those of the appendix's ablations are in `ablations`.

A preset spells out each cell's runs with every hyper-parameter. The key of a run is a hash of that, without the preset's name, so
that one condensed set serves every table that needs it.
"""

from ..spec import GUIDED
from . import dd
from .ablations import DIGITS, FOUR, SIX
from .cells import GAN, ORS, RANDOM, WHOLE, Table

THREE = ("MLP", "ConvNet", "LeNet")  # networks that take seconds
CPU_DATA = ("mnist", "fashionmnist", "cifar10", "svhn10k")  # svhn10k stands in for SVHN, in a row of its own
FEWER = {1: (2, 3), 10: (1, 3)}  # sets × networks at `cpu`

METHOD = Table(
    "method",
    "Sec. 2, Alg. 1",
    "How well does one learned image for each class train a network, against the paper's figure?",
    dict(dataset=("mnist", "fashionmnist"), ipc=(1,), network=("ConvNet",), test_network=("ConvNet",)),
    grids={"smoke": DIGITS},
)
CORESETS = Table(
    "coresets",
    "Table 1",
    "Do condensed images train a network better than as many chosen real ones, and how far from the whole set?",
    dict(dataset=FOUR, ipc=(1, 10, 50), network=(RANDOM, *GUIDED, "ConvNet", WHOLE), test_network=("ConvNet",)),
    grids={"smoke": DIGITS | dict(ipc=(1,)), "cpu": dict(dataset=CPU_DATA)},
    diagonal=True,
    repeats={"cpu": FEWER},
)
CONDENSED_IMAGES = Table(
    "condensed_images",
    "Figs. 2, F3",
    "What do the condensed images look like?",
    dict(dataset=FOUR, ipc=(1, 10), network=("ConvNet",), test_network=("ConvNet",)),
    grids={"smoke": DIGITS | dict(ipc=(1,)), "cpu": dict(dataset=CPU_DATA)},
    repeats={"cpu": (1, 1), "paper": (1, 1)},
)
CROSS_ARCH = Table(
    "cross_arch",
    "Table 2",
    "Do images condensed with one network train another?",
    dict(dataset=("mnist",), ipc=(1,), network=SIX, test_network=SIX),
    grids={"smoke": DIGITS | dict(network=(*THREE, RANDOM), test_network=THREE)},
    repeats={"cpu": (1, 2), "smoke": (2, 2)},
)
IMAGES_PER_CLASS = Table(
    "images_per_class",
    "Fig. 3",
    "How does the accuracy grow with the number of images per class, and how near does it come to the whole set's?",
    dict(dataset=FOUR, ipc=(1, 10, 20, 30, 40, 50), network=("herding", "ConvNet", WHOLE), test_network=("ConvNet",)),
    grids={"smoke": DIGITS | dict(ipc=(1, 2)), "cpu": dict(dataset=CPU_DATA)},
    diagonal=True,
    repeats={"cpu": FEWER},
)
DISTILLATION = Table(
    "distillation",
    "Tables 3, T10, T11, Fig. F4",
    "Do condensed images train networks better than those of Dataset Distillation, also networks that learned neither?",
    dict(
        dataset=("mnist", "cifar10"),
        ipc=(1, 10),
        network=(RANDOM, *dd.DD, *dd.LEARNERS, WHOLE),
        test_network=(*SIX, "AlexCifarNet"),
    ),
    grids={
        "smoke": DIGITS | dict(ipc=(1, 2), test_network=("MLP", "LeNet")),
        "cpu": dict(test_network=("MLP", "ConvNet", "LeNet", "AlexCifarNet")),
    },
    repeats={"cpu": (2, 5)},
    belongs=dd.belongs,
)
MORE_BASELINES = Table(
    "more_baselines",
    "Table T8",
    "Do condensed images beat the best of many random choices, and those that a GAN draws?",
    dict(dataset=FOUR, ipc=(1, 10), network=(*ORS, GAN, "ConvNet"), test_network=("ConvNet",)),
    grids={"smoke": DIGITS | dict(ipc=(1,)), "cpu": dict(dataset=("mnist",), ipc=(1,))},
    diagonal=True,
    repeats={"cpu": FEWER},
)
CIFAR100 = Table(
    "cifar100",
    "Table T9",
    "Do condensed images still beat chosen real ones when there are a hundred classes?",
    dict(dataset=("cifar100",), ipc=(1, 10), network=(RANDOM, *GUIDED, "ConvNet", WHOLE), test_network=("ConvNet",)),
    grids={"smoke": DIGITS | dict(ipc=(1,))},  # a stand-in of ten classes
    diagonal=True,
    repeats={"cpu": FEWER},
)
TABLES = (METHOD, CORESETS, CONDENSED_IMAGES, CROSS_ARCH, IMAGES_PER_CLASS, DISTILLATION, MORE_BASELINES, CIFAR100)
