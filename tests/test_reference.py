"""The oracle itself: distances, gradients and steps against what a pencil or plain Python gives."""

import math

import pytest
import torch
from helpers import assert_close, refused

from dclib.core import networks, reference
from dclib.data.dataset import generator
from dclib.errors import SpecError
from dclib.spec import MLP, Condensation, ConvNet

THIN = ConvNet(width=4, depth=2)


def double(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def small(**changes):
    return Condensation(**{"network": THIN, "outer_steps": 2, "real_batch": 6, "precision": "float64", **changes}).resolve()


# --- the distance, in plain Python


def rows(tensor):
    return tensor.reshape(len(tensor), -1).tolist()


def one_minus_cos(a, b):
    return 1 - sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b) + 1e-6)


def test_distances_in_plain_python():
    shapes = ((3, 2, 2, 2), (3,), (3, 2, 2), (2, 5), (2,))
    A, B = ([double(*shape, seed=s) for s, shape in enumerate(shapes, start)] for start in (0, 10))
    a, b = ([x for g in gradient for x in g.flatten().tolist()] for gradient in (A, B))
    weights = [(x, y) for x, y in zip(A, B, strict=True) if x.ndim > 1]
    layerwise = sum(one_minus_cos(r, s) for x, y in weights for r, s in zip(rows(x), rows(y), strict=True))
    assert reference.distance(A, B).item() == pytest.approx(layerwise, rel=1e-12)
    assert reference.distance(A, B, "cosine").item() == pytest.approx(one_minus_cos(a, b), rel=1e-12)
    euclidean = sum((x - y) ** 2 for x, y in zip(a, b, strict=True))
    assert reference.distance(A, B, "euclidean").item() == pytest.approx(euclidean, rel=1e-12)


# --- the gradients, in closed form: of cross-entropy after a linear layer, it is (p - y) xᵀ


def linear_gradient(weight, bias, x, label):
    x = x.flatten(1)
    error = torch.softmax(x @ weight.T + bias, 1) - torch.eye(len(bias))[label]
    return [error.T @ x / len(x), error.mean(0)]


@pytest.mark.parametrize("kind", ["layerwise", "euclidean", "cosine"])
def test_class_loss_of_a_linear_network(kind):
    weight, bias = double(3, 8, seed=1), double(3, seed=2)
    linear = torch.nn.Linear(8, 3).double()
    linear.load_state_dict({"weight": weight, "bias": bias})
    network = torch.nn.Sequential(torch.nn.Flatten(), linear)
    x_real, x_synthetic = double(5, 2, 2, 2, seed=3), double(2, 2, 2, 2, seed=4).requires_grad_()
    found = reference.class_loss(network, x_real, x_synthetic, 1, kind)
    expected = reference.distance(*(linear_gradient(weight, bias, x, 1) for x in (x_real, x_synthetic)), kind)
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)
    gradients = (torch.autograd.grad(loss, x_synthetic)[0] for loss in (found, expected))
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-14)


# --- the steps


def by_hand(made, h, k, seed=0):
    """The network of outer step k, and its matching loss and gradient at S for each class on its own."""
    shape = dict(channels=made.channels, classes=made.classes, size=made.size)
    network = networks.build(h.network, **shape, seed=reference.network_seed(seed, k), stage="condense").double()

    def gradients(S):
        for c, images in enumerate(S):
            indices = made.draw(c, h.real_batch, generator(seed, "real", k, 0, c))
            x = images.clone().requires_grad_()
            loss = reference.class_loss(network, made.normalise(made.x_train[indices]).double(), x, c, h.distance)
            yield torch.autograd.grad(loss, x)[0]

    return gradients


CASES = [dict(outer_steps=3), dict(outer_steps=1, image_steps=3, image_lr=0.2, image_momentum=0.0)]


@pytest.mark.parametrize("changes", CASES, ids=str)
def test_each_class_is_updated_as_the_paper_prints_it(made, changes):
    """Line 7 of Algorithm 1: image steps share a batch; the momentum of the images lasts from one outer step to the next."""
    h = small(**changes)
    S = torch.randn(3, 1, 1, 8, 8, generator=generator(0, "init")).double()
    velocity = torch.zeros_like(S)
    for k in range(h.outer_steps):
        gradients = by_hand(made, h, k)
        for _ in range(h.image_steps):
            velocity = h.image_momentum * velocity + torch.stack(list(gradients(S)))
            S = S - h.image_lr * velocity
    torch.testing.assert_close(reference.condense(made, h), S, rtol=1e-10, atol=1e-12)


def test_the_network_is_trained_between_inner_steps_only(made, monkeypatch):
    trained = []
    monkeypatch.setattr(reference, "train_network", lambda network, opt, S, h, seed, k, t: trained.append((k, t)))
    reference.condense(made, small(ipc=1))
    assert trained == []
    reference.condense(made, small(ipc=3))
    assert trained == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_training_the_network_is_sgd_with_momentum_over_the_whole_set(made):
    h = small(ipc=2, network_epochs=2, network_batch=4, network_lr=0.02, network_momentum=0.7)
    shape = dict(channels=1, classes=3, size=(8, 8))
    ours, theirs = (networks.build(MLP(width=5), **shape, seed=1).double() for _ in range(2))
    optimiser = torch.optim.SGD(ours.parameters(), lr=h.network_lr, momentum=h.network_momentum)
    S = double(3, 2, 1, 8, 8)
    reference.train_network(ours, optimiser, S, h, seed=0, k=1, t=0)
    x, y = S.view(6, 1, 8, 8), torch.tensor([0, 0, 1, 1, 2, 2])
    shuffle, velocity = generator(0, "shuffle", 1, 0), [torch.zeros_like(p) for p in theirs.parameters()]
    for _ in range(2):
        order = torch.randperm(6, generator=shuffle)
        for batch in (order[:4], order[4:]):
            gradients = torch.autograd.grad(torch.nn.functional.cross_entropy(theirs(x[batch]), y[batch]), theirs.parameters())
            velocity = [0.7 * v + g for v, g in zip(velocity, gradients, strict=True)]
            with torch.no_grad():
                for p, v in zip(theirs.parameters(), velocity, strict=True):
                    p -= 0.02 * v
    assert_close(ours, theirs, 1e-12, 1e-14)


def test_what_the_literal_algorithm_lacks_is_refused(made):
    for changes in (dict(init="real"), dict(patience=3), dict(precision="bfloat16")):
        refused(*changes.values(), call=reference.condense, error=SpecError, dataset=made, hyper=small(**changes))
