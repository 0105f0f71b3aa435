"""Algorithm 1 against its literal form, its draws, its checkpoints and its stops."""

import dataclasses
import itertools

import pytest
import torch
from helpers import refused, same

from dclib.core import checkpoint, condense, engine, inner, networks, reference
from dclib.data.dataset import generator
from dclib.errors import DataError, FileError, Interrupted
from dclib.spec import SIAMESE, Condensation, ConvNet, key

THIN = ConvNet(width=4, depth=2)


def small(**changes):
    return Condensation(**{"network": THIN, "outer_steps": 3, "real_batch": 6, **changes})


def run(made, hyper, **options):
    return condense.condense(made, hyper, **{"device": "cpu", "engine": "eager", **options})


def stop(made, hyper, steps, asked=0, **options):
    """Stop a run that has done so many outer steps, after it has been asked so often since."""
    done, left = [], iter([False] * asked)
    should_stop = lambda: len(done) >= steps and next(left, True)  # noqa: E731
    with pytest.raises(Interrupted) as stopped:
        run(made, hyper, on_step=lambda state: done.append(state.k), should_stop=should_stop, **options)
    assert len(done) == steps
    return str(stopped.value)


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
    {"objective": "features", "ipc": 2},
    {"objective": "features", "siamese": "all", "factor": 2, "outer_steps": 6},
    {"objective": "features", "ipc": 2, "inner_steps": 3, "network_epochs": 2, "siamese": "color+rotate"},
    {"factor": 2, "ipc": 2, "network_epochs": 2, "network_batch": 5},
    {"factor": 2, "batches": "mixed"},
    *({"siamese": operation, "ipc": 2, "network_epochs": 1} for operation in SIAMESE),
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


def drawn(step, k, t):
    step.draw(k, t)
    return [step.real_images(c) for c in range(3)]


def test_real_images_are_drawn_anew_at_each_step_and_none_twice(made):
    step = step_of(made, small())
    first = drawn(step, 0, 0)
    assert [len(b) for b in first] == [5, 6, 6], "a class smaller than the batch is taken whole"
    assert all(len(b.flatten(1).unique(dim=0)) == len(b) for b in first)
    assert torch.equal(first[1], drawn(step, 0, 0)[1])
    assert not torch.equal(first[1], drawn(step, 0, 1)[1])
    assert not torch.equal(first[1], drawn(step, 1, 0)[1])


# --- where the images start


def test_images_start_as_standard_normal_noise_or_as_real_images(made, make_dataset):
    S = condense.initial_images(make_dataset(4, 4, channels=3, size=32), small(ipc=4), 0, torch.float64)
    assert S.shape == (2, 4, 3, 32, 32)
    assert S.mean().abs() < 0.03
    assert S.std().item() == pytest.approx(1, abs=0.03)
    S, normalised = condense.initial_images(made, small(init="real", ipc=5), 0, torch.float32), made.normalise(made.x_train)
    for c, images in enumerate(S):
        members = normalised[made.y_train == c]
        assert all(any(torch.equal(image, m) for m in members) for image in images)
        assert len(images.unique(dim=0)) == 5
    assert not torch.equal(S, condense.initial_images(made, small(init="real", ipc=5), 1, torch.float32))
    refused("'a'", "5 images", "the 6", call=lambda: run(made, small(init="real", ipc=6)), error=DataError)


# --- batch norm

BATCH = ConvNet(width=4, depth=2, norm="batch")


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


# --- interruptions


RESUMED = dict(ipc=2, network_epochs=2, outer_steps=5)  # two inner steps in an outer step


DECAYING = RESUMED | dict(image_lr=1.0, image_lr_end=0.1)


@pytest.mark.parametrize("asked", [0, 1, 4, 8])
@pytest.mark.parametrize("changes", [RESUMED, DECAYING, RESUMED | {"batches": "mixed"}, {"objective": "features"}], ids=str)
def test_stopped_anywhere_in_an_outer_step_a_run_continues_to_the_identical_result(made, tmp_path, changes, asked):
    """Between outer steps, inner steps, classes and batches of the network: the step is done again."""
    hyper, path, resumed = small(**changes | {"outer_steps": 5}), tmp_path / "run", []
    most = 1 if "objective" in changes else 8
    for steps, done in ((2, 2), (1, 3)):
        said = stop(made, hyper, steps, min(asked, most), checkpoint=path)
        assert f"stopped after {done} of 5 outer steps" in said
    state = run(made, hyper, checkpoint=path, on_resume=lambda s: resumed.append(s.k))
    assert resumed == [3]
    assert same(state, run(made, hyper))


def test_a_run_is_asked_before_each_class_and_each_batch(made, one_lane):
    asked = []
    run(made, small(ipc=2, outer_steps=1, inner_steps=2, network_epochs=3), should_stop=lambda: bool(asked.append(1)))
    assert len(asked) >= 2 * (1 + 3) + 3


DIFFERENT = [({"ipc": 2}, {}, "run"), ({"patience": 2}, {}, "run"), ({"outer_steps": 9, "batches": "mixed"}, {}, "run")]
DIFFERENT += [({}, {"seed": 1}, "seed"), ({}, {"engine": "compiled"}, "engine")]


@pytest.mark.slow  # torch's compiler is imported
@pytest.mark.parametrize("longest", [0, 9])
def test_a_checkpoint_of_another_run_is_refused_and_left_as_it_is(made, tmp_path, monkeypatch, longest):
    path = tmp_path / "run"
    stop(made, small(), 1, checkpoint=path)
    before = path.read_bytes()
    monkeypatch.setattr(engine, "has_compiler", lambda: True)
    for changes, options, named in DIFFERENT:
        with pytest.raises(FileError, match=f"belongs to another run .*{named}"):
            run(made, small(**changes), checkpoint=path, longest=longest, **options)
        assert path.read_bytes() == before


def test_a_run_goes_on_with_the_engine_that_began_it(made, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "COMPILE_PAYS", 0)
    stop(made, small(), 1, checkpoint=tmp_path / "run")
    assert run(made, small(), checkpoint=tmp_path / "run", engine="auto").engine == "eager"


# --- runs that differ only in K


def test_a_run_of_its_own_goes_on_from_fewer_steps_and_refuses_more(made, tmp_path):
    path, hyper = tmp_path / "run", small(**RESUMED)
    assert "stopped after 2 of 5" in stop(made, hyper, 2, 1, checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(FileError, match=r"has 2 outer steps .* more than the 1 asked for"):
        run(made, dataclasses.replace(hyper, outer_steps=1), checkpoint=path)
    assert path.read_bytes() == before
    steps, longer = [], dataclasses.replace(hyper, outer_steps=6)
    found = run(made, longer, checkpoint=path, on_step=lambda s: steps.append(s.k))
    assert steps == [3, 4, 5, 6]
    assert torch.equal(found.images, run(made, longer).images)


def test_runs_that_share_a_checkpoint_go_on_from_each_other_to_the_identical_results(made, tmp_path):
    hyper, steps, shared = small(**RESUMED), [], dict(checkpoint=tmp_path / "course", longest=5)
    whole = run(made, hyper)
    for K in (1, 3):
        short = run(made, dataclasses.replace(hyper, outer_steps=K), **shared)
        assert short.losses == whole.losses[:K]
    assert "stopped after 4 of 5" in stop(made, hyper, 1, 1, **shared)
    long = run(made, hyper, **shared, on_step=lambda s: steps.append(s.k))
    assert steps == [5]
    assert torch.equal(long.images, whole.images)
    assert long.losses == whole.losses
    assert long.seconds > short.seconds > 0, "the seconds include those of the steps before"
    again = run(made, dataclasses.replace(hyper, outer_steps=3), **shared)
    assert torch.equal(again.images, short.images), "a state with more steps is not used"


@pytest.mark.parametrize("longest", [0, 9])
def test_with_a_decaying_rate_a_run_of_another_number_of_steps_is_another_run(made, tmp_path, longest):
    hyper = small(image_lr_end=0.01)
    run(made, hyper, checkpoint=tmp_path / "state", longest=9)
    with pytest.raises(FileError, match="η_S decays over K = 3"):
        run(made, dataclasses.replace(hyper, outer_steps=9), checkpoint=tmp_path / "state", longest=longest)


def test_a_checkpoint_as_they_were_first_written_goes_on(made, tmp_path):
    """Its identity has the run's own key, and no `decay`."""
    path, steps = tmp_path / "run", []
    stop(made, small(), 1, checkpoint=path)
    tensors, about = checkpoint.read_tensors(path)
    del about["decay"]
    checkpoint.save_tensors(path, tensors, about | {"run": key(small().resolve())}, {})
    found = run(made, small(), checkpoint=path, on_step=lambda s: steps.append(s.k))
    assert steps == [2, 3]
    assert torch.equal(found.images, run(made, small()).images)


# --- patience


def test_patience_ends_a_run_where_the_loss_stays_at_the_same_step_for_every_k(made, tmp_path):
    losses = run(made, small(outer_steps=30)).losses
    stop = next(k for k in itertools.count(4) if min(losses[k - 2 : k]) >= min(losses[: k - 2]))
    assert stop < 30
    for K in (3, stop - 1, 30, 40):
        found = run(made, small(outer_steps=K, patience=2), checkpoint=tmp_path / "course", longest=40)
        assert found.losses == losses[: min(K, stop)]
