"""Stage T: train networks from scratch on a small set and test them on the real test images (appendix A; PROTOCOL of the book).

On a CPU several networks are trained side by side (see `lanes`), on a GPU they are stacked (see `stacked`). One module serves one
network after another, with weights drawn from each one's seed, so that it is compiled once.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence

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

Labels = Int[Tensor, " n"] | Float[Tensor, "n classes"]  # classes, or soft labels: the probability of each class
Small = tuple[Float[Tensor, "n c h w"], Labels]  # a set: normalised images and their labels
Tested = tuple[int, float, float]  # a network's seed, its accuracy in percent, its seconds
TEST_BATCH = {"cpu": 25, "cuda": 2500}  # images tested at a time; on a CPU so few that feature maps stay in the cache


def schedule(hyper: Training) -> list[float]:
    """Return the learning rate of each of the E + 1 epochs: a tenth from the one after epoch E // 2 + 1.

    Args:
        hyper: resolved hyper-parameters.
    """
    return [hyper.lr * (0.1 if epoch > hyper.epochs // 2 + 1 else 1.0) for epoch in range(hyper.epochs + 1)]


def train(
    network: nn.Module,
    images: Float[Tensor, "n c h w"],
    labels: Labels,
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
        labels: their classes, or their soft labels.
        hyper: resolved hyper-parameters of stage T.
        seed: of shuffling and augmentation.
        forward: a compiled form of the network, if there is one.
        should_stop: asked before each epoch; True raises.

    Raises:
        Interrupted: `should_stop` returned True.
    """
    forward, losses, last = network if forward is None else forward, [], None
    shuffle, augmentation = generator(seed, "shuffle"), generator(seed, "augment")
    rule = dict(weight_decay=hyper.weight_decay, fused=True) | ({"momentum": hyper.momentum} if hyper.optimizer == "sgd" else {})
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[hyper.optimizer]
    network.train()
    for rate in schedule(hyper):
        if should_stop():
            raise Interrupted(STOPPED)
        if rate != last:  # a fresh optimiser, so that the momentum starts from zero
            optimiser, last = kind(network.parameters(), lr=rate, **rule), rate
        total = images.new_zeros(())
        for part in _batches(len(images), hyper.batch, shuffle):
            x = augment(images[part], hyper.operations, augmentation)
            loss = F.cross_entropy(forward(x), labels[part])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.detach() * len(part)
        losses.append(total / len(images))
    return torch.stack(losses).tolist()


def _batches(count: int, size: int, shuffle: torch.Generator) -> Sequence[Int[Tensor, " b"]]:
    """The batches of one epoch; a set that fits into one batch needs no shuffling."""
    return torch.randperm(count, generator=shuffle).split(size) if count > size else [torch.arange(count)]


@torch.inference_mode()
def accuracy(network: nn.Module, dataset: Dataset, dtype: torch.dtype = torch.float32) -> float:
    """The share of test images classified rightly, in percent."""
    return 100.0 * int((predictions(network, dataset, dtype) == dataset.y_test).sum()) / len(dataset.y_test)


@torch.inference_mode()
def predictions(network: nn.Module, dataset: Dataset, dtype: torch.dtype = torch.float32) -> Int[Tensor, " m"]:
    """The class of each test image, as the network tells it."""
    network.eval()
    size = TEST_BATCH[dataset.x_test.device.type]
    return torch.cat([network(dataset.normalise(x).to(dtype)).argmax(1) for x in dataset.x_test.split(size)])


def confusion(network: nn.Module, dataset: Dataset, dtype: torch.dtype = torch.float32) -> Int[Tensor, "classes classes"]:
    """How many test images of each class (row) the network takes for each class (column)."""
    pairs = dataset.y_test * dataset.classes + predictions(network, dataset, dtype)
    return pairs.bincount(minlength=dataset.classes**2).view(dataset.classes, dataset.classes).cpu()


def work(hyper: Training, networks: int, images: int) -> int:
    """How many passes of ten images through a network the trainings take, by which `engine.choose` decides."""
    return networks * (hyper.resolve().epochs + 1) * max(1, images // 10)


def evaluate(
    images: Float[Tensor, "*each n c h w"],
    labels: Int[Tensor, "*each n"] | Float[Tensor, "*each n classes"],
    dataset: Dataset,
    hyper: Training,
    *,
    seeds: Sequence[int],
    several: bool | None = None,
    device: str = "auto",
    engine: str = "auto",
    on_network: Callable[[int, float, float], None] = lambda seed, accuracy, seconds: None,
    should_stop: Callable[[], bool] = lambda: False,
    look: Callable[[nn.Module], None] = lambda network: None,
) -> list[float]:
    """Train one network for each seed on a small set, and test them.

    Args:
        images: of one set for all seeds, or of one set for each, stacked; normalised as the data set's.
        labels: their classes, or their soft labels.
        dataset: whose test images are classified.
        hyper: the hyper-parameters of stage T.
        seeds: one for each network.
        several: use the parallel code path even for one network, so that on a CPU its bits match those of a network trained
            beside others; by default only for several seeds.
        device: "auto", "cpu", "cuda" or "cuda:1".
        engine: "auto", "eager", "compiled" or "captured".
        on_network: called with each seed, its accuracy, and its seconds or its share of the seconds spent on several networks.
        should_stop: asked before each epoch.
        look: called with each trained network, in any thread; the module is used again for others.

    Returns:
        The networks' test accuracies in percent.

    Raises:
        DataError: the images do not have the shape of the data set's.
        SpecError: a user's network cannot be used (see `trial`).
        Interrupted: `should_stop` returned True.
    """
    h, where, theirs = hyper.resolve(), engines.resolve_device(device), tuple(dataset.x_test.shape[1:])
    if (ours := tuple(images.shape[-3:])) != theirs:
        raise DataError(f"the set's images have shape {ours} and those of {dataset.name} {theirs}")
    trial.check(h.network, dataset, h.precision)
    x, y = images.to(where, engines.dtype(h.precision)), labels.to(where)
    y = y.to(x.dtype) if y.is_floating_point() else y
    small = list(zip(x, y, strict=True)) if x.ndim == 5 else [(x, y)] * len(seeds)
    chosen = engines.choose(engine, where, work(h, len(seeds), images.shape[-4]))
    with engines.arithmetic(h.precision, where):
        given, accuracies = (small, dataset.to(where), h, seeds, should_stop, look), []
        beside = lanes.count(where) if (len(seeds) > 1 if several is None else several) else 1
        stacks = chosen == "captured" and h.optimizer == "sgd"
        for seed, found, seconds in _stacked(*given) if stacks else _side_by_side(*given, chosen, beside):
            accuracies.append(found)
            on_network(seed, found, seconds)
        return accuracies


def draw(network: Network, dataset: Dataset, seed: int, like: Tensor) -> nn.Module:
    """Build the network of a seed for a data set, on the device and in the precision of `like`."""
    return networks.build(network, **dataset.shape, seed=generator(seed, "weights").initial_seed()).to(like)


def _side_by_side(
    small: Sequence[Small],
    dataset: Dataset,
    h: Training,
    seeds: Sequence[int],
    should_stop: Callable[[], bool],
    look: Callable[[nn.Module], None],
    engine: str,
    beside: int,
) -> Iterator[Tested]:
    """Train `beside` networks at a time, each lane with a module of its own."""
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
        look(own.network)
        return seed, found, (time.perf_counter() - start) / min(beside, len(seeds))

    yield from lanes.each(one, zip(small, seeds, strict=True), beside, given_up.set)


def _stacked(
    small: Sequence[Small],
    dataset: Dataset,
    h: Training,
    seeds: Sequence[int],
    should_stop: Callable[[], bool],
    look: Callable[[nn.Module], None],
) -> Iterator[Tested]:
    """Train `TOGETHER` networks at a time, stacked, and test them one by one."""
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
            look(network)
            yield seed, accuracy(network, dataset, images.dtype), share + time.perf_counter() - start
