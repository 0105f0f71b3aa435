"""The distances by hand, and every fast path against the literal Algorithm 1 in float64."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dclib import matching, networks, reference
from dclib.architectures import NORMS
from dclib.condense import set_statistics
from dclib.errors import SpecError
from dclib.spec import DISTANCES, Network

THIN = {
    "MLP:width=6": (1, 8),
    "ConvNet:width=4,depth=2": (1, 8),
    **{f"ConvNet:width=4,depth=2,norm={norm}": (2, 8) for norm in NORMS},
    "ConvNet:width=4,depth=2,pooling=max,activation=leakyrelu": (1, 8),
    "ConvNet:width=4,depth=2,pooling=none,activation=sigmoid": (1, 8),
    "LeNet": (1, 28),
    "AlexNet": (1, 28),
    "AlexCifarNet": (3, 32),
    "VGG11": (1, 28),
    "ResNet18": (1, 16),
}


def problem(text, channels, size, classes=2, ipc=2, real=3):
    """A network in float64, real batches for each class and synthetic images."""
    shape = dict(channels=channels, classes=classes, size=(size, size))
    network = networks.build(Network.parse(text), **shape, seed=1, stage="condense").double()
    draw = torch.Generator().manual_seed(0)
    batches = [torch.randn(real, channels, size, size, generator=draw, dtype=torch.float64) for _ in range(classes)]
    images = torch.randn(classes, ipc, channels, size, size, generator=draw, dtype=torch.float64)
    set_statistics(network.train(), batches, "true")
    return network.eval(), batches, images


def fast(network, batches, images, kind, chunk=2):
    parameters = list(network.parameters())
    real = [matching.real_gradients(network, parameters, x, c, chunk) for c, x in enumerate(batches)]
    S = images.clone().requires_grad_()
    stacked = [torch.stack(g) for g in zip(*real, strict=True)]
    loss = matching.matching_loss(network, kind, stacked, S, torch.arange(len(S))).sum()
    return loss, torch.autograd.grad(loss, S)[0]


def literal(network, batches, images, kind):
    S = images.clone().requires_grad_()
    loss = sum(reference.class_loss(network, x, S[c], c, kind) for c, x in enumerate(batches))
    return loss, torch.autograd.grad(loss, S)[0]


@pytest.mark.parametrize("kind", DISTANCES)
@pytest.mark.parametrize("text", THIN)
def test_loss_and_image_gradient_equal_the_literal_ones(text, kind):
    setting = problem(text, *THIN[text])
    (loss, gradient), (loss0, gradient0) = fast(*setting, kind), literal(*setting, kind)
    assert gradient0.abs().max() > 0
    assert loss.item() == pytest.approx(loss0.item(), rel=1e-10, abs=1e-12)
    torch.testing.assert_close(gradient, gradient0, rtol=1e-9, atol=1e-10 * gradient0.abs().max().item())


@pytest.mark.parametrize("kind", DISTANCES)
@pytest.mark.parametrize("norm", NORMS)
def test_image_gradient_equals_central_differences(norm, kind):
    network, batches, images = problem(f"ConvNet:width=4,depth=2,activation=sigmoid,norm={norm}", 1, 8, ipc=1)
    _, gradient = fast(network, batches, images, kind)
    direction = torch.randn(images.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    step = 1e-5
    up, down = (fast(network, batches, images + sign * step * direction, kind)[0].item() for sign in (1, -1))
    assert (gradient * direction).sum().item() == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-8)


def test_layerwise_by_hand():
    A = [torch.tensor([[3.0, 4.0], [1.0, 0.0]]), torch.tensor([5.0, 6.0])]
    B = [torch.tensor([[4.0, 3.0], [-2.0, 0.0]]), torch.tensor([-5.0, 0.0])]
    # rows: 1 - 24/25 and 1 - (-2)/2; the bias takes no part
    assert matching.layerwise(A, B).item() == pytest.approx(1 / 25 + 2, abs=1e-5)


def test_rivals_by_hand():
    A, B = [torch.tensor([[3.0, 0.0]]), torch.tensor([4.0])], [torch.tensor([[0.0, 2.0]]), torch.tensor([0.0])]
    assert matching.euclidean(A, B).item() == pytest.approx(9 + 4 + 16)
    assert matching.cosine(A, B).item() == pytest.approx(1.0)
    assert matching.cosine(A, A).item() == pytest.approx(0.0, abs=1e-6)


def test_a_convolution_has_one_row_for_each_output():
    A = torch.randn(3, 2, 2, 2, generator=torch.Generator().manual_seed(0))
    B = A.clone()
    B[1] = -B[1]
    assert matching.layerwise([A], [B]).item() == pytest.approx(2.0, abs=1e-4)


def test_layer_norm_takes_part_channel_by_channel():
    A = torch.randn(3, 2, 2, generator=torch.Generator().manual_seed(0))
    B = A.clone()
    B[0] = -B[0]
    assert matching.layerwise([A], [B]).item() == pytest.approx(2.0, abs=1e-4)


def test_epsilon_stands_outside_the_product_of_norms():
    tiny = [torch.tensor([[1e-3, 0.0]], dtype=torch.float64)]
    assert matching.layerwise(tiny, tiny).item() == pytest.approx(1 - 1e-6 / 2e-6, rel=1e-9)


@given(st.floats(0.1, 100.0), st.integers(0, 1000))
def test_layerwise_ignores_the_length_of_rows_and_stays_within_bounds(factor, seed):
    draw = torch.Generator().manual_seed(seed)
    A, B = (torch.randn(4, 5, generator=draw, dtype=torch.float64) for _ in range(2))
    found = matching.layerwise([A], [B]).item()
    assert 0 <= found <= 8
    assert matching.layerwise([A * factor], [B]).item() == pytest.approx(found, abs=1e-4)
    assert math.isclose(found, reference.distance([A], [B]).item(), rel_tol=1e-12)


@pytest.mark.parametrize("kind", DISTANCES)
def test_reference_and_fast_distance_agree(kind):
    draw = torch.Generator().manual_seed(3)
    shapes = ((4, 3, 2, 2), (4,), (4, 2, 2), (2, 4), (2,))
    A, B = ([torch.randn(s, generator=draw, dtype=torch.float64) for s in shapes] for _ in range(2))
    assert matching.distance(kind)(A, B).item() == pytest.approx(reference.distance(A, B, kind).item(), rel=1e-12)


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_real_gradients_do_not_depend_on_the_chunk(chunk):
    network, batches, _ = problem("ConvNet:width=4,depth=2", 1, 8, real=5)
    parameters = list(network.parameters())
    whole = torch.autograd.grad(torch.nn.functional.cross_entropy(network(batches[1]), torch.ones(5, dtype=torch.long)), parameters)
    pieces = matching.real_gradients(network, parameters, batches[1], 1, chunk)
    for a, b in zip(whole, pieces, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-14)


def test_unknown_distance_is_refused():
    with pytest.raises(SpecError, match="did you mean 'cosine'"):
        matching.distance("cosin")
