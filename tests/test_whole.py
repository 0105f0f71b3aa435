"""dclib.methods.full_training: one training on the whole set, its counts, its checkpoints; and the sets that are chosen with it."""

import dataclasses
import itertools
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
import torch.nn.functional as F

from dclib.core import engine, networks
from dclib.data.dataset import generator
from dclib.errors import DataError, Diverged, FileError, Interrupted, SpecError
from dclib.methods import full_training as whole
from dclib.results import Store
from dclib.run import compute as run
from dclib.run import sets
from dclib.spec import Condensation, ConvNet, MakeSet, Training, TrainNetworks, WholeTraining, full

THIN = ConvNet(width=4, depth=2)
RECIPE = WholeTraining("made", THIN, epochs=5, batch=8, lr=0.1)
HERD = MakeSet("made", "herding", 0, Condensation(ipc=2), whole=RECIPE)
here = dict(device="cpu", engine="eager")


def stop_after(n):
    calls = iter([False] * n)
    return lambda: next(calls, True)


def same(a, b):
    """Whether two states are the same but for the seconds."""
    weights = [torch.equal(x, y) for x, y in zip(a.network.state_dict().values(), b.network.state_dict().values(), strict=True)]
    seen = [torch.equal(getattr(a, name), getattr(b, name)) for name in ("right", "learned", "events")]
    rest = [getattr(a, name) == getattr(b, name) for name in ("step", "epoch_accuracies", "train_accuracies")]
    return all((*weights, *seen, *rest))


# --- training


def test_it_is_sgd_with_momentum_and_decay_written_out(made):
    state = whole.train(made, RECIPE, **here)
    shape = dict(channels=1, classes=3, size=made.size)
    network = networks.build(THIN, **shape, seed=generator(0, "weights").initial_seed())
    optimiser = torch.optim.SGD(network.parameters(), lr=1.0, momentum=0.9, weight_decay=5e-4)
    x, history, step = made.normalise(made.x_train), [[] for _ in range(23)], 0
    for epoch in range(5):
        for part in torch.randperm(23, generator=generator(0, "shuffle", epoch)).split(8):
            optimiser.param_groups[0]["lr"] = whole.rate(RECIPE, step, 15)
            logits = network(x[part])
            for i, right in zip(part.tolist(), (logits.argmax(1) == made.y_train[part]).tolist(), strict=True):
                history[i].append(right)
            optimiser.zero_grad()
            F.cross_entropy(logits, made.y_train[part]).backward()
            optimiser.step()
            step += 1
    for ours, theirs in zip(state.network.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert state.step == step == whole.steps(RECIPE, 23)
    assert state.events.tolist() == [sum(a and not b for a, b in itertools.pairwise(h)) for h in history]
    assert state.learned.tolist() == [any(h) for h in history]
    assert state.right.tolist() == [h[-1] for h in history]
    assert len(state.epoch_accuracies) == len(state.train_accuracies) == 5


def test_events_are_counted_from_right_to_wrong(made):
    trainer = whole._Trainer(made, RECIPE, "eager")
    one, sequence = torch.tensor([4]), [False, True, False, False, True, True, False]
    for right in sequence:
        trainer.count(one, torch.tensor([right]))
    assert (int(trainer.state.events[4]), bool(trainer.state.learned[4])) == (2, True)
    assert int(trainer.state.events.sum()) == 2
    assert int(trainer.state.learned.sum()) == 1


def test_the_rate_rises_to_its_top_and_falls_to_zero():
    rates = [whole.rate(RECIPE, step, 100) for step in range(100)]
    assert max(rates) == rates[19] == pytest.approx(0.1)
    assert rates[:20] == sorted(rates[:20])
    assert rates[19:] == sorted(rates[19:], reverse=True)
    assert 0 < rates[-1] < 0.002
    assert [whole.rate(RECIPE, 0, 1)] == [0.1]


def test_it_learns(make_dataset):
    """Two classes that differ in brightness."""
    base = make_dataset(40, 40)
    x = (base.x_train // 2) + (base.y_train.to(torch.uint8) * 120)[:, None, None, None]
    bright = dataclasses.replace(base, x_train=x, x_test=x[::2])
    state = whole.train(bright, dataclasses.replace(RECIPE, epochs=8), **here)
    assert state.epoch_accuracies[-1] == 100


def test_another_seed_is_another_training_and_augmentation_changes_it(made):
    first = whole.train(made, RECIPE, **here)
    for change in ({"seed": 1}, {"augment": "crop+flip"}):
        assert not same(first, whole.train(made, dataclasses.replace(RECIPE, **change), **here))
    assert same(first, whole.train(made, RECIPE, **here))


def test_weights_that_are_no_numbers_are_refused(made):
    with pytest.raises(Diverged, match="lower lr"):
        whole.train(made, dataclasses.replace(RECIPE, lr=1e30), **here)


# --- checkpoints


@pytest.mark.skipif(not engine.has_compiler(), reason="torch.compile needs g++ or clang++ on the CPU")
def test_another_engine_does_not_go_on_from_a_state_but_reads_a_finished_one(made, tmp_path):
    other, file = {**here, "engine": "compiled"}, tmp_path / "state"
    with pytest.raises(Interrupted):
        whole.train(made, RECIPE, **here, checkpoint=file, should_stop=stop_after(2))
    with pytest.raises(FileError, match="begun by engine eager: go on with that, or delete it"):
        whole.train(made, RECIPE, **other, checkpoint=file)
    done = whole.train(made, RECIPE, **here, checkpoint=file)
    assert same(whole.train(made, RECIPE, **other, checkpoint=file), done)


@pytest.mark.parametrize("augment", ["none", "crop+scale+rotate"])
def test_stopped_anywhere_it_goes_on_to_the_same_end(made, tmp_path, augment):
    recipe, file = dataclasses.replace(RECIPE, augment=augment), tmp_path / "state"
    unbroken = whole.train(made, recipe, **here)
    for done in (4, 2, 0, 5):  # in an epoch, between epochs, before any further step
        with pytest.raises(Interrupted, match="of 15 steps"):
            whole.train(made, recipe, **here, checkpoint=file, should_stop=stop_after(done))
    resumed = []
    state = whole.train(made, recipe, **here, checkpoint=file, on_resume=lambda state: resumed.append(state.step))
    assert resumed == [11]
    assert same(state, unbroken)
    assert same(whole.train(made, recipe, **here, checkpoint=file, should_stop=lambda: True), unbroken)


def test_killed_it_goes_on_to_the_same_end(tmp_path):
    """A process of its own, killed once its checkpoint is there."""
    code = """if True:
        import sys
        from dclib import whole
        from dclib.data import load
        from dclib.spec import ConvNet, WholeTraining
        whole.CHECKPOINT_SECONDS = 0.0
        recipe = WholeTraining("digits", ConvNet(width=4, depth=2), epochs=2, batch=50)
        whole.train(load("digits"), recipe, device="cpu", engine="eager", checkpoint=sys.argv[1])
    """
    killed, unbroken = tmp_path / "killed", tmp_path / "unbroken"
    process = subprocess.Popen([sys.executable, "-c", code, str(killed)])
    while not killed.exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.2)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert 0 < whole.load_tensors(killed, {}, set(), ("k",))[1]["k"] < 2 * 36
    for file in (killed, unbroken):
        subprocess.run([sys.executable, "-c", code, str(file)], check=True)
    (a, one), (b, other) = (whole.load_tensors(file, {}, set(), ()) for file in (killed, unbroken))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert {**one, "seconds": 0} == {**other, "seconds": 0}


def test_the_state_of_another_training_is_refused(made, make_dataset, tmp_path):
    file = tmp_path / "state"
    whole.train(made, RECIPE, **here, checkpoint=file)
    with pytest.raises(FileError, match="its run differ"):
        whole.train(made, dataclasses.replace(RECIPE, lr=0.2), **here, checkpoint=file)
    with pytest.raises(FileError, match="its data differ"):
        whole.train(make_dataset(5, 9, 9, seed=1), RECIPE, **here, checkpoint=file)
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(FileError, match="damaged"):
        whole.train(made, RECIPE, **here, checkpoint=file)


# --- the spec


def test_a_guided_choice_names_its_training_and_no_other_does():
    for wrong in (dict(method="herding"), dict(method="random", whole=RECIPE), dict(method="condense", whole=RECIPE)):
        with pytest.raises(SpecError, match="`whole` training"):
            MakeSet("made", **wrong)
    with pytest.raises(SpecError, match="must be one on other"):
        MakeSet("other", "herding", whole=RECIPE)


@pytest.mark.parametrize("change", [{"epochs": 0}, {"lr": -1.0}, {"batch": 0}, {"momentum": 1.0}, {"augment": "spin"}])
def test_a_recipe_that_cannot_be_is_refused(change):
    with pytest.raises(SpecError):
        dataclasses.replace(RECIPE, **change)


def test_the_recipe_is_part_of_the_sets_key():
    other = dataclasses.replace(HERD, whole=dataclasses.replace(RECIPE, epochs=6))
    assert len({HERD.key, other.key, dataclasses.replace(HERD, method="k-center").key, RECIPE.key}) == 4
    assert full(HERD)["whole"]["network"] == "ConvNet:width=4,depth=2"


# --- runs


def again(runner):
    return run.Runner(Store(runner.store.root), "cpu", **here)


def test_the_upper_bound_is_recorded_once(runner):
    runner.do(RECIPE)
    (record,) = Store(runner.store.root).records[RECIPE.key]
    assert record["kind"] == "WholeTraining"
    assert runner.store.accuracies(RECIPE.key) == {0: record["epoch_accuracies"][-1]}
    assert len(record["epoch_accuracies"]) == 5
    assert record["run"] == full(RECIPE)
    assert again(runner).store.missing(RECIPE) == []


def test_chosen_sets_keep_their_indices_and_not_their_images(runner, dataset):
    made = runner.do(HERD)
    (record,) = Store(runner.store.root).records[HERD.key]
    indices = torch.tensor(record["indices"])
    assert indices.shape == (3, 2)
    assert torch.equal(torch.from_numpy(made.images), dataset.normalise(dataset.x_train[indices.flatten()]))
    assert made.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert record["set_hash"] == made.hash
    assert list(runner.store.root.rglob("sets/*")) == []
    assert [p.name for p in runner.store.root.rglob("whole/*")] == [f"{RECIPE.key}.safetensors"]


def test_the_network_serves_every_choice_and_is_made_again_if_it_is_gone(runner, monkeypatch):
    trained = []
    train = whole.train
    monkeypatch.setattr(whole, "train", lambda *a, **k: trained.append(train(*a, **k)) or trained[-1])
    for method in ("herding", "k-center", "forgetting"):
        runner.do(dataclasses.replace(HERD, method=method))
    assert len({id(s) for s in trained}) == 3
    assert same(trained[0], trained[2])
    seconds = {s.seconds for s in trained}
    assert len(seconds) == 1, "trained once, read twice"
    runner.store.whole_path("smoke", RECIPE.key).unlink()
    assert (again(runner).do(HERD).images == runner.do(HERD).images).all()
    assert len(trained) == 3, "recorded indices need no network"
    more = dataclasses.replace(HERD, hyper=Condensation(ipc=3))
    assert again(runner).do(more).labels.tolist() == [0] * 3 + [1] * 3 + [2] * 3
    assert same(trained[3], trained[0])
    assert len(Store(runner.store.root).records[RECIPE.key]) == 1


def test_a_network_trained_at_one_preset_serves_another(runner):
    runner.do(RECIPE)
    assert again(runner).do(RECIPE).seconds == runner.do(RECIPE).seconds
    assert not (runner.store.root / "cpu").exists()


def test_networks_are_trained_on_chosen_sets(runner):
    tested = TrainNetworks(HERD, Training(THIN, epochs=2).resolve(), networks=2)
    assert set(runner.do(tested)) == {0, 1}
    assert again(runner).do(tested) == runner.do(tested)


def test_stopped_in_the_training_it_goes_on(runner):
    runner.should_stop = stop_after(3)
    with pytest.raises(Interrupted, match="3 of 20 steps"):
        runner.do(HERD)
    assert Store(runner.store.root).records == {}
    runner.should_stop = lambda: False
    runner.do(HERD)
    assert {r["kind"] for found in Store(runner.store.root).records.values() for r in found} == {"WholeTraining", "MakeSet"}


def test_indices_into_data_that_changed_are_refused(runner, make_dataset, monkeypatch):
    runner.do(HERD)
    for module in (run, sets):
        monkeypatch.setattr(module, "load", lambda name, *shape: make_dataset(10, 10, 10, seed=1))
    with pytest.raises(DataError, match="has changed since"):
        again(runner).do(HERD)
