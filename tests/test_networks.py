"""networks.py: parameter counts, options, sizes, seeds, second derivatives."""

import pytest
import torch
import torch.nn.functional as F
from helpers import refused
from torch.func import functional_call, grad, vmap

from dclib.core.networks import build
from dclib.errors import SpecError
from dclib.spec import Network
from dclib.spec.architectures import ACTIVATIONS, INITS, NORMS, POOLINGS

COUNTS = [
    ("MLP", "train", 118_282, 411_146),
    ("ConvNet", "train", 317_706, 320_010),
    ("LeNet", "train", 61_706, 62_006),
    ("AlexNet", "train", 1_865_802, 1_872_202),
    ("VGG11", "train", 9_229_962, 9_231_114),
    ("VGG11", "condense", 9_229_962, 9_231_114),
    ("ResNet18", "train", 11_172_810, 11_173_962),
    ("ResNet18", "condense", 11_213_770, 11_250_762),
]
# Thin or small enough to be differentiated twice in a moment; name, channels, size.
SMALL = [
    ("MLP:width=8,activation=sigmoid", 1, (6, 6)),
    *((f"ConvNet:width=4,depth=2,norm={norm}", 2, (8, 8)) for norm in NORMS),
    *((f"ConvNet:width=4,depth=2,activation={act}", 1, (6, 6)) for act in ACTIVATIONS),
    *((f"ConvNet:width=4,depth=2,pooling={pool}", 3, (8, 8)) for pool in POOLINGS),
    ("LeNet", 1, (12, 12)),
    ("AlexNet", 3, (8, 8)),
    ("AlexCifarNet", 3, (8, 8)),
]
LARGE = [
    ("VGG11:norm=layer", 1, (28, 28)),
    ("ResNet18:downsampling=average,norm=group", 1, (8, 8)),
    ("ResNet18:downsampling=stride,norm=instance", 1, (9, 9)),
]


def make(text, channels=1, size=(28, 28), classes=10, seed=0, stage="train"):
    return build(Network.parse(text), channels=channels, classes=classes, size=size, seed=seed, stage=stage)


def count(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(("text", "stage", "grey", "colour"), COUNTS)
def test_parameter_counts_are_the_papers(text, stage, grey, colour):
    assert count(make(text, stage=stage)) == grey
    assert count(make(text, 3, (32, 32), stage=stage)) == colour


@pytest.mark.parametrize(("text", "channels", "size"), SMALL + LARGE)
def test_forward_and_features(text, channels, size):
    model = make(text, channels, size, classes=3)
    x = torch.randn(2, channels, *size, generator=torch.Generator().manual_seed(0))
    phi = model.features(x)
    assert phi.shape == (2, model.classifier.in_features)
    assert model.training
    assert model.classifier.weight.dtype == torch.float32
    torch.testing.assert_close(model(x), model.classifier(phi))


# Each network once more, written with functions; `p()` hands out the parameters in their order.


def literal_mlp(x, p):
    x = F.relu(F.linear(x.flatten(1), p(), p()))
    return F.linear(F.relu(F.linear(x, p(), p())), p(), p())


def literal_convnet(x, p):
    for padding in (3 if x.shape[1] == 1 else 1, 1, 1):
        x = F.conv2d(x, p(), p(), padding=padding)
        x = F.instance_norm(x) * p()[:, None, None] + p()[:, None, None]
        x = F.avg_pool2d(F.relu(x), 2)
    return F.linear(x.flatten(1), p(), p())


def literal_lenet(x, p):
    x = F.max_pool2d(F.relu(F.conv2d(x, p(), p(), padding=2 if x.shape[1] == 1 else 0)), 2)
    x = F.max_pool2d(F.relu(F.conv2d(x, p(), p())), 2).flatten(1)
    x = F.relu(F.linear(x, p(), p()))
    return F.linear(F.relu(F.linear(x, p(), p())), p(), p())


def literal_alexnet(x, p):
    x = F.max_pool2d(F.relu(F.conv2d(x, p(), p(), padding=4 if x.shape[1] == 1 else 2)), 2)
    x = F.max_pool2d(F.relu(F.conv2d(x, p(), p(), padding=2)), 2)
    for _ in range(3):
        x = F.relu(F.conv2d(x, p(), p(), padding=1))
    return F.linear(F.max_pool2d(x, 2).flatten(1), p(), p())


def literal_vgg11(x, p):
    for i, pooled in enumerate((True, True, False, True, False, True, False, True)):
        x = F.conv2d(x, p(), p(), padding=3 if i == 0 and x.shape[1] == 1 else 1)
        x = F.relu(F.instance_norm(x) * p()[:, None, None] + p()[:, None, None])
        x = F.max_pool2d(x, 2) if pooled else x
    return F.linear(x.flatten(1), p(), p())


def literal_alexcifarnet(x, p):
    def local(x):
        squares = F.pad(x**2, (0, 0, 0, 0, 2, 1))
        return x / (1 + 0.001 / 9 * sum(squares[:, i : i + x.shape[1]] for i in range(4)) / 4) ** 0.75

    x = local(F.max_pool2d(F.relu(F.conv2d(x, p(), p(), padding=2)), 3, 2, 1))
    x = F.max_pool2d(local(F.relu(F.conv2d(x, p(), p(), padding=2))), 3, 2, 1).flatten(1)
    for _ in range(2):
        x = F.relu(F.linear(x, p(), p()))
    return F.linear(x, p(), p())


def literal_resnet18(x, p, stride, norm):
    def conv_norm(x, padding, step=1, pool=False):
        x = F.conv2d(x, p(), padding=padding, stride=step)
        return norm(F.avg_pool2d(x, 2) if pool else x) * p()[:, None, None] + p()[:, None, None]

    x = F.relu(conv_norm(x, 1))
    for block in range(8):
        halve = block in (2, 4, 6)
        step = 2 if halve and stride else 1
        y = F.relu(conv_norm(x, 1, step))
        y = conv_norm(F.avg_pool2d(y, 2) if halve and not stride else y, 1)
        x = F.relu(y + (conv_norm(x, 0, step, pool=not stride) if halve else x))
    return F.linear(x.mean((2, 3)) if stride else x.flatten(1), p(), p())


LITERAL = {
    "MLP": literal_mlp,
    "ConvNet": literal_convnet,
    "LeNet": literal_lenet,
    "AlexNet": literal_alexnet,
    "VGG11": literal_vgg11,
    "AlexCifarNet": literal_alexcifarnet,
    "ResNet18": lambda x, p: literal_resnet18(x, p, True, F.instance_norm),
    "ResNet18:norm=batch,downsampling=average": lambda x, p: literal_resnet18(
        x, p, False, lambda x: F.batch_norm(x, None, None, training=True)
    ),
}


@pytest.mark.parametrize("text", LITERAL)
def test_forward_is_the_definitions(text):
    for channels, size in ((1, (28, 28)), (3, (32, 32))):
        model = make(text, channels, size).double()
        draw = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.02 * torch.randn(parameter.shape, generator=draw)
            x = torch.randn(2, channels, *size, generator=draw, dtype=torch.float64)
            torch.testing.assert_close(model(x), LITERAL[text](x, iter(model.parameters()).__next__), rtol=1e-9, atol=1e-9)


LEAST = [
    ("MLP", 1, 1, "train"),
    ("LeNet", 1, 12, "train"),
    ("LeNet", 3, 16, "train"),
    ("AlexNet", 3, 8, "train"),
    ("ConvNet", 3, 8, "train"),
    ("ConvNet:depth=4", 3, 16, "train"),
    ("VGG11", 3, 32, "train"),
    ("VGG11", 1, 28, "train"),
    ("VGG11", 3, 32, "condense"),
    ("ResNet18", 3, 9, "train"),
    ("ResNet18", 1, 8, "condense"),
]


@pytest.mark.parametrize(("text", "channels", "least", "stage"), LEAST)
def test_too_small_an_image_is_refused_with_the_minimum(text, channels, least, stage):
    small, size = least - 1, f"{least}x{least}"
    refused(text.partition(":")[0], f"{small}x{small}", size, call=lambda: make(text, channels, (small, small), stage=stage))
    model = make(text, channels, (least, least), stage=stage)
    logits = model(torch.randn(2, channels, least, least, generator=torch.Generator().manual_seed(0)))
    assert (logits[0] - logits[1]).abs().max() > 0  # it sees the image


def test_impossible_counts_and_widths_are_refused():
    for channels, classes in ((0, 10), (1, 0)):
        refused("at least 1", call=lambda c=channels, n=classes: make("MLP", c, (4, 4), n), error=SpecError)
    refused("divisible by 4", call=lambda: make("ConvNet:width=6,norm=group"), error=SpecError)


def test_auto_follows_the_stage():
    for text in ("VGG11", "ResNet18"):
        kinds = {stage: {type(m) for m in make(text, stage=stage).modules()} for stage in ("condense", "train")}
        assert torch.nn.BatchNorm2d in kinds["condense"] - kinds["train"]
        assert torch.nn.GroupNorm in kinds["train"] - kinds["condense"]


def test_seed_fixes_the_weights_and_leaves_the_global_state():
    before = torch.get_rng_state()
    a, b, c = (make("LeNet", seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["classifier.weight"], c["classifier.weight"])


@pytest.mark.parametrize("init", INITS)
def test_initialisations_have_their_variance(init):
    model = make(f"MLP:width=256,init={init}", 1, (20, 20))
    weight, bias = model.features[1].weight, model.features[1].bias
    variance = {"pytorch": 1 / (3 * 400), "kaiming": 2 / 400, "xavier": 2 / (400 + 256)}[init]
    assert weight.var().item() == pytest.approx(variance, rel=0.03)
    assert (bias.abs().max() == 0) == (init != "pytorch")


DERIVED = SMALL + [pytest.param(*large, marks=pytest.mark.slow) for large in LARGE[1:]]


def penalty(model, params, x, y):
    """A function of the first derivative, so that its own gradient needs the second."""
    grads = torch.autograd.grad(F.cross_entropy(functional_call(model, params, (x,)), y), tuple(params.values()), create_graph=True)
    return sum((g * torch.cos(g)).sum() for g in grads)


@pytest.mark.parametrize(("text", "channels", "size"), DERIVED)
def test_second_derivatives_match_vmap_and_finite_differences(text, channels, size):
    """vmap(grad) against a loop over autograd.grad, and that against central differences."""
    model = make(text, channels, size, classes=3, seed=3).double()
    params = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(2, 2, channels, *size, generator=draw, dtype=torch.float64)
    y = torch.tensor([[0, 1], [2, 1]])
    if any(isinstance(m, torch.nn.BatchNorm2d) for m in model.modules()):
        model.eval()

    def loss(p, images, labels):
        return F.cross_entropy(functional_call(model, p, (images,)), labels)

    xs = x.clone().requires_grad_()
    total = sum((g * torch.cos(g)).sum() for g in vmap(grad(loss), (None, 0, 0))(params, xs, y).values())
    (mapped,) = torch.autograd.grad(total, xs)
    looped = []
    for images, labels in zip(x, y, strict=True):
        leaf = images.clone().requires_grad_()
        looped += torch.autograd.grad(penalty(model, params, leaf, labels), leaf)
    looped = torch.stack(looped)
    torch.testing.assert_close(mapped, looped, rtol=1e-9, atol=1e-12)
    direction = torch.randn(x[0].shape, generator=draw, dtype=torch.float64)
    step = 1e-6
    high, low = (penalty(model, params, x[0] + sign * step * direction, y[0]).item() for sign in (1, -1))
    assert (high - low) / (2 * step) == pytest.approx((looped[0] * direction).sum().item(), rel=1e-4, abs=1e-8)
