"""Runs are executed once, recorded with their origin, and add up."""

import dataclasses
import os
import signal
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from dclib.core import engine as engines
from dclib.core import train
from dclib.data.dataset import generator
from dclib.errors import DataError, Diverged, Interrupted, SpecError
from dclib.experiments import Cell, Preset
from dclib.methods import full_training as wholes
from dclib.methods import gan as gans
from dclib.results import CondensedSet, Store
from dclib.run import compute as run
from dclib.run import loading, sets
from dclib.spec import Condensation, ConvNet, MakeSet, Training, TrainNetworks, WholeTraining, derive, full
from dclib.spec.applications import LearnTasks, Rehearsal, TrainCandidate
from dclib.spec.baselines import GanTraining

THIN = ConvNet(width=4, depth=2)
HYPER = Condensation(network=THIN, outer_steps=2, real_batch=4).resolve()
SET = MakeSet("made", "condense", 0, HYPER)
RUN = TrainNetworks(SET, Training(THIN, epochs=2).resolve(), networks=2)
PRESET = Preset("smoke", "tiny", lambda cell: HYPER, lambda cell: RUN.hyper, sets=2, networks=2, random_sets=3)
CELLS = [Cell("made", 1, name, "ConvNet", PRESET, n, 2) for name, n in (("ConvNet", 2), ("random", 3))]


def reread(runner):
    """What a later process finds."""
    return Store(runner.store.root)


@pytest.fixture
def computes_nothing(monkeypatch):
    """Return a function after whose call nothing may be computed any more."""

    def refuse(*given, **options):
        raise AssertionError("computed again")

    def forbid():
        monkeypatch.setattr(train, "evaluate", refuse)
        monkeypatch.setattr(sets, "choose", refuse)
        monkeypatch.setattr(sets, "condense_set", refuse)

    return forbid


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


def test_network_j_is_the_same_whoever_trains_it(runner, dataset):
    """Its seed is derived from j and the set's key, so that records of different sessions add up to one sample."""
    recorded = runner.do(dataclasses.replace(RUN, networks=3))
    made = runner.do(SET)
    images, labels = torch.from_numpy(made.images), torch.from_numpy(made.labels)
    seeds = [derive(j, SET.key) for j in (2, 0, 1)]
    options = dict(seeds=seeds, device="cpu", engine="eager")
    again = train.evaluate(images, labels, dataset, RUN.hyper, **options)
    assert [recorded[j] for j in (2, 0, 1)] == [round(accuracy, 4) for accuracy in again]


def test_a_record_says_where_it_comes_from(runner, dataset):
    runner.do(RUN)
    (made,), trained = (reread(runner).records[key] for key in (SET.key, RUN.key))
    for record, of in ((made, SET), (trained[0], RUN)):
        assert (record["key"], record["kind"], record["run"]) == (of.key, type(of).__name__, full(of))
        assert {"started", "machine", "commit", "dirty", "seconds", "peak_memory_mb", "world_size", "share"} <= set(record)
        assert set(record["versions"]) == {"python", "torch", "dclib"}
        assert (record["device"], record["engine"], record["preset"]) == ("cpu", "eager", "smoke")
        assert record["data_hash"] == dataset.hash
        assert record["set_hash"] == CondensedSet.load(runner.store.find_set(SET.key)).hash
        assert record["seconds"] >= 0
    assert len(made["losses"]) == 2
    assert made["run"]["hyper"]["outer_steps"] == 2
    assert "networks" not in trained[0]["run"]


def test_a_set_is_made_once_and_its_checkpoint_removed(runner):
    made = runner.do(SET)
    assert not list(runner.store.root.rglob("checkpoints/*.safetensors"))
    assert (runner.do(SET).images == made.images).all()
    assert len(reread(runner).records[SET.key]) == 1


def test_the_set_says_all_that_it_takes_to_use_it(runner, dataset):
    made = runner.do(SET)
    found = CondensedSet.load(runner.store.set_path("smoke", SET.key))
    assert (found.images == made.images).all()
    assert found.labels.tolist() == [0, 1, 2]
    assert (found.key, found.dataset, found.class_names) == (SET.key, "made", dataset.class_names)
    assert (found.mean, found.std) == (dataset.mean, dataset.std)
    assert found.about.items() >= full(SET).items()


def test_a_set_made_at_one_preset_serves_another(runner, computes_nothing):
    made = runner.do(SET)
    computes_nothing()
    other = run.Runner(reread(runner), "cpu", device="cpu", engine="eager")
    assert (other.do(SET).images == made.images).all()
    assert len(reread(runner).records[SET.key]) == 1


# --- random sets


def test_random_sets_are_real_images_and_always_the_same(runner, dataset, tmp_path):
    random = MakeSet("made", "random", 3, Condensation(ipc=2))
    made = runner.do(random)
    normalised = dataset.normalise(dataset.x_train).numpy()
    for label in range(3):
        images = {image.tobytes() for image in made.images[made.labels == label]}
        assert len(images) == 2
        assert images <= {image.tobytes() for image in normalised[dataset.y_train.numpy() == label]}
    assert made.labels.tolist() == [0, 0, 1, 1, 2, 2]
    again = run.Runner(Store(tmp_path / "again"), "smoke", device="cpu", engine="eager").do(random)
    assert (again.images == made.images).all()
    other = runner.do(dataclasses.replace(random, seed=4))
    assert not (other.images == made.images).all()


def test_random_images_are_those_that_real_initialisation_starts_from(dataset):
    chosen = sets.choose_at_random(MakeSet("made", "random", 3, Condensation(ipc=2)), dataset)
    draw = generator(3, "init")
    for c in range(3):
        assert torch.equal(chosen[c], dataset.normalise(dataset.x_train[dataset.draw(c, 2, draw)]))


# --- many runs


def test_cells_are_computed_once_the_cheapest_first(runner, computes_nothing):
    run.execute(CELLS, runner)
    records = reread(runner).records
    runs = [r for cell in CELLS for r in cell.runs()]
    assert set(records) == {r.key for r in runs} | {r.set.key for r in runs}
    assert {len(records[r.key]) for r in runs} == {2}  # one for each network
    assert {len(records[r.set.key]) for r in runs} == {1}
    lines = (runner.store.root / "smoke" / "sets.jsonl").read_text().splitlines()
    assert [('"method": "random"' in line) for line in lines] == [True, True, True, False, False]
    computes_nothing()
    run.execute(CELLS, run.Runner(reread(runner), "smoke", device="cpu", engine="eager"))
    assert {key: len(found) for key, found in reread(runner).records.items()} == {key: len(r) for key, r in records.items()}


def test_stopped_between_networks_it_goes_on(runner, monkeypatch):
    monkeypatch.setattr(train.lanes, "count", lambda device: 1)
    whole = run.Runner(Store(runner.store.root / "whole"), "smoke", device="cpu", engine="eager").do(RUN)
    runner.do(SET)
    calls = iter([False] * 4)
    runner.should_stop = lambda: next(calls, True)
    with pytest.raises(Interrupted):
        runner.do(RUN)
    assert list(reread(runner).accuracies(RUN.key)) == [0]
    runner.should_stop = lambda: False
    assert runner.do(RUN) == pytest.approx(whole, abs=1e-4)


def test_stopped_within_a_set_it_goes_on(runner):
    calls = iter([False] * 2)
    runner.should_stop = lambda: next(calls, True)
    long = dataclasses.replace(SET, hyper=dataclasses.replace(HYPER, outer_steps=4))
    with pytest.raises(Interrupted, match="2 of 4 outer steps"):
        runner.do(long)
    assert runner.store.checkpoint_path("smoke", long.key).exists()
    assert long.key not in reread(runner).records
    runner.should_stop = lambda: False
    made = runner.do(long)
    whole = run.Runner(Store(runner.store.root / "whole"), "smoke", device="cpu", engine="eager").do(long)
    assert (made.images == whole.images).all()
    assert not runner.store.checkpoint_path("smoke", long.key).exists()


def test_told_to_stop_it_starts_no_run(runner):
    runner.should_stop = lambda: True
    with pytest.raises(Interrupted, match="between two runs"):
        run.execute(CELLS, runner)
    assert reread(runner).records == {}


def test_compute_tells_which_cells_are_left(dataset, tmp_path):
    options = dict(device="cpu", engine="eager")
    assert run.compute(CELLS, Store(tmp_path), "smoke", seconds=0.0, **options) == CELLS
    assert run.compute(CELLS, Store(tmp_path), "smoke", **options) == []
    assert Store(tmp_path).incomplete(CELLS) == []


def test_when_time_is_up_the_cheapest_runs_are_done_and_the_same_call_goes_on(dataset, tmp_path, monkeypatch):
    asked = iter([False] * 25)

    @contextmanager
    def short(seconds):
        yield lambda: next(asked, True)

    options = dict(device="cpu", engine="eager", seconds=0.0)
    with monkeypatch.context() as patch:
        patch.setattr(run, "stopping", short)
        assert run.compute(CELLS, Store(tmp_path), "smoke", **options) == CELLS[:1], "the random ones are the cheapest"
    before = {key: list(records) for key, records in Store(tmp_path).records.items()}
    assert run.compute(CELLS, Store(tmp_path), "smoke", device="cpu", engine="eager", seconds=600.0) == []
    after = Store(tmp_path).records
    assert {key: after[key][: len(records)] for key, records in before.items()} == before
    runs = [r for cell in CELLS for r in cell.runs()]
    assert {len(after[r.key]) for r in runs} == {2}
    assert {len(after[r.set.key]) for r in runs} == {1}


def test_two_processes_in_one_folder_record_each_network_once(runner, monkeypatch):
    """The second begins with what was there when it read the records; whatever the first adds meanwhile stays."""
    second = run.Runner(reread(runner), "smoke", device="cpu", engine="eager")
    assert second.store.records == {}
    first = runner.do(RUN)
    made = runner.do(SET)
    assert second.do(RUN) == first
    records = reread(runner).records
    assert [list(r["accuracies"]) for r in records[RUN.key]] == [["0"], ["1"]]
    assert len(records[SET.key]) == 1
    assert (CondensedSet.load(runner.store.find_set(SET.key)).images == made.images).all()


def test_a_set_that_another_process_has_made_meanwhile_is_the_one_that_counts(runner, monkeypatch):
    other = run.Runner(reread(runner), "smoke", device="cpu", engine="eager")
    condense = sets.condense_set

    def slower(*given, **options):
        monkeypatch.setattr(sets, "condense_set", condense)
        runner.do(SET)
        made = condense(*given, **options)
        return dataclasses.replace(made, images=made.images + 1)  # as another engine would make them

    monkeypatch.setattr(sets, "condense_set", slower)
    assert (other.do(SET).images == runner.do(SET).images).all()
    assert len(reread(runner).records[SET.key]) == 1


def test_a_time_limit_stops():
    with run.stopping(0.0) as should_stop:
        assert should_stop()
    with run.stopping(60.0) as should_stop:
        assert not should_stop()
    with run.stopping() as should_stop:
        assert not should_stop()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_ask_to_stop_and_are_given_back(number, capfd):
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    with run.stopping() as should_stop:
        os.kill(os.getpid(), number)
        assert should_stop()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before
    assert ("Ctrl-C again" in capfd.readouterr().err) == (number == signal.SIGINT)


# --- sets that differ in K alone


def stations(*steps):
    return [Cell("made", 1, "ConvNet", "ConvNet", PRESET, 1, 1, f"outer_steps={K}") for K in steps]


@pytest.fixture
def done(monkeypatch):
    """The outer steps done, as (k, after the step)."""
    seen, condense = [], sets.algorithm.condense

    def watched(*given, on_step, **options):
        return condense(*given, on_step=lambda state: (seen.append(state.k), on_step(state)), **options)

    monkeypatch.setattr(sets.algorithm, "condense", watched)
    return seen


def check_stations(store, seeds_of):
    """Each set is that of a run of its own, and each record says on which course it was made and what all of it took."""
    for cell in stations(*seeds_of):
        made = cell.make_set(0)
        alone = run.Runner(Store(store.root / f"alone {made.key}"), "smoke", device="cpu", engine="eager").do(made)
        assert (CondensedSet.load(store.find_set(made.key)).images == alone.images).all()
    records = [Store(store.root).records[cell.make_set(0).key][0] for cell in stations(*seeds_of)]
    assert len({r["course"] for r in records}) == 1
    seconds = [r["seconds"] for r in records]
    assert seconds == sorted(seconds)


def test_the_longer_set_goes_on_from_the_shorter_one(runner, done):
    run.execute(stations(1, 3, 4), runner)
    assert done == [1, 2, 3, 4]
    assert not list(runner.store.root.rglob("checkpoints/*"))
    done.clear()
    check_stations(runner.store, (1, 3, 4))


def test_so_it_does_when_the_shorter_one_was_made_before_a_stop(runner, done):
    calls = iter([False] * 5)
    runner.should_stop = lambda: next(calls, True)
    with pytest.raises(Interrupted):
        run.execute(stations(1, 3), runner)
    reached = done[-1]
    assert 1 <= reached < 3
    later = run.Runner(reread(runner), "smoke", device="cpu", engine="eager")
    run.execute(later.store.incomplete(stations(1, 3)), later)
    assert done == [1, 2, 3]
    assert not list(runner.store.root.rglob("checkpoints/*"))
    check_stations(runner.store, (1, 3))


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


def test_networks_are_tested_on_the_images_held_out_of_their_set(tmp_path, make_dataset):
    """Whatever the test images are: here they are noise, and what is held out can be told apart."""
    path = tmp_path / "own.npz"
    x = np.repeat(np.arange(3, dtype=np.uint8) * 100, 20)[:, None, None] + np.zeros((60, 8, 8), np.uint8)
    y = np.arange(3).repeat(20)
    np.savez(path, x_train=x, y_train=y, x_test=x[:30], y_test=(y[:30] + 1) % 3)
    made = MakeSet(str(path), "random", hyper=HYPER, held_out=15)
    runner, training = run.Runner(Store(tmp_path), "smoke", device="cpu", engine="eager"), Training(network=THIN, epochs=40)
    wrong, right = (runner.do(TrainNetworks(made, training, 1, "plain", on))[0] for on in ("test", "held-out"))
    assert wrong < 50 < right


def test_a_run_goes_on_with_the_engine_that_it_began_with(dataset, tmp_path, monkeypatch):
    """Also where another K would choose another: the user has changed K alone."""
    how, asked = dict(dataset=dataset, device="cpu", checkpoint=tmp_path / "state"), iter([False])
    with pytest.raises(Interrupted):
        sets.condense_set(SET, engine="eager", should_stop=lambda: next(asked, True), **how)
    monkeypatch.setattr(engines, "COMPILE_PAYS", 0)
    longer = dataclasses.replace(SET, hyper=dataclasses.replace(HYPER, outer_steps=3))
    made = sets.condense_set(longer, **how)
    assert (made.about["engine"], len(made.about["losses"])) == ("eager", 3)


def test_a_set_by_itself_is_on_no_course(runner):
    run.execute(stations(3), runner)
    assert "course" not in reread(runner).records[stations(3)[0].make_set(0).key][0]


# --- what goes wrong in silence


def test_a_set_of_other_data_is_not_taken(tmp_path):
    """The user's own file changes, or the same relative path is another file: neither set nor numbers hold any longer."""
    path = tmp_path / "own.npz"

    def runner_on(seed):
        draw, y = np.random.default_rng(seed), np.repeat(np.arange(3), 10)
        x = draw.integers(0, 256, (30, 8, 8), dtype=np.uint8)
        np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
        return run.Runner(Store(tmp_path / "results"), "smoke", device="cpu", engine="eager")

    own = dataclasses.replace(RUN, set=dataclasses.replace(SET, dataset=str(path)))
    runner_on(0).do(own)
    with pytest.raises(DataError, match="has changed since"):
        runner_on(1).do(dataclasses.replace(own, networks=3))


def save_own(path, seed):
    draw, y = np.random.default_rng(seed), np.repeat(np.arange(3), 10)
    x = draw.integers(0, 256, (30, 8, 8), dtype=np.uint8)
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)


def test_own_data_that_has_changed_is_loaded_again(tmp_path):
    path = str(tmp_path / "own.npz")
    save_own(path, 0)
    first, parts = loading.load(path), loading.load_parts(path, 5)
    assert loading.load(path) is first
    assert loading.load_parts(path, 5) is parts
    save_own(path, 1)
    assert loading.load(path).hash != first.hash
    assert loading.load_parts(path, 5)[0].hash != parts[0].hash


def record_of(run, data_hash):
    return {"key": run.key, "kind": type(run).__name__, "run": full(run), "accuracies": {"0": 50.0}, "data_hash": data_hash}


def test_records_of_any_kind_are_those_of_the_data_that_is_here(tmp_path):
    """Of tasks, of the part that nothing was held out of, of another size: each is asked for as its run saw the data."""
    path, store = str(tmp_path / "own.npz"), Store(tmp_path / "results")
    save_own(path, 0)
    tasks = LearnTasks((path, f"{path}+inverted"), Rehearsal(memory="random"), image_size=12)
    store.add("smoke", record_of(tasks, loading.data_hash([loading.load(task, 12, 3) for task in tasks.tasks])))
    store.add("smoke", record_of(TrainCandidate(path, THIN, held_out=5), loading.load_parts(path, 5)[0].hash))
    store.add("smoke", record_of(WholeTraining(path, THIN, image_size=9), loading.load(path, 9).hash))
    store.add("smoke", record_of(WholeTraining("mnist", THIN), "which is not asked for"))
    for name in (path, f"{path}+inverted", "mnist", str(tmp_path / "nowhere.npz")):
        loading.check_recorded([name], store)
    save_own(path, 1)
    loading.check_recorded(["mnist", "digits"], store)
    for name in (path, f"{path}+inverted"):
        with pytest.raises(DataError, match=r"own.npz.* has changed since"):
            loading.check_recorded(["digits", name], store)


def test_nothing_is_added_to_records_of_other_data(tmp_path):
    path, store = str(tmp_path / "own.npz"), Store(tmp_path / "results")
    save_own(path, 0)
    first, second = (Cell(path, ipc, "random", "ConvNet", PRESET, 1, 1) for ipc in (1, 2))
    assert run.compute([first], store, "smoke", device="cpu", engine="eager") == []
    save_own(path, 1)
    for cell in (first, second):
        with pytest.raises(DataError, match="has changed since"):
            run.compute([cell], store, "smoke", device="cpu", engine="eager")
    assert store.incomplete([first, second]) == [second]


def test_a_set_of_other_classes_is_not_trained_on(runner, dataset):
    runner.do(SET)
    path = runner.store.find_set(SET.key)
    dataclasses.replace(CondensedSet.load(path), class_names=("b", "a", "c")).save(path)
    with pytest.raises(DataError, match="class 0 of the set is 'b' and that of made 'a'"):
        runner.do(RUN)


def test_a_set_of_nan_is_neither_kept_nor_recorded(runner):
    diverging = dataclasses.replace(SET, hyper=dataclasses.replace(HYPER, outer_steps=4, image_lr=1e30))
    with pytest.raises(Diverged, match="NaN or infinite"):
        runner.do(diverging)
    assert runner.store.find_set(diverging.key) is None
    assert reread(runner).records == {}


def diverging(cell):
    """Sets of this preset's first cell leave the finite numbers, those of others do not."""
    return dataclasses.replace(HYPER, outer_steps=4, image_lr=1e30) if cell.network == "ConvNet" else HYPER


@pytest.mark.parametrize("workers", [None, pytest.param(1, marks=pytest.mark.slow)])
def test_where_a_run_diverges_all_that_does_not_stand_on_it_is_done(workers, dataset, tmp_path, monkeypatch):
    preset = dataclasses.replace(PRESET, condensation=diverging)
    cells = [Cell("digits", 1, "ConvNet", network, preset, 1, 1) for network in ("ConvNet:width=4", "MLP")]
    cells += [Cell("digits", 1, name, "ConvNet:width=4", preset, 1, 1) for name in ("random", "ConvNet:width=4,depth=2")]
    store = Store(tmp_path)
    sentence = r"^digits, 1/class, condensed with .*, seed 0: the images became NaN .*; all that does not stand on it is recorded$"
    with pytest.raises(Diverged, match=sentence) as told:
        run.compute(cells, store, "smoke", device="cpu", engine="eager", workers=workers)
    assert str(told.value).count("NaN") == 1
    assert store.incomplete(cells) == cells[:2]


@pytest.mark.parametrize("workers", [None, pytest.param(1, marks=pytest.mark.slow)])
def test_a_training_that_diverges_is_begun_once_for_all_that_stands_on_it(workers, dataset, tmp_path, monkeypatch):
    """And told once: two choices guided by one training on the whole set, that training itself, and two draws of one GAN."""
    begun = []
    for module in (gans, wholes):
        original = module.train
        monkeypatch.setattr(module, "train", lambda *a, original=original, **k: begun.append(original) or original(*a, **k))
    guide = lambda cell, seed: WholeTraining(cell.dataset, THIN, epochs=3, lr=1e30, batch=10, seed=seed)  # noqa: E731
    wild = GanTraining(steps=9, batch=6, generator_width=4, discriminator_width=3, latent=16, lr=1e30)
    preset = dataclasses.replace(PRESET, whole=guide, gan=wild)
    names = [("herding", 1), ("k-center", 1), ("whole", 1), ("gan", 2), ("random", 1)]
    cells = [Cell("digits", 1, name, "ConvNet:width=4,depth=2", preset, sets, 1) for name, sets in names]
    store = Store(tmp_path)
    with pytest.raises(Diverged, match=r"; all that does not stand on it is recorded$") as told:
        run.compute(cells, store, "smoke", device="cpu", engine="eager", workers=workers)
    *sentences, _ = str(told.value).split("; ")
    assert {s.partition(": ")[0] for s in sentences} == {f"{what} on the whole of digits, seed 0" for what in ("a GAN", THIN)}
    assert len(sentences) == 2
    assert store.incomplete(cells) == cells[:4]
    assert workers or len(begun) == 2


def test_runs_are_not_spread_by_torchrun(tmp_path, monkeypatch):
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SpecError, match="torchrun has started 2 processes"):
        run.compute([], Store(tmp_path), "smoke")
