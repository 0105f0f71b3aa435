"""Dataset Distillation: its iterations against Adam, its replays, stops, and what it reaches on the digits in a few seconds."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dclib.core import networks, train
from dclib.core import resume as loop
from dclib.data import dataset as data
from dclib.errors import DataError, Diverged, FileError, Interrupted, SpecError
from dclib.methods import distill, unroll
from dclib.spec import MLP, AlexCifarNet, ConvNet, LeNet, baselines, key
from dclib.spec.baselines import Distillation

TINY = MLP(width=6, init="xavier")
CPU = {"device": "cpu"}


def small(**changes):
    return Distillation(**{"network": TINY, "ipc": 2, "steps": 2, "passes": 2, "epochs": 2, "batch": 10, "rate": 0.1, **changes})


def same(one, other):
    theirs = other.tensors()
    return all(torch.equal(t, theirs[n]) for n, t in one.tensors().items()) and one.losses == other.losses


def stop_after(steps):
    calls = iter([False] * steps)
    return lambda: next(calls, True)


# --- the defaults are the protocol's


def test_the_defaults_are_those_of_the_original():
    h = Distillation()
    assert (h.ipc, h.steps, h.passes, h.unrolled_steps, h.batches) == (10, 10, 3, 30, 10)
    assert (h.network, h.start, h.rate, h.crops) == (LeNet(init="xavier"), "random", 0.02, False)
    assert (h.lr, h.beta1, h.beta2, h.epochs, h.batch, h.decay_epochs, h.decay) == (0.01, 0.5, 0.999, 400, 1024, 40, 0.5)
    cifar10 = Distillation(network=AlexCifarNet(init="xavier"), rate=0.001, crops=True)
    assert cifar10 == baselines.CIFAR10


def test_the_way_to_the_gradient_is_not_part_of_the_key():
    assert key(Distillation(mode="reverse")) == key(Distillation()) != key(Distillation(steps=5))


BAD = [{"ipc": 0}, {"passes": 0}, {"rate": 0.0}, {"lr": float("inf")}, {"beta2": 1.0}, {"start": "warm"}, {"mode": "forward"}]


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_hyper_parameters_out_of_range_are_refused(bad):
    with pytest.raises(SpecError, match=next(iter(bad))):
        small(**bad)


@pytest.mark.parametrize("ipc", [3, 15])
def test_images_that_do_not_fill_the_steps_are_refused(ipc):
    with pytest.raises(SpecError, match=rf"^ipc={ipc} images do not fill 10 steps evenly: take a multiple or a divisor of steps$"):
        Distillation(ipc=ipc)


# --- one iteration


def test_where_images_and_rates_start(made):
    work = distill.Distiller(made, small(ipc=20, steps=5, rate=0.02), 0)
    assert work.images.shape == (3, 20, 1, 8, 8)
    assert work.images.mean().abs() < 0.06
    assert work.images.std().item() == pytest.approx(1, abs=0.06)
    torch.testing.assert_close(work.rates, torch.full((10,), 0.02))
    assert distill.Distiller(made, small(rate=1000.0), 0).rates.unique().tolist() == [1000.0]


def test_iterations_are_adams_on_the_outer_gradient(made):
    """Written out: fresh network, real batch, gradient through the steps, Adam with its rate halved after each epoch."""
    hyper = small(precision="float64", epochs=3, decay_epochs=1, decay=0.5, lr=0.1)
    work = distill.Distiller(made, hyper, 5)
    m, v, values = [0, 0], [0, 0], [work.images.clone(), work.raw.clone()]
    for k in range(9):  # 23 images in batches of 10 make 3 iterations an epoch
        seed = data.generator(5, "network", k).initial_seed()
        network = networks.build(TINY, channels=1, classes=3, size=(8, 8), seed=seed).double()
        loss, *gradients = unroll.outer_gradients(network, *values, *work.real_batch(k), hyper)
        assert work.step() == pytest.approx(loss.item(), rel=1e-12)
        work.k += 1
        for j, g in enumerate(gradients):
            m[j], v[j] = 0.5 * m[j] + 0.5 * g, 0.999 * v[j] + 0.001 * g * g
            m_hat, v_hat = m[j] / (1 - 0.5 ** (k + 1)), v[j] / (1 - 0.999 ** (k + 1))
            values[j] = values[j] - 0.1 * 0.5 ** (k // 3) * m_hat / (v_hat.sqrt() + 1e-8)
        torch.testing.assert_close([work.images, work.raw], values, rtol=1e-9, atol=1e-11)


def test_an_epoch_passes_every_image_once_in_another_order_each_time(made):
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


@pytest.mark.parametrize(("start", "different"), [("random", 4), ("fixed", 1)])
def test_the_network_is_drawn_afresh_or_fixed(made, monkeypatch, start, different):
    seen, gradients = set(), distill.outer_gradients

    def watch(network, *given):
        seen.add(tuple(network.classifier.weight[0].tolist()))
        return gradients(network, *given)

    monkeypatch.setattr(distill, "outer_gradients", watch)
    distill.distill(made, small(start=start, epochs=1, batch=6), **CPU)
    assert len(seen) == different


# --- crops


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


def test_real_images_are_cropped_only_where_asked_and_differently_in_each_iteration(made):
    plain, cropped = (distill.Distiller(made, small(batch=30, crops=crops), 0) for crops in (False, True))
    assert not torch.equal(plain.real_batch(0)[0], cropped.real_batch(0)[0])
    assert torch.equal(plain.real_batch(0)[1], cropped.real_batch(0)[1])
    assert torch.equal(cropped.real_batch(1)[0], cropped.real_batch(1)[0])


def test_images_too_small_to_be_padded_are_refused(make_dataset):
    with pytest.raises(DataError, match=r"^the images of made are too small to be padded by 4 reflected pixels: turn crops off$"):
        distill.distill(make_dataset(4, 4, size=4), small(crops=True), **CPU)


# --- repeating, going on, failing


@pytest.mark.parametrize("mode", ["unrolled", "reverse"])
def test_same_seed_same_bits_and_another_seed_others(made, mode):
    state = torch.random.get_rng_state()
    first, again, other = (distill.distill(made, small(mode=mode), seed=seed, **CPU) for seed in (0, 0, 1))
    assert first.k == len(first.losses) == 6
    assert same(first, again)
    assert not torch.equal(first.images, other.images)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_both_ways_learn_the_same(made):
    unrolled, reverse = (distill.distill(made, small(mode=mode, precision="float64"), **CPU) for mode in ("unrolled", "reverse"))
    torch.testing.assert_close(reverse.images, unrolled.images, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(reverse.rates, unrolled.rates, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_a_stopped_run_goes_on_to_the_identical_result(made, tmp_path, steps):
    resumed, hyper = [], small(crops=True)
    with pytest.raises(Interrupted, match=f"^stopped after {steps} of 6 iterations"):
        distill.distill(made, hyper, checkpoint=tmp_path / "c", should_stop=stop_after(steps), **CPU)
    on = distill.distill(made, hyper, checkpoint=tmp_path / "c", on_resume=lambda w: resumed.append(w.k), **CPU)
    assert resumed == [steps]
    assert same(on, distill.distill(made, hyper, **CPU))


class Killed(BaseException):
    pass


def test_a_killed_run_goes_on_from_its_last_checkpoint(made, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)

    def die(work):
        if work.k == 4:
            raise Killed

    with pytest.raises(Killed):
        distill.distill(made, small(), checkpoint=tmp_path / "c", on_step=die, **CPU)
    steps = []
    on = distill.distill(made, small(), checkpoint=tmp_path / "c", on_step=lambda w: steps.append(w.k), **CPU)
    assert steps == [4, 5, 6]
    assert same(on, distill.distill(made, small(), **CPU))


OTHERS = [({"steps": 1}, 0, "run"), ({"mode": "reverse"}, 0, "mode"), ({}, 1, "seed")]


@pytest.mark.parametrize(("changes", "seed", "named"), OTHERS)
def test_a_checkpoint_of_another_run_is_refused(made, tmp_path, changes, seed, named):
    with pytest.raises(Interrupted):
        distill.distill(made, small(), checkpoint=tmp_path / "c", should_stop=stop_after(1), **CPU)
    with pytest.raises(FileError, match=rf"belongs to another run \(its {named} differ\)"):
        distill.distill(made, small(**changes), checkpoint=tmp_path / "c", seed=seed, **CPU)


@pytest.mark.parametrize("mode", ["unrolled", "reverse"])
@pytest.mark.parametrize("rate", [1e6, 1e300])
def test_a_run_that_diverges_is_told(made, mode, rate):
    hyper = small(rate=rate, network=ConvNet(width=4, depth=1, norm="none", activation="leakyrelu"), mode=mode)
    with pytest.raises(Diverged, match=r"^the loss or its gradient was NaN or infinite in 1 of 1 iterations: lower lr or rate$"):
        distill.distill(made, hyper, **CPU)


def unstable(monkeypatch, *iterations):
    """Let the gradient of these iterations, counted from 0, leave the finite numbers."""
    whole, calls = distill.outer_gradients, iter(range(100))

    def outer_gradients(*given):
        loss, d_images, d_rates = whole(*given)
        return loss, d_images * (1e30 if next(calls) in iterations else 1.0), d_rates  # finite, but not its square

    monkeypatch.setattr(distill, "outer_gradients", outer_gradients)


def test_an_iteration_without_a_finite_gradient_changes_nothing(made, monkeypatch):
    hyper, states = small(epochs=4), []
    unstable(monkeypatch, 10)
    keep = lambda work: states.append({name: t.clone() for name, t in work.tensors().items()})  # noqa: E731
    work = distill.distill(made, hyper, on_step=keep, **CPU)
    assert work.skipped == 1
    assert [math.isinf(loss) for loss in work.losses] == [k == 10 for k in range(work.k)]
    assert all(torch.equal(t, states[9][name]) for name, t in states[10].items())
    assert not torch.equal(states[11]["images"], states[10]["images"])
    assert torch.isfinite(work.images).all()


def test_a_run_that_skips_more_than_a_tenth_has_diverged(made, monkeypatch):
    unstable(monkeypatch, 10, 11)
    with pytest.raises(Diverged, match=r"in 2 of 12 iterations"):
        distill.distill(made, small(epochs=4), **CPU)


# --- after learning


def test_replay_is_sgd_in_the_learned_order(made):
    hyper = small(ipc=4, precision="float64")
    work = distill.distill(made, hyper, **CPU)
    trained = distill.replay(work.images, work.rates, hyper, seed=3)
    seed = data.generator(3, "weights").initial_seed()
    network = networks.build(TINY, channels=1, classes=3, size=(8, 8), seed=seed).double()
    optimiser = torch.optim.SGD(network.parameters(), lr=1.0)
    for i, rate in enumerate(work.rates.tolist()):
        batch = work.images[:, :2] if i % 2 == 0 else work.images[:, 2:]
        optimiser.param_groups[0]["lr"] = rate
        optimiser.zero_grad()
        F.cross_entropy(network(batch.flatten(0, 1)), torch.tensor([0, 0, 1, 1, 2, 2])).backward()
        optimiser.step()
    for p, q in zip(trained.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-12)


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
