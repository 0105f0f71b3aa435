"""Dataset Distillation: its gradient against finite differences and a loop written out, its iterations and replays."""

import gc
import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers import assert_close, refused

from dclib.core import networks, train
from dclib.data import dataset as data
from dclib.errors import DataError, Diverged
from dclib.methods import distill
from dclib.spec import MLP, AlexCifarNet, ConvNet, LeNet, baselines, key
from dclib.spec.baselines import MODES, Distillation

TINY = MLP(width=6, init="xavier")
CPU = {"device": "cpu"}


def small(**changes):
    return Distillation(**{"network": TINY, "ipc": 2, "steps": 2, "passes": 2, "epochs": 2, "batch": 10, "rate": 0.1, **changes})


def test_the_defaults_are_those_of_the_original():
    h = Distillation()
    assert (h.ipc, h.steps, h.passes, h.unrolled_steps, h.batches) == (10, 10, 3, 30, 10)
    assert (h.network, h.start, h.rate, h.crops) == (LeNet(init="xavier"), "random", 0.02, False)
    assert (h.lr, h.beta1, h.beta2, h.epochs, h.batch, h.decay_epochs, h.decay) == (0.01, 0.5, 0.999, 400, 1024, 40, 0.5)
    assert Distillation(network=AlexCifarNet(init="xavier"), rate=0.001, crops=True) == baselines.CIFAR10
    assert key(Distillation(mode="reverse")) == key(Distillation()) != key(Distillation(steps=5))


DIVISIONS = [
    ({"ipc": 10}, [[i] for i in range(10)] * 3),
    ({"ipc": 20}, [[2 * i, 2 * i + 1] for i in range(10)] * 3),
    ({"ipc": 1}, [[0]] * 30),
    ({"ipc": 5}, [[i] for i in range(5)] * 6),
    ({"ipc": 2, "steps": 4, "passes": 1}, [[0], [1], [0], [1]]),
]


def test_how_images_are_divided_among_the_steps():
    for division, expected in DIVISIONS:
        hyper = Distillation(**division)
        assert distill.order(hyper, 2).tolist() == [[*some, *(hyper.ipc + i for i in some)] for some in expected]
    for ipc in (3, 15):
        refused(f"ipc={ipc}", call=Distillation, ipc=ipc, steps=10)


# --- the gradient through all steps

SMOOTH = ConvNet(width=4, depth=2, activation="sigmoid", init="xavier")
CASES = [
    (SMOOTH, {"ipc": 4, "steps": 2, "passes": 1}),
    (SMOOTH, {"ipc": 2, "steps": 4, "passes": 2}),
    (MLP(width=8, activation="sigmoid"), {"ipc": 1, "steps": 2, "passes": 3}),
]
KINKED = [
    (LeNet(init="xavier"), (1, 28)),
    (AlexCifarNet(init="xavier"), (3, 8)),
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
    ways = [Distillation(**{**vars(hyper), "mode": mode}) for mode in MODES]
    return [distill.outer_gradients(network, S, raw, x, y, way) for way in ways]


def final_loss(network, S, raw, x, y, hyper):
    """L by a loop that knows nothing of `distill`: torch's own SGD on the batches written out."""
    trained = networks.build(hyper.network, channels=x.shape[1], classes=3, size=tuple(x.shape[2:]), seed=0).double()
    trained.load_state_dict(network.state_dict())
    optimiser = torch.optim.SGD(trained.parameters(), lr=1.0)
    size = max(1, hyper.ipc // hyper.steps)
    for i, (_, batch) in enumerate(itertools.product(range(hyper.passes), range(hyper.steps))):
        first = batch * size % hyper.ipc
        optimiser.param_groups[0]["lr"] = F.softplus(raw[i]).item()
        optimiser.zero_grad()
        images = torch.cat([S[c, first : first + size] for c in range(3)])
        F.cross_entropy(trained(images), torch.tensor([0] * size + [1] * size + [2] * size)).backward()
        optimiser.step()
    return F.cross_entropy(trained(x), y).item()


def difference(given, h, *, images=0.0, raw=0.0):
    """The central difference of L for a change of the images, of the raw rates, or of both."""
    network, S, r, x, y, hyper = given
    up, down = (final_loss(network, S + sign * h * images, r + sign * h * raw, x, y, hyper) for sign in (1, -1))
    return (up - down) / (2 * h)


@pytest.mark.parametrize(("network", "division"), CASES, ids=str)
def test_loss_and_gradient_are_those_of_a_network_trained_by_sgd(network, division):
    """By central differences: of each rate, and of every image along a direction drawn at random."""
    given, draw = problem(network, **division), torch.Generator().manual_seed(1)
    before = [t.clone() for t in (*given[0].parameters(), *given[1:5])]
    (loss, d_images, d_raw), reverse = both(*given)
    assert loss.item() == pytest.approx(final_loss(*given), rel=1e-12)
    for i, off in enumerate(torch.eye(len(d_raw), dtype=torch.float64)):
        assert d_raw[i].item() == pytest.approx(difference(given, 1e-5, raw=off), rel=1e-6, abs=1e-10)
    for c, j in itertools.product(range(3), range(given[-1].ipc)):
        off = torch.zeros_like(given[1])
        off[c, j] = torch.randn(off.shape[2:], generator=draw, dtype=torch.float64)
        assert (d_images * off).sum().item() == pytest.approx(difference(given, 1e-4, images=off), rel=1e-5, abs=1e-9)
    torch.testing.assert_close(reverse, (loss, d_images, d_raw), rtol=1e-10, atol=1e-12)
    assert all(torch.equal(a, b) for a, b in zip(before, (*given[0].parameters(), *given[1:5]), strict=True))


@pytest.mark.parametrize(("network", "shape"), KINKED, ids=str)
def test_reverse_equals_unrolled_for_every_kind_of_network(network, shape):
    given = problem(network, channels=shape[0], side=shape[1], rate=0.1, ipc=2, steps=2, passes=2)
    for one, other in zip(*both(*given), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
        assert other.abs().max() > 1e-6


class Kept:
    """A saved tensor that tells when it comes and goes."""

    def __init__(self, tensor, count):
        self.tensor, self.count = tensor, count
        count["bytes"] += tensor.nbytes
        count["most"] = max(count["most"], count["bytes"])

    def __del__(self):
        self.count["bytes"] -= self.tensor.nbytes


def kept(mode, passes):
    """The most bytes that autograd held at any one time, the raw rates left out."""
    count = {"bytes": 0, "most": 0}
    *given, _ = problem(SMOOTH, ipc=2, steps=2, passes=passes)
    hyper = Distillation(network=SMOOTH, ipc=2, steps=2, passes=passes, mode=mode)
    gc.collect()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: Kept(t, count), lambda k: k.tensor):
        distill.outer_gradients(*given, hyper)
    gc.collect()
    assert count["bytes"] == 0
    return count["most"] - 8 * hyper.unrolled_steps


@pytest.mark.slow
def test_only_unrolling_holds_more_for_more_steps():
    (two, four, eight, sixteen), reverse = ([kept(mode, passes) for passes in (1, 2, 4, 8)] for mode in MODES)
    assert 0 < four - two == (eight - four) / 2 == (sixteen - eight) / 4  # so much for each step
    assert len(set(reverse)) == 1
    assert reverse[0] < two
    assert sixteen > 6 * reverse[0]


# --- one iteration


def test_where_images_and_rates_start(made):
    work = distill.Distiller(made, small(ipc=20, steps=5, rate=0.02), 0)
    assert work.images.shape == (3, 20, 1, 8, 8)
    assert work.images.mean().abs() < 0.06
    assert work.images.std().item() == pytest.approx(1, abs=0.06)
    torch.testing.assert_close(work.rates, torch.full((10,), 0.02))
    assert distill.Distiller(made, small(rate=1000.0), 0).rates.unique().tolist() == [1000.0]


@pytest.mark.parametrize("start", ["random", "fixed"])
def test_iterations_are_adams_on_the_outer_gradient(made, start):
    """Written out: fresh network, real batch, gradient through the steps, Adam with its rate halved after each epoch."""
    hyper = small(precision="float64", epochs=3, decay_epochs=1, decay=0.5, lr=0.1, start=start)
    work = distill.Distiller(made, hyper, 5)
    m, v, values = [0, 0], [0, 0], [work.images.clone(), work.raw.clone()]
    for k in range(9):  # 23 images in batches of 10 make 3 iterations an epoch
        seed = data.generator(5, "network", k if start == "random" else 0).initial_seed()
        network = networks.build(TINY, **made.shape, seed=seed).double()
        loss, *gradients = distill.outer_gradients(network, *values, *work.real_batch(k), hyper)
        assert work.step() == pytest.approx(loss.item(), rel=1e-12)
        work.k += 1
        for j, g in enumerate(gradients):
            m[j], v[j] = 0.5 * m[j] + 0.5 * g, 0.999 * v[j] + 0.001 * g * g
            m_hat, v_hat = m[j] / (1 - 0.5 ** (k + 1)), v[j] / (1 - 0.999 ** (k + 1))
            values[j] = values[j] - 0.1 * 0.5 ** (k // 3) * m_hat / (v_hat.sqrt() + 1e-8)
        torch.testing.assert_close([work.images, work.raw], values, rtol=1e-9, atol=1e-11)


def test_an_epoch_passes_every_image_once_in_another_order_each_time(made, make_dataset):
    work, orders = distill.Distiller(made, small(), 0), []
    normal = made.normalise(made.x_train)
    for epoch in range(2):
        batches = [work.real_batch(3 * epoch + i) for i in range(3)]
        assert [len(x) for x, _ in batches] == [10, 10, 3]
        found = [int((normal == image).flatten(1).all(1).nonzero()[0, 0]) for x, _ in batches for image in x]
        assert sorted(found) == list(range(23))
        assert torch.equal(torch.cat([y for _, y in batches]), made.y_train[found])
        orders.append(found)
    assert orders[0] != orders[1]
    cropped = distill.Distiller(made, small(crops=True), 0).real_batch(0)
    assert not torch.equal(cropped[0], work.real_batch(0)[0])
    assert torch.equal(cropped[1], work.real_batch(0)[1])
    refused("crops", call=lambda: distill.distill(make_dataset(4, 4, size=4), small(crops=True), **CPU), error=DataError)


def test_crops_are_reflected_cut_and_mirrored():
    images = torch.arange(6 * 2 * 7 * 5, dtype=torch.float32).view(6, 2, 7, 5)
    padded = np.pad(images.numpy(), ((0, 0), (0, 0), (4, 4), (4, 4)), mode="reflect")
    draw = data.generator(0)
    down, right = torch.randint(9, (2, 6, 1), generator=draw)[:, :, 0]
    mirrored = torch.randint(2, (6, 1), generator=draw)[:, 0]
    cropped = distill.crop(images, data.generator(0))
    for n in range(6):
        expected = padded[n, :, down[n] : down[n] + 7, right[n] : right[n] + 5]
        assert (cropped[n].numpy() == (expected[:, :, ::-1] if mirrored[n] else expected)).all()
    assert 0 < mirrored.sum() < 6
    assert len(set(zip(down.tolist(), right.tolist(), strict=True))) > 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rate", [1e6, 1e300])
def test_a_run_that_diverges_is_told(made, mode, rate):
    hyper = small(rate=rate, network=ConvNet(width=4, depth=1, norm="none", activation="leakyrelu"), mode=mode)
    refused("1 of 1 iterations", "lower lr or rate", call=lambda: distill.distill(made, hyper, **CPU), error=Diverged)


def test_an_iteration_without_a_finite_gradient_changes_nothing(made, monkeypatch):
    whole, calls, states = distill.outer_gradients, itertools.count(), []

    def outer_gradients(*given):
        loss, d_images, d_rates = whole(*given)
        return loss, d_images * (1e30 if next(calls) in (10, 23, 24) else 1.0), d_rates  # finite, but not its square

    monkeypatch.setattr(distill, "outer_gradients", outer_gradients)
    keep = lambda work: states.append({name: t.clone() for name, t in work.tensors().items()})  # noqa: E731
    work = distill.distill(made, small(epochs=4), on_step=keep, **CPU)
    assert work.skipped == 1
    assert [math.isinf(loss) for loss in work.losses] == [k == 10 for k in range(12)]
    assert all(torch.equal(t, states[9][name]) for name, t in states[10].items())
    assert not torch.equal(states[11]["images"], states[10]["images"])
    refused("2 of 13 iterations", call=lambda: distill.distill(made, small(epochs=5), **CPU), error=Diverged)


# --- after learning


def test_replay_is_sgd_in_the_learned_order(made):
    hyper = small(ipc=4, precision="float64")
    work = distill.distill(made, hyper, **CPU)
    trained = distill.replay(work.images, work.rates, hyper, seed=3)
    network = networks.build(TINY, **made.shape, seed=data.generator(3, "weights").initial_seed()).double()
    optimiser = torch.optim.SGD(network.parameters(), lr=1.0)
    for i, rate in enumerate(work.rates.tolist()):
        batch = work.images[:, :2] if i % 2 == 0 else work.images[:, 2:]
        optimiser.param_groups[0]["lr"] = rate
        optimiser.zero_grad()
        F.cross_entropy(network(batch.flatten(0, 1)), torch.tensor([0, 0, 1, 1, 2, 2])).backward()
        optimiser.step()
    assert_close(trained, network, 1e-12, 1e-12)


def test_a_fixed_start_is_replayed_from_that_start(made):
    """So that the loss on the real batch is what the next iteration would find."""
    hyper = small(start="fixed", precision="float64", batch=30)
    work = distill.distill(made, hyper, seed=4, **CPU)
    trained = distill.replay(work.images, work.rates, hyper, seed=4)
    x, y = work.real_batch(work.k)
    assert F.cross_entropy(trained(x), y).item() == pytest.approx(work.step(), rel=1e-12)
    other = distill.replay(work.images, work.rates, hyper, network=TINY, seed=4)
    assert not torch.equal(other.classifier.weight, trained.classifier.weight)


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "ipc"), [("unrolled", 10), ("reverse", 1)])
def test_it_learns_the_digits(mode, ipc):
    """Networks that it has never seen classify far above chance after its few steps, and their loss has fallen."""
    digits = data.load("digits", image_size=8)
    hyper = Distillation(network=MLP(width=32, init="xavier"), ipc=ipc, passes=1, epochs=25, batch=256, lr=0.05, mode=mode)
    work = distill.distill(digits, hyper, **CPU)
    found = [train.accuracy(distill.replay(work.images, work.rates, hyper, seed=s), digits) for s in range(3)]
    assert min(found) > 50
    assert sum(work.losses[-5:]) / 5 < 0.6 * math.log(10)
