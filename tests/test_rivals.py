"""Runs of Table T8: sets drawn from a GAN that is trained once, and many random sets at a time."""

import dataclasses
import json
import re

import pytest
import torch

from dclib import experiments
from dclib.core import train
from dclib.errors import DataError, Interrupted, SpecError
from dclib.experiments import CPU, GAN, MORE_BASELINES, ORS, PAPER, SMOKE, Cell, Preset
from dclib.methods import gan as gans
from dclib.report.sentences import cost_sentence
from dclib.results import CondensedSet, Store
from dclib.results.merge import merge_into
from dclib.results.outcomes import look_up, made_by
from dclib.run import compute as run
from dclib.run import sets
from dclib.run.workers import Job, do
from dclib.spec import Condensation, ConvNet, MakeSet, Training, TrainNetworks, full, key, spell
from dclib.spec.baselines import GanTraining, TrainGan, loss_summary

THIN = ConvNet(width=4, depth=1)
RECIPE = GanTraining(steps=4, batch=6, generator_width=4, discriminator_width=3, latent=16)
TRAINED = TrainGan("made", RECIPE)
DRAWN = MakeSet("made", "gan", 0, Condensation(ipc=2), gan=TRAINED)
HERE = dict(device="cpu", engine="eager")
TESTED = Training(THIN, epochs=1).resolve()
HYPER = Condensation(network=THIN).resolve()
PRESET = Preset("smoke", "tiny", lambda cell: HYPER, lambda cell: TESTED, 1, 1, random_sets=2, ors_sets=5, gan=RECIPE)
GAN_CELLS = [Cell("made", ipc, GAN, "ConvNet", PRESET, 2, 1) for ipc in (1, 2)]
ORS_CELLS = [Cell("made", 1, name, "ConvNet", PRESET, 5, 1) for name in ORS]


@pytest.fixture
def runner(dataset, tmp_path):
    return run.Runner(Store(tmp_path / "here"), "smoke", **HERE)


def again(runner):
    return run.Runner(Store(runner.store.root), "cpu", **HERE)


def counts(store):
    """How many records there are of each kind."""
    records = [record for found in Store(store.root).records.values() for record in found]
    return {kind: sum(r["kind"] == kind for r in records) for kind in sorted({r["kind"] for r in records})}


# --- the specs


def test_a_set_of_a_gan_names_its_training_and_no_other_does():
    for wrong in (dict(method="gan"), dict(method="random", gan=TRAINED), dict(method="condense", gan=TRAINED)):
        with pytest.raises(SpecError, match=r"method '\w+' (needs a|takes no) `gan` training"):
            MakeSet("made", **wrong)
    with pytest.raises(SpecError, match="the `gan` training must be one on other"):
        MakeSet("other", "gan", gan=TRAINED)


def test_the_recipe_is_part_of_the_key_and_other_keys_know_nothing_of_it():
    longer = dataclasses.replace(RECIPE, steps=5)
    changed = [dataclasses.replace(TRAINED, seed=1), TrainGan("made", longer), TrainGan("other", RECIPE)]
    assert len({TRAINED.key, *(c.key for c in changed)}) == 4
    assert dataclasses.replace(DRAWN, gan=changed[0]).key != DRAWN.key
    assert "gan" not in spell(MakeSet("made", "random"))
    assert full(DRAWN)["gan"]["hyper"]["steps"] == 4
    assert DRAWN.base is TRAINED
    assert (DRAWN.learned, MakeSet("made", "random").learned, MakeSet("made").learned) == (True, False, True)


def test_one_training_for_each_data_set_serves_all_numbers_of_images():
    for preset in (SMOKE, CPU, PAPER):
        cells = MORE_BASELINES.cells(preset, network=GAN, ipc=(1, 10))
        for name in {c.dataset for c in cells}:
            runs = [r for c in cells if c.dataset == name for r in c.runs()]
            assert {r.set.gan for r in runs} == {TrainGan(name, preset.gan)}
            assert {r.set.seed for r in runs} == set(range(preset.random_sets))
    assert key(PAPER.gan) == key(GanTraining())
    assert made_by(GAN) == "conditional GAN"


def test_the_losses_of_each_part():
    assert loss_summary([[1.0, 4.0], [3.0, 2.0], [5.0, 0.0]], 2) == [[1.0, 4.0], [4.0, 1.0]]
    assert loss_summary([[0.123456, 1.0]]) == [[0.1235, 1.0]]
    assert len(loss_summary([[0.0, 0.0]] * 25)) == 10
    assert loss_summary([]) == []


def test_runs_in_words():
    assert TRAINED.words == "a GAN on the whole of made, seed 0"
    assert TrainNetworks(DRAWN).words == "ConvNet on made, 2/class, drawn by a GAN, seed 0"


# --- drawing


def test_it_is_trained_once_and_its_draws_are_kept(runner, dataset, monkeypatch):
    run.execute(GAN_CELLS, runner)
    assert counts(runner.store) == {"MakeSet": 4, "TrainGan": 1, "TrainNetworks": 4}
    (record,) = Store(runner.store.root).records[TRAINED.key]
    assert len(record["losses"]) == 4
    assert record["run"] == full(TRAINED)
    assert record["data_hash"] == dataset.hash
    assert runner.store.has(TRAINED)
    monkeypatch.setattr(gans, "train", None)
    two, other = again(runner).do(DRAWN), again(runner).do(dataclasses.replace(DRAWN, seed=1))
    assert two.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert not (two.images == other.images).all()
    one = again(runner).do(dataclasses.replace(DRAWN, hyper=Condensation(ipc=1)))
    assert one.images == pytest.approx(two.images[::2], rel=1e-4, abs=1e-5), "a larger draw begins with the smaller"
    (recorded,) = Store(runner.store.root).records[DRAWN.key]
    assert recorded["set_hash"] == two.hash == CondensedSet.load(runner.store.find_set(DRAWN.key)).hash


def test_the_draw_is_that_of_the_gan_alone(runner, dataset):
    trained = gans.train(dataset, RECIPE, device="cpu")
    drawn = gans.sample(trained.generator, dataset, 2, seed=0)
    assert torch.equal(torch.from_numpy(runner.do(DRAWN).images), drawn.flatten(0, 1))


def test_a_gan_whose_state_is_gone_is_trained_again_to_the_same_images(runner):
    made = runner.do(DRAWN)
    runner.store.whole_path("smoke", TRAINED.key).unlink()
    runner.store.find_set(DRAWN.key).unlink()
    assert not runner.store.has(TRAINED)
    assert (again(runner).do(DRAWN).images == made.images).all()
    assert counts(runner.store) == {"MakeSet": 1, "TrainGan": 1}


def test_stopped_in_the_training_it_goes_on(runner, tmp_path):
    calls = iter([False] * 3)
    runner.should_stop = lambda: next(calls, True)
    with pytest.raises(Interrupted, match="stopped after 3 of 4 steps of the GAN"):
        runner.do(DRAWN)
    assert counts(runner.store) == {}
    runner.should_stop = lambda: False
    whole = run.Runner(Store(tmp_path / "whole"), "smoke", **HERE).do(DRAWN)
    assert (runner.do(DRAWN).images == whole.images).all()


def test_a_gan_of_data_that_changed_is_refused(runner, make_dataset, monkeypatch):
    runner.do(DRAWN)
    for module in (run, sets):
        monkeypatch.setattr(module, "load", lambda name, *shape: make_dataset(10, 10, 10, seed=1))
    with pytest.raises(DataError, match="made has changed since"):
        again(runner).do(TrainNetworks(DRAWN, TESTED))


def test_a_worker_gets_its_state_and_draws_the_same_images(runner, tmp_path):
    jobs, found = [Job(each, "smoke", ("cpu", "eager")) for each in (TRAINED, DRAWN)], []
    for job in jobs:
        found.append(do(job, found[:1], tmp_path / job.run.key, lambda: False))
        assert [record["kind"] for record in found[-1].records] == [type(job.run).__name__], "nothing is made twice"
    for each in found:
        each.unpack(runner.store, "smoke")
    assert counts(runner.store) == {"MakeSet": 1, "TrainGan": 1}
    serial = run.Runner(Store(tmp_path / "serial"), "smoke", **HERE).do(DRAWN)
    assert CondensedSet.load(runner.store.find_set(DRAWN.key)).hash == serial.hash


def test_it_is_merged_with_its_state(runner, tmp_path):
    runner.do(DRAWN)
    other = Store(tmp_path / "other")
    found = merge_into(other, [runner.store.root])
    assert (found.networks, found.sets, found.checkpoints, found.differences, found.refused) == (1, 1, 1, [], [])
    assert Store(other.root).has(TRAINED)
    assert merge_into(Store(other.root), [runner.store.root]).alike == 2
    path = other.root / "smoke/whole.jsonl"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"losses": [[9.0, 9.0]]}) + "\n")
    other.whole_path("smoke", TRAINED.key).unlink()
    here, left_out = merge_into(Store(other.root), [runner.store.root]).differences
    assert "a GAN on the whole of made, seed 0: what is here differs" in here
    assert "it is not the state of the training that is recorded here" in left_out


# --- many random sets


def test_optimal_random_selection_trains_a_hundred_sets_at_a_time_and_others_one():
    (many,) = MORE_BASELINES.cells(PAPER, dataset="mnist", ipc=1, network="ors")
    assert (many.together, GAN_CELLS[0].together) == (100, 1)


def test_many_sets_are_trained_in_one_call_to_the_numbers_of_each_alone(runner, tmp_path, monkeypatch):
    alone = run.Runner(Store(tmp_path / "alone"), "smoke", **HERE)
    runs = ORS_CELLS[0].runs()
    one_by_one = {r.key: alone.do(r) for r in runs}
    alone.do(runs[0])
    calls, each = [], train.evaluate_each
    monkeypatch.setattr(train, "evaluate_each", lambda small, *a, **k: calls.append(len(small)) or each(small, *a, **k))
    runner.do(runs[1])  # one is there already
    run.execute(ORS_CELLS, runner)
    assert calls == [1, 4], "the best of them are the same runs"
    assert {r.key: Store(runner.store.root).accuracies(r.key) for r in runs} == one_by_one
    assert len({a for found in one_by_one.values() for a in found.values()}) > 1
    hashes = {r["set_hash"] for r in (Store(runner.store.root).records[s.key][0] for s in runs)}
    assert len(hashes) == 5


def test_stopped_among_many_sets_it_goes_on(runner):
    calls = iter([False] * 8)
    runner.should_stop = lambda: next(calls, True)
    with pytest.raises(Interrupted):
        run.execute(ORS_CELLS, runner)
    left = [r for r in ORS_CELLS[0].runs() if Store(runner.store.root).missing(r)]
    assert 0 < len(left) < 5
    runner.should_stop = lambda: False
    run.execute(ORS_CELLS, again(runner))
    assert counts(runner.store) == {"MakeSet": 5, "TrainNetworks": 5}


# --- outcomes


def test_its_number_and_its_cost_are_told(runner, monkeypatch):
    monkeypatch.setitem(experiments.PRESETS, "smoke", PRESET)
    narrow = dict(dataset="made", ipc=2, network=GAN)
    cells = MORE_BASELINES.cells(PRESET, **narrow)
    run.execute(cells, runner)
    (outcome,) = look_up("more_baselines", "smoke", Store(runner.store.root), **narrow)
    assert outcome.shown
    assert len(outcome.sets) == 2
    assert re.search("1 GAN took [0-9]+ s, 2 sets took [0-9]+ s and 2 trained networks took", cost_sentence([outcome]))
