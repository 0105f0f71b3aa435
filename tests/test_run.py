"""Runs are executed once, recorded with their origin, and add up."""

import dataclasses

import pytest
import torch

from dclib import run, sets
from dclib.data import Dataset
from dclib.errors import Interrupted
from dclib.results import Store
from dclib.spec import Condensation, ConvNet, MakeSet, Training, TrainNetworks

THIN = ConvNet(width=4, depth=2)
SET = MakeSet("made", "condense", 0, Condensation(network=THIN, outer_steps=2, real_batch=4).resolve())
RUN = TrainNetworks(SET, Training(THIN, epochs=2).resolve(), networks=2)


@pytest.fixture
def runner(tmp_path, monkeypatch):
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randint(256, (30, 1, 8, 8), dtype=torch.uint8, generator=draw), torch.arange(3).repeat_interleave(10)
    made = Dataset("made", x, y, x, y, (0.5,), (0.3,), ("a", "b", "c"))
    for module in (run, sets):
        monkeypatch.setattr(module, "load", lambda name, image_size=0: made)
    return run.Runner(Store(tmp_path), "smoke", device="cpu", engine="eager")


def test_networks_are_recorded_once_and_add_up(runner):
    first = runner.train_networks(RUN)
    assert set(first) == {0, 1}
    assert runner.train_networks(RUN) == first
    more = runner.train_networks(dataclasses.replace(RUN, networks=3))
    assert {j: more[j] for j in first} == first
    fresh = Store(runner.store.root)
    assert len(fresh.records[RUN.key]) == 3
    assert fresh.accuracies(RUN.key) == pytest.approx(more)


def test_a_record_says_where_it_comes_from(runner):
    runner.train_networks(RUN)
    for key in (SET.key, RUN.key):
        record = Store(runner.store.root).records[key][0]
        assert {"run", "started", "device", "machine", "engine", "versions", "data_hash", "set_hash", "seconds"} <= set(record)
    assert Store(runner.store.root).records[SET.key][0]["run"]["hyper"]["outer_steps"] == 2
    assert len(Store(runner.store.root).records[SET.key][0]["losses"]) == 2


def test_a_set_is_made_once_and_its_checkpoint_removed(runner):
    made = runner.make_set(SET)
    assert not list(runner.store.root.rglob("checkpoints/*.safetensors"))
    assert (runner.make_set(SET).images == made.images).all()
    assert len(Store(runner.store.root).records[SET.key]) == 1


def test_random_sets_are_real_images(runner):
    random = MakeSet("made", "random", 3, Condensation(ipc=2))
    made, dataset = runner.make_set(random), run.load("made")
    real = {image.numpy().tobytes() for image in dataset.normalise(dataset.x_train)}
    assert {image.tobytes() for image in made.images} <= real
    assert made.labels.tolist() == [0, 0, 1, 1, 2, 2]


def test_stopped_between_networks_it_goes_on(runner):
    whole = run.Runner(Store(runner.store.root / "whole"), "smoke", device="cpu", engine="eager").train_networks(RUN)
    runner.make_set(SET)
    calls = iter([False] * 4)
    runner.should_stop = lambda: next(calls, True)
    with pytest.raises(Interrupted):
        runner.train_networks(RUN)
    assert len(Store(runner.store.root).accuracies(RUN.key)) == 1
    runner.should_stop = lambda: False
    assert runner.train_networks(RUN) == pytest.approx(whole, abs=1e-4)


def test_a_time_limit_stops():
    with run.stopping(0.0) as should_stop:
        assert should_stop()
    with run.stopping(60.0) as should_stop:
        assert not should_stop()
