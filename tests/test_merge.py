"""Another results folder is brought into this one: nothing is lost, nothing is there twice, and what differs is told."""

import dataclasses

import numpy as np
import pytest
import torch

from dclib.core.checkpoint import load_tensors, save_tensors
from dclib.errors import FileError
from dclib.results import CondensedSet, Store
from dclib.results.merge import merge_into
from dclib.spec import Condensation, MakeSet, Training, TrainNetworks, WholeTraining, full

SET = MakeSet("digits", "condense", 0, Condensation().resolve())
RUN = TrainNetworks(SET, Training().resolve())
WHOLE = WholeTraining("digits", epochs=3)
WORDS = "ConvNet on digits, 1/class, condensed with ConvNet, seed 0"


@pytest.fixture
def here(tmp_path):
    return Store(tmp_path / "here")


@pytest.fixture
def there(tmp_path):
    return Store(tmp_path / "there")


def a_set(seed=0, key=SET.key):
    images = np.random.default_rng(seed).standard_normal((10, 1, 8, 8)).astype(np.float32)
    return CondensedSet(images, np.arange(10), "digits", tuple("0123456789"), (0.1,), (0.3,), key, {"seed": seed})


def add_set(store, run=SET, pixels=0, started="2026-01-01", data="data", file=True, **more):
    made = a_set(pixels, run.key)
    if file:
        made.save(store.set_path("paper", run.key))
    record = dict(key=run.key, kind="MakeSet", run=full(run), started=started, set_hash=made.hash, data_hash=data)
    store.add("paper", {**record, **more})


def add_networks(store, accuracies, run=RUN, started="2026-01-02", data="data"):
    record = dict(key=run.key, kind="TrainNetworks", run=full(run), started=started, data_hash=data)
    store.add("paper", {**record, "accuracies": {str(j): a for j, a in accuracies.items()}})


def add_checkpoint(store, k, key=SET.key, engine="eager"):
    tensors = {"images": torch.full((2, 1, 1, 4, 4), float(k)), "velocity": torch.zeros(2, 1, 1, 4, 4)}
    about = {"k": k, "losses": [1.0] * k, "seconds": 1.0}
    save_tensors(store.checkpoint_path("paper", key), tensors, about, identity(engine))


def add_whole(store, accuracies, started="2026-01-02", record=True):
    """A training on the whole set, with its state after so many epochs."""
    about = {"k": len(accuracies), "epoch_accuracies": accuracies, "train_accuracies": accuracies, "seconds": 1.0}
    save_tensors(store.whole_path("paper", WHOLE.key), {"right": torch.ones(4, dtype=torch.bool)}, about, {"run": "r", "data": "d"})
    if record:
        spelled = dict(key=WHOLE.key, kind="WholeTraining", run=full(WHOLE), started=started, data_hash="data")
        store.add("paper", {**spelled, "accuracies": {"0": accuracies[-1]}, "epoch_accuracies": accuracies})


def identity(engine="eager"):
    return {"run": "run", "data": "data", "seed": 0, "engine": engine}


def content(store):
    """Every file below a store."""
    return {p.relative_to(store.root): p.read_bytes() for p in store.root.rglob("*") if p.is_file()}


def merged(here, *there):
    return merge_into(here, [store.root for store in there])


def test_all_that_is_new_comes_and_a_second_time_changes_nothing(here, there):
    add_set(there)
    add_networks(there, {0: 90.0, 1: 91.0})
    add_checkpoint(there, 7, "unfinished")
    untouched = content(there)
    first = merged(here, there)
    assert (first.networks, first.sets, first.checkpoints, first.alike) == (2, 1, 1, 0)
    assert first.sentence() == "2 networks, 1 set and 1 checkpoint are new; 0 were here already"
    assert content(here) == content(there) == untouched
    second = merged(Store(here.root), there, there)
    assert (second.networks, second.sets, second.checkpoints, second.alike) == (0, 0, 0, 6)
    assert first.differences == second.differences == second.refused == []
    assert content(here) == untouched


@pytest.mark.parametrize(("started", "where", "value"), [("2026-01-03", "here", 90.0), ("2026-01-01", "in {}", 89.5)])
def test_networks_add_up_and_of_two_accuracies_the_older_counts_and_both_are_told(here, there, command, started, where, value):
    add_networks(here, {0: 90.0}, started="2026-01-02")
    add_networks(there, {0: 89.5, 1: 91.25}, started=started)
    told = f"{WORDS}, network 0: 90 % here and 89.5 % in {there.root}; the older counts, that {where.format(there.root)}"
    status, out, err = command("merge", there.root, "--results", here.root)
    assert (status, out.splitlines()[0], err) == (0, told, "")
    assert out.splitlines()[1].startswith("1 network, 0 sets and 0 checkpoints are new")
    assert Store(here.root).accuracies(RUN.key) == {0: value, 1: 91.25}
    before = content(here)
    merged(Store(here.root), there)
    assert content(here) == before
    merged(there, here)
    assert Store(there.root).accuracies(RUN.key) == {0: value, 1: 91.25}, "whichever way they are merged"


def test_a_set_that_is_here_stays_and_a_differing_one_is_told(here, there):
    add_set(here, pixels=0)
    add_set(there, pixels=1)
    before = content(here)
    found = merged(here, there)
    words = WORDS.removeprefix("ConvNet on ")
    assert found.differences == [f"{words}: what is here differs from that in {there.root} and stays"]
    assert (content(here), found.refused) == (before, [])


def test_a_file_comes_for_a_set_recorded_by_its_hash_alone_and_not_where_none_is_recorded(here, there):
    add_set(here, file=False)
    add_set(there)
    other = there.set_path("paper", "0" * 16)
    a_set(key="0" * 16).save(other)
    assert merged(here, there).differences == [f"{other} is left out: its run is not recorded"]
    assert (CondensedSet.load(here.find_set(SET.key)).images == a_set().images).all()
    assert len(Store(here.root).records[SET.key]) == 1
    assert here.find_set("0" * 16) is None


def test_a_damaged_set_is_named_and_the_rest_comes(here, there, command):
    add_set(there)
    other = dataclasses.replace(SET, seed=1)
    add_set(there, other)
    add_networks(there, {0: 90.0})
    path = there.find_set(SET.key)
    whole = path.read_bytes()
    path.write_bytes(whole[:-40] + b"\0" * 40)
    status, out, err = command("merge", there.root, "--results", here.root)
    assert (status, out) == (1, "1 network, 2 sets and 0 checkpoints are new; 0 were here already\n")
    assert err == f"dclib: {path} is a damaged set and is left out: fetch it again, or make it again there\n"
    assert here.find_set(SET.key) is None
    assert here.find_set(other.key) is not None
    path.write_bytes(whole)
    assert command("merge", there.root, "--results", here.root)[0] == 0
    assert content(here) == content(there)


def test_a_set_under_anothers_name_is_refused(here, there):
    add_set(there)
    a_set(1, "another").save(there.set_path("paper", SET.key))
    assert merged(here, there).refused == [f"{there.find_set(SET.key)} is not the set that its record names and is left out"]


def test_other_data_of_the_same_name_is_not_mixed(here, there):
    add_networks(here, {0: 90.0})
    add_networks(there, {1: 91.0}, data="other data")
    add_networks(there, {1: 91.0}, TrainNetworks(dataclasses.replace(SET, dataset="mnist"), RUN.hyper), data="mnist's")
    found = merged(here, there)
    assert found.refused == [f"digits in {there.root} is other data than here: its records (1) are left out"]
    assert (found.networks, here.accuracies(RUN.key)) == (1, {0: 90.0})


def test_checkpoints_come_where_the_run_is_not_finished_and_theirs_is_further(here, there):
    add_networks(there, {0: 90.0})
    for key, k in {"behind": 5, "ahead": 9, "compiled": 2}.items():
        add_checkpoint(here, k, key, "compiled" if key == "compiled" else "eager")
    for key, k in {"behind": 7, "ahead": 7, "compiled": 7, "new": 0}.items():
        add_checkpoint(there, k, key)
    add_set(here)
    add_checkpoint(there, 3)
    add_checkpoint(there, 3, "damaged")
    damaged = there.checkpoint_path("paper", "damaged")
    damaged.write_bytes(damaged.read_bytes()[:-8] + b"\1" * 8)
    found = merged(here, there)
    assert found.checkpoints == 2
    for key, k in {"behind": 7, "ahead": 9, "new": 0}.items():
        assert load_tensors(here.checkpoint_path("paper", key), identity(), set())[1]["k"] == k
    assert not here.checkpoint_path("paper", SET.key).exists(), "it is finished here"
    assert found.refused == [f"{damaged} is a damaged checkpoint and is left out: fetch it again"]
    assert found.differences == [
        f"{there.checkpoint_path('paper', 'compiled')} is left out: the checkpoint here was begun with another engine or other data"
    ]
    assert merged(Store(here.root), there).checkpoints == 0


def test_the_state_of_a_training_under_way_comes_where_it_is_further(here, there):
    add_whole(here, [80.0], record=False)
    add_whole(there, [80.0, 85.0], record=False)
    assert merged(here, there).checkpoints == 1
    assert content(here) == content(there)
    assert not here.has(WHOLE)
    assert merged(here, there).checkpoints == 0


def test_a_training_on_the_whole_set_comes_with_its_state_and_the_sets_chosen_with_it(here, there):
    chosen = MakeSet("digits", "herding", 0, Condensation(), whole=WHOLE)
    add_whole(there, [80.0, 85.0, 90.0])
    add_set(there, chosen, file=False, indices=[[1], [2]])
    found = merged(here, there)
    assert (found.networks, found.sets, found.checkpoints, found.differences) == (1, 1, 1, [])
    assert (here.root / "paper" / "whole.jsonl").exists()
    again = Store(here.root)
    assert again.accuracies(WHOLE.key) == {0: 90.0}
    assert again.has(WHOLE)
    assert again.indices(chosen.key) == [[1], [2]]
    assert content(here) == content(there)
    found = merged(again, there)
    assert (found.networks, found.sets, found.checkpoints, found.alike) == (0, 0, 0, 2)


def test_the_state_of_another_training_than_the_recorded_one_is_left_and_told(here, there):
    add_whole(here, [80.0, 85.0, 90.0], started="2026-01-01")
    path = here.whole_path("paper", WHOLE.key)
    path.unlink()
    add_whole(there, [80.0, 85.0, 89.5])
    differences = merged(here, there).differences
    assert differences == [
        f"ConvNet on the whole of digits, seed 0, network 0: 90 % here and 89.5 % in {there.root}; the older counts, that here",
        f"{there.whole_path('paper', WHOLE.key)} is left out: it is not the state of the training that is recorded here",
    ]
    assert not path.exists()


def test_what_is_no_results_folder_is_refused_before_anything_is_written(here, there, tmp_path):
    add_set(there)
    add_networks(there, {0: 90.0})
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("kept")
    (tmp_path / "bad" / "cpu").mkdir(parents=True)
    (tmp_path / "bad" / "cpu" / "sets.jsonl").write_text("no record\nno record\n")
    for name, part in (
        ("empty", "holds no results"),
        ("there/paper", "not one of its presets"),
        ("nowhere", "there is no folder"),
        ("file", "there is no folder"),
        ("here", "is the results folder itself"),
        ("bad", "line 1, is no record"),
    ):
        here.root.mkdir(exist_ok=True)
        with pytest.raises(FileError, match=part) as caught:
            merge_into(here, [there.root, tmp_path / name])
        assert "\n" not in str(caught.value)
        assert name in str(caught.value)
        assert content(here) == {}
