"""The hyper-parameters of the learned methods that the paper compares with: the GAN of Table T8, and Dataset Distillation.

`methods.gan` and `methods.distill` compute them (Tables 3, T8, T10 and T11). Nothing here imports torch.
"""

from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any, ClassVar

from .architectures import AlexCifarNet, LeNet, Network
from .checks import check, param, require
from .keys import Run

MODES = ("unrolled", "reverse")
WAYS = ("plain", "rates")  # to train on a distilled set: by stage T's recipe, or by the ordered steps at the learned rates


@dataclass(frozen=True)
class GanTraining:
    """How the conditional GAN is trained: the paper gives the blocks of both networks, all numbers here are our choice."""

    steps: int = param(20_000, "updates of the discriminator, and as many of the generator", at_least=1)
    batch: int = param(128, "real images in a step, and as many generated ones; batch norm needs two", at_least=2)
    latent: int = param(100, "numbers of noise, N(0, 1), for an image", "z", at_least=1)
    label_width: int = param(50, "numbers that stand for a label beside the noise", at_least=1)
    generator_width: int = param(128, "channels before and in the first block; the second has half as many", at_least=2)
    discriminator_width: int = param(64, "channels of the first block; the next have 2 and 4 times as many", at_least=1)
    slope: float = param(0.2, "slope of LeakyReLU", at_least=0, below=1)
    lr: float = param(2e-4, "learning rate of Adam, for both networks", above=0)
    beta1: float = param(0.5, "first decay rate of Adam", at_least=0, below=1)
    beta2: float = param(0.999, "second decay rate of Adam", at_least=0, below=1)

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class TrainGan(Run):
    """The run that trains a GAN on the whole training set; all sets drawn from it share it."""

    dataset: str = param(MISSING, "a data set's name, or the path of the user's own")
    hyper: GanTraining = param(GanTraining, "how it is trained")
    seed: int = param(0, "of weights, batches and noise")
    image_size: int = param(0, "images are resized to this square size first; 0: they are not", at_least=0)
    channels: ClassVar[int] = 0  # as they are
    held_out: ClassVar[int] = 0  # none
    leaves: ClassVar[str] = "whole"

    def __post_init__(self) -> None:
        check(self)

    def finished(self, about: dict[str, Any]) -> bool:
        """Whether it has been trained in all steps."""
        return about.get("k") == self.hyper.steps


def loss_summary(losses: Sequence[Sequence[float]], parts: int = 10) -> list[list[float]]:
    """Return the mean of each column of losses over each of so many equal parts of a training, for its record.

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

    ipc: int = param(10, "images per class, a multiple or a divisor of `steps`", at_least=1)
    network: Network = param(lambda: LeNet(init="xavier"), "the network that is unrolled")
    steps: int = param(10, "batches of distilled images, a step each", "T", at_least=1)
    passes: int = param(3, "epochs over the distilled batches", at_least=1)
    rate: float = param(0.02, "where every learned rate starts", "η̃_0", above=0)
    start: str = param("random", "initial weights: drawn afresh at each iteration, or fixed", "θ_0", choices=("random", "fixed"))
    epochs: int = param(400, "epochs over the real training set", at_least=1)
    batch: int = param(1024, "real images of an iteration", at_least=1)
    lr: float = param(0.01, "learning rate of Adam, for images and rates", "α", above=0)
    beta1: float = param(0.5, "first decay rate of Adam", at_least=0, below=1)
    beta2: float = param(0.999, "second decay rate of Adam", at_least=0, below=1)
    decay_epochs: int = param(40, "epochs after which α is multiplied by `decay`", at_least=1)
    decay: float = param(0.5, "factor by which α falls", above=0)
    crops: bool = param(False, "pad real images by 4 (reflected), crop and flip them at random")
    precision: str = param("float32", "of the arithmetic", choices=("float32", "float64"))
    mode: str = param("unrolled", "how the gradient is computed, which does not change it", choices=MODES, outside_key=True)

    def __post_init__(self) -> None:
        check(self)
        even = self.ipc % self.steps == 0 or self.steps % self.ipc == 0
        require(even, f"ipc={self.ipc} images do not fill {self.steps} steps evenly: take a multiple or a divisor of steps")

    @property
    def batches(self) -> int:
        """How many different batches the images are divided into."""
        return min(self.steps, self.ipc)

    @property
    def unrolled_steps(self) -> int:
        """How many steps of gradient descent a network is trained for, each with a learned rate."""
        return self.steps * self.passes


CIFAR10 = Distillation(network=AlexCifarNet(init="xavier"), rate=0.001, crops=True)
