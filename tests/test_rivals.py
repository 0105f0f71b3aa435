"""Runs of Table T8: sets drawn from a GAN that is trained once, and many random sets at a time."""

import dataclasses
import json

import pytest
import torch
from helpers import stop_after

from dclib.errors import Interrupted, SpecError
from dclib.experiments import CPU, GAN, MORE_BASELINES, ORS, PAPER, SMOKE, Cell, Preset
from dclib.methods import gan
from dclib.results import CondensedSet, Store
from dclib.results.merge import merge_into
from dclib.run.compute import compute
from dclib.spec import Condensation, ConvNet, MakeSet, Training, full, spell
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


def counts(store):
    """How many records there are of each kind."""
    records = [record for found in Store(store.root).records.values() for record in found]
    return {kind: sum(r["kind"] == kind for r in records) for kind in sorted({r["kind"] for r in records})}


# --- the specs


def test_a_set_of_a_gan_names_its_training_which_is_part_of_the_key_and_no_other_does():
    for wrong in (dict(method="gan"), dict(method="random", gan=TRAINED), dict(method="condense", gan=TRAINED)):
        with pytest.raises(SpecError, match=r"method '\w+' (needs|takes) .*`gan`"):
            MakeSet("made", **wrong)
    with pytest.raises(SpecError, match=r"`gan`.* other"):
        MakeSet("other", "gan", gan=TRAINED)
    longer = dataclasses.replace(RECIPE, steps=5)
    changed = [dataclasses.replace(TRAINED, seed=1), TrainGan("made", longer), TrainGan("other", RECIPE)]
    assert len({TRAINED.key, *(c.key for c in changed)}) == 4
    assert dataclasses.replace(DRAWN, gan=changed[0]).key != DRAWN.key
    assert "gan" not in spell(MakeSet("made", "random"))


@pytest.mark.parametrize("preset", [SMOKE, CPU, PAPER], ids=lambda preset: preset.name)
def test_one_training_for_each_data_set_serves_all_numbers_of_images(preset):
    runs = [run.set for cell in MORE_BASELINES.cells(preset, network=GAN, ipc=(1, 10)) for run in cell.runs()]
    assert {run.hyper.ipc for run in runs} == {1, 10}
    assert {run.gan for run in runs} == {TrainGan(run.dataset, preset.gan) for run in runs}
    assert {run.seed for run in runs} == set(range(preset.random_sets))


def test_the_losses_of_each_part():
    assert loss_summary([[1.0, 4.0], [3.0, 2.0], [5.0, 0.0]], 2) == [[1.0, 4.0], [4.0, 1.0]]
    assert len(loss_summary([[0.0, 0.0]] * 25)) == 10
    assert loss_summary([]) == []


# --- drawing


def test_it_is_trained_once_and_its_draws_are_kept(runner, own):
    """If its state is gone it is trained again to the same images."""
    assert compute(GAN_CELLS, runner.store, "smoke", **HERE) == []
    assert counts(runner.store) == {"MakeSet": 4, "TrainGan": 1, "TrainNetworks": 4}
    (record,) = Store(runner.store.root).records[TRAINED.key]
    assert (len(record["losses"]), record["run"], record["data_hash"]) == (4, full(TRAINED), own.hash)
    two, other = runner.do(DRAWN), runner.do(dataclasses.replace(DRAWN, seed=1))
    assert two.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert not (two.images == other.images).all()
    trained = gan.train(own, RECIPE, device="cpu")
    assert torch.equal(torch.from_numpy(two.images), gan.sample(trained.generator, own, 2, seed=0).flatten(0, 1))
    (recorded,) = Store(runner.store.root).records[DRAWN.key]
    assert recorded["set_hash"] == two.hash == CondensedSet.load(runner.store.find_set(DRAWN.key)).hash
    runner.store.whole_path("smoke", TRAINED.key).unlink()
    runner.store.find_set(DRAWN.key).unlink()
    assert not runner.store.has(TRAINED)
    assert (runner.do(DRAWN).images == two.images).all()
    assert counts(runner.store) == {"MakeSet": 4, "TrainGan": 1, "TrainNetworks": 4}


def test_stopped_in_the_training_it_goes_on(runner, new_runner, tmp_path):
    runner.should_stop = stop_after(3)
    with pytest.raises(Interrupted, match="stopped after 3 of 4 steps of the GAN"):
        runner.do(DRAWN)
    assert counts(runner.store) == {}
    runner.should_stop = lambda: False
    assert (runner.do(DRAWN).images == new_runner(tmp_path / "whole").do(DRAWN).images).all()


@pytest.mark.slow
def test_a_worker_gets_its_state_and_draws_the_same_images(runner, tmp_path):
    spread = Store(tmp_path / "spread")
    assert compute(GAN_CELLS, spread, "smoke", workers=1, **HERE) == []
    assert counts(spread) == {"MakeSet": 4, "TrainGan": 1, "TrainNetworks": 4}, "nothing is made twice"
    assert CondensedSet.load(spread.find_set(DRAWN.key)).hash == runner.do(DRAWN).hash


def test_it_is_merged_with_its_state_and_that_of_another_training_is_left(runner, tmp_path):
    runner.do(DRAWN)
    other = Store(tmp_path / "other")
    found = merge_into(other, [runner.store.root])
    assert (found.networks, found.sets, found.checkpoints, found.differences, found.refused) == (1, 1, 1, [], [])
    assert Store(other.root).has(TRAINED)
    path = other.root / "smoke/whole.jsonl"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"losses": [[9.0, 9.0]]}) + "\n")
    other.whole_path("smoke", TRAINED.key).unlink()
    assert len(merge_into(Store(other.root), [runner.store.root]).differences) == 2
    assert not Store(other.root).has(TRAINED)


# --- many random sets


def test_many_sets_are_trained_together_to_the_numbers_of_each_alone_and_go_on_when_stopped(runner, new_runner, tmp_path):
    """Optimal random selection trains a hundred sets at a time, and others one."""
    (many,) = MORE_BASELINES.cells(PAPER, dataset="mnist", ipc=1, network="ors")
    assert (many.together, GAN_CELLS[0].together) == (100, 1)
    alone, runs, store = new_runner(tmp_path / "alone"), ORS_CELLS[0].runs(), runner.store
    one_by_one = {r.key: alone.do(r) for r in runs}
    runner.should_stop = stop_after(8)
    with pytest.raises(Interrupted):
        runner.do(*runs)
    assert 0 < len([r for r in runs if Store(store.root).missing(r)]) <= 5
    assert compute(ORS_CELLS, Store(store.root), "smoke", **HERE) == []
    found = Store(store.root)
    assert {r.key: found.accuracies(r.key) for r in runs} == one_by_one
    assert len({a for accuracies in one_by_one.values() for a in accuracies.values()}) > 1
    assert len({found.records[r.key][0]["set_hash"] for r in runs}) == 5
    assert counts(store) == {"MakeSet": 5, "TrainNetworks": 5}
