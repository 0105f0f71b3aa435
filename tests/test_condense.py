"""Algorithm 1 against its literal form, its draws, its checkpoints and its stops."""

import dataclasses
import itertools

import pytest
import torch
import torch.nn.functional as F

from dclib.core import checkpoint, condense, engine, inner, networks, reference
from dclib.data.dataset import generator
from dclib.errors import DataError, DclibError, FileError, Interrupted, SpecError
from dclib.spec import Condensation, ConvNet, key

THIN = ConvNet(width=4, depth=2)


def small(**changes):
    return Condensation(**{"network": THIN, "outer_steps": 3, "real_batch": 6, **changes})


def run(made, hyper, **options):
    return condense.condense(made, hyper, **{"device": "cpu", "engine": "eager", **options})


# --- the algorithm

VARIANTS = [
    {},
    {"ipc": 2, "network_epochs": 3},
    {"ipc": 3, "network_batch": 4, "image_steps": 2, "network_epochs": 2, "network_momentum": 0.9, "network_lr": 0.05},
    {"ipc": 2, "inner_steps": 3, "network_epochs": 1, "image_lr": 0.5, "image_momentum": 0.9},
    {"distance": "euclidean"},
    {"distance": "cosine", "ipc": 2, "network_epochs": 1},
    {"batches": "mixed", "ipc": 2, "network_epochs": 1, "image_steps": 2},
    {"ipc": 2, "network_epochs": 1, "outer_steps": 5, "image_lr": 1.0, "image_lr_end": 0.1},
    {"outer_steps": 4, "image_lr": 0.1, "image_lr_end": 0.5},
]


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_equals_the_literal_algorithm(made, changes):
    hyper = small(precision="float64", **changes)
    torch.testing.assert_close(run(made, hyper).images, reference.condense(made, hyper), rtol=1e-10, atol=1e-10)


PIECES = [(inner, "WORKING_NUMBERS", 1), (inner, "WORKING_PIXELS", 300), (engine, "CHUNK", 2)]


@pytest.mark.parametrize(("module", "name", "value"), PIECES)
def test_pieces_change_nothing(made, monkeypatch, module, name, value):
    """Neither classes held in turn nor images that pass the network in turn."""
    hyper = small(precision="float64", ipc=2, network_epochs=1)
    whole = run(made, hyper)
    monkeypatch.setattr(module, name, value)
    pieces = run(made, hyper)
    torch.testing.assert_close(pieces.images, whole.images, rtol=1e-9, atol=1e-10)
    assert pieces.losses == pytest.approx(whole.losses, rel=1e-10)


def step_of(made, hyper):
    return condense.Condenser(made, hyper.resolve(), 0).inner


LIMITS = [("WORKING_NUMBERS", "numbers"), ("WORKING_PIXELS", "pixels")]


@pytest.mark.parametrize(("name", "unit"), LIMITS)
@pytest.mark.parametrize(("times", "calls"), [(0.1, [1, 1, 1]), (2.5, [2, 1]), (3, [3]), (1e5, [3])])
def test_as_many_classes_are_held_as_the_limit_allows(made, monkeypatch, name, unit, times, calls):
    step = step_of(made, small(ipc=2))
    one = {"numbers": sum(p.numel() for p in step.parameters), "pixels": 2 * 8 * 8}[unit]
    monkeypatch.setattr(inner, name, int(times * one))
    step.lanes = 1
    held, loss = [], inner.matching.matching_loss
    monkeypatch.setattr(inner.matching, "matching_loss", lambda *a: held.append(len(a[-1])) or loss(*a))
    step.draw(0, 0)
    step.gradient()
    assert held == calls


def test_the_losses_are_those_of_the_steps_averaged(made, monkeypatch):
    """One number for each outer step: the mean over t of the loss summed over classes, before the images move."""
    hyper = small(precision="float64", ipc=2, network_epochs=1, outer_steps=2)
    seen, gradient = [], inner.InnerStep._gradient

    def watched(self):
        loss, found = gradient(self)
        seen.append(loss.item())
        return loss, found

    monkeypatch.setattr(inner.InnerStep, "_gradient", watched)
    condenser = condense.Condenser(made, hyper.resolve(), 0)
    assert condenser.step()
    assert condenser.step()
    assert condenser.state.losses == pytest.approx([sum(seen[:2]) / 2, sum(seen[2:]) / 2], rel=1e-12)


def drawn(step, k, t):
    step.draw(k, t)
    return [step.real_images(c) for c in range(3)]


def test_a_class_smaller_than_the_batch_is_taken_whole_and_none_twice(made):
    batches = drawn(step_of(made, small()), 4, 1)
    assert [len(b) for b in batches] == [5, 6, 6]
    assert all(len(b.flatten(1).unique(dim=0)) == len(b) for b in batches)


def test_real_images_are_drawn_anew_at_each_step(made):
    step = step_of(made, small())
    first = drawn(step, 0, 0)[1]
    assert torch.equal(first, drawn(step, 0, 0)[1])
    assert not torch.equal(first, drawn(step, 0, 1)[1])
    assert not torch.equal(first, drawn(step, 1, 0)[1])


def test_same_seed_same_bits_and_another_seed_others(made):
    state = torch.random.get_rng_state()
    first, again, other = run(made, small()), run(made, small()), run(made, small(), seed=1)
    assert torch.equal(first.images, again.images)
    assert first.losses == again.losses
    assert not torch.equal(first.images, other.images)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_distance_falls(made):
    losses = run(made, small(outer_steps=60, image_lr=1.0)).losses
    assert sum(losses[-10:]) < 0.95 * sum(losses[:10])


def test_a_run_that_diverges_is_told(made):
    with pytest.raises(DclibError):
        run(made, small(image_lr=1e30, outer_steps=4))


# --- where the images start


def test_noise_is_standard_normal(make_dataset):
    S = condense.initial_images(make_dataset(4, 4, channels=3, size=32), small(ipc=4), 0, torch.float64)
    assert S.shape == (2, 4, 3, 32, 32)
    assert S.mean().abs() < 0.03
    assert S.std().item() == pytest.approx(1, abs=0.03)


def test_real_initialisation_takes_real_images(made):
    S = condense.initial_images(made, small(init="real", ipc=2), 0, torch.float32)
    normalised = made.normalise(made.x_train)
    for c in range(3):
        members = normalised[made.y_train == c]
        assert all(any(torch.equal(image, m) for m in members) for image in S[c])
        assert not torch.equal(S[c][0], S[c][1])
    assert not torch.equal(S, condense.initial_images(made, small(init="real", ipc=2), 1, torch.float32))


def test_a_run_starts_from_them(made):
    still = run(made, small(init="real", ipc=2, network_epochs=1, outer_steps=1, image_lr=1e-12)).images
    torch.testing.assert_close(still, condense.initial_images(made, small(init="real", ipc=2), 0, torch.float32), rtol=0, atol=1e-5)


def test_too_few_real_images_are_refused(made):
    with pytest.raises(DataError, match="class 'a' of made has 5 images, fewer than the 6"):
        run(made, small(init="real", ipc=6))
    assert condense.initial_images(made, small(init="real", ipc=5), 0, torch.float32).shape[:2] == (3, 5)


# --- batch norm

BATCH = ConvNet(width=4, depth=2, norm="batch")


@pytest.mark.parametrize(("mode", "count", "share"), [("true", 64, 1.0), ("code", 16, 0.1)])
def test_statistics_of_the_first_layer(make_dataset, mode, count, share):
    """Exactly those of up to `count` real images of each class; "code" keeps nine tenths of what was there."""
    dataset = make_dataset(5, 70, 80)
    network = networks.build(BATCH, channels=1, classes=3, size=(8, 8), seed=0, stage="condense").double()
    conv, norm = network.features[:2]
    batches = [dataset.normalise(dataset.x_train[dataset.y_train == c]).double() for c in range(3)]
    images = conv(torch.cat([b[:count] for b in batches])).detach()
    for start in (0.0, 3.0):
        torch.nn.init.constant_(norm.running_mean, start)
        torch.nn.init.constant_(norm.running_var, start + 1)
        inner.set_statistics(network.train(), [b[: inner.STATISTICS[mode]] for b in batches], mode)
        mean, variance = images.mean((0, 2, 3)), images.var((0, 2, 3))
        torch.testing.assert_close(norm.running_mean, (1 - share) * start + share * mean, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(norm.running_var, (1 - share) * (start + 1) + share * variance, rtol=1e-10, atol=1e-12)
    assert norm.momentum == 0.1


def test_only_batch_norm_needs_statistics():
    for norm, needs in (("batch", True), ("instance", False), ("none", False)):
        network = networks.build(ConvNet(width=4, depth=1, norm=norm), channels=1, classes=3, size=(8, 8), seed=0)
        assert inner.has_batch_norm(network) is needs


def literal_with_batch_norm(made, h, mode):
    """Algorithm 1 with appendix A's treatment of batch norm, written out: estimate, freeze, match, and train in training mode."""
    S = torch.randn(3, h.ipc, 1, 8, 8, generator=generator(0, "init")).double().requires_grad_()
    optimiser = torch.optim.SGD([S], lr=h.image_lr, momentum=h.image_momentum)
    for k in range(h.outer_steps):
        seed = reference.network_seed(0, k)
        network = networks.build(h.network, channels=1, classes=3, size=(8, 8), seed=seed, stage="condense").double()
        theta = torch.optim.SGD(network.parameters(), lr=h.network_lr, momentum=h.network_momentum)
        for t in range(h.inner_steps):
            draws = [made.draw(c, h.real_batch, generator(0, "real", k, t, c)) for c in range(3)]
            real = [made.normalise(made.x_train[i]).double() for i in draws]
            for layer in network.features:
                if isinstance(layer, torch.nn.BatchNorm2d):
                    layer.momentum = {"true": 1.0, "code": 0.1}[mode]
            network.train()(torch.cat(some_of(real, h, k, t, {"true": 64, "code": 16}[mode])))
            for layer in network.features:
                layer.momentum = 0.1
            network.eval()
            loss = sum(reference.class_loss(network, real[c], S[c], c) for c in range(3))
            (S.grad,) = torch.autograd.grad(loss, [S])
            optimiser.step()
            if t < h.inner_steps - 1:
                reference.train_network(network.train(), theta, S.detach(), h, 0, k, t)
    return S.detach()


def some_of(real, h, k, t, count):
    """The images that batch norm's statistics are estimated from: drawn at random, also from a class that is taken whole."""
    found = []
    for c, x in enumerate(real):
        order = torch.randperm(len(x), generator=generator(0, "statistics", k, t, c))
        found.append(x[order[:count]] if count < len(x) < h.real_batch else x[:count])
    return found


@pytest.mark.parametrize("mode", ["true", "code"])
def test_batch_norm_is_estimated_frozen_and_trained(make_dataset, mode):
    dataset = make_dataset(5, 20, 70)
    hyper = small(network=BATCH, ipc=2, inner_steps=3, network_epochs=2, precision="float64", bn=mode, real_batch=66)
    expected = literal_with_batch_norm(dataset, hyper.resolve(), mode)
    torch.testing.assert_close(run(dataset, hyper).images, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("real_batch", "whole"), [(40, True), (60, True), (30, False)])
def test_every_image_of_a_small_class_serves_the_statistics(make_dataset, real_batch, whole):
    """Where all images of a class are in the batch, each is as likely to be among those that batch norm is set by.

    Of a larger class the first images of the batch serve, which is drawn at random already.
    """
    dataset = make_dataset(40, 40, 40)
    hyper = small(network=BATCH, real_batch=real_batch).resolve()
    step = inner.InnerStep(dataset, hyper, 0, torch.zeros(3, 1, 1, 8, 8))
    counts = torch.zeros(120)
    for k in range(150):
        step.draw(k, 0)
        for drawn, chosen in zip(step.drawn, step.estimated_from, strict=True):
            assert len(chosen.unique()) == 16
            assert set(chosen.tolist()) <= set(drawn.tolist())
            assert whole or torch.equal(chosen, drawn[:16])
            counts[chosen] += 1
    expected, deviation = 150 * 0.4, (150 * 0.4 * 0.6) ** 0.5
    assert ((counts - expected).abs() < 4.5 * deviation).all()


# --- interruptions


def stop_after(steps):
    calls = iter([False] * steps)
    return lambda: next(calls, True)


def test_a_stopped_run_goes_on_to_the_identical_result(made, tmp_path):
    hyper, path = small(ipc=2, network_epochs=2, outer_steps=5), tmp_path / "run"
    whole = run(made, hyper)
    for asked in (5, 3):  # in the middle of an outer step, and between two
        with pytest.raises(Interrupted, match=r"stopped after \d of 5 outer steps"):
            run(made, hyper, checkpoint=path, should_stop=stop_after(asked))
    resumed = []
    state = run(made, hyper, checkpoint=path, on_resume=lambda s: resumed.append(s.k))
    assert resumed == [3]
    assert torch.equal(state.images, whole.images)
    assert state.losses == whole.losses


class Killed(BaseException):
    pass


def test_a_killed_run_goes_on_from_its_last_checkpoint(made, tmp_path, monkeypatch):
    hyper, path = small(ipc=2, network_epochs=2, outer_steps=5), tmp_path / "run"
    whole = run(made, hyper)
    monkeypatch.setattr(condense, "CHECKPOINT_SECONDS", -1.0)

    def die(state):
        if state.k == 3:
            raise Killed

    with pytest.raises(Killed):
        run(made, hyper, checkpoint=path, on_step=die)
    steps, resumed = [], []
    on_step, on_resume = lambda s: steps.append(s.k), lambda s: resumed.append(s.k)
    state = run(made, hyper, checkpoint=path, on_step=on_step, on_resume=on_resume)
    assert (resumed, steps) == ([2], [3, 4, 5])
    assert torch.equal(state.images, whole.images)
    assert state.losses == whole.losses


def test_no_checkpoint_is_written_more_often_than_asked(made, tmp_path):
    run(made, small(), checkpoint=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_stopped_without_a_checkpoint(made):
    asked = []
    with pytest.raises(Interrupted, match="stopped after 1 of 3 outer steps"):
        run(made, small(ipc=2, network_epochs=1), should_stop=lambda: asked.append(1) or len(asked) > 3)
    run(made, small(ipc=2, network_epochs=1), should_stop=lambda: asked.append(1) and None)
    assert len(asked) == 4 + 3 * 2  # once before each inner step


DIFFERENT = [
    ({"image_lr": 0.2}, {}, "run"),
    ({"ipc": 2}, {}, "run"),
    ({}, {"seed": 1}, "seed"),
    ({}, {"engine": "auto"}, "engine"),
]


@pytest.mark.parametrize(("changes", "options", "named"), DIFFERENT)
def test_a_checkpoint_of_another_run_is_refused(made, tmp_path, monkeypatch, changes, options, named):
    path = tmp_path / "run"
    with pytest.raises(Interrupted):
        run(made, small(), checkpoint=path, should_stop=stop_after(1))
    before = path.read_bytes()
    monkeypatch.setattr(engine, "choose", lambda wanted, *rest: "compiled" if wanted == "auto" else wanted)
    with pytest.raises(FileError, match=f"belongs to another run .*{named}"):
        run(made, small(**changes), checkpoint=path, **options)
    assert path.read_bytes() == before


def test_a_checkpoint_of_the_same_run_with_another_k_goes_on(made, tmp_path):
    path, hyper = tmp_path / "run", small(ipc=2, network_epochs=2, outer_steps=4)
    with pytest.raises(Interrupted, match="stopped after 2 of 4"):
        run(made, hyper, checkpoint=path, should_stop=stop_after(5))
    before = path.read_bytes()
    with pytest.raises(FileError, match=r"2 outer steps behind it, more than K = 1: go on with -K 2 or more .*, or remove it$"):
        run(made, dataclasses.replace(hyper, outer_steps=1), checkpoint=path)
    assert path.read_bytes() == before
    steps, longer = [], dataclasses.replace(hyper, outer_steps=5)
    found = run(made, longer, checkpoint=path, on_step=lambda s: steps.append(s.k))
    assert steps == [3, 4, 5]
    assert torch.equal(found.images, run(made, longer).images)


def test_a_checkpoint_as_they_were_written_before_goes_on(made, tmp_path):
    path, steps = tmp_path / "run", []
    with pytest.raises(Interrupted):
        run(made, small(), checkpoint=path, should_stop=stop_after(1))
    tensors, about = checkpoint.load_tensors(path, {}, set())
    checkpoint.save_tensors(path, tensors, about | {"run": key(small().resolve())}, {})
    found = run(made, small(), checkpoint=path, on_step=lambda s: steps.append(s.k))
    assert steps == [2, 3]
    assert torch.equal(found.images, run(made, small()).images)


def test_a_checkpoint_of_other_data_is_refused(make_dataset, tmp_path):
    path = tmp_path / "run"
    with pytest.raises(Interrupted):
        run(make_dataset(5, 9, 9), small(), checkpoint=path, should_stop=stop_after(1))
    with pytest.raises(FileError, match=r"belongs to another run \(its data differ\)"):
        run(make_dataset(5, 9, 9, seed=1), small(), checkpoint=path)


@pytest.mark.parametrize("keep", [0, 7, 200, -1])
def test_a_truncated_checkpoint_is_refused(made, tmp_path, keep):
    path = tmp_path / "run"
    with pytest.raises(Interrupted):
        run(made, small(), checkpoint=path, should_stop=stop_after(1))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(FileError, match=r"^the checkpoint .* is damaged: delete it to start this run again$"):
        run(made, small(), checkpoint=path)


# --- runs that differ in K alone


def test_a_longer_run_goes_on_from_the_shorter_one_to_the_identical_result(made, tmp_path):
    hyper, path, steps = small(ipc=2, network_epochs=2, outer_steps=5), tmp_path / "course", []
    whole = run(made, hyper)
    for K in (1, 3):
        short = run(made, dataclasses.replace(hyper, outer_steps=K), checkpoint=path, on_course=True)
        assert short.losses == whole.losses[:K]
    long = run(made, hyper, checkpoint=path, on_course=True, on_step=lambda s: steps.append(s.k))
    assert steps == [4, 5]
    assert torch.equal(long.images, whole.images)
    assert torch.equal(long.velocity, whole.velocity)
    assert long.losses == whole.losses
    assert long.seconds > short.seconds > 0, "those of the steps before are in it"
    again = run(made, dataclasses.replace(hyper, outer_steps=3), checkpoint=path, on_course=True)
    assert torch.equal(again.images, short.images), "a state that is farther is not used"


@pytest.mark.parametrize("stop", [3, 4, 7])
def test_stopped_in_the_middle_of_the_decay_a_run_goes_on_to_the_identical_images(made, tmp_path, stop):
    hyper, path = small(ipc=2, network_epochs=1, outer_steps=5, image_lr=1.0, image_lr_end=0.1), tmp_path / "state"
    with pytest.raises(Interrupted):
        run(made, hyper, checkpoint=path, should_stop=stop_after(stop))
    assert torch.equal(run(made, hyper, checkpoint=path).images, run(made, hyper).images)


@pytest.mark.parametrize("on_course", [False, True])
def test_with_a_decaying_rate_a_run_of_another_number_of_steps_is_another_run(made, tmp_path, on_course):
    hyper = small(image_lr_end=0.01)
    run(made, hyper, checkpoint=tmp_path / "state", on_course=True)
    with pytest.raises(FileError, match=r"η_S decays over K = 3 outer steps: go on with -K 3"):
        run(made, dataclasses.replace(hyper, outer_steps=9), checkpoint=tmp_path / "state", on_course=on_course)


def test_stopped_on_its_course_a_run_goes_on(made, tmp_path):
    hyper, path = small(ipc=2, network_epochs=2, outer_steps=5), tmp_path / "course"
    run(made, dataclasses.replace(hyper, outer_steps=1), checkpoint=path, on_course=True)
    with pytest.raises(Interrupted, match="stopped after 3 of 5"):
        run(made, hyper, checkpoint=path, on_course=True, should_stop=stop_after(5))
    assert torch.equal(run(made, hyper, checkpoint=path, on_course=True).images, run(made, hyper).images)


def test_patience_ends_all_runs_of_a_course_at_the_same_step(made, tmp_path):
    whole = run(made, small(outer_steps=30, patience=2))
    assert 4 < whole.k < 30
    for K in (3, whole.k - 1, 30, 40):
        found = run(made, small(outer_steps=K, patience=2), checkpoint=tmp_path / "course", on_course=True)
        assert found.losses == whole.losses[:K]
    assert torch.equal(found.images, whole.images)


@pytest.mark.parametrize("changes", [{"ipc": 2}, {"patience": 2}, {"batches": "mixed"}])
def test_another_course_is_refused(made, tmp_path, changes):
    run(made, small(), checkpoint=tmp_path / "course", on_course=True)
    with pytest.raises(FileError, match=r"belongs to another run \(its run differ\)"):
        run(made, small(outer_steps=9, **changes), checkpoint=tmp_path / "course", on_course=True)


# --- the end


def test_early_stop():
    state = checkpoint.State(torch.zeros(1, 1, 1, 1, 1), torch.zeros(1, 1, 1, 1, 1), 4, [3.0, 2.0, 2.5, 2.0])
    assert condense.finished(state, small(outer_steps=9, patience=2))
    assert not condense.finished(state, small(outer_steps=9))
    state.losses[-1] = 1.9
    assert not condense.finished(state, small(outer_steps=9, patience=2))
    assert condense.finished(state, small(outer_steps=4))


def test_a_run_stops_early_where_the_loss_stays(made):
    losses = run(made, small(outer_steps=30)).losses
    stop = next(k for k in itertools.count(4) if min(losses[k - 2 : k]) >= min(losses[: k - 2]))
    assert stop < 30
    assert run(made, small(outer_steps=30, patience=2)).losses == losses[:stop]


def test_work_counts_passes_of_ten_images():
    assert condense.work(small(real_batch=64, outer_steps=7), 10) == 7 * (64 + 1)
    assert condense.work(small(real_batch=64, outer_steps=7, ipc=10), 10) == 7 * 10 * (64 + 50)


BAD = [{"ipc": 0}, {"outer_steps": -1}, {"image_lr": float("nan")}, {"network_momentum": 1.0}, {"bn": "both"}]


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_hyper_parameters_out_of_range_are_refused(bad):
    with pytest.raises(SpecError, match=next(iter(bad))):
        small(**bad)


def test_the_network_is_trained_on_labels_in_order(made, one_lane):
    """The images of class c stand at c · ipc … and bear its label."""
    step, seen = step_of(made, small(ipc=2, network_epochs=1)), []
    step.first_order = lambda x: seen.append(x) or step.network(x)
    labels, entropy = [], F.cross_entropy
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(F, "cross_entropy", lambda logits, y, **how: labels.append(y) or entropy(logits, y, **how))
        step.train_network(0, 0)
    S = step.images
    assert sorted(labels[0].tolist()) == [0, 0, 1, 1, 2, 2]
    assert all(any(torch.equal(x, image) for image in S[y]) for x, y in zip(seen[0], labels[0], strict=True))


@pytest.mark.parametrize("ipc", [1, 3])
def test_the_network_is_not_trained_after_the_last_inner_step(made, monkeypatch, ipc):
    trained = []
    monkeypatch.setattr(inner.InnerStep, "train_network", lambda self, k, t: trained.append(t))
    assert condense.Condenser(made, small(ipc=ipc).resolve(), 0).step()
    assert trained == list(range(ipc - 1))
