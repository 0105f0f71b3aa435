"""The networks of the paper (Sec. 3, appendix A), AlexCifarNet (Wang et al., 2018), and users' own networks.

`build` turns a `spec.Network` into a module for given channels, classes and image size. Our networks can be differentiated twice
and mapped by `torch.func.vmap`: no operation works in place, and layer norm is our own. The `forward`s opt out of the tests' type
checker, which `torch.compile` cannot trace.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import no_type_check

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ..errors import DclibError, SpecError, first_line
from ..spec import FAMILIES, Network, OwnNetwork

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"sigmoid": nn.Sigmoid, "relu": nn.ReLU, "leakyrelu": lambda: nn.LeakyReLU(0.01)}
GROUPS = 4  # of group norm

_alone = threading.Lock()  # torch has one default generator for all threads


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let torch draw from `seed` on the CPU, one thread at a time, and put its default generator back afterwards."""
    with _alone, torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the accelerators too
        yield


class Classifier(nn.Module):
    """Maps images to logits: `features`, all layers up to the penultimate one, then `classifier`, the last linear layer."""

    def __init__(self, features: nn.Sequential, classifier: nn.Linear) -> None:
        super().__init__()
        self.features, self.classifier = features, classifier

    @no_type_check
    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n classes"]:
        return self.classifier(self.features(x))


def features(network: nn.Module) -> nn.Module:
    """All layers of a network but the last, whose outputs are its features.

    Raises:
        SpecError: a user's network has no part of that name.
    """
    found = getattr(network, "features", None)
    if not isinstance(found, nn.Module):
        name = type(network).__name__
        raise SpecError(f"{name} has no `features`, which are to be matched: name all its layers but the last so, as one module")
    return found


class LayerNorm(nn.Module):
    """Layer norm over (C, h, w), with the affine part outside `F.layer_norm`: inside, second derivatives under vmap are wrong."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape
        self.weight, self.bias = nn.Parameter(torch.ones(shape)), nn.Parameter(torch.zeros(shape))

    @no_type_check
    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        return F.layer_norm(x, self.shape) * self.weight + self.bias


class _TooSmall(Exception):
    """The image has shrunk to nothing, or to one pixel, of which instance norm would leave only zeros."""


def _norm(kind: str, shape: tuple[int, int, int]) -> nn.Module:
    channels, height, width = shape
    if kind == "layer":
        return LayerNorm(shape)
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    if kind == "instance" and height * width == 1:
        raise _TooSmall
    if kind == "group" and channels % GROUPS:
        raise SpecError(f"group norm cannot split {channels} channels into {GROUPS} groups: choose a width divisible by {GROUPS}")
    return nn.GroupNorm(channels if kind == "instance" else GROUPS, channels)


class _Stack:
    """A list of layers, and the shape (channels, height, width) of what the last of them returns."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        if min(shape) < 1:
            raise _TooSmall
        self.layers: list[nn.Module] = []
        self.shape = shape

    def add(self, *layers: nn.Module) -> "_Stack":
        self.layers += layers
        return self

    def _shrink(self, channels: int, kernel: int, stride: int, padding: int) -> None:
        height, width = ((side + 2 * padding - kernel) // stride + 1 for side in self.shape[1:])
        if min(height, width) < 1:
            raise _TooSmall
        self.shape = (channels, height, width)

    def conv(self, out: int, kernel: int, padding: int, stride: int = 1, bias: bool = True) -> "_Stack":
        layer = nn.Conv2d(self.shape[0], out, kernel, stride, padding, bias=bias)
        self._shrink(out, kernel, stride, padding)
        return self.add(layer)

    def norm(self, kind: str) -> "_Stack":
        return self if kind == "none" else self.add(_norm(kind, self.shape))

    def pool(self, kind: str, kernel: int = 2, stride: int = 2, padding: int = 0) -> "_Stack":
        if kind != "none":
            self._shrink(self.shape[0], kernel, stride, padding)
            self.add((nn.MaxPool2d if kind == "max" else nn.AvgPool2d)(kernel, stride, padding))
        return self

    def flatten(self) -> "_Stack":
        self.shape = (self.shape[0] * self.shape[1] * self.shape[2], 1, 1)
        return self.add(nn.Flatten())

    def linear(self, out: int, activation: str = "relu") -> "_Stack":
        layer = nn.Linear(self.shape[0], out)
        self.shape = (out, 1, 1)
        return self.add(layer, ACTIVATIONS[activation]())


def _grey(stack: _Stack, padding: int, otherwise: int) -> int:
    """Return the first convolution's padding: wider for one channel, so that 28×28 becomes 32×32."""
    return padding if stack.shape[0] == 1 else otherwise


def _mlp(net: Network, stack: _Stack) -> None:
    stack.flatten()
    for _ in range(net["depth"]):
        stack.linear(net["width"], net["activation"])


def _convnet(net: Network, stack: _Stack) -> None:
    for block in range(net["depth"]):
        stack.conv(net["width"], 3, 1 if block else _grey(stack, 3, 1)).norm(net["norm"])
        stack.add(ACTIVATIONS[net["activation"]]()).pool(net["pooling"])
    stack.flatten()


def _lenet(net: Network, stack: _Stack) -> None:
    stack.conv(6, 5, _grey(stack, 2, 0)).add(nn.ReLU()).pool("max")
    stack.conv(16, 5, 0).add(nn.ReLU()).pool("max")
    stack.flatten().linear(120).linear(84)


def _alexnet(net: Network, stack: _Stack) -> None:
    stack.conv(128, 5, _grey(stack, 4, 2)).add(nn.ReLU()).pool("max")
    stack.conv(192, 5, 2).add(nn.ReLU()).pool("max")
    for out in (256, 192, 192):
        stack.conv(out, 3, 1).add(nn.ReLU())
    stack.pool("max").flatten()


def _vgg11(net: Network, stack: _Stack) -> None:
    for block in ((64,), (128,), (256, 256), (512, 512), (512, 512)):
        for out in block:
            stack.conv(out, 3, 1 if stack.layers else _grey(stack, 3, 1)).norm(net["norm"]).add(nn.ReLU())
        stack.pool("max")
    stack.flatten()


def _alexcifarnet(net: Network, stack: _Stack) -> None:
    local = partial(nn.LocalResponseNorm, 4, alpha=0.001 / 9, beta=0.75, k=1)
    stack.conv(64, 5, 2).add(nn.ReLU()).pool("max", 3, 2, 1).add(local())
    stack.conv(64, 5, 2).add(nn.ReLU(), local()).pool("max", 3, 2, 1)
    stack.flatten().linear(384).linear(192)


class Residual(nn.Module):
    """The basic block of ResNet-18: ReLU of a body of two convolutions plus a shortcut."""

    def __init__(self, body: nn.Sequential, shortcut: nn.Sequential) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut

    @no_type_check
    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c2 h2 w2"]:
        return F.relu(self.body(x) + self.shortcut(x))


def _residual(net: Network, stack: _Stack, out: int, halve: bool) -> None:
    """Append a basic block; `halve` halves the image by stride 2, or by stride 1 and 2×2 average pooling."""
    stride = 2 if halve and net["downsampling"] == "stride" else 1
    pooling = "avg" if halve and net["downsampling"] == "average" else "none"
    body, shortcut = _Stack(stack.shape), _Stack(stack.shape)
    body.conv(out, 3, 1, stride, bias=False).norm(net["norm"]).add(nn.ReLU()).pool(pooling)
    body.conv(out, 3, 1, bias=False).norm(net["norm"])
    if halve or out != stack.shape[0]:
        shortcut.conv(out, 1, 0, stride, bias=False).pool(pooling).norm(net["norm"])
    stack.add(Residual(nn.Sequential(*body.layers), nn.Sequential(*shortcut.layers)))
    stack.shape = body.shape


def _resnet18(net: Network, stack: _Stack) -> None:
    stack.conv(64, 3, 1, bias=False).norm(net["norm"]).add(nn.ReLU())
    for out in (64, 128, 256, 512):
        _residual(net, stack, out, halve=out > 64)
        _residual(net, stack, out, halve=False)
    if net["downsampling"] == "stride":
        stack.add(nn.AdaptiveAvgPool2d(1)).shape = (512, 1, 1)
    stack.flatten()


BUILDERS = dict(zip(FAMILIES, (_mlp, _convnet, _lenet, _alexnet, _vgg11, _resnet18, _alexcifarnet), strict=True))


def construct(net: Network, shape: tuple[int, int, int], classes: int) -> Classifier:
    """Build one of our networks for images of a shape (channels, height, width), on torch's default device."""
    stack = _Stack(shape)
    BUILDERS[net.family](net, stack)
    model = Classifier(nn.Sequential(*stack.layers), nn.Linear(stack.shape[0], classes))
    _initialise(model, net["init"])
    return model


def _fits(net: Network, shape: tuple[int, int, int]) -> bool:
    with suppress(_TooSmall), torch.device("meta"):
        return bool(construct(net, shape, 1))
    return False


def _initialise(model: nn.Module, init: str) -> None:
    """Draw the weights again: He's normal (fan in, gain √2) or Glorot's, with zero biases; "pytorch" keeps PyTorch's own."""
    draw = {"kaiming": partial(nn.init.kaiming_normal_, nonlinearity="relu"), "xavier": nn.init.xavier_normal_}
    for layer in model.modules() if init != "pytorch" else ():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            draw[init](layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def build(network: Network, *, channels: int, classes: int, size: tuple[int, int], seed: int, stage: str = "train") -> nn.Module:
    """Build a network and draw its weights from `seed`; torch's global random state stays as it is.

    Args:
        network: one of ours, whose "auto" options are resolved for `stage`, or a user's.
        channels: of the images, at least 1.
        classes: at least 1.
        size: height and width of the images in pixels.
        seed: of the weights.
        stage: "condense" or "train".

    Returns:
        A `Classifier`, or the module that the user's factory returns, on the CPU, in float32 and in training mode.

    Raises:
        SpecError: fewer channels or classes than 1, images too small for the network, a width that group norm cannot split, or a
            user's factory that fails.
    """
    net = network.resolve(stage)
    if min(channels, classes) < 1:
        raise SpecError(f"{net} needs at least 1 channel and 1 class, not {channels} and {classes}")
    if isinstance(net, OwnNetwork):
        what = f"cannot be built for {channels} channels, {classes} classes and {by(size)} pixels"
        with seeded(seed), explained(net, what):
            model = net.factory(channels=channels, classes=classes, size=size)
        require(isinstance(model, nn.Module), net, f"gives a {type(model).__name__}: return an nn.Module")
        return model.float().train()
    try:
        with seeded(seed):
            return construct(net, (channels, *size), classes)
    except _TooSmall:
        least = next(side for side in count(1) if _fits(net, (channels, side, side)))
        raise SpecError(f"{net} cannot take images of {by(size)} pixels: use at least {by((least, least))}") from None


def by(sides: Sequence[int]) -> str:
    """Return a shape in words: 32x32."""
    return "x".join(map(str, sides))


def require(ok: bool, network: OwnNetwork, sentence: str) -> None:
    """Raise `SpecError` with the name of a user's network and a sentence, unless `ok`."""
    if not ok:
        raise SpecError(f"{network.family} {sentence}")


@contextmanager
def explained(network: OwnNetwork, what: str) -> Iterator[None]:
    """Turn an exception of the user's code into a `SpecError` of one sentence, with the exception as its cause."""
    try:
        yield
    except DclibError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {first_line(error)}"
        raise SpecError(f"{network.family} {what} ({said}): repair it, or use another network") from error
