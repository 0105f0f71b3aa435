"""Stage T: train networks from scratch on a small set and test them on the real test images (appendix A; PROTOCOL of the book).

On a CPU networks are trained side by side (see `lanes`), on a GPU stacked. A module serves one network after another: each one's
weights are drawn from its own seed and loaded into it, so that a compiled form is compiled once.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..data.dataset import Dataset, generator
from ..errors import DataError, Interrupted
from ..spec import Network, Training
from . import engine as engines
from . import lanes, networks, trial
from .augment import augment
from .stacked import STOPPED, TOGETHER, train_together

Small = tuple[Float[Tensor, "n c h w"], Int[Tensor, " n"]]  # a set: images, normalised, and their classes
Tested = tuple[int, float, float]  # a network's seed, its accuracy in percent, its seconds
TEST_BATCH = {"cpu": 25, "cuda": 2500}  # images that pass a network at a time: on a CPU so few that feature maps stay in the cache


def schedule(hyper: Training) -> list[float]:
    """Return the learning rate of each of the E + 1 epochs: a tenth from the one after epoch E // 2 + 1."""
    h = hyper.resolve()
    return [h.lr * (0.1 if epoch > h.epochs // 2 + 1 else 1.0) for epoch in range(h.epochs + 1)]


def train(
    network: nn.Module,
    images: Float[Tensor, "n c h w"],
    labels: Int[Tensor, " n"],
    hyper: Training,
    *,
    seed: int,
    forward: Callable[[Tensor], Tensor] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[float]:
    """Train a network in place on a small set and return the mean loss of each epoch.

    Args:
        network: with fresh weights, on the images' device.
        images: normalised.
        labels: their classes.
        hyper: the hyper-parameters of stage T.
        seed: of shuffling and augmentation.
        forward: a compiled form of the network, if any.
        should_stop: asked before each epoch; True raises.

    Raises:
        Interrupted: `should_stop` said so.
    """
    h, forward, rates = hyper.resolve(), network if forward is None else forward, schedule(hyper)
    shuffle, augmentation = generator(seed, "shuffle"), generator(seed, "augment")
    losses, lr = [], None
    network.train()
    for rate in rates:
        if should_stop():
            raise Interrupted(STOPPED)
        if rate != lr:  # a fresh optimiser: the momentum starts again from zero
            optimiser = sgd(network, rate, h)
            lr = rate
        losses.append(_epoch(forward, optimiser, images, labels, h, shuffle, augmentation))
    return torch.stack(losses).tolist()


def sgd(network: nn.Module, lr: float, hyper: Training) -> torch.optim.SGD:
    """The optimiser of stage T."""
    return torch.optim.SGD(network.parameters(), lr=lr, momentum=hyper.momentum, weight_decay=hyper.weight_decay, fused=True)


def _epoch(
    forward: Callable[[Tensor], Tensor],
    optimiser: torch.optim.Optimizer,
    images: Tensor,
    labels: Tensor,
    hyper: Training,
    shuffle: torch.Generator,
    augmentation: torch.Generator,
) -> Float[Tensor, ""]:
    """One pass over the set; a set that fits into one batch needs no shuffling."""
    parts = [torch.arange(len(images))]
    if len(images) > hyper.batch:
        parts = list(torch.randperm(len(images), generator=shuffle).split(hyper.batch))
    total = images.new_zeros(())
    for part in parts:
        x = augment(images[part], hyper.operations, augmentation) if hyper.operations else images[part]
        optimiser.zero_grad(set_to_none=True)
        loss = F.cross_entropy(forward(x), labels[part])
        loss.backward()
        optimiser.step()
        total += loss.detach() * len(part)
    return total / len(images)


@torch.inference_mode()
def accuracy(network: nn.Module, dataset: Dataset, dtype: torch.dtype = torch.float32) -> float:
    """The share of test images classified rightly, in percent."""
    network.eval()
    right, size = 0, TEST_BATCH[dataset.x_test.device.type]
    for x, y in zip(dataset.x_test.split(size), dataset.y_test.split(size), strict=True):
        right += int((network(dataset.normalise(x).to(dtype)).argmax(1) == y).sum())
    return 100.0 * right / len(dataset.y_test)


def work(hyper: Training, networks: int, images: int) -> int:
    """How many passes of some ten images each the trainings take: what compiling saves time on."""
    return networks * (hyper.resolve().epochs + 1) * max(1, images // 10)


def evaluate(
    images: Float[Tensor, "n c h w"],
    labels: Int[Tensor, " n"],
    dataset: Dataset,
    hyper: Training,
    *,
    seeds: Iterable[int],
    **how: Any,
) -> list[float]:
    """Train one network for each seed on one set and return their test accuracies in percent.

    Args:
        images: normalised with the data set's mean and standard deviation.
        labels: their classes.
        dataset, hyper, how: as for `evaluate_each`.
        seeds: one for each network.

    Raises:
        DataError: the images do not have the shape of the data set's.
        Interrupted: `should_stop` said so.
    """
    seeds = list(seeds)
    return evaluate_each([(images, labels)] * len(seeds), dataset, hyper, seeds=seeds, **how)


def evaluate_each(
    small: Sequence[Small],
    dataset: Dataset,
    hyper: Training,
    *,
    seeds: Sequence[int],
    several: bool | None = None,
    device: str = "auto",
    engine: str = "auto",
    on_network: Callable[[int, float, float], None] = lambda seed, accuracy, seconds: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[float]:
    """Train one network on each of several sets, side by side, and return their test accuracies in percent.

    Args:
        small: the sets, all with as many images; for several networks on one, it is given as often.
        dataset: whose test images are classified.
        hyper: the hyper-parameters of stage T.
        seeds: one for each set.
        several: whether to train as if side by side with others; by default, if there are several seeds. A network trained later
            than its companions is then, on a CPU, the same to the last bit.
        device: "auto", "cpu", "cuda" …
        engine: "auto", "eager", "compiled" or "captured".
        on_network: called with each seed, accuracy and the seconds that the network took, or its share of those it took together
            with others.
        should_stop: asked before each epoch.

    Raises:
        DataError: the images do not have the shape of the data set's.
        SpecError: a network of the user's own cannot be used (see `trial`).
        Interrupted: `should_stop` said so.
    """
    h, where, theirs = hyper.resolve(), engines.resolve_device(device), tuple(dataset.x_test.shape[1:])
    if wrong := [tuple(x.shape[1:]) for x, _ in small if tuple(x.shape[1:]) != theirs]:
        raise DataError(f"the set's images have shape {wrong[0]} and those of {dataset.name} {theirs}")
    trial.check(h.network, dataset, h.precision)
    small = [(x.to(where, engines.dtype(h.precision)), y.to(where)) for x, y in small]
    chosen = engines.choose(engine, where, sum(work(h, 1, len(y)) for _, y in small))
    with engines.arithmetic(h.precision, where):
        given, accuracies = (small, dataset.to(where), h, seeds, should_stop), []
        beside = lanes.count(where) if (len(seeds) > 1 if several is None else several) else 1
        for seed, found, seconds in _together(*given) if chosen == "captured" else _side_by_side(*given, chosen, beside):
            accuracies.append(found)
            on_network(seed, found, seconds)
        return accuracies


def draw(network: Network, dataset: Dataset, seed: int, like: Tensor) -> nn.Module:
    """The network of that seed for a data set, with fresh weights, where and in the precision that `like` is."""
    return networks.build(network, **dataset.shape, seed=generator(seed, "weights").initial_seed()).to(like)


def _side_by_side(
    small: Sequence[Small],
    dataset: Dataset,
    h: Training,
    seeds: Sequence[int],
    should_stop: Callable[[], bool],
    engine: str,
    beside: int,
) -> Iterator[Tested]:
    """So many networks at a time; a lane keeps its module."""
    own, given_up = threading.local(), threading.Event()

    def one(item: tuple[Small, int]) -> Tested:
        start, ((images, labels), seed) = time.perf_counter(), item
        if not hasattr(own, "network"):
            own.network = draw(h.network, dataset, 0, images)
            own.forward = engines.prepare(own.network, engine, h.precision)
        own.network.load_state_dict(draw(h.network, dataset, seed, images).state_dict())
        stop = lambda: given_up.is_set() or should_stop()  # noqa: E731
        train(own.network, images, labels, h, seed=seed, forward=own.forward, should_stop=stop)
        found = accuracy(own.network, dataset, images.dtype)
        return seed, found, (time.perf_counter() - start) / min(beside, len(seeds))

    yield from lanes.each(one, zip(small, seeds, strict=True), beside, given_up.set)


def _together(
    small: Sequence[Small], dataset: Dataset, h: Training, seeds: Sequence[int], should_stop: Callable[[], bool]
) -> Iterator[Tested]:
    network, rates = draw(h.network, dataset, 0, small[0][0]), schedule(h)
    for part in (slice(i, i + TOGETHER) for i in range(0, len(seeds), TOGETHER)):
        start, some = time.perf_counter(), seeds[part]
        images, labels = (torch.stack(tensors) for tensors in zip(*small[part], strict=True))
        drawn = [draw(h.network, dataset, seed, images) for seed in some]
        capture = images.device.type == "cuda"
        stack = train_together(drawn, images, labels, h, rates, seeds=some, capture=capture, should_stop=should_stop)
        share = (time.perf_counter() - start) / len(some)
        for j, seed in enumerate(some):
            start = time.perf_counter()
            network.load_state_dict(stack.unstack(j))
            yield seed, accuracy(network, dataset, images.dtype), share + time.perf_counter() - start
