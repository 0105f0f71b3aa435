"""What a run is: networks by name, hyper-parameters with the paper's symbols, and the keys of runs; no torch."""

from .architectures import FAMILIES, MLP, VGG11, AlexCifarNet, AlexNet, ConvNet, LeNet, Network, OwnNetwork, ResNet18
from .baselines import TrainGan
from .keys import derive, full, key, spell
from .methods import GUIDED
from .runs import (
    AUGMENTATIONS,
    DIGITS,
    DISTANCES,
    SIAMESE,
    Condensation,
    MakeSet,
    Training,
    TrainNetworks,
    WholeTraining,
    loops,
    outdated,
    shared_trajectories,
)

__all__ = [
    "AUGMENTATIONS",
    "DIGITS",
    "DISTANCES",
    "FAMILIES",
    "GUIDED",
    "MLP",
    "SIAMESE",
    "VGG11",
    "AlexCifarNet",
    "AlexNet",
    "Condensation",
    "ConvNet",
    "LeNet",
    "MakeSet",
    "Network",
    "OwnNetwork",
    "ResNet18",
    "TrainGan",
    "TrainNetworks",
    "Training",
    "WholeTraining",
    "derive",
    "full",
    "key",
    "loops",
    "outdated",
    "shared_trajectories",
    "spell",
]
