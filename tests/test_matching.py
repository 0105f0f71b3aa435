"""The distances by hand and by their properties, and the fast path against the literal Algorithm 1 in float64."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from jaxtyping import TypeCheckError

from dclib.core import condense, engine, matching, reference
from dclib.spec import DISTANCES, Condensation, Network
from dclib.spec.architectures import NORMS

# each network on images as small as it takes: (channels, side)
WHOLE = {
    "MLP:width=6": (1, 8),
    **{f"ConvNet:width=8,depth=2,norm={norm}": (2, 8) for norm in NORMS},
    "ConvNet:width=8,depth=2,pooling=max,activation=leakyrelu": (1, 8),
    "ConvNet:width=8,depth=2,pooling=none,activation=sigmoid": (1, 8),
    "LeNet": (1, 28),
    "AlexCifarNet": (3, 16),
}
LARGE = {"AlexNet": (1, 12), "VGG11": (1, 28), "ResNet18": (1, 8), "ResNet18:norm=layer,downsampling=stride": (1, 9)}


@pytest.fixture
def problem(make_dataset, monkeypatch):
    """Return a function that sets up one image update in float64: the inner step, real batches and synthetic images."""
    monkeypatch.setattr(engine, "CHUNK", 2)  # fewer than the real images

    def set_up(text, channels, side, *, classes=2, ipc=1, real=3):
        dataset = make_dataset(*[real + 1] * classes, channels=channels, size=side)
        hyper = Condensation(ipc=ipc, network=Network.parse(text), real_batch=real, precision="float64", bn="true")
        return frozen(condense.Condenser(dataset, hyper.resolve(), seed=0).inner)

    return set_up


def frozen(step):
    """As a step sets it up: statistics of the real images, then evaluation mode."""
    step.draw(0, 0)
    step.gradient()
    return step, [step.real_images(c) for c in range(len(step.labels))], step.images


def fast(step, batches, images, kind):
    step.hyper, step.images = dataclasses.replace(step.hyper, distance=kind), images
    loss, gradient = step.gradient()
    return loss, gradient


def literal(step, batches, images, kind):
    """The loss summed over the classes, by the reference, and its gradient, by autograd."""
    S = images.clone().requires_grad_()
    loss = sum(reference.class_loss(step.network, x, S[c], c, kind) for c, x in enumerate(batches))
    return loss.detach(), torch.autograd.grad(loss, S)[0]


def check_against_the_literal(setting, kind):
    (loss, gradient), (loss0, gradient0) = fast(*setting, kind), literal(*setting, kind)
    largest = gradient0.abs().max().item()
    assert largest > 0
    assert loss.item() == pytest.approx(loss0.item(), rel=1e-10, abs=0)
    assert (gradient - gradient0).abs().max().item() <= 1e-10 * largest
    assert gradient.dtype == torch.float64


@pytest.mark.parametrize("kind", DISTANCES)
@pytest.mark.parametrize("text", [*WHOLE, *(pytest.param(text, marks=pytest.mark.slow) for text in LARGE)])
def test_loss_and_image_gradient_equal_the_literal_ones(problem, text, kind):
    check_against_the_literal(problem(text, *(WHOLE | LARGE)[text]), kind)


@pytest.mark.parametrize("kind", DISTANCES)
def test_so_they_do_with_several_images_of_a_class_and_with_a_dead_unit(problem, kind):
    """A ReLU that no image wakes has rows of zeros in both gradients, which gives no NaN."""
    check_against_the_literal(problem("ConvNet:width=8,depth=2,norm=batch", 1, 8, classes=3, ipc=3), kind)
    dead = problem("MLP:width=6", 1, 8)
    with torch.no_grad():
        dead[0].parameters[1][0] = -1e3
    check_against_the_literal(dead, kind)
    assert fast(*dead, kind)[1].isfinite().all()


@pytest.mark.parametrize("kind", DISTANCES)
@pytest.mark.parametrize("text", ["ConvNet:width=8,depth=2", "ConvNet:width=8,depth=2,norm=layer", "MLP:width=6"])
def test_mixed_classes_equal_the_literal_ones(problem, text, kind):
    step, batches, images = problem(text, 1, 8, classes=3, ipc=2)
    step.hyper = dataclasses.replace(step.hyper, batches="mixed", distance=kind)
    loss, gradient = step.gradient()
    S = images.clone().requires_grad_()
    loss0 = reference.mixed_loss(step.network, batches, S, kind)
    gradient0 = torch.autograd.grad(loss0, S)[0]
    assert loss.item() == pytest.approx(loss0.item(), rel=1e-10, abs=0)
    assert (gradient - gradient0).abs().max() <= 1e-10 * gradient0.abs().max()
    separate = literal(step, batches, images, kind)[1]
    assert (gradient - separate).abs().max() > 1e-3 * separate.abs().max(), "not what the classes give one by one"


SMOOTH = [f"norm={norm},activation=sigmoid" for norm in NORMS]


@pytest.mark.parametrize("kind", DISTANCES)
@pytest.mark.parametrize("options", [*SMOOTH, "pooling=max"])  # ReLU and max-pool, too: this point lies far from their kinks
def test_image_gradient_equals_central_differences(problem, options, kind):
    step, batches, images = problem(f"ConvNet:width=4,depth=2,{options}", 1, 8)
    _, gradient = fast(step, batches, images, kind)
    direction = torch.randn(images.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    small = 1e-4 if "sigmoid" in options else 1e-7
    up, down = (fast(step, batches, images + sign * small * direction, kind)[0].item() for sign in (1, -1))
    assert (gradient * direction).sum().item() == pytest.approx((up - down) / (2 * small), rel=1e-5)


# --- by hand


def test_epsilon_stands_outside_the_product_of_norms():
    tiny = [torch.tensor([[1e-3, 0.0]], dtype=torch.float64)]
    assert matching.layerwise(tiny, tiny).item() == pytest.approx(1 - 1e-6 / 2e-6, rel=1e-9)
    assert matching.cosine(tiny, tiny).item() == pytest.approx(1 - 1e-6 / 2e-6, rel=1e-9)
    assert matching.layerwise([torch.zeros(3, 2)], [torch.ones(3, 2)]).item() == 3.0


# --- gradients of the real images


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_real_gradients_do_not_depend_on_the_chunk(problem, chunk):
    step, batches, _ = problem("ConvNet:width=4,depth=2", 1, 8, real=5)
    assert len(batches[1]) == 5
    parameters, labels = step.parameters, torch.ones(5, dtype=torch.long)
    whole = torch.autograd.grad(F.cross_entropy(step.network(batches[1]), labels), parameters)
    pieces = matching.real_gradients(step.network, parameters, batches[1], 1, chunk)
    for a, b in zip(whole, pieces, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-14)
        assert not b.requires_grad


def test_shapes_are_checked_while_testing():
    """Fails if `--jaxtyping-packages` no longer takes hold, for instance because something imports dclib before it."""
    with pytest.raises(TypeCheckError):
        matching.real_gradients(torch.nn.Identity(), [], torch.zeros(2, 3), 0, 1)
