"""How much a run computes: its floating-point operations, counted from its hyper-parameters without computing anything.

Convolutions and matrix products are counted, by torch; norms, activations, pooling and augmentation are not. A backward pass
counts twice the forward one, and a synthetic image's second derivative as so many passes as its time takes. torch is loaded when
something is counted.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from ..data.sources import KNOWN
from ..spec import MakeSet, TrainNetworks, WholeTraining
from ..spec.applications import LearnTasks, TrainCandidate
from ..spec.architectures import FAMILIES, Network
from ..spec.baselines import GanTraining, TrainGan
from ..spec.keys import Run

TRAINING = 3  # forward passes in the time of one with its backward pass
SECOND = 13  # and of a synthetic image's gradient through the gradient: its time in the notebook `speed`, in these units
SIDES = {"digits": 28, "mnist": 28, "fashionmnist": 28, "usps": 16}  # of images, in pixels; of the others 32
UNCOUNTED = {"norm": "none", "activation": "relu"}  # options that change no count
Work = tuple[Network | None, int]  # the network on which a run spends its time, and the run's operations


def forward(network: Network, channels: int, side: int, classes: int) -> int:
    """The operations of one image's forward pass; a multiplication and an addition are two.

    Args:
        network: without "auto" options.
        channels, side: of the images, the latter in pixels.
        classes: how many.
    """
    options = {name: UNCOUNTED.get(name, network[name]) for name in FAMILIES[network.family]}
    return _forward(Network.make(network.family, **options), channels, side, classes)


@cache
def _forward(network: Network, channels: int, side: int, classes: int) -> int:
    from ..core.networks import construct

    return _counted(lambda: construct(network, (channels, side, side), classes), (1, channels, side, side))


@cache
def gan_forward(hyper: GanTraining, channels: int, side: int, classes: int) -> tuple[int, int]:
    """The operations of one image in the generator and in the discriminator."""
    from ..methods.gan import Discriminator, Generator

    about = hyper, channels, classes, (side, side)
    generator = _counted(lambda: Generator(*about), (1, hyper.latent), labelled=True)
    return generator, _counted(lambda: Discriminator(*about), (1, channels, side, side), labelled=True)


def _counted(build: Callable[[], Any], shape: tuple[int, ...], labelled: bool = False) -> int:
    """What torch counts in a forward pass, on tensors without data."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"), torch.no_grad():
        model, labels = build().eval(), [torch.zeros(1, dtype=torch.int64)] if labelled else []
        with FlopCounterMode(display=False) as counter:
            model(torch.zeros(shape), *labels)
    return counter.get_total_flops()


def shape_of(dataset: str, image_size: int = 0, channels: int = 0) -> tuple[int, int, int]:
    """Channels, side and classes of a known data set, or of a view of one."""
    name = dataset.partition("+")[0]
    known = KNOWN[name]
    return channels or known.channels, image_size or SIDES.get(name, 32), len(known.classes)


def _counts(dataset: str) -> tuple[int, int]:
    return KNOWN[dataset.partition("+")[0]].counts


def _pass(run: MakeSet | WholeTraining, network: Network, stage: str = "train") -> int:
    return forward(network.resolve(stage), *shape_of(run.dataset, run.image_size, run.channels))


def flop(run: Run) -> int:
    """The operations of a run, without those of the runs it needs; of a run of several networks, those of one."""
    return WORK[type(run)](run)[1]


def about(run: Run) -> dict[str, Any]:
    """Return a run's kind, the family of the network on which it spends its time, its operations, and the bytes of its images."""
    network, operations = WORK[type(run)](run)
    found = {"kind": type(run).__name__, "family": network.family if network else "", "flop": operations, "bytes": 0}
    if run.leaves in ("indices", "sets"):
        found["kind"] = run.method
    if run.leaves == "sets":
        channels, side, classes = shape_of(run.dataset, run.image_size, run.channels)
        found["bytes"] = 4 * channels * side**2 * classes * run.hyper.ipc
    return found


def _make_set(run: MakeSet) -> Work:
    (train, _), (_, _, classes) = _counts(run.dataset), shape_of(run.dataset)
    if run.method == "distill":
        h = run.distillation
        steps = h.unrolled_steps * SECOND * (h.ipc // h.batches) * classes
        passes = h.epochs * math.ceil(train / h.batch) * (steps + TRAINING * h.batch)
        return h.network, passes * _pass(run, h.network, "condense")
    if run.method == "condense":
        h, n = run.hyper.resolve(), run.hyper.ipc * classes
        real, n = min(h.real_batch * classes, train), n * h.factor**2
        first, second = (TRAINING, SECOND) if h.objective == "gradient" else (1, TRAINING)
        update = h.image_steps * (first * real + second * n)
        training = h.network_epochs * TRAINING * n
        passes = h.outer_steps * (h.inner_steps * update + (h.inner_steps - 1) * training)
        return h.network, passes * _pass(run, h.network, "condense")
    if run.whole is None:
        return None, 0
    return run.whole.network, train * _pass(run, run.whole.network) if run.method != "forgetting" else 0


def _train_networks(run: TrainNetworks) -> Work:
    (_, test), (_, _, classes), network = _counts(run.set.dataset), shape_of(run.set.dataset), run.hyper.network
    factor = getattr(run.set.settings, "factor", run.set.hyper.factor)
    passes = (run.hyper.resolve().epochs + 1) * TRAINING * run.set.hyper.ipc * factor**2 * classes
    if run.way == "rates":
        h = run.set.distillation
        passes = h.unrolled_steps * TRAINING * (h.ipc // h.batches) * classes
    return network, (passes + test) * _pass(run.set, network)


def _train_whole(run: WholeTraining) -> Work:
    train, test = _counts(run.dataset)
    return run.network, run.epochs * (TRAINING * (train - run.held_out) + test) * _pass(run, run.network)


def _train_gan(run: TrainGan) -> Work:
    channels, side, classes = shape_of(run.dataset, run.image_size)
    generator, discriminator = gan_forward(run.hyper, channels, side, classes)
    images = generator + 2 * TRAINING * discriminator + TRAINING * (generator + discriminator)
    return None, run.hyper.steps * run.hyper.batch * images


def _learn_tasks(run: LearnTasks) -> Work:
    h, (channels, side, classes) = run.hyper, shape_of(run.tasks[0], run.image_size, run.channels)
    passes, later = TRAINING + bool(h.distillation), len(run.tasks) - 1
    first = TRAINING * (h == h.unremembered)  # all memories begin from there: it is learnt once
    steps = (h.iterations * (first + later * passes) + h.finetuning * later * passes) * h.batch
    tests = h.test_images * len(run.tasks) * (len(run.tasks) + 1) // 2
    return h.network, (steps + tests) * forward(h.network.resolve("train"), channels, side, classes)


def _train_candidate(run: TrainCandidate) -> Work:
    images = _images(run) + run.tested * _counts(run.dataset)[1]
    return run.network, images * forward(run.network.resolve("train"), *shape_of(run.dataset))


def _images(run: TrainCandidate) -> int:
    return run.hyper.steps * TRAINING * run.hyper.batch + run.held_out


def size(run: TrainCandidate) -> int:
    """How much a candidate's training takes beside another's, whatever their images: colours at 32 pixels stand for all."""
    return _images(run) * forward(run.network.resolve("train"), 3, 32, 10)


WORK: dict[type[Run], Callable[[Any], Work]] = {
    MakeSet: _make_set,
    TrainNetworks: _train_networks,
    WholeTraining: _train_whole,
    TrainGan: _train_gan,
    LearnTasks: _learn_tasks,
    TrainCandidate: _train_candidate,
}
