"""Dataset Distillation in the tables: which network learns the images, how a preset spells it out, and which cells there are.

A table's cell names it in place of the network that condenses, in one of two ways: `distill`, whose networks are trained by the
ordered steps at the learned rates, as the method is meant, and `distill-plain`, where its images serve as any other small set.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

from ..spec import Network, Training
from ..spec.architectures import FAMILIES
from ..spec.baselines import CIFAR10, Distillation

if TYPE_CHECKING:
    import pandas as pd

DD = {"distill": "rates", "distill-plain": "plain"}  # and the way in which networks are then trained
COLOURED = ("cifar10", "cifar100", "svhn", "svhn10k")
LEARNERS = ("LeNet", "AlexCifarNet")
CONDENSED = "condensed"  # the column of Tables 3 and T10 in which each data set has its own network
# epochs over the real images, after how many of them lr is halved, and the real batch, by learner
CPU = {"LeNet": (20, 8, 256), "AlexCifarNet": (5, 2, 256)}
SMOKE = dict(epochs=8, decay_epochs=8, batch=125, passes=1, lr=0.05)


def learner(dataset: str) -> str:
    """The network that images of a data set are learned with, by either method: AlexCifarNet in colour, else LeNet."""
    return LEARNERS[dataset in COLOURED]


def of_paper(dataset: str, ipc: int) -> Distillation:
    """The hyper-parameters of Wang et al.; at one image per class (which is ours, not theirs) all steps share it."""
    return dataclasses.replace(CIFAR10 if dataset in COLOURED else Distillation(), ipc=ipc)


def of_cpu(dataset: str, ipc: int) -> Distillation:
    """The same, truncated: a fraction of the 400 epochs over the real images."""
    epochs, halving, batch = CPU[learner(dataset)]
    return dataclasses.replace(of_paper(dataset, ipc), epochs=epochs, decay_epochs=halving, batch=batch)


def of_smoke(dataset: str, ipc: int) -> Distillation:
    """A few iterations of ten steps each: enough to see that everything works."""
    return dataclasses.replace(of_paper(dataset, ipc), **SMOKE)


def at_rates(test_network: str, hyper: Distillation) -> Training:
    """What is trained at the learned rates: a network whose weights are drawn as the learner's were, for which the rates are.

    One whose `init` is given is drawn as it says.
    """
    network = hyper.network if test_network == hyper.network.family else Network.parse(test_network)
    options = {"init": hyper.network["init"], **dict(network.options)}
    return Training(network=Network.make(network.family, **options)).resolve()


def belongs(place: dict[str, Any]) -> bool:
    """Whether a cell is one of Table 3, where the learner itself is trained, or of Table T10, where other networks are.

    Args:
        place: the cell's coordinates, by axis.
    """
    own, made, trained = learner(place["dataset"]), place["network"], place["test_network"]
    if made in LEARNERS and made != own:
        return False
    itself = made if made.partition(":")[0] in FAMILIES else own
    if trained == itself and made != "distill-plain":
        return True
    return own == "LeNet" and place["ipc"] > 1 and made != "whole" and trained != "AlexCifarNet"


def table_3(cells: "pd.DataFrame") -> "pd.DataFrame":
    """The rows of Table 3: both methods, and the whole set, with the network that learned."""
    own = (cells.test_network == cells.dataset.map(learner)) | (cells.test_network == cells.network)
    return _by_method(cells[own & (cells.network != "distill-plain")])


def table_10(cells: "pd.DataFrame") -> "pd.DataFrame":
    """The rows of Table T10: ten images per class (at smoke two), learned with LeNet, and networks trained on them."""
    grey = cells.dataset.map(learner) == "LeNet"
    return _by_method(cells[grey & (cells.network != "whole") & (cells.ipc > 1)])


def _by_method(cells: "pd.DataFrame") -> "pd.DataFrame":
    """Rows whose condensed images stand under the name of the method."""
    return cells.assign(network=cells.network.mask(cells.network == cells.dataset.map(learner), CONDENSED))
