"""The frozen dataclasses of a run: which hyper-parameters of Algorithm 1 and of stage T, which network, which set.

Nothing here computes and nothing imports torch. Each hyper-parameter carries the paper's symbol in a comment; each object
turns into a plain dictionary (`spell`) whose hash is the run's key, with fields at their default left out, so that a field
added later changes no key.
"""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..errors import SpecError, one_of
from . import checks
from .architectures import Network
from .baselines import WAYS, Distillation, TrainGan
from .keys import Run

GUIDED = ("herding", "k-center", "forgetting")  # choose real images by what a network trained on all of them makes of each
METHODS = ("condense", "distill", "gan", "random", *GUIDED)
DISTANCES = ("layerwise", "euclidean", "cosine")
SOURCE = ("dataset", "image_size", "channels", "held_out")  # of a run: which images it stands on
STORAGES = ("float32", "float16")
PRECISIONS = ("float32", "float64", "bfloat16", "tf32")  # the last two in first-order passes; TF32 on GPUs
GREY = ("digits", "mnist", "fashionmnist", "usps")  # data sets of one channel
ONE_MEAN = "rotation fills all channels with one mean"  # before, each with its own
LOOPS = {1: (1, 1), 10: (10, 50), 20: (20, 25), 30: (30, 20), 40: (40, 15), 50: (50, 10)}  # the authors' table: ipc to T, ς_θ


def loops(ipc: int) -> tuple[int, int]:
    """Return T and ς_θ for any number of images per class: the authors' where they give them, else by the paper's rule.

    The rule (appendix A, "Dataset condensation") is T = ipc and ς_θ = 500 / T, for more than ten images; rounded, we use it for
    2 … 9 as well. At 30 and 40 images the authors' table departs from it.
    """
    return LOOPS.get(ipc) or (ipc, max(1, round(500 / ipc)))


@dataclass(frozen=True)
class Condensation:
    """The hyper-parameters of Algorithm 1; the defaults are the paper's, `bn` and both momenta the authors' code's.

    `inner_steps` and `network_epochs` left at 0 are those of the authors or of the paper's rule for `ipc` (see `loops`).
    """

    ipc: int = 1  #: images per class
    network: Network = field(default_factory=Network)  #: φ, drawn afresh from P_θ0 at each outer step
    outer_steps: int = 1000  #: K
    inner_steps: int = 0  #: T
    image_steps: int = 1  #: ς_S
    image_lr: float = 0.1  #: η_S
    image_lr_end: float = 0.0  #: where η_S ends, following half a cosine over K; 0: η_S is constant, as in the paper
    image_momentum: float = 0.5  #: of the images' optimiser
    network_epochs: int = 0  #: ς_θ, in epochs over S
    network_lr: float = 0.01  #: η_θ
    network_momentum: float = 0.5  #: of the network's optimiser
    network_batch: int = 256  #: images of S in a step of the network
    real_batch: int = 256  #: real images of each class in a step, the size of B^T_c
    distance: str = "layerwise"  #: D, Eqs. 9-10
    init: str = "noise"  #: S starts from noise, N(0, 1), or from real images
    batches: str = "separate"  #: the gradients of each class are matched with its own, or those of all in one ("mixed")
    bn: str = "code"  #: batch norm's statistics as the authors' code estimates them, or those of the real images ("true")
    patience: int = 0  #: stop when the best mean loss of `patience` outer steps has not fallen for as many; never at 0
    precision: str = "float32"  #: or float64; bfloat16 and, on GPUs, tf32 in first-order passes alone

    def __post_init__(self) -> None:
        checks.whole(self, 1, "ipc", "outer_steps", "image_steps", "network_batch", "real_batch")
        checks.whole(self, 0, "inner_steps", "network_epochs", "patience")
        checks.positive(self, "image_lr", "network_lr")
        checks.at_least_zero(self, "image_lr_end")
        checks.fraction(self, "image_momentum", "network_momentum")
        one_of("distance", self.distance, DISTANCES)
        one_of("init", self.init, ("noise", "real"))
        one_of("batches", self.batches, ("separate", "mixed"))
        one_of("bn", self.bn, ("true", "code"))
        one_of("precision", self.precision, PRECISIONS)

    def resolve(self) -> "Condensation":
        """Spell out T, ς_θ and the network's "auto" options."""
        T, epochs = loops(self.ipc)
        steps = dict(inner_steps=self.inner_steps or T, network_epochs=self.network_epochs or epochs)
        return dataclasses.replace(self, network=self.network.resolve("condense"), **steps)

    def image_rate(self, k: int) -> float:
        """Return η_S at outer step k = 0, 1, …: constant, or cosine annealing (Loshchilov and Hutter, 2017) without restarts."""
        if not self.image_lr_end:
            return self.image_lr
        return self.image_lr_end + (self.image_lr - self.image_lr_end) * (1 + math.cos(math.pi * k / self.outer_steps)) / 2


@dataclass(frozen=True)
class Training:
    """Stage T: how a network is trained from scratch on a small set; the defaults are the authors' code's.

    `epochs` is E in "epochs 0 … E", so E + 1 are run; left at 0 it is 300, or 1000 with augmentation. After epoch
    E // 2 + 1 the learning rate falls to a tenth and the momentum starts afresh.
    """

    network: Network = field(default_factory=Network)  #: the network that is trained
    epochs: int = 0  #: E
    lr: float = 0.01  #: the learning rate of the first half
    momentum: float = 0.9  #: of SGD
    weight_decay: float = 5e-4  #: of SGD
    batch: int = 256  #: images in a step
    augment: str = "none"  #: or operations joined by "+", as crop+scale+rotate, of which each image gets one
    precision: str = "float32"  #: as in `Condensation`

    def __post_init__(self) -> None:
        checks.whole(self, 0, "epochs")
        checks.descent(self)
        one_of("precision", self.precision, PRECISIONS)

    @property
    def operations(self) -> tuple[str, ...]:
        """The augmentations as a tuple; empty for "none"."""
        return checks.operations(self.augment)

    def resolve(self) -> "Training":
        """Spell out E and the network's "auto" options."""
        epochs = self.epochs or (1000 if self.operations else 300)
        return dataclasses.replace(self, network=self.network.resolve("train"), epochs=epochs)


def _mended(dataset: str, channels: int, operations: tuple[str, ...]) -> tuple[str, ...]:
    """What is computed otherwise than when runs like this were first recorded (see `spelling`); images of one channel are not."""
    grey = channels == 1 or (channels == 0 and dataset.partition("+")[0] in GREY)
    return (ONE_MEAN,) if "rotate" in operations and not grey else ()


def outdated(run: dict[str, Any]) -> bool:
    """Whether a record of trained networks, by its spelled-out run, is from before a mend that changed what the run computes."""
    made, rates = run.get("set") or run, run.get("way") == "rates"
    augment = "none" if rates else run.get("hyper", run).get("augment", "none")
    return list(_mended(made["dataset"], made.get("channels", 0), checks.operations(augment))) != run.get("mended", [])


@dataclass(frozen=True)
class WholeTraining(Run):
    """The run that trains a network on the whole training set: the table's upper bound, and what guided choices rest on.

    The learning rate rises in a straight line to `lr` over the first fifth of the steps and falls in one to zero at the end.
    The recipe is ours, for the paper states none.

    Args:
        dataset: a data set's name, or the path of the user's own.
        seed: of weights, shuffling and augmentation.
        image_size: images are resized to this square size first; 0 leaves them.
        held_out: so many training images, drawn at random, are kept out of it to validate on.
    """

    dataset: str
    network: Network = field(default_factory=Network)
    epochs: int = 10
    lr: float = 0.05  # the highest
    momentum: float = 0.9
    weight_decay: float = 5e-4
    batch: int = 125  # divides the numbers of images of most data sets: no small batch is left over
    augment: str = "none"  # as in `Training`
    seed: int = 0
    image_size: int = 0
    held_out: int = 0
    channels: ClassVar[int] = 0  # as they are

    def __post_init__(self) -> None:
        checks.whole(self, 1, "epochs")
        checks.whole(self, 0, "held_out")
        checks.descent(self)

    @property
    def operations(self) -> tuple[str, ...]:
        """The augmentations as a tuple; empty for "none"."""
        return checks.operations(self.augment)

    @property
    def mended(self) -> tuple[str, ...]:
        """What older records of such a run computed otherwise."""
        return _mended(self.dataset, self.channels, self.operations)

    leaves = "whole"

    def finished(self, about: dict[str, Any]) -> bool:
        """Whether it has been trained and tested in all epochs."""
        return len(about.get("epoch_accuracies", ())) == self.epochs


@dataclass(frozen=True)
class MakeSet(Run):
    """The run that makes a small set: by condensing, by Dataset Distillation, by drawing from a GAN, or by choosing real images.

    Args:
        dataset: a data set's name, or the path of the user's own.
        method: "condense" (with `hyper`), "distill", "gan", "random", "herding", "k-center" or "forgetting".
        seed: 0, 1, …: one for each set.
        hyper: resolved hyper-parameters; unless images are condensed only its `ipc` counts.
        image_size: images are resized to this square size first; 0 leaves them.
        whole: the training, on the same data, that guides the choice by herding, k-center and forgetting; else None.
        gan: the training, on the same data, of the GAN that draws the images; else None.
        distillation: the hyper-parameters of Dataset Distillation, of as many images per class; else None.
        channels: images are made grey (1) or RGB (3) first; 0 leaves them.
        held_out: so many training images, drawn at random, are kept out of it to validate on.
        storage: "float16" rounds learned images before they are hashed and trained on, so that the file holds what was used.
    """

    dataset: str
    method: str = "condense"
    seed: int = 0
    hyper: Condensation = field(default_factory=Condensation)
    image_size: int = 0
    whole: WholeTraining | None = None
    gan: TrainGan | None = None
    distillation: Distillation | None = None
    channels: int = 0
    held_out: int = 0
    storage: str = "float32"

    def __post_init__(self) -> None:
        one_of("method", self.method, METHODS)
        one_of("storage", self.storage, STORAGES)
        checks.require(self.learned or self.storage == "float32", "real images are kept as they are: leave storage at float32")
        checks.whole(self, 0, "held_out")
        self._check_training("whole", self.whole, self.method in GUIDED)
        self._check_training("gan", self.gan, self.method == "gan")
        self._check_distillation()

    def _check_training(self, name: str, base: WholeTraining | TrainGan | None, needed: bool) -> None:
        if needed and base is None:
            raise SpecError(f"method {self.method!r} needs a `{name}` training")
        if base is not None and not needed:
            raise SpecError(f"method {self.method!r} takes no `{name}` training")
        if base is not None and any(getattr(base, part) != getattr(self, part) for part in SOURCE):
            raise SpecError(f"the `{name}` training must be one on {self.dataset}, at the same {', '.join(SOURCE[1:])}")

    def _check_distillation(self) -> None:
        if self.method != "distill" and self.distillation is not None:
            raise SpecError(f"method {self.method!r} takes no `distillation`")
        if self.method == "distill" and (self.distillation is None or self.distillation.ipc != self.hyper.ipc):
            raise SpecError(f"method {self.method!r} needs a `distillation` of as many images per class")

    @property
    def base(self) -> WholeTraining | TrainGan | None:
        """The training on the whole set that the set rests on, if there is one."""
        return self.whole or self.gan

    @property
    def learned(self) -> bool:
        """Whether the images are none of the data's, so that they are kept themselves and not by their indices."""
        return self.method in ("condense", "distill", "gan")

    @property
    def leaves(self) -> str:
        """The file of a learned set, or the indices of chosen images."""
        return "sets" if self.learned else "indices"

    @property
    def shared_state(self) -> str:
        """The name of its trajectory, under which a condensed set's state is kept (see `trajectories`)."""
        if self.method != "condense":
            return ""
        hyper = self.hyper if self.hyper.image_lr_end else dataclasses.replace(self.hyper, outer_steps=1)
        return "course-" + dataclasses.replace(self, hyper=hyper).key

    def needs(self) -> tuple[Run, ...]:
        """The training on the whole set that it rests on, if there is one."""
        return (self.base,) if self.base else ()


@dataclass(frozen=True)
class TrainNetworks(Run):
    """The run that trains `networks` networks on one set and tests each; the number is not part of the key.

    `tested_on` is "test", the data set's test images, or "held-out", the training images that were kept out of the set: with
    these, hyper-parameters are chosen without a look at the test images.

    `way` is "plain" (stage T by `hyper`), or "rates": by a distilled set's ordered steps, where only `hyper.network` counts.
    """

    set: MakeSet
    hyper: Training = field(default_factory=Training)
    networks: int = field(default=1, metadata={"outside_key": True})
    way: str = "plain"
    tested_on: str = "test"

    def __post_init__(self) -> None:
        one_of("images to test on", self.tested_on, ("test", "held-out"))
        held_out = self.tested_on == "test" or self.set.held_out > 0
        checks.require(held_out, "no images are held out of the set: give held_out, or test on the test images")
        one_of("way", self.way, WAYS)
        checks.require(self.way == "plain" or self.set.method == "distill", "only a distilled set has learned rates to train by")

    @property
    def mended(self) -> tuple[str, ...]:
        """What older records of such a run computed otherwise."""
        return _mended(self.set.dataset, self.set.channels, self.hyper.operations if self.way == "plain" else ())

    def needs(self) -> tuple[Run, ...]:
        """The run that makes its set."""
        return (self.set,)
