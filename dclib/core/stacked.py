"""Stage T for several networks at once: their parameters stacked, one batch of each passing together (torch.func).

A small set does not fill a GPU, twenty networks do, be they trained on one set or on as many (Table T8 has a thousand, with a
network for each). Every network keeps its own images and seed, and so its own weights, shuffling and augmentation: it is the
one that `train.train` trains alone, up to the order of summation. On two cores stacking gains nothing.
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
    labels: Int[Tensor, "k n"],
    hyper: Training,
    rates: Sequence[float],
    *,
    seeds: Sequence[int],
    capture: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
) -> Stack:
    """Train networks side by side and return them stacked.

    Args:
        networks: with fresh weights, on the images' device.
        images: normalised, those of each network.
        labels: their classes.
        hyper: resolved hyper-parameters of stage T.
        rates: the learning rate of each epoch.
        seeds: of each network's shuffling and augmentation.
        capture: whether to replay steps as CUDA graphs.
        should_stop: asked before each epoch; True raises.

    Raises:
        Interrupted: `should_stop` said so.
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
    images: Float[Tensor, "k n c h w"], labels: Int[Tensor, "k n"], hyper: Training, draws: Sequence[tuple[Generator, Generator]]
) -> Iterator[tuple[Float[Tensor, "k b c h w"], Int[Tensor, "k b"]]]:
    """One epoch: each network's batches, drawn and augmented as `train.train` does it for that network."""
    k, n = labels.shape
    whole, own = torch.arange(n).expand(k, n), torch.arange(k, device=images.device)[:, None]
    order = whole if n <= hyper.batch else torch.stack([torch.randperm(n, generator=shuffle) for shuffle, _ in draws])
    for part in order.to(images.device).split(hyper.batch, 1):
        x = images[own, part]
        yield augment_each(x, hyper.operations, [g for _, g in draws]) if hyper.operations else x, labels[own, part]


class Descent:
    """SGD with momentum for all networks of a stack; a step of each size and rate is prepared, and captured, once.

    Where the rate changes, momentum starts afresh.

    Args:
        stack: whose parameters move.
        hyper: momentum and weight decay count.
        capture: whether to replay steps as CUDA graphs.
    """

    def __init__(self, stack: Stack, hyper: Training | ShortTraining, capture: bool):
        self.stack, self.hyper, self.capture = stack, hyper, capture
        self.momenta = [torch.zeros_like(p) for p in stack.parameters]
        self.steps: dict[tuple[int, float], _Step] = {}
        self.rate: float | None = None

    def __call__(self, rate: float, x: Float[Tensor, "k b c h w"], y: Int[Tensor, "k b"]) -> None:
        """Do one step on each network's own batch."""
        if rate != self.rate:
            torch._foreach_zero_(self.momenta)
            self.rate = rate
        size = y.shape[1], rate
        if size not in self.steps:
            self.steps[size] = _Step(self.stack, self.momenta, self.hyper, rate, x, y, self.capture)
        self.steps[size](x, y)


class _Step:
    """One step of SGD on a batch of fixed size, for all networks."""

    def __init__(
        self,
        stack: Stack,
        momenta: list[Tensor],
        hyper: Training | ShortTraining,
        rate: float,
        x: Tensor,
        y: Tensor,
        capture: bool,
    ):
        self.stack, self.momenta, self.hyper, self.rate = stack, momenta, hyper, rate
        self.x, self.y = x.clone(), y.clone()
        changed = [*stack.parameters, *stack.buffers.values(), *momenta]
        self.step = engines.Captured(self._step, changed) if capture else self._step

    def __call__(self, x: Tensor, y: Tensor) -> None:
        self.x.copy_(x)
        self.y.copy_(y)
        self.step()

    def _step(self) -> None:
        parameters, logits = self.stack.parameters, self.stack(self.x)
        losses = F.cross_entropy(logits.flatten(0, 1), self.y.flatten(), reduction="none").view(self.y.shape).mean(1)
        gradients = torch.autograd.grad(losses.sum(), parameters)
        engines.descend(parameters, self.momenta, gradients, self.rate, self.hyper.momentum, self.hyper.weight_decay)
