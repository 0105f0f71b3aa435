"""The frozen hyper-parameters of the methods that are learned and that the paper compares with; nothing here imports torch.

`GanTraining` is the conditional GAN of Table T8 (`gan.py` computes it), `TrainGan` the run of one; `Distillation` is Dataset
Distillation of Tables 3, T10 and T11 (`distill.py`). As in `spec`, fields at their default stay out of a run's key.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import Any, ClassVar

from ..errors import one_of
from . import checks
from .architectures import AlexCifarNet, LeNet, Network
from .keys import Run

MODES = ("unrolled", "reverse")
WAYS = ("plain", "rates")  # to train on a distilled set: by stage T's recipe, or by the ordered steps at the learned rates


@dataclass(frozen=True)
class GanTraining:
    """How the conditional GAN is trained: the paper gives the blocks of both networks, all numbers here are our choice."""

    steps: int = 20_000  # one update of the discriminator and one of the generator each
    batch: int = 128  # real images, and as many generated ones
    latent: int = 100  # numbers of noise z ~ N(0, 1)
    label_width: int = 50  # numbers that stand for a label beside the noise
    generator_width: int = 128  # channels before and in the first block; the second has half as many
    discriminator_width: int = 64  # channels of the first block; the next have 2 and 4 times as many
    slope: float = 0.2  # of LeakyReLU
    lr: float = 2e-4  # of Adam, for both networks
    beta1: float = 0.5
    beta2: float = 0.999

    def __post_init__(self) -> None:
        checks.whole(self, 1, "steps", "latent", "label_width", "discriminator_width")
        checks.whole(self, 2, "batch", "generator_width")  # batch norm needs two images
        checks.positive(self, "lr")
        checks.fraction(self, "slope", "beta1", "beta2")


@dataclass(frozen=True)
class TrainGan(Run):
    """The run that trains a GAN on the whole training set: one serves all sets drawn from it, of whatever number of images.

    Args:
        dataset: a data set's name, or the path of the user's own.
        hyper: the recipe.
        seed: of weights, batches and noise.
        image_size: images are resized to this square size first; 0 leaves them.
    """

    dataset: str
    hyper: GanTraining = field(default_factory=GanTraining)
    seed: int = 0
    image_size: int = 0
    channels: ClassVar[int] = 0  # as they are
    held_out: ClassVar[int] = 0  # none

    leaves = "whole"

    def finished(self, about: dict[str, Any]) -> bool:
        """Whether it has been trained in all steps."""
        return about.get("k") == self.hyper.steps


def loss_summary(losses: Sequence[Sequence[float]], parts: int = 10) -> list[list[float]]:
    """The mean of each column of losses over each of so many parts of a training, in order: what a record says of it.

    Args:
        losses: for each step those of discriminator and generator.
        parts: at most; a part has at least one step.
    """
    n = len(losses)
    ends = [n * i // parts for i in range(parts + 1)] if n > parts else range(n + 1)
    return [[round(fmean(x), 4) for x in zip(*losses[a:b], strict=True)] for a, b in pairwise(ends)]


@dataclass(frozen=True)
class Distillation:
    """The hyper-parameters of Dataset Distillation (Wang et al., 2018); the defaults are those for MNIST.

    The network takes one step of gradient descent on each of `steps` batches in turn, `passes` times over. Batches share the
    images evenly: `ipc` = `steps` × images per class of a batch. With fewer images than steps, each batch is one image per
    class and the `ipc` different batches come round again and again: at `ipc` = 1 all steps share one. The learned rates are
    never shared: one for each of the `steps` × `passes` steps.
    """

    ipc: int = 10  # images per class, a multiple or a divisor of `steps`
    network: Network = field(default_factory=lambda: LeNet(init="xavier"))
    steps: int = 10  # T
    passes: int = 3  # "epochs" over the distilled batches
    rate: float = 0.02  # η̃_0, where every learned rate starts
    start: str = "random"  # θ_0: drawn afresh at each iteration, or one "fixed" draw
    epochs: int = 400  # over the real training set
    batch: int = 1024  # real images of an iteration
    lr: float = 0.01  # α, of Adam, for images and rates
    beta1: float = 0.5
    beta2: float = 0.999
    decay_epochs: int = 40  # after so many epochs, lr is multiplied …
    decay: float = 0.5  # … by this
    crops: bool = False  # whether real images are padded by 4 (reflected), cropped and flipped at random
    precision: str = "float32"
    mode: str = field(default="unrolled", metadata={"outside_key": True})  # how the gradient is computed, not what it is

    def __post_init__(self) -> None:
        checks.whole(self, 1, "ipc", "steps", "passes", "epochs", "batch", "decay_epochs")
        checks.positive(self, "rate", "lr", "decay")
        checks.fraction(self, "beta1", "beta2")
        checks.require(isinstance(self.crops, bool), f"crops must be true or false, not {self.crops!r}")
        one_of("start", self.start, ("random", "fixed"))
        one_of("precision", self.precision, ("float32", "float64"))
        one_of("mode", self.mode, MODES)
        even = self.ipc % self.steps == 0 or self.steps % self.ipc == 0
        checks.require(even, f"ipc={self.ipc} images do not fill {self.steps} steps evenly: take a multiple or a divisor of steps")

    @property
    def batches(self) -> int:
        """How many different batches the images are divided into."""
        return min(self.steps, self.ipc)

    @property
    def unrolled_steps(self) -> int:
        """How many steps of gradient descent a network is trained for, each with a learned rate."""
        return self.steps * self.passes


CIFAR10 = Distillation(network=AlexCifarNet(init="xavier"), rate=0.001, crops=True)
