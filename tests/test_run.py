"""Runs are executed once, recorded with their origin, and add up."""

import dataclasses
import hashlib
import os
import signal

import numpy as np
import pytest
import torch
from helpers import stop_after

import dclib
from dclib.core import train
from dclib.data.dataset import generator, hold_out
from dclib.errors import DataError, Diverged, Interrupted
from dclib.experiments import Cell, Preset
from dclib.methods import full_training, gan
from dclib.reproduce import reproduce
from dclib.results import CondensedSet, Store
from dclib.run.compute import compute
from dclib.spec import Condensation, ConvNet, MakeSet, Training, TrainNetworks, WholeTraining, derive, full
from dclib.spec.applications import LearnTasks, Rehearsal, TrainCandidate
from dclib.spec.baselines import GanTraining, TrainGan
from dclib.support.progress import stopping

THIN = ConvNet(width=4, depth=2)
HYPER = Condensation(network=THIN, outer_steps=2, real_batch=4).resolve()
SET = MakeSet("made", "condense", 0, HYPER)
RUN = TrainNetworks(SET, Training(THIN, epochs=2).resolve(), networks=2)
PRESET = Preset("smoke", "tiny", lambda cell: HYPER, lambda cell: RUN.hyper, sets=2, networks=2, random_sets=3)
CELLS = [Cell("made", 1, name, "ConvNet", PRESET, n, 2) for name, n in (("ConvNet", 2), ("random", 3))]
HERE = dict(device="cpu", engine="eager")


def reread(runner):
    """What a later process finds."""
    return Store(runner.store.root)


def written(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- records


def test_networks_are_recorded_once_and_add_up(runner):
    first = runner.do(RUN)
    assert set(first) == {0, 1}
    assert runner.do(RUN) == first
    more = runner.do(dataclasses.replace(RUN, networks=3))
    assert {j: more[j] for j in first} == first
    fresh = reread(runner)
    assert [list(r["accuracies"]) for r in fresh.records[RUN.key]] == [["0"], ["1"], ["2"]]
    assert fresh.accuracies(RUN.key) == pytest.approx(more)
    assert runner.do(dataclasses.replace(RUN, networks=1)) == more


def test_network_j_is_the_same_whoever_trains_it(runner, own):
    """Its seed is derived from j and the set's key, so that records of different sessions add up to one sample."""
    recorded = runner.do(dataclasses.replace(RUN, networks=3))
    made = runner.do(SET)
    seeds = [derive(j, SET.key) for j in (2, 0, 1)]
    again = train.evaluate(torch.from_numpy(made.images), torch.from_numpy(made.labels), own, RUN.hyper, seeds=seeds, **HERE)
    assert [recorded[j] for j in (2, 0, 1)] == [round(accuracy, 4) for accuracy in again]


def test_a_record_says_where_it_comes_from_and_the_set_what_it_takes_to_use_it(runner, own):
    runner.do(RUN)
    found = CondensedSet.load(runner.store.set_path("smoke", SET.key))
    assert (found.labels.tolist(), found.key, found.dataset) == ([0, 1, 2], SET.key, "made")
    assert (found.class_names, found.mean, found.std) == (own.class_names, own.mean, own.std)
    assert found.about.items() >= full(SET).items()
    (made,), trained = (reread(runner).records[key] for key in (SET.key, RUN.key))
    for record, of in ((made, SET), (trained[0], RUN)):
        assert (record["key"], record["kind"], record["run"]) == (of.key, type(of).__name__, full(of))
        assert {"started", "machine", "commit", "dirty", "seconds", "peak_memory_mb", "world_size", "share"} <= set(record)
        assert set(record["versions"]) == {"python", "torch", "dclib"}
        assert (record["device"], record["engine"], record["preset"]) == ("cpu", "eager", "smoke")
        assert (record["data_hash"], record["set_hash"]) == (own.hash, found.hash)
        assert record["seconds"] >= 0
    assert len(made["losses"]) == made["run"]["hyper"]["outer_steps"] == 2
    assert "networks" not in trained[0]["run"]


def test_a_set_is_made_once_and_serves_another_preset(runner, new_runner):
    made = runner.do(SET)
    assert not list(runner.store.root.rglob("checkpoints/*.safetensors"))
    other = new_runner(runner.store.root, "cpu")
    other.should_stop = lambda: True  # no step is made
    for again in (runner, other):
        assert (again.do(SET).images == made.images).all()
    assert len(reread(runner).records[SET.key]) == 1


def test_random_sets_are_real_images_always_the_same_and_those_that_real_initialisation_starts_from(runner, new_runner, own):
    random = MakeSet("made", "random", 3, Condensation(ipc=2))
    made = runner.do(random)
    assert made.labels.tolist() == [0, 0, 1, 1, 2, 2]
    draw = generator(3, "init")
    expected = [own.normalise(own.x_train[own.draw(c, 2, draw)]).numpy() for c in range(3)]
    assert (made.images == np.concatenate(expected)).all()
    assert (new_runner(runner.store.root.with_name("again")).do(random).images == made.images).all()
    assert not (runner.do(dataclasses.replace(random, seed=4)).images == made.images).all()


def test_a_set_at_float16_is_trained_on_hashed_and_kept_as_it_was_rounded(runner):
    exact, rounded = (dataclasses.replace(SET, storage=storage) for storage in ("float32", "float16"))
    one, other = runner.do(exact), runner.do(rounded)
    assert (other.images == one.images.astype("float16").astype("float32")).all()
    assert (other.images != one.images).any()
    kept = CondensedSet.load(runner.store.find_set(rounded.key))
    assert kept.images.dtype == "float32"
    assert kept.hash == other.hash == reread(runner).records[rounded.key][0]["set_hash"] != one.hash
    sizes = [runner.store.find_set(made.key).stat().st_size for made in (exact, rounded)]
    assert sizes[0] - sizes[1] == pytest.approx(one.images.size * 2, abs=100)


def test_networks_are_tested_on_the_images_held_out_of_their_set(new_runner, tmp_path):
    """Whatever the test images are: here they are noise, and what is held out can be told apart."""
    path = tmp_path / "own.npz"
    x = np.repeat(np.arange(3, dtype=np.uint8) * 100, 20)[:, None, None] + np.zeros((60, 8, 8), np.uint8)
    x[:, 0, 0] = np.arange(60)
    y = np.arange(3).repeat(20)
    np.savez(path, x_train=x, y_train=y, x_test=x[:30], y_test=(y[:30] + 1) % 3)
    made = MakeSet(str(path), "random", hyper=HYPER, held_out=15)
    runner, training = new_runner(tmp_path), Training(network=THIN, epochs=40)
    wrong, right = (runner.do(TrainNetworks(made, training, 1, "plain", on))[0] for on in ("test", "held-out"))
    assert wrong < 50 < right
    small, how = runner.do(made), dict(network=THIN, epochs=1)
    assert small.data_hash != dclib.load(path).hash
    assert len(dclib.train(small, **how)) == 1, "it knows which part of the data it was made from"
    with pytest.raises(DataError, match="is not the data"):
        dclib.train(dataclasses.replace(small, about={**small.about, "held_out": 5}), **how)


# --- many runs, and stops


def test_cells_are_computed_once_the_cheapest_first(own, tmp_path):
    store = Store(tmp_path / "here")
    assert compute(CELLS, store, "smoke", seconds=0.0, **HERE) == CELLS
    assert Store(store.root).records == {}, "told to stop it starts no run"
    assert compute(CELLS, store, "smoke", **HERE) == []
    records, runs = Store(store.root).records, [r for cell in CELLS for r in cell.runs()]
    assert set(records) == {r.key for r in runs} | {r.set.key for r in runs}
    assert {len(records[r.key]) for r in runs} == {2}, "one for each network"
    assert {len(records[r.set.key]) for r in runs} == {1}
    lines = (store.root / "smoke" / "sets.jsonl").read_text().splitlines()
    assert [('"method": "random"' in line) for line in lines] == [True, True, True, False, False]
    before = written(store.root)
    assert compute(CELLS, Store(store.root), "smoke", seconds=0.0, **HERE) == [], "nothing is computed"
    assert written(store.root) == before


def test_stopped_between_networks_it_goes_on(runner, new_runner, tmp_path, one_lane):
    whole = new_runner(tmp_path / "whole").do(RUN)
    runner.do(SET)
    runner.should_stop = stop_after(4)
    with pytest.raises(Interrupted):
        runner.do(RUN)
    assert list(reread(runner).accuracies(RUN.key)) == [0]
    runner.should_stop = lambda: False
    assert runner.do(RUN) == pytest.approx(whole, abs=1e-4)


def test_stopped_within_a_set_it_goes_on(runner, new_runner, tmp_path):
    asked, whole = [], new_runner(tmp_path / "whole")
    whole.should_stop = lambda: bool(asked.append(1))
    long = dataclasses.replace(SET, hyper=dataclasses.replace(HYPER, outer_steps=4))
    images = whole.do(long).images
    runner.should_stop = stop_after(len(asked) // 2)
    with pytest.raises(Interrupted, match="2 of 4 outer steps"):
        runner.do(long)
    assert runner.store.checkpoint_path("smoke", long.key).exists()
    assert long.key not in reread(runner).records
    runner.should_stop = lambda: False
    assert (runner.do(long).images == images).all()
    assert not runner.store.checkpoint_path("smoke", long.key).exists()


def test_of_two_processes_in_one_folder_the_first_to_finish_counts(runner, new_runner):
    """The second begins with what was there when it read the records, or is overtaken in the midst of a set."""
    late, slow = new_runner(runner.store.root), new_runner(runner.store.root)
    assert late.store.records == slow.store.records == {}
    kept = []

    def overtaken():
        if not kept:
            kept.append(runner.do(RUN))
            kept.append(written(runner.store.root / "smoke" / "sets"))
        return False

    slow.should_stop = overtaken
    assert slow.do(RUN) == late.do(RUN) == kept[0]
    assert written(runner.store.root / "smoke" / "sets") == kept[1]
    records = reread(runner).records
    assert [list(r["accuracies"]) for r in records[RUN.key]] == [["0"], ["1"]]
    assert len(records[SET.key]) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_time_limit_and_signals_ask_to_stop_and_signals_are_given_back(number, capfd):
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    for seconds, stops in ((0.0, True), (60.0, False), (None, False)):
        with stopping(seconds) as should_stop:
            assert should_stop() is stops
    with stopping() as should_stop:
        os.kill(os.getpid(), number)
        assert should_stop()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before
    assert ("Ctrl-C again" in capfd.readouterr().err) == (number == signal.SIGINT)


# --- sets that differ in K alone


@pytest.mark.parametrize("stops", [False, True])
def test_the_longer_set_goes_on_from_the_shorter_one(own, new_runner, tmp_path, monkeypatch, stops):
    """Also where the shorter one was made before a stop. Each is the set of a run of its own."""
    done, condense = [], dclib.core.condense.condense

    def watched(*given, on_step, **options):
        def step(state):
            done.append(state.k)
            on_step(state)
            if stops and done == [1, 2]:
                os.kill(os.getpid(), signal.SIGINT)

        return condense(*given, on_step=step, **options)

    monkeypatch.setattr("dclib.core.condense.condense", watched)
    cells = [Cell("made", 1, "ConvNet", "ConvNet", PRESET, 1, 1, f"outer_steps={K}") for K in (1, 3, 4)]
    store, keys = Store(tmp_path / "here"), [cell.make_set(0).key for cell in cells]
    if stops:
        with pytest.raises(Interrupted):
            compute(cells, store, "smoke", **HERE)
    assert compute(cells, Store(store.root), "smoke", **HERE) == []
    assert done == [1, 2, 3, 4]
    assert not list(store.root.rglob("checkpoints/*"))
    records = [Store(store.root).records[key][0] for key in keys]
    assert len({r["course"] for r in records}) == 1
    assert [r["seconds"] for r in records] == sorted(r["seconds"] for r in records), "what the whole course took so far"
    for cell in cells:
        alone = new_runner(tmp_path / "alone").do(cell.make_set(0))
        assert (CondensedSet.load(store.find_set(alone.key)).images == alone.images).all()
    assert not any("course" in r for found in Store(tmp_path / "alone").records.values() for r in found)


# --- data that has changed, and what diverges


def test_nothing_is_added_to_records_of_other_data(save_own, tmp_path, new_runner):
    """The user's own file changes, or the same relative path is another file: neither set nor numbers hold any longer."""
    path, store = tmp_path / "own.npz", Store(tmp_path / "results")
    save_own(path, 0)
    first, second = (Cell(str(path), ipc, "random", "ConvNet", PRESET, 1, 1) for ipc in (1, 2))
    condensed = dataclasses.replace(RUN, set=dataclasses.replace(SET, dataset=str(path)))
    assert compute([first], store, "smoke", **HERE) == []
    new_runner(store.root).do(condensed)
    save_own(path, 1)
    for cell in (first, second):
        with pytest.raises(DataError, match="has changed since"):
            compute([cell], store, "smoke", **HERE)
    with pytest.raises(DataError, match="has changed since"):
        new_runner(store.root).do(dataclasses.replace(condensed, networks=3))
    assert store.incomplete([first, second]) == [second]


def test_records_of_any_kind_are_those_of_the_data_that_is_here(save_own, tmp_path, monkeypatch):
    """Of tasks, of the part that nothing was held out of, of another size: each is asked for as its run saw the data."""
    monkeypatch.setenv("DCLIB_RESULTS", str(tmp_path / "results"))
    path = str(tmp_path / "own.npz")
    tasks = LearnTasks((path, f"{path}+inverted"), Rehearsal(memory="random"), image_size=12)
    runs = {
        tasks: lambda: hashlib.sha256(
            " ".join(dclib.load(task, image_size=12, channels=3).hash for task in tasks.tasks).encode()
        ).hexdigest()[:16],
        TrainCandidate(path, THIN, held_out=5): lambda: hold_out(dclib.load(path), 5)[0].hash,
        WholeTraining(path, THIN, image_size=9): lambda: dclib.load(path, image_size=9).hash,
        TrainGan(path): lambda: dclib.load(path).hash,
    }
    narrow = dict(networks="MLP", test_networks="MLP")
    for i, (run, data_hash) in enumerate(runs.items()):
        monkeypatch.setenv("DCLIB_RESULTS", str(tmp_path / f"results {i}"))
        save_own(tmp_path / "own.npz", 0)
        about = dict(key=run.key, kind=type(run).__name__, run=full(run), accuracies={"0": 50.0}, data_hash=data_hash())
        Store().add("cpu", about)
        assert not reproduce("cross_arch", datasets=path, **narrow).sets.any(), "nothing is wrong"
        save_own(tmp_path / "own.npz", 1)
        with pytest.raises(DataError, match=r"own.npz.* has changed since"):
            reproduce("cross_arch", datasets=path, **narrow)
        assert len(reproduce("cross_arch", datasets="mnist", **narrow)), "other data is not asked for"


def test_a_set_of_other_classes_is_not_trained_on(runner):
    runner.do(SET)
    path = runner.store.find_set(SET.key)
    made = CondensedSet.load(path)
    dataclasses.replace(made, class_names=made.class_names[::-1]).save(path)
    with pytest.raises(DataError, match="class 0 of the set is '2' and that of made '0'"):
        runner.do(RUN)


def test_a_set_of_nan_is_neither_kept_nor_recorded(runner):
    diverging = dataclasses.replace(SET, hyper=dataclasses.replace(HYPER, outer_steps=4, image_lr=1e30))
    with pytest.raises(Diverged, match="NaN or infinite"):
        runner.do(diverging)
    assert runner.store.find_set(diverging.key) is None
    assert reread(runner).records == {}


@pytest.mark.parametrize("workers", [None, pytest.param(1, marks=pytest.mark.slow)])
def test_where_runs_diverge_all_that_does_not_stand_on_them_is_done(workers, own, tmp_path, monkeypatch):
    """Each is begun and told once: a set, a training that guides two choices and is a row itself, a GAN of two draws."""
    begun = []
    for module in (gan, full_training):
        original = module.train
        monkeypatch.setattr(module, "train", lambda *a, original=original, **k: begun.append(original) or original(*a, **k))
    wild = dataclasses.replace(HYPER, outer_steps=4, image_lr=1e30)
    preset = dataclasses.replace(
        PRESET,
        condensation=lambda cell: wild if cell.network == "ConvNet" else HYPER,
        whole=lambda cell, seed: WholeTraining(cell.dataset, THIN, epochs=3, lr=1e30, batch=10, seed=seed),
        gan=GanTraining(steps=9, batch=6, generator_width=4, discriminator_width=3, latent=16, lr=1e30),
    )
    names = [("ConvNet", 1), ("herding", 1), ("k-center", 1), ("whole", 1), ("gan", 2), ("random", 1), (str(THIN), 1)]
    cells = [Cell("made", 1, name, str(THIN), preset, sets, 1) for name, sets in names]
    store = Store(tmp_path / "here")
    with pytest.raises(Diverged, match=r"; all that does not stand on it is recorded$") as told:
        compute(cells, store, "smoke", workers=workers, **HERE)
    *sentences, _ = str(told.value).split("; ")
    on_whole = [f"{what} on the whole of made, seed 0" for what in ("a GAN", THIN)]
    assert sorted(s.partition(": ")[0] for s in sentences) == sorted([*on_whole, SET.words])
    assert str(told.value).count("the images became NaN") == 1
    assert store.incomplete(cells) == cells[:5]
    assert workers or len(begun) == 2
