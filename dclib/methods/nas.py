"""Architecture search (the paper's Sec. 3.2 and appendix A, Table 4, Fig. F1): many ConvNets are trained briefly and ranked.

A candidate is trained on a small set that stands for the whole one, or for as many steps on the whole one (early stopping), and
validated on training images that no training sees; `results.ranking` compares its rank with that of a training on the whole set.
The networks of one architecture are trained one by one on a CPU, and on a GPU side by side, their parameters stacked. A network
whose weights become NaN is no error here: it ranks low.
"""

import time
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..core import engine as engines
from ..core.stacked import STOPPED, TOGETHER, Descent, Stack
from ..core.train import accuracy, draw
from ..data.dataset import Dataset, generator
from ..errors import DataError, Interrupted
from ..spec import Network
from ..spec.applications import ShortTraining
from . import epochs


def pool(dataset: Dataset, count: int = 0) -> tuple[Float[Tensor, "n c h w"], Int[Tensor, " n"]]:
    """Return `count` training images, normalised, and their labels; the draw is always the same, and 0 takes all.

    Raises:
        DataError: there are fewer.
    """
    n = len(dataset.y_train)
    if count > n:
        raise DataError(f"{dataset.name} has {n} images to train on, fewer than the {count} asked for: lower images")
    some = torch.arange(n) if not count else torch.randperm(n, generator=generator(0, "pool"))[:count].sort().values
    some = some.to(dataset.y_train.device)
    return dataset.normalise(dataset.x_train[some]), dataset.y_train[some]


def batches(count: int, hyper: ShortTraining, seed: int) -> Iterator[Int[Tensor, " b"]]:
    """Yield each step's batch, as indices below `count`: epoch after epoch in random order, without the rest of an epoch."""
    shuffle, each = generator(seed, "shuffle"), epochs.steps_of_epoch(count, hyper.batch, rest=False)
    for step in range(hyper.steps):
        if step % each == 0:
            order = torch.randperm(count, generator=shuffle) if count > hyper.batch else torch.arange(count)
        yield order.split(hyper.batch)[step % each]


def train_alone(
    network: nn.Module,
    images: Float[Tensor, "n c h w"],
    labels: Int[Tensor, " n"],
    hyper: ShortTraining,
    seed: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Train a network in place.

    Args:
        network: with fresh weights, on the images' device.
        images, labels: to train on; the images normalised.
        hyper: the hyper-parameters.
        seed: of the order of the images.
        should_stop: asked before each step; True raises.

    Raises:
        Interrupted: `should_stop` returned True.
    """
    network.train()
    parameters = list(network.parameters())
    velocity, lr = [torch.zeros_like(p) for p in parameters], hyper.lr
    for rate, part in zip(hyper.rates, batches(len(images), hyper, seed), strict=True):
        if should_stop():
            raise Interrupted(STOPPED)
        if rate != lr:  # the momentum starts at zero again, as in stage T
            torch._foreach_zero_(velocity)
            lr = rate
        loss = F.cross_entropy(network(images[part]), labels[part])
        gradients = torch.autograd.grad(loss, parameters)
        engines.descend(parameters, velocity, gradients, rate, hyper.momentum, hyper.weight_decay)


def train_together(
    drawn: Sequence[nn.Module],
    images: Float[Tensor, "n c h w"],
    labels: Int[Tensor, " n"],
    hyper: ShortTraining,
    seeds: Sequence[int],
    *,
    capture: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
) -> Stack:
    """Train networks of one architecture side by side, each as `train_alone` does, and return them stacked.

    Args:
        drawn: with fresh weights, on the images' device.
        images, labels, hyper, should_stop: as for `train_alone`.
        seeds: one for each network.
        capture: whether to replay steps as CUDA graphs.
    """
    stack = Stack(drawn)
    descent = Descent(stack, hyper, capture)
    orders = [batches(len(images), hyper, seed) for seed in seeds]
    for rate, *parts in zip(hyper.rates, *orders, strict=True):
        if should_stop():
            raise Interrupted(STOPPED)
        part = torch.stack(parts).to(images.device)
        descent(rate, images[part], labels[part])
    return stack


def evaluate(
    network: Network,
    images: Float[Tensor, "n c h w"],
    labels: Int[Tensor, " n"],
    tests: Sequence[Dataset],
    hyper: ShortTraining,
    *,
    seeds: Sequence[int],
    device: str = "auto",
    engine: str = "auto",
    on_network: Callable[[int, tuple[float, ...], float], None] = lambda seed, accuracies, seconds: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[tuple[float, ...]]:
    """Train one network of an architecture for each seed and return the accuracies of each in percent.

    Args:
        network: the architecture.
        images: normalised as the data sets tested on.
        labels: their classes.
        tests: data sets whose test images are classified, one accuracy for each.
        hyper: the hyper-parameters.
        seeds: one for each network.
        device: "auto", "cpu", "cuda" …
        engine: "captured", or "auto" on a GPU, trains them side by side; any other one by one, uncompiled.
        on_network: called with each seed, its accuracies and the seconds that training it and the first test took.
        should_stop: asked before each step.

    Raises:
        SpecError: the images are too small for the architecture.
        Interrupted: `should_stop` returned True; `on_network` was called for the networks that are done.
    """
    where, found = engines.resolve_device(device), []
    images, labels, tests = images.to(where), labels.to(where), [test.to(where) for test in tests]
    together = TOGETHER if engines.choose(engine, where, 0) == "captured" else 1
    capture, how = where.type == "cuda", (images, labels, hyper)
    with engines.arithmetic("float32", where):
        for some in (seeds[i : i + together] for i in range(0, len(seeds), together)):
            start = time.perf_counter()
            models = [draw(network, tests[0], seed, images) for seed in some]
            if together == 1:
                train_alone(*models, *how, *some, should_stop)
            else:
                stack = train_together(models, *how, some, capture=capture, should_stop=should_stop)
                for j, model in enumerate(models):
                    model.load_state_dict(stack.unstack(j))
            for seed, model in zip(some, models, strict=True):
                first, seconds = accuracy(model, tests[0]), time.perf_counter() - start
                found.append((first, *(accuracy(model, test) for test in tests[1:])))
                on_network(seed, found[-1], seconds)
                start = time.perf_counter()
    return found
