"""Both ways through a training against finite differences and against each other, and what each of them keeps in memory."""

import gc
import itertools

import pytest
import torch
import torch.nn.functional as F

from dclib.core import networks
from dclib.methods import unroll
from dclib.spec import MLP, AlexCifarNet, ConvNet, LeNet
from dclib.spec.baselines import Distillation

SMOOTH = ConvNet(width=4, depth=2, activation="sigmoid", init="xavier")
CASES = [
    (SMOOTH, {"ipc": 2, "steps": 2, "passes": 2}),
    (SMOOTH, {"ipc": 4, "steps": 2, "passes": 1}),
    (SMOOTH, {"ipc": 1, "steps": 3, "passes": 1}),
    (SMOOTH, {"ipc": 2, "steps": 4, "passes": 2}),
    (MLP(width=8, activation="sigmoid"), {"ipc": 2, "steps": 2, "passes": 3}),
]
KINKED = [
    (LeNet(init="xavier"), (1, 28)),
    (AlexCifarNet(init="xavier"), (3, 8)),
    (ConvNet(width=4, depth=2), (1, 8)),
    (ConvNet(width=4, depth=2, norm="layer", pooling="max"), (3, 8)),
    (ConvNet(width=4, depth=1, norm="batch"), (3, 8)),
]


def problem(network, *, channels=1, side=8, rate=0.3, **division):
    """A network, S, raw rates, real images and labels, in float64, for three classes."""
    hyper = Distillation(network=network, **division)
    draw = torch.Generator().manual_seed(0)
    theta_0 = networks.build(network, channels=channels, classes=3, size=(side, side), seed=0).double()
    S = torch.randn(3, hyper.ipc, channels, side, side, generator=draw, dtype=torch.float64)
    raw = torch.randn(hyper.unrolled_steps, generator=draw, dtype=torch.float64) * 0.3 + torch.tensor(rate).expm1().log().item()
    x = torch.randn(7, channels, side, side, generator=draw, dtype=torch.float64)
    return theta_0, S, raw, x, torch.randint(3, (7,), generator=draw), hyper


def both(network, S, raw, x, y, hyper):
    ways = [Distillation(**{**vars(hyper), "mode": mode}) for mode in ("unrolled", "reverse")]
    return [unroll.outer_gradients(network, S, raw, x, y, way) for way in ways]


def final_loss(network, S, raw, x, y, hyper):
    """L by a loop that knows nothing of `unroll`: torch's own SGD on the batches written out."""
    trained = networks.build(hyper.network, channels=x.shape[1], classes=3, size=tuple(x.shape[2:]), seed=0).double()
    trained.load_state_dict(network.state_dict())
    optimiser = torch.optim.SGD(trained.parameters(), lr=1.0)
    size, i = max(1, hyper.ipc // hyper.steps), 0
    for _ in range(hyper.passes):
        for batch in range(hyper.steps):
            first = batch * size % hyper.ipc
            optimiser.param_groups[0]["lr"] = F.softplus(raw[i]).item()
            optimiser.zero_grad()
            images = torch.cat([S[c, first : first + size] for c in range(3)])
            F.cross_entropy(trained(images), torch.tensor([0] * size + [1] * size + [2] * size)).backward()
            optimiser.step()
            i += 1
    return F.cross_entropy(trained(x), y).item()


def difference(given, h, *, images=0.0, raw=0.0):
    """The central difference of L for a change of the images, of the raw rates, or of both."""
    network, S, r, x, y, hyper = given
    up, down = (final_loss(network, S + sign * h * images, r + sign * h * raw, x, y, hyper) for sign in (1, -1))
    return (up - down) / (2 * h)


@pytest.mark.parametrize(("network", "division"), CASES, ids=str)
def test_the_loss_is_that_of_a_network_trained_by_sgd(network, division):
    given = problem(network, **division)
    for loss, *_ in both(*given):
        assert loss.item() == pytest.approx(final_loss(*given), rel=1e-12)


@pytest.mark.parametrize(("network", "division"), CASES, ids=str)
def test_every_rates_gradient_is_the_central_difference(network, division):
    given = problem(network, **division)
    for _, _, d_raw in both(*given):
        for i, off in enumerate(torch.eye(len(d_raw), dtype=torch.float64)):
            assert d_raw[i].item() == pytest.approx(difference(given, 1e-5, raw=off), rel=1e-6, abs=1e-10)


@pytest.mark.parametrize(("network", "division"), CASES, ids=str)
def test_the_images_gradient_is_the_central_difference(network, division):
    """Of every class along a random direction for the first image, and along single pixels of the others."""
    given, draw = problem(network, **division), torch.Generator().manual_seed(1)
    gradients = [d_images for _, d_images, _ in both(*given)]
    for c, j in itertools.product(range(3), range(given[-1].ipc)):
        off = torch.zeros_like(given[1])
        off[c, j] = torch.randn(off.shape[2:], generator=draw, dtype=torch.float64)
        if j:
            off[c, j] *= off[c, j] == off[c, j].max()
        for gradient in gradients:
            assert (gradient * off).sum().item() == pytest.approx(difference(given, 1e-4, images=off), rel=1e-5, abs=1e-9)


@pytest.mark.parametrize(("network", "shape"), KINKED, ids=str)
def test_reverse_equals_unrolled_for_every_kind_of_network(network, shape):
    given = problem(network, channels=shape[0], side=shape[1], rate=0.1, ipc=2, steps=2, passes=2)
    for one, other in zip(*both(*given), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
        assert other.abs().max() > 1e-6


@pytest.mark.parametrize(("network", "shape"), KINKED[:2], ids=str)
def test_the_papers_networks_are_differentiated_rightly(network, shape):
    given = problem(network, channels=shape[0], side=shape[1], rate=0.1, ipc=2, steps=2, passes=1)
    off = torch.randn(given[1].shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for _, d_images, _ in both(*given):
        assert (d_images * off).sum().item() == pytest.approx(difference(given, 1e-6, images=off), rel=1e-4)


def test_one_step_by_hand():
    """A linear network at zero weights: ∇ℓ = (p - 1_y) Sᵀ, so θ_1 = -η̃ (p - 1_y) Sᵀ, and dL/dη̃ follows from L's own gradient."""
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(1, 2, bias=False)).double()
    torch.nn.init.zeros_(network[1].weight)
    S = torch.tensor([2.0, -1.0], dtype=torch.float64).view(2, 1, 1, 1, 1)
    raw, x, y = torch.tensor([0.4], dtype=torch.float64), torch.full((1, 1, 1, 1), 3.0, dtype=torch.float64), torch.tensor([1])
    rate = F.softplus(raw)
    weight = rate * torch.tensor([[0.75], [-0.75]])  # η̃ / 2 · [½·2 + ½·1, -½·2 - ½·1]
    wrong = torch.sigmoid(3 * (weight[0] - weight[1]))  # p of class 0, which the real image is not
    for loss, _, d_raw in both(network, S, raw, x, y, Distillation(ipc=1, steps=1, passes=1)):
        assert loss.item() == pytest.approx(-(1 - wrong).log().item(), rel=1e-12)
        assert d_raw.item() == pytest.approx((wrong * 3 * 1.5 * torch.sigmoid(raw)).item(), rel=1e-12)


def test_nothing_that_is_given_is_changed():
    given = problem(SMOOTH, ipc=2, steps=2, passes=1)
    before = [t.clone() for t in (*given[0].parameters(), *given[1:5])]
    both(*given)
    assert all(torch.equal(a, b) for a, b in zip(before, (*given[0].parameters(), *given[1:5]), strict=True))
    assert not any(t.requires_grad for t in given[1:4])


DIVISIONS = [
    ({"ipc": 10}, [[i] for i in range(10)] * 3),
    ({"ipc": 20}, [[2 * i, 2 * i + 1] for i in range(10)] * 3),
    ({"ipc": 1}, [[0]] * 30),
    ({"ipc": 5}, [[i] for i in range(5)] * 6),
    ({"ipc": 2, "steps": 4, "passes": 1}, [[0], [1], [0], [1]]),
]


@pytest.mark.parametrize(("division", "expected"), DIVISIONS, ids=str)
def test_how_images_are_divided_among_the_steps(division, expected):
    hyper = Distillation(**division)
    assert [list(range(hyper.ipc))[unroll.seen(hyper, i)] for i in range(hyper.unrolled_steps)] == expected


def test_labels():
    assert unroll.labels(torch.zeros(3, 2, 1, 1, 1)).tolist() == [0, 0, 1, 1, 2, 2]


# --- memory


class Kept:
    """A saved tensor that tells when it comes and goes."""

    def __init__(self, tensor, count):
        self.tensor, self.count, self.bytes = tensor, count, tensor.numel() * tensor.element_size()
        count["bytes"] += self.bytes
        count["number"] += 1
        count["most bytes"], count["most"] = max(count["most bytes"], count["bytes"]), max(count["most"], count["number"])

    def __del__(self):
        self.count["bytes"] -= self.bytes
        self.count["number"] -= 1


def kept(mode, passes):
    """The most tensors, and bytes, that autograd held at any one time, the raw rates left out."""
    count = dict.fromkeys(("bytes", "number", "most", "most bytes"), 0)
    *given, _ = problem(SMOOTH, ipc=2, steps=2, passes=passes)
    hyper = Distillation(network=SMOOTH, ipc=2, steps=2, passes=passes, mode=mode)
    gc.collect()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: Kept(t, count), lambda k: k.tensor):
        unroll.outer_gradients(*given, hyper)
    gc.collect()
    assert count["bytes"] == count["number"] == 0
    return count["most"], count["most bytes"] - 8 * hyper.unrolled_steps  # the raw rates


def test_only_unrolling_holds_more_for_more_steps():
    unrolled, reverse = ([kept(mode, passes) for passes in (1, 2, 4, 8)] for mode in ("unrolled", "reverse"))
    for what in (0, 1):
        two, four, eight, sixteen = (u[what] for u in unrolled)
        assert 0 < four - two == (eight - four) / 2 == (sixteen - eight) / 4  # so much for each step
        assert len({r[what] for r in reverse}) == 1
        assert reverse[0][what] < two
        assert sixteen > 6 * reverse[0][what]
