"""Stage T for several networks at once: their parameters are stacked, and a batch of each passes together (torch.func).

One small set does not fill a GPU; twenty networks do, on one set or on twenty (Table T8 has a thousand sets with a network each).
Every network keeps its own images and seed, and so its own weights, shuffling and augmentation: up to the order of summation it
is the network that `train.train` trains alone. On two cores stacking gains nothing.
"""

import copy
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch.func import functional_call, vmap

from ..data.dataset import generator
from ..errors import Interrupted
from ..spec import Training
from ..spec.applications import ShortTraining
from . import engine as engines
from .augment import augment_each

TOGETHER = 20  # networks trained at once
Labels = Int[Tensor, "k n"] | Float[Tensor, "k n classes"]  # of each network's images: classes, or soft labels
STOPPED = "stopped while training; finished networks are recorded and the same command goes on from there"


class Stack:
    """Networks of one kind with their parameters stacked along the first axis.

    Args:
        networks: with their weights drawn, on one device.
        precision: of the forward pass.
    """

    def __init__(self, networks: Sequence[nn.Module], precision: str = "float32"):
        self.plain, self.precision = copy.deepcopy(networks[0]).train(), precision
        self.values = _stacked([dict(n.named_parameters()) for n in networks])
        self.buffers = _stacked([dict(n.named_buffers()) for n in networks])
        for value in self.values.values():
            value.requires_grad_()

    @property
    def parameters(self) -> list[Tensor]:
        """The stacked parameters."""
        return list(self.values.values())

    def __call__(self, x: Float[Tensor, "k n c h w"]) -> Float[Tensor, "k n classes"]:
        """The logits of each network for its own images."""
        bfloat16 = self.precision == "bfloat16"
        with torch.autocast(x.device.type, torch.bfloat16, enabled=bfloat16, cache_enabled=False):
            logits = vmap(lambda *state: functional_call(self.plain, state[:2], (state[2],)))(self.values, self.buffers, x)
        return logits.float() if bfloat16 else logits

    def unstack(self, j: int) -> dict[str, Tensor]:
        """The state of network j."""
        return {name: value[j].detach() for name, value in {**self.values, **self.buffers}.items()}


def _stacked(states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([state[name].detach() for state in states]) for name in states[0]}


def train_together(
    networks: Sequence[nn.Module],
    images: Float[Tensor, "k n c h w"],
    labels: Labels,
    hyper: Training,
    rates: Sequence[float],
    *,
    seeds: Sequence[int],
    capture: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
) -> Stack:
    """Train networks on a small set each and return them stacked.

    Args:
        networks: with fresh weights, on the images' device.
        images: normalised, the set of each network.
        labels: their classes, or their soft labels.
        hyper: resolved hyper-parameters of stage T.
        rates: the learning rate of each epoch.
        seeds: of each network's shuffling and augmentation.
        capture: whether to replay steps as CUDA graphs.
        should_stop: asked before each epoch; True raises.

    Raises:
        Interrupted: `should_stop` returned True.
    """
    stack = Stack(networks, hyper.precision)
    descent = Descent(stack, hyper, capture)
    draws = [(generator(seed, "shuffle"), generator(seed, "augment")) for seed in seeds]
    for rate in rates:
        if should_stop():
            raise Interrupted(STOPPED)
        for x, y in _batches(images, labels, hyper, draws):
            descent(rate, x, y)
    return stack


def _batches(
    images: Float[Tensor, "k n c h w"], labels: Labels, hyper: Training, draws: Sequence[tuple[Generator, Generator]]
) -> Iterator[tuple[Float[Tensor, "k b c h w"], Tensor]]:
    """One epoch: each network's batches, drawn and augmented as `train.train` does it for that network."""
    k, n = labels.shape[:2]
    whole, own = torch.arange(n).expand(k, n), torch.arange(k, device=images.device)[:, None]
    order = whole if n <= hyper.batch else torch.stack([torch.randperm(n, generator=shuffle) for shuffle, _ in draws])
    for part in order.to(images.device).split(hyper.batch, 1):
        x = images[own, part]
        yield augment_each(x, hyper.operations, [g for _, g in draws]) if hyper.operations else x, labels[own, part]


class Descent:
    """SGD with momentum for all networks of a stack. A step is prepared, and captured, once for each batch size and rate.

    When the rate changes, the momentum starts afresh.

    Args:
        stack: whose parameters are trained.
        hyper: its `momentum` and `weight_decay` count.
        capture: whether to replay steps as CUDA graphs.
    """

    def __init__(self, stack: Stack, hyper: Training | ShortTraining, capture: bool):
        self.stack, self.hyper, self.capture = stack, hyper, capture
        self.momenta = [torch.zeros_like(p) for p in stack.parameters]
        self.steps: dict[tuple[int, float], tuple[Tensor, Tensor, Callable[[], None]]] = {}
        self.rate: float | None = None

    def __call__(self, rate: float, x: Float[Tensor, "k b c h w"], y: Int[Tensor, "k b"] | Float[Tensor, "k b classes"]) -> None:
        """Do one step on each network's own batch."""
        if rate != self.rate:
            torch._foreach_zero_(self.momenta)
            self.rate = rate
        size = y.shape[1], rate
        if size not in self.steps:
            self.steps[size] = self._prepare(x.clone(), y.clone(), rate)
        kept_x, kept_y, step = self.steps[size]
        kept_x.copy_(x)
        kept_y.copy_(y)
        step()

    def _prepare(self, x: Tensor, y: Tensor, rate: float) -> tuple[Tensor, Tensor, Callable[[], None]]:
        """Return the tensors that a step reads its batch from, and the step."""
        h, parameters = self.hyper, self.stack.parameters

        def step() -> None:
            losses = F.cross_entropy(self.stack(x).flatten(0, 1), y.flatten(0, 1), reduction="none").view(y.shape[:2]).mean(1)
            gradients = torch.autograd.grad(losses.sum(), parameters)
            engines.descend(parameters, self.momenta, gradients, rate, h.momentum, h.weight_decay)

        changed = [*parameters, *self.stack.buffers.values(), *self.momenta]
        return x, y, engines.Captured(step, changed) if self.capture else step
