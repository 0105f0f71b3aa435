"""Algorithm 1 against its literal form, its draws, its checkpoints and its stops."""

import pytest
import torch

from dclib import checkpoint, condense, reference
from dclib.data import Dataset
from dclib.errors import DataError, FileError, Interrupted, SpecError
from dclib.spec import Condensation, ConvNet, loops

THIN = ConvNet(width=4, depth=2)


@pytest.fixture(scope="module")
def made():
    """Three classes of 5, 9 and 9 images, 8 × 8."""
    draw = torch.Generator().manual_seed(0)
    y = torch.tensor([0] * 5 + [1] * 9 + [2] * 9)
    x = torch.randint(256, (len(y), 1, 8, 8), dtype=torch.uint8, generator=draw)
    return Dataset("made", x, y, x[::2], y[::2], (0.5,), (0.3,), ("a", "b", "c"))


def small(**changes):
    return Condensation(**{"network": THIN, "outer_steps": 3, "real_batch": 6, **changes})


def run(made, hyper, **options):
    return condense.condense(made, hyper, device="cpu", engine="eager", **options)


MORE = [{"ipc": 2, "network_epochs": 3}, {"ipc": 3, "network_batch": 4, "image_steps": 2, "network_epochs": 2}]


@pytest.mark.parametrize("changes", [{}, *MORE])
def test_equals_the_literal_algorithm(made, changes):
    hyper = small(precision="float64", **changes)
    torch.testing.assert_close(run(made, hyper).images, reference.condense(made, hyper), rtol=1e-9, atol=1e-9)


def test_classes_may_be_held_in_pieces(made, monkeypatch):
    whole = run(made, small(precision="float64")).images
    monkeypatch.setattr(condense, "WORKING_NUMBERS", 1)
    torch.testing.assert_close(run(made, small(precision="float64")).images, whole, rtol=1e-10, atol=1e-12)


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


def test_real_initialisation_takes_real_images(made):
    S = condense.initial_images(made, small(init="real", ipc=2), 0, torch.float32)
    normalised = made.normalise(made.x_train)
    for c in range(3):
        members = normalised[made.y_train == c]
        assert all(any(torch.equal(image, m) for m in members) for image in S[c])


def test_too_few_real_images_are_refused(made):
    with pytest.raises(DataError, match="class 'a' of made has 5 images, fewer than the 6"):
        condense.initial_images(made, small(init="real", ipc=6), 0, torch.float32)


@pytest.mark.parametrize("mode", ["true", "code"])
def test_batch_norm_statistics(made, mode):
    network = torch.nn.Sequential(torch.nn.BatchNorm2d(1))
    batches = [made.normalise(made.x_train[made.y_train == c]) for c in range(3)]
    condense.set_statistics(network.train(), batches, mode)
    images, share = torch.cat(batches), 1.0 if mode == "true" else 0.1
    assert network[0].running_mean.item() == pytest.approx(share * images.mean().item(), abs=1e-6)
    assert network[0].running_var.item() == pytest.approx(1 - share + share * images.var().item(), rel=1e-5)
    assert network[0].momentum == 0.1


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


@pytest.mark.parametrize(("changes", "seed", "named"), [({"outer_steps": 4}, 0, "run"), ({}, 1, "seed")])
def test_a_checkpoint_of_another_run_is_refused(made, tmp_path, changes, seed, named):
    path = tmp_path / "run"
    with pytest.raises(Interrupted):
        run(made, small(), checkpoint=path, should_stop=stop_after(1))
    before = path.read_bytes()
    with pytest.raises(FileError, match=f"belongs to another run .*{named}"):
        run(made, small(**changes), checkpoint=path, seed=seed)
    assert path.read_bytes() == before


@pytest.mark.parametrize("keep", [0, 7, 200, -1])
def test_a_truncated_checkpoint_is_refused(made, tmp_path, keep):
    path = tmp_path / "run"
    with pytest.raises(Interrupted):
        run(made, small(), checkpoint=path, should_stop=stop_after(1))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(FileError, match="delete it"):
        run(made, small(), checkpoint=path)


def test_early_stop(made):
    state = checkpoint.State(torch.zeros(1, 1, 1, 1, 1), torch.zeros(1, 1, 1, 1, 1), 4, [3.0, 2.0, 2.5, 2.0])
    assert condense.finished(state, small(outer_steps=9, patience=2))
    assert not condense.finished(state, small(outer_steps=9))
    state.losses[-1] = 1.9
    assert not condense.finished(state, small(outer_steps=9, patience=2))
    assert condense.finished(state, small(outer_steps=4))


@pytest.mark.parametrize(("ipc", "T", "epochs"), [(1, 1, 1), (2, 2, 250), (10, 10, 50), (20, 20, 25), (30, 30, 17), (50, 50, 10)])
def test_loops_follow_the_paper(ipc, T, epochs):
    assert loops(ipc) == (T, epochs)


BAD = [{"ipc": 0}, {"outer_steps": -1}, {"image_lr": float("nan")}, {"network_momentum": 1.0}, {"bn": "both"}]


@pytest.mark.parametrize("bad", BAD)
def test_hyper_parameters_out_of_range_are_refused(bad):
    with pytest.raises(SpecError, match=next(iter(bad))):
        small(**bad)
