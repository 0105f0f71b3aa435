"""How much a run computes: its floating-point operations, counted from its hyper-parameters without computing anything.

Convolutions and matrix products are counted, exactly as torch counts them; norms, activations, pooling and augmentation are not.
A backward pass counts twice the forward one, and a synthetic image's second derivative as so many passes as its time takes.
"""

import math
from functools import cache
from itertools import pairwise

from ..data.sources import KNOWN
from ..spec import MakeSet, TrainNetworks, WholeTraining
from ..spec.applications import LearnTasks, TrainCandidate
from ..spec.architectures import Network
from ..spec.baselines import GanTraining, TrainGan
from ..spec.keys import Run

TRAINING = 3  # forward passes in the time of one with its backward pass
SECOND = 13  # and of a synthetic image's gradient through the gradient: its time in the notebook `speed`, in these units
SIDES = {"digits": 28, "mnist": 28, "fashionmnist": 28, "usps": 16}  # of images, in pixels; of the others 32


class _Layers:
    """Counts the operations of layers in a row, as `networks` stacks them."""

    def __init__(self, channels: int, side: int):
        self.channels, self.side, self.flop = channels, side, 0

    def conv(self, out: int, kernel: int, padding: int, stride: int = 1) -> "_Layers":
        self.side = (self.side + 2 * padding - kernel) // stride + 1
        self.flop += 2 * self.channels * out * kernel**2 * self.side**2
        self.channels = out
        return self

    def pool(self, kernel: int = 2, stride: int = 2, padding: int = 0) -> "_Layers":
        self.side = (self.side + 2 * padding - kernel) // stride + 1
        return self

    def linear(self, out: int) -> "_Layers":
        self.flop += 2 * self.channels * self.side**2 * out
        self.channels, self.side = out, 1
        return self


def _mlp(net: Network, layers: _Layers, grey: bool) -> None:
    for _ in range(net["depth"]):
        layers.linear(net["width"])


def _convnet(net: Network, layers: _Layers, grey: bool) -> None:
    for block in range(net["depth"]):
        layers.conv(net["width"], 3, 3 if grey and not block else 1)
        if net["pooling"] != "none":
            layers.pool()


def _lenet(net: Network, layers: _Layers, grey: bool) -> None:
    layers.conv(6, 5, 2 if grey else 0).pool().conv(16, 5, 0).pool().linear(120).linear(84)


def _alexnet(net: Network, layers: _Layers, grey: bool) -> None:
    layers.conv(128, 5, 4 if grey else 2).pool().conv(192, 5, 2).pool().conv(256, 3, 1).conv(192, 3, 1).conv(192, 3, 1).pool()


def _vgg11(net: Network, layers: _Layers, grey: bool) -> None:
    layers.conv(64, 3, 3 if grey else 1).pool().conv(128, 3, 1).pool()
    for out in (256, 512, 512):
        layers.conv(out, 3, 1).conv(out, 3, 1).pool()


def _alexcifarnet(net: Network, layers: _Layers, grey: bool) -> None:
    layers.conv(64, 5, 2).pool(3, 2, 1).conv(64, 5, 2).pool(3, 2, 1).linear(384).linear(192)


def _resnet18(net: Network, layers: _Layers, grey: bool) -> None:
    strided = net["downsampling"] == "stride"
    layers.conv(64, 3, 1)
    for out in (64, 128, 256, 512):
        if out == 64:
            layers.conv(out, 3, 1).conv(out, 3, 1)
        else:
            shortcut = _Layers(layers.channels, layers.side).conv(out, 1, 0, 2 if strided else 1)
            layers.conv(out, 3, 1, 2 if strided else 1)
            layers = layers if strided else layers.pool()
            layers.conv(out, 3, 1).flop += shortcut.flop
        layers.conv(out, 3, 1).conv(out, 3, 1)
    layers.side = 1 if strided else layers.side


COUNTS = {"MLP": _mlp, "ConvNet": _convnet, "LeNet": _lenet, "AlexNet": _alexnet, "VGG11": _vgg11, "ResNet18": _resnet18}
COUNTS["AlexCifarNet"] = _alexcifarnet


@cache
def forward(network: Network, channels: int, side: int, classes: int) -> int:
    """The operations of one image's forward pass; a multiplication and an addition are two.

    Args:
        network: without "auto" options.
        channels, side: of the images, the latter in pixels.
        classes: how many.
    """
    layers = _Layers(channels, side)
    COUNTS[network.family](network, layers, channels == 1)
    return layers.linear(classes).flop


def shape_of(dataset: str, image_size: int = 0, channels: int = 0) -> tuple[int, int, int]:
    """Channels, side and classes of a known data set, or of a view of one."""
    name = dataset.partition("+")[0]
    known = KNOWN[name]
    return channels or known.channels, image_size or SIDES.get(name, 32), len(known.classes)


def _counts(dataset: str) -> tuple[int, int]:
    return KNOWN[dataset.partition("+")[0]].counts


def _forward(run: MakeSet | WholeTraining, network: Network, stage: str = "train") -> int:
    return forward(network.resolve(stage), *shape_of(run.dataset, run.image_size, run.channels))


def flop(run: Run) -> int:
    """The operations of a run, without those of the runs it needs; of a run of several networks, those of one."""
    return FLOP[type(run)](run)


def _make_set(run: MakeSet) -> int:
    (train, _), (_, _, classes) = _counts(run.dataset), shape_of(run.dataset)
    if run.method == "distill":
        h = run.distillation
        steps = h.unrolled_steps * SECOND * (h.ipc // h.batches) * classes
        return h.epochs * math.ceil(train / h.batch) * (steps + TRAINING * h.batch) * _forward(run, h.network, "condense")
    if run.method == "condense":
        h, n = run.hyper.resolve(), run.hyper.ipc * classes
        real = min(h.real_batch * classes, train)
        update = h.image_steps * (TRAINING * real + SECOND * n)
        training = h.network_epochs * TRAINING * n
        passes = h.outer_steps * (h.inner_steps * update + (h.inner_steps - 1) * training)
        return passes * _forward(run, h.network, "condense")
    return train * _forward(run, run.whole.network) if run.method in ("herding", "k-center") else 0


def _train_networks(run: TrainNetworks) -> int:
    (_, test), (_, _, classes), one = _counts(run.set.dataset), shape_of(run.set.dataset), _forward(run.set, run.hyper.network)
    if run.way == "rates":
        h = run.set.distillation
        return (h.unrolled_steps * TRAINING * (h.ipc // h.batches) * classes + test) * one
    return ((run.hyper.resolve().epochs + 1) * TRAINING * run.set.hyper.ipc * classes + test) * one


def _train_whole(run: WholeTraining) -> int:
    train, test = _counts(run.dataset)
    return run.epochs * (TRAINING * (train - run.held_out) + test) * _forward(run, run.network)


def _train_gan(run: TrainGan) -> int:
    channels, side, classes = shape_of(run.dataset, run.image_size)
    generator, discriminator = _gan(run.hyper, channels, side, classes)
    images = generator + 2 * TRAINING * discriminator + TRAINING * (generator + discriminator)
    return run.hyper.steps * run.hyper.batch * images


def _gan(h: GanTraining, channels: int, side: int, classes: int) -> tuple[int, int]:
    """The operations of one image in the generator and in the discriminator."""
    w = h.generator_width
    generator = 2 * (h.latent + h.label_width) * w * side**2 // 16
    generator += 18 * (w * w * side**2 // 4 + w * (w // 2) * side**2 + (w // 2) * channels * side**2)
    layers, d = _Layers(channels + classes, side), h.discriminator_width
    for _, out in pairwise((0, d, 2 * d, 4 * d)):
        layers.conv(out, 3, 1, 2)
    return generator, layers.linear(1).flop


def _learn_tasks(run: LearnTasks) -> int:
    h, (channels, side, classes) = run.hyper, shape_of(run.tasks[0], run.image_size, run.channels)
    passes, later = TRAINING + bool(h.distillation), len(run.tasks) - 1
    first = TRAINING * (h == h.unremembered)  # all memories begin from there: it is learnt once
    steps = (h.iterations * (first + later * passes) + h.finetuning * later * passes) * h.batch
    tests = h.test_images * len(run.tasks) * (len(run.tasks) + 1) // 2
    return (steps + tests) * forward(h.network.resolve("train"), channels, side, classes)


def _train_candidate(run: TrainCandidate) -> int:
    tests = run.tested * _counts(run.dataset)[1]
    return (_images(run) + tests) * forward(run.network.resolve("train"), *shape_of(run.dataset))


def _images(run: TrainCandidate) -> int:
    return run.hyper.steps * TRAINING * run.hyper.batch + run.held_out


def size(run: TrainCandidate) -> int:
    """How much a candidate's training takes beside another's, whatever their images: colours at 32 pixels stand for all."""
    return _images(run) * forward(run.network.resolve("train"), 3, 32, 10)


FLOP = {
    MakeSet: _make_set,
    TrainNetworks: _train_networks,
    WholeTraining: _train_whole,
    TrainGan: _train_gan,
    LearnTasks: _learn_tasks,
    TrainCandidate: _train_candidate,
}
