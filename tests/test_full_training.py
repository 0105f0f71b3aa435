"""dclib.methods.full_training: the training and its counts written out, its checkpoints, and the sets that are chosen with it."""

import dataclasses
import itertools
import signal
import subprocess
import sys
import time

import pytest
import torch
import torch.nn.functional as F

from dclib.core import checkpoint, engine, networks
from dclib.data.dataset import generator, load
from dclib.errors import DataError, Diverged, FileError, Interrupted, SpecError
from dclib.methods import full_training
from dclib.results import Store
from dclib.run import compute, loading
from dclib.spec import Condensation, ConvNet, MakeSet, WholeTraining, full

THIN = ConvNet(width=4, depth=2)
RECIPE = WholeTraining("made", THIN, epochs=5, batch=8, lr=0.1)
HERD = MakeSet("made", "herding", 0, Condensation(ipc=2), whole=RECIPE)
here = dict(device="cpu", engine="eager")


def train(dataset, recipe=RECIPE, **how):
    return full_training.train(dataset, recipe, **here | how)


def stop_after(n):
    calls = iter([False] * n)
    return lambda: next(calls, True)


def same(a, b):
    theirs = b.tensors()
    rest = [getattr(a, name) == getattr(b, name) for name in ("k", "epoch_accuracies", "train_accuracies")]
    return all(torch.equal(t, theirs[name]) for name, t in a.tensors().items()) and all(rest)


# --- training


def test_it_is_sgd_with_momentum_and_decay_written_out_and_counts_what_is_forgotten(made):
    state = train(made)
    network = networks.build(THIN, **made.shape, seed=generator(0, "weights").initial_seed())
    optimiser = torch.optim.SGD(network.parameters(), lr=1.0, momentum=0.9, weight_decay=5e-4)
    x, history, step = made.normalise(made.x_train), [[] for _ in range(23)], 0
    for epoch in range(5):
        for part in torch.randperm(23, generator=generator(0, "shuffle", epoch)).split(8):
            optimiser.param_groups[0]["lr"] = full_training.rate(RECIPE, step, 15)
            logits = network(x[part])
            for i, right in zip(part.tolist(), (logits.argmax(1) == made.y_train[part]).tolist(), strict=True):
                history[i].append(right)
            optimiser.zero_grad()
            F.cross_entropy(logits, made.y_train[part]).backward()
            optimiser.step()
            step += 1
    torch.testing.assert_close(list(state.network.parameters()), list(network.parameters()))
    assert state.k == step == full_training.steps(RECIPE, 23)
    assert state.events.tolist() == [sum(a and not b for a, b in itertools.pairwise(h)) for h in history]
    assert state.events.sum() > 0
    assert state.learned.tolist() == [any(h) for h in history]
    assert state.train_accuracies == [pytest.approx(100 * sum(h[e] for h in history) / 23) for e in range(5)]
    assert len(state.epoch_accuracies) == 5


def test_the_rate_rises_to_its_top_and_falls_to_zero():
    rates = [full_training.rate(RECIPE, step, 100) for step in range(100)]
    assert max(rates) == rates[19] == pytest.approx(0.1)
    assert rates[:20] == sorted(rates[:20])
    assert rates[19:] == sorted(rates[19:], reverse=True)
    assert 0 < rates[-1] < 0.002
    assert full_training.rate(RECIPE, 0, 1) == 0.1


def test_it_tells_dark_images_from_bright_ones(make_dataset):
    base = make_dataset(40, 40)
    x = (base.x_train // 2) + (base.y_train.to(torch.uint8) * 120)[:, None, None, None]
    state = train(dataclasses.replace(base, x_train=x, x_test=x[::2]), dataclasses.replace(RECIPE, epochs=8))
    assert state.epoch_accuracies[-1] == 100


def test_weights_that_are_no_numbers_are_refused(made):
    with pytest.raises(Diverged, match="lower lr"):
        train(made, dataclasses.replace(RECIPE, lr=1e30))


# --- checkpoints


@pytest.mark.parametrize("augment", ["none", "crop+scale+rotate"])
def test_stopped_anywhere_it_goes_on_to_the_same_end(made, tmp_path, augment):
    recipe, file = dataclasses.replace(RECIPE, augment=augment), tmp_path / "state"
    unbroken, resumed = train(made, recipe), []
    assert not same(unbroken, train(made, dataclasses.replace(recipe, seed=1)))
    for done in (4, 2, 0, 5):  # in an epoch, between epochs, before any further step
        with pytest.raises(Interrupted, match="of 15 steps"):
            train(made, recipe, checkpoint=file, should_stop=stop_after(done))
    assert same(train(made, recipe, checkpoint=file, on_resume=lambda state: resumed.append(state.k)), unbroken)
    assert resumed == [11]
    assert same(train(made, recipe, checkpoint=file, should_stop=lambda: True), unbroken), "read, not trained"


@pytest.mark.skipif(not engine.has_compiler(), reason="torch.compile needs g++ or clang++ on the CPU")
def test_another_engine_does_not_continue_a_training_but_reads_a_finished_one(made, tmp_path):
    file = tmp_path / "state"
    with pytest.raises(Interrupted):
        train(made, checkpoint=file, should_stop=stop_after(2))
    with pytest.raises(FileError, match=r"its engine differ.*go on with --engine eager"):
        train(made, engine="compiled", checkpoint=file)
    done = train(made, checkpoint=file)
    assert same(train(made, engine="compiled", checkpoint=file), done)


def test_killed_it_goes_on_to_the_same_end(tmp_path):
    code = """if True:
        import sys
        from dclib.core import resume
        from dclib.data.dataset import load
        from dclib.methods import full_training
        from dclib.spec import ConvNet, WholeTraining
        resume.CHECKPOINT_SECONDS = 0.0
        recipe = WholeTraining("digits", ConvNet(width=4, depth=2), epochs=2, batch=50)
        full_training.train(load("digits"), recipe, device="cpu", engine="eager", checkpoint=sys.argv[1])
    """
    file, recipe, resumed = tmp_path / "killed", WholeTraining("digits", THIN, epochs=2, batch=50), []
    process = subprocess.Popen([sys.executable, "-c", code, str(file)])
    while not file.exists() and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    digits = load("digits")
    state = train(digits, recipe, checkpoint=file, on_resume=lambda state: resumed.append(state.k))
    assert 0 < resumed[0] < 2 * 36
    assert same(state, train(digits, recipe))


def test_the_state_of_another_training_is_refused(made, make_dataset, tmp_path):
    file = tmp_path / "state"
    train(made, checkpoint=file)
    with pytest.raises(FileError, match="its run differ"):
        train(made, dataclasses.replace(RECIPE, lr=0.2), checkpoint=file)
    with pytest.raises(FileError, match="its data differ"):
        train(make_dataset(5, 9, 9, seed=1), checkpoint=file)
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(FileError, match="damaged"):
        train(made, checkpoint=file)


# --- the spec


def test_a_guided_choice_names_its_training_and_no_other_does():
    for wrong in (dict(method="herding"), dict(method="random", whole=RECIPE), dict(method="condense", whole=RECIPE)):
        with pytest.raises(SpecError, match="`whole`"):
            MakeSet("made", **wrong)
    with pytest.raises(SpecError, match="must be one on other"):
        MakeSet("other", "herding", whole=RECIPE)
    other = dataclasses.replace(HERD, whole=dataclasses.replace(RECIPE, epochs=6))
    assert len({HERD.key, other.key, dataclasses.replace(HERD, method="k-center").key, RECIPE.key}) == 4


@pytest.mark.parametrize("change", [{"epochs": 0}, {"lr": -1.0}, {"batch": 0}, {"momentum": 1.0}, {"augment": "spin"}], ids=str)
def test_a_recipe_that_cannot_be_is_refused(change):
    with pytest.raises(SpecError):
        dataclasses.replace(RECIPE, **change)


# --- runs


def again(runner):
    return compute.Runner(Store(runner.store.root), "cpu", **here)


def never():
    raise AssertionError("a step was begun")


def test_the_upper_bound_is_recorded_once(runner):
    runner.do(RECIPE)
    (record,) = Store(runner.store.root).records[RECIPE.key]
    assert record["kind"] == "WholeTraining"
    assert runner.store.accuracies(RECIPE.key) == {0: record["epoch_accuracies"][-1]}
    assert len(record["epoch_accuracies"]) == 5
    assert record["run"] == full(RECIPE)
    later = again(runner)
    later.should_stop = never
    later.do(RECIPE)
    assert len(Store(runner.store.root).records[RECIPE.key]) == 1


def test_chosen_sets_keep_their_indices_and_not_their_images(runner, dataset):
    made = runner.do(HERD)
    (record,) = Store(runner.store.root).records[HERD.key]
    indices = torch.tensor(record["indices"])
    assert indices.shape == (3, 2)
    assert torch.equal(torch.from_numpy(made.images), dataset.normalise(dataset.x_train[indices.flatten()]))
    assert made.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert record["set_hash"] == made.hash
    assert list(runner.store.root.rglob("sets/*")) == []


def test_one_training_serves_every_choice_and_is_repeated_if_its_file_is_gone(runner):
    runner.do(HERD)
    file = runner.store.whole_path("smoke", RECIPE.key)
    later = again(runner)
    later.should_stop = never
    for method in ("herding", "k-center", "forgetting"):
        later.do(dataclasses.replace(HERD, method=method))
    first, _ = checkpoint.load_tensors(file, {}, set(), ())
    file.unlink()
    assert (later.do(HERD).images == runner.do(HERD).images).all(), "recorded indices need no network"
    assert not file.exists()
    more = again(runner).do(dataclasses.replace(HERD, hyper=Condensation(ipc=3)))
    assert more.labels.tolist() == [0] * 3 + [1] * 3 + [2] * 3
    repeated, _ = checkpoint.load_tensors(runner.store.whole_path("cpu", RECIPE.key), {}, set(), ())
    assert all(torch.equal(t, repeated[name]) for name, t in first.items())
    assert len(Store(runner.store.root).records[RECIPE.key]) == 1


def test_stopped_in_the_training_a_choice_goes_on(runner):
    runner.should_stop = stop_after(3)
    with pytest.raises(Interrupted, match="3 of 20 steps"):
        runner.do(HERD)
    assert Store(runner.store.root).records == {}
    runner.should_stop = lambda: False
    runner.do(HERD)
    assert {r["kind"] for found in Store(runner.store.root).records.values() for r in found} == {"WholeTraining", "MakeSet"}


def test_indices_into_data_that_changed_are_refused(runner, make_dataset, monkeypatch):
    runner.do(HERD)
    for module in (compute, loading):
        monkeypatch.setattr(module, "load", lambda name, *shape: make_dataset(10, 10, 10, seed=1))
    with pytest.raises(DataError, match="has changed since"):
        again(runner).do(HERD)
