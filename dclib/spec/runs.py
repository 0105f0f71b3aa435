"""What is run: the hyper-parameters of Algorithm 1 and of stage T, and the runs that make sets and train networks.

Nothing here computes and nothing imports torch. A run is spelled out as a plain dictionary (`keys.spell`) whose hash is its key;
fields at their default are left out, so that a new field changes no key.
"""

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar

from .architectures import FAMILIES, Network
from .baselines import WAYS, Distillation, TrainGan
from .checks import check, param, require
from .keys import Run, key
from .methods import METHODS, OWN

DISTANCES = ("layerwise", "euclidean", "cosine")
SOURCE = ("dataset", "image_size", "channels", "held_out")  # the fields that say which images a run uses
STORAGES = ("float32", "float16")
OPTIMIZERS = ("sgd", "adam")
PRECISIONS = ("float32", "float64", "bfloat16", "tf32")
AUGMENTATIONS = ("crop", "scale", "rotate", "noise", "flip", "dsa", "dsa-noflip")
OBJECTIVES = ("gradient", "features")
SIAMESE = ("color", "crop", "cutout", "flip", "scale", "rotate")  # the operations of differentiable siamese augmentation
DIGITS = ("digits", "mnist", "usps", "svhn", "svhn10k")  # data sets whose images mean something else when mirrored
GREY = ("digits", "mnist", "fashionmnist", "usps")  # data sets of one channel
ONE_MEAN = "rotation fills all channels with one mean"  # before, each with its own
LOOPS = {1: (1, 1), 10: (10, 50), 20: (20, 25), 30: (30, 20), 40: (40, 15), 50: (50, 10)}  # the authors' table: ipc to T, ς_θ
NETWORK = f"with its options, as ConvNet:width=64,norm=batch; one of {', '.join(FAMILIES)}"
SIZE = "images are resized to this square size first; 0: they are not"
HELD_OUT = "training images, drawn at random, that are kept for validation"
PRECISION = "of the arithmetic; bfloat16 and, on a GPU, tf32 in first-order passes only"
AUGMENT = "auto, none, dsa, or some of crop, scale, rotate, noise and flip with + between: each image gets one of them"
SIAMESE_HELP = "the same random change of real and learned images: none, all (digits are not flipped), or some with + between"


def loops(ipc: int) -> tuple[int, int]:
    """Return T and ς_θ for any number of images per class: the authors' where they give them, else by the paper's rule.

    The rule (appendix A, "Dataset condensation") is T = ipc and ς_θ = 500 / T, for more than ten images; rounded, we use it for
    2 … 9 as well. At 30 and 40 images the authors' table departs from it.
    """
    return LOOPS.get(ipc) or (ipc, max(1, round(500 / ipc)))


@dataclass(frozen=True)
class Condensation:
    """The hyper-parameters of Algorithm 1; the defaults are the paper's, those of `bn` and both momenta the authors' code's."""

    ipc: int = param(1, "images per class", at_least=1)
    network: Network = param(Network, NETWORK, "φ")
    outer_steps: int = param(1000, "outer steps, each with a fresh network", "K", at_least=1)
    inner_steps: int = param(0, "inner steps in an outer step; 0: the paper's for this many images", "T", at_least=0)
    image_steps: int = param(1, "steps of the images in an inner step", "ς_S", at_least=1)
    image_lr: float = param(0.1, "learning rate of the images; 0.01 for MLP with the layerwise distance", "η_S", above=0)
    image_lr_end: float = param(0.0, "where η_S ends, by half a cosine over K; 0: η_S is constant, as in the paper", at_least=0)
    image_momentum: float = param(0.5, "momentum of the images' optimiser", at_least=0, below=1)
    network_epochs: int = param(0, "epochs over S in an inner step; 0: the paper's for this many images", "ς_θ", at_least=0)
    network_lr: float = param(0.01, "learning rate of the network", "η_θ", above=0)
    network_momentum: float = param(0.5, "momentum of the network's optimiser", at_least=0, below=1)
    network_batch: int = param(256, "images of S in a step of the network", at_least=1)
    real_batch: int = param(256, "real images of each class in a step", "|B^T_c|", at_least=1)
    distance: str = param("layerwise", "between gradients (Eqs. 9-10): layerwise, euclidean or cosine", "D", choices=DISTANCES)
    init: str = param("noise", "the images start from noise, N(0, 1), or from real images", choices=("noise", "real"))
    batches: str = param("separate", "match the gradient of each class, or of all at once: mixed", choices=("separate", "mixed"))
    bn: str = param("code", "batch norm's statistics: as in the authors' code, or true: the real images'", choices=("true", "code"))
    patience: int = param(0, "stop when the loss has not fallen for so many outer steps; 0: never", at_least=0)
    precision: str = param("float32", PRECISION, choices=PRECISIONS)
    objective: str = param("gradient", "what is matched: gradients (Eq. 9), or mean features", choices=OBJECTIVES)
    siamese: str = param("none", SIAMESE_HELP, joined=("all", *SIAMESE))
    factor: int = param(1, "each learned image holds factor × factor smaller ones, which are enlarged to train on", at_least=1)

    def __post_init__(self) -> None:
        check(self)
        plain = self.distance == "layerwise" and self.batches == "separate"
        require(plain or self.objective == "gradient", "features are matched by class: leave distance and batches out")

    def resolve(self) -> "Condensation":
        """Spell out T, ς_θ and the network's "auto" options; features are matched without an inner loop."""
        T, epochs = loops(self.ipc) if self.objective == "gradient" else (1, 1)
        steps = dict(inner_steps=self.inner_steps or T, network_epochs=self.network_epochs or epochs)
        return dataclasses.replace(self, network=self.network.resolve("condense"), **steps)

    def image_rate(self, k: int) -> float:
        """Return η_S at outer step k = 0, 1, …: constant, or cosine annealing (Loshchilov and Hutter, 2017) without restarts."""
        if not self.image_lr_end:
            return self.image_lr
        return self.image_lr_end + (self.image_lr - self.image_lr_end) * (1 + math.cos(math.pi * k / self.outer_steps)) / 2

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations of siamese augmentation as a tuple; empty for "none"."""
        return SIAMESE if self.siamese == "all" else _operations(self.siamese)

    @property
    def trajectory(self) -> str:
        """The key that hyper-parameters which differ only in K share."""
        return key(dataclasses.replace(self, outer_steps=1))


@dataclass(frozen=True)
class Training:
    """Stage T: how a network is trained from scratch on a small set; the defaults are the authors' code's.

    After epoch E // 2 + 1 the learning rate falls to a tenth and the optimiser starts afresh.
    """

    network: Network = param(Network, NETWORK)
    epochs: int = param(0, "E + 1 epochs, 0 … E; 0: 300, or 1000 with augmentation", "E", at_least=0)
    lr: float = param(0.01, "learning rate of the first half", above=0)
    momentum: float = param(0.9, "momentum of SGD", at_least=0, below=1)
    weight_decay: float = param(5e-4, "weight decay", at_least=0)
    batch: int = param(256, "images in a step", at_least=1)
    augment: str = param("none", AUGMENT, joined=AUGMENTATIONS)
    precision: str = param("float32", PRECISION, choices=PRECISIONS)
    optimizer: str = param("sgd", "sgd, or adam, for which momentum does not count", choices=OPTIMIZERS)

    def __post_init__(self) -> None:
        check(self)

    @property
    def operations(self) -> tuple[str, ...]:
        """The augmentations as a tuple; empty for "none"."""
        return _operations(self.augment)

    def resolve(self) -> "Training":
        """Spell out E and the network's "auto" options."""
        epochs = self.epochs or (1000 if self.operations else 300)
        return dataclasses.replace(self, network=self.network.resolve("train"), epochs=epochs)


def usual_augmentation(dataset: str, network: Network) -> str:
    """How images are augmented in stage T where nothing else is said, by the data set and the network that is trained.

    As in the authors' code a ConvNet with batch norm gets crops and noise on any data, every other network on MNIST crop, scale
    and rotation. AlexCifarNet, which only Table 3 trains, gets the latter on any data: the paper augments CIFAR10 there as well
    and does not say how.

    Args:
        dataset: a known name, or the full path of the user's own data (`Dataset.source`), which is not MNIST whatever it is called.
        network: the one that is trained.
    """
    if network.family == "ConvNet" and ("norm", "batch") in network.options:
        return "crop+noise"
    return "crop+scale+rotate" if dataset == "mnist" or network.family == "AlexCifarNet" else "none"


def _operations(augment: str) -> tuple[str, ...]:
    return () if augment == "none" else tuple(augment.split("+"))


def _mended(dataset: str, channels: int, operations: tuple[str, ...]) -> tuple[str, ...]:
    """What has been corrected since runs like this were first recorded (see `keys`): the rotation of coloured images."""
    grey = channels == 1 or (channels == 0 and dataset.partition("+")[0] in GREY)
    return (ONE_MEAN,) if "rotate" in operations and not grey else ()


def outdated(run: dict[str, Any]) -> bool:
    """Whether a record of trained networks, by its spelled-out run, is older than a correction of what the run computes."""
    made, rates = run.get("set") or run, run.get("way") == "rates"
    augment = "none" if rates else run.get("hyper", run).get("augment", "none")
    return list(_mended(made["dataset"], made.get("channels", 0), _operations(augment))) != run.get("mended", [])


@dataclass(frozen=True)
class WholeTraining(Run):
    """The run that trains a network on the whole training set: the tables' upper bound, and the guide of three coreset methods.

    The learning rate rises linearly to `lr` over the first fifth of the steps, and falls linearly to zero at the end. The paper
    states no recipe; this one is ours.
    """

    dataset: str = param(MISSING, "a data set's name, or the path of the user's own")
    network: Network = param(Network, "the network that is trained")
    epochs: int = param(10, "epochs", at_least=1)
    lr: float = param(0.05, "the highest learning rate", above=0)
    momentum: float = param(0.9, "momentum of SGD", at_least=0, below=1)
    weight_decay: float = param(5e-4, "weight decay of SGD", at_least=0)
    batch: int = param(125, "images in a step; 125 divides the size of most data sets", at_least=1)
    augment: str = param("none", "as in `Training`", joined=AUGMENTATIONS)
    seed: int = param(0, "of weights, shuffling and augmentation")
    image_size: int = param(0, SIZE)
    held_out: int = param(0, HELD_OUT, at_least=0)
    channels: ClassVar[int] = 0  # as they are
    leaves: ClassVar[str] = "whole"

    def __post_init__(self) -> None:
        check(self)

    @property
    def operations(self) -> tuple[str, ...]:
        """The augmentations as a tuple; empty for "none"."""
        return _operations(self.augment)

    @property
    def mended(self) -> tuple[str, ...]:
        """What older records of such a run computed otherwise."""
        return _mended(self.dataset, self.channels, self.operations)

    def finished(self, about: dict[str, Any]) -> bool:
        """Whether it has been trained and tested in all epochs."""
        return len(about.get("epoch_accuracies", ())) == self.epochs


@dataclass(frozen=True)
class MakeSet(Run):
    """The run that makes a small set: by condensing, by Dataset Distillation, by drawing from a GAN, or by choosing real images."""

    dataset: str = param(MISSING, "a data set's name, or the path of the user's own")
    method: str = param("condense", "how the set is made", choices=METHODS)
    seed: int = param(0, "0, 1, …: one for each set")
    hyper: Condensation = param(Condensation, "resolved hyper-parameters; methods other than condense read only its ipc")
    image_size: int = param(0, SIZE)
    whole: WholeTraining | None = param(None, "the training that guides herding, k-center and forgetting, on the same data")
    gan: TrainGan | None = param(None, "the training of the GAN that draws the images, on the same data")
    distillation: Distillation | None = param(None, "hyper-parameters of Dataset Distillation, for as many images per class")
    channels: int = param(0, "images are made grey (1) or RGB (3) first; 0: they are not")
    held_out: int = param(0, HELD_OUT, at_least=0)
    storage: str = param("float32", "float16 rounds learned images before they are used", choices=STORAGES)
    settings: Any = param(None, "hyper-parameters of a method that has a class of its own for them; None: its defaults")
    start: str = param("", "the hash of the set whose images the first ones of each class start from; the others as init says")

    def __post_init__(self) -> None:
        check(self)
        method = METHODS[self.method]
        require(not self.start or self.method == "condense", f"method {self.method!r} starts from no set: leave start out")
        require(self.learned or self.storage == "float32", "real images are kept as they are: leave storage at float32")
        if self.hyper.siamese == "all":
            mirrored = "flip" if self.dataset.partition("+")[0] not in DIGITS else ""
            kept = "+".join(name for name in SIAMESE if name != "flip" or mirrored)
            object.__setattr__(self, "hyper", dataclasses.replace(self.hyper, siamese=kept))
        if method.settings and self.settings is None:
            object.__setattr__(self, "settings", method.settings())
        for name in OWN:
            thing, needed = getattr(self, name), name in method.takes
            require(needed or thing is None, f"method {self.method!r} takes no `{name}`: leave it out")
            fits = thing is not None and getattr(thing, "ipc", self.hyper.ipc) == self.hyper.ipc
            of = " training" if name in ("whole", "gan") else " of as many images per class"
            require(fits or not needed, f"method {self.method!r} needs a `{name}`{of}")
        kind = method.settings or type(None)
        require(isinstance(self.settings, kind), f"the settings of method {self.method!r} are a {kind.__name__}")
        base, name = self.base, "whole" if self.whole else "gan"
        same = base is None or [getattr(base, part) for part in SOURCE] == [getattr(self, part) for part in SOURCE]
        require(same, f"the `{name}` training must be one on {self.dataset}, at the same {', '.join(SOURCE[1:])}")

    @property
    def base(self) -> WholeTraining | TrainGan | None:
        """The training on the whole set that the set rests on, if there is one."""
        return self.whole or self.gan

    @property
    def learned(self) -> bool:
        """Whether the images are learned or drawn, so that a file holds them; of real images it holds the indices."""
        return METHODS[self.method].learned

    @property
    def leaves(self) -> str:
        """The file of a learned set, or the indices of chosen images."""
        return "sets" if self.learned else "indices"

    def needs(self) -> tuple[Run, ...]:
        """The training on the whole set that it rests on, if there is one."""
        return (self.base,) if self.base else ()

    @property
    def shared_state(self) -> str:
        """The name of the set's checkpoint: sets that differ only in K, at a constant η_S, share it.

        Random draws depend on (seed, purpose, step) and not on K, so that K = 1000 continues from K = 100.
        """
        hyper = self.hyper if self.hyper.image_lr_end else dataclasses.replace(self.hyper, outer_steps=1)
        return "course-" + dataclasses.replace(self, hyper=hyper).key


def shared_trajectories(runs: Iterable[MakeSet]) -> dict[str, int]:
    """The trajectories that several of these sets share, each with its largest K."""
    steps: dict[str, set[int]] = {}
    for run in runs:
        if run.method == "condense":
            steps.setdefault(run.shared_state, set()).add(run.hyper.outer_steps)
    return {name: max(found) for name, found in steps.items() if len(found) > 1}


@dataclass(frozen=True)
class TrainNetworks(Run):
    """The run that trains `networks` networks on one set and tests each.

    With `tested_on="held-out"`, hyper-parameters are chosen without a look at the test images.
    """

    set: MakeSet = param(MISSING, "the run that makes the set")
    hyper: Training = param(Training, "hyper-parameters of stage T")
    networks: int = param(1, "how many are trained; not part of the key", outside_key=True)
    way: str = param("plain", "plain: stage T; rates: the ordered steps of a distilled set, by `hyper.network` alone", choices=WAYS)
    tested_on: str = param("test", "the test images, or those held out of the set", choices=("test", "held-out"))
    repeatable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self)
        held_out = self.tested_on == "test" or self.set.held_out > 0
        require(held_out, "no images are held out of the set: give held_out, or test on the test images")
        require(self.way == "plain" or self.set.method == "distill", "only a distilled set has learned rates to train by")

    @property
    def mended(self) -> tuple[str, ...]:
        """What older records of such a run computed otherwise."""
        return _mended(self.set.dataset, self.set.channels, self.hyper.operations if self.way == "plain" else ())

    def needs(self) -> tuple[Run, ...]:
        """The run that makes its set."""
        return (self.set,)
