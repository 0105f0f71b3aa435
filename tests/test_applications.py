"""The two applications from declaration to table: plans, runs that are stopped and go on, workers, what is said of them."""

import dataclasses
import re

import numpy as np
import pytest
import torch
from pages import shown

from dclib import experiments
from dclib import report as reports
from dclib.cli.main import main
from dclib.errors import DataError, Interrupted
from dclib.experiments import CONTINUAL, NAS
from dclib.experiments.applications import ContinualPlan, SearchPlan
from dclib.experiments.paper import SOURCES
from dclib.methods.continual import Continual
from dclib.report import application_report as report
from dclib.report import sentences
from dclib.reproduce import reproduce
from dclib.results import Store, studied
from dclib.results.lines import FILES
from dclib.results.merge import merge_into
from dclib.results.studied import Learned, Search
from dclib.run import loading
from dclib.run.compute import Runner, compute, execute
from dclib.run.workers import Job, do
from dclib.spec import MLP, Condensation
from dclib.spec.applications import Rehearsal, ShortTraining, Space

CPU = dict(device="cpu", engine="eager")
THIN = MLP(width=8)
SMALL = Condensation(1, THIN, outer_steps=2, real_batch=4).resolve()
BOTH = ("continual", "nas")
TASKS = ContinualPlan(
    ("digits", "digits+inverted", "digits+turned"),
    Rehearsal(ipc=1, network=THIN, iterations=3, finetuning=2, batch=16, test_images=100),
    SMALL,
    seeds=2,
    image_size=8,
)
CANDIDATES = SearchPlan(
    "digits",
    Space(width=(4,), depth=(1,), norm=("none", "instance"), activation=("relu",), pooling=("none", "max")),
    ShortTraining(steps=3, batch=10),
    ShortTraining(steps=6, batch=10),
    SMALL,
    guide=1,
    networks=2,
    images=50,
    held_out=100,
    guide_network=THIN,
)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Both at smoke within a second, and a results folder of their own."""
    monkeypatch.setenv("DCLIB_RESULTS", str(tmp_path / "results"))
    monkeypatch.setitem(CONTINUAL.plans, "smoke", TASKS)
    monkeypatch.setitem(NAS.plans, "smoke", CANDIDATES)
    return tmp_path / "results"


def cells(name, **narrow):
    return experiments.find(name).cells(experiments.SMOKE, **narrow)


def numbers(root):
    """What was measured, by kind and key, without where and when."""
    found = {}
    for record in (record for records in Store(root).records.values() for record in records):
        values = found.setdefault((record["kind"], record["key"]), {})
        for name in ("accuracies", "test"):  # of networks that may be in several records
            values[name] = {**values.get(name, {}), **record.get(name, {})}
        values |= {name: record[name] for name in ("stages", "set_hash", "indices") if name in record}
    return found


# --- declared


def test_the_papers_continual_learning():
    found = CONTINUAL.cells(experiments.PAPER)
    assert [(case.place["memory"], case.place["distillation"]) for case in found] == [
        (memory, held) for held in (False, True) for memory in ("random", "herding", "condense")
    ]
    runs = [run for case in found for run in case.runs()]
    assert len({run.key for run in runs}) == 6 * 5
    for run in runs:
        h = run.hyper
        assert run.tasks == ("svhn", "mnist", "usps")
        assert (h.ipc, h.iterations, h.finetuning, h.lr, h.finetuning_lr, h.temperature, h.test_images) == (
            10,
            5000,
            500,
            0.01,
            0.001,
            2,
            2000,
        )
        assert (run.image_size, run.channels, str(h.network)) == (32, 3, "ConvNet")
    assert {run.hyper.distillation for run in runs} == {0.0, 1.0}
    assert {s.key for run in runs for s in run.sets} == {s.key for run in found[2].runs() for s in run.sets}, (
        "made once for both settings"
    )


def test_the_papers_search():
    found = {case.place["source"]: case for case in NAS.cells(experiments.PAPER)}
    assert tuple(found) == SOURCES
    assert {len(set(case.place["networks"])) for case in found.values()} == {720}
    runs = {source: case.runs()[0] for source, case in found.items()}
    assert {(run.dataset, run.held_out, run.networks) for run in runs.values()} == {("cifar10", 5000, 5)}
    for source in ("random", "herding", "condense"):
        made = runs[source].set
        assert (made.method, made.hyper.ipc, made.held_out) == (source, 10, 5000)
    assert runs["condense"].set.hyper.outer_steps == 500
    assert (runs["early"].hyper.steps * runs["early"].hyper.batch, runs["early"].set) == (10_000, None)
    whole = runs["herding"].set.whole
    assert (whole.held_out, whole.dataset) == (5000, "cifar10")


# --- done


@pytest.mark.slow
def test_both_are_computed_recorded_and_not_computed_again(tiny):
    for name in BOTH:
        assert compute(cells(name), Store(), "smoke", **CPU) == []
    before = numbers(tiny)
    kinds = [kind for kind, _ in before]
    assert {kind: kinds.count(kind) for kind in sorted(set(kinds))} == {
        "LearnTasks": 12, "MakeSet": 6 + 3, "TrainCandidate": 20, "WholeTraining": 1,
    }  # fmt: skip
    for (kind, _), values in before.items():
        if kind == "LearnTasks":
            assert [len(row) for row in values["stages"]] == [1, 2, 3]
            assert values["accuracies"]["0"] == pytest.approx(sum(values["stages"][-1]) / 3, abs=1e-3)
        if kind == "TrainCandidate":
            assert list(values["accuracies"]) == ["0", "1"]
    assert sum(bool(values["test"]) for values in before.values()) == 4  # of the whole set alone
    assert not list(tiny.rglob("checkpoints/*.safetensors"))
    for name in BOTH:
        execute(cells(name), Runner(Store(), "smoke", **CPU))
    assert numbers(tiny) == before
    assert len((tiny / "smoke" / "candidates.jsonl").read_text().splitlines()) == 20


@pytest.mark.slow
@pytest.mark.parametrize(("name", "asked"), [("continual", (1, 9, 30, 60)), ("nas", (2, 11, 30))])
def test_stopped_in_the_middle_they_go_on_to_the_same_numbers(tiny, tmp_path, name, asked):
    execute(cells(name), Runner(Store(tmp_path / "whole"), "smoke", **CPU))
    for count in asked:
        left = iter([False] * count)
        with pytest.raises(Interrupted):
            execute(cells(name), Runner(Store(), "smoke", should_stop=lambda left=left: next(left, True), **CPU))
    execute(cells(name), Runner(Store(), "smoke", **CPU))
    assert numbers(tiny) == numbers(tmp_path / "whole")


def test_the_first_task_is_learnt_once_for_all_memories(tiny, monkeypatch):
    begun, step = [], Continual.step
    monkeypatch.setattr(Continual, "step", lambda work: begun.append(work.k) or step(work))
    execute(cells("continual"), Runner(Store(), "smoke", **CPU))
    assert (begun.count(0), begun.count(TASKS.hyper.iterations)) == (2, 12)  # of two seeds, of six cases each


def test_networks_done_before_a_stop_are_not_trained_again(tiny):
    (case,) = (case for case in cells("nas", space=["norm=none", "pooling=max"]) if case.place["source"] == "early")
    left = iter([False] * 5)
    with pytest.raises(Interrupted):
        execute([case], Runner(Store(), "smoke", should_stop=lambda: next(left, True), **CPU))
    assert list(Store().accuracies(case.runs()[0].key)) == [0]
    execute([case], Runner(Store(), "smoke", **CPU))
    assert [list(r["accuracies"]) for r in Store().records[case.runs()[0].key]] == [["0"], ["1"]]


def test_small_sets_have_no_image_held_out_and_none_of_the_tests(tiny):
    rows = lambda x: {image.numpy().tobytes() for image in x}  # noqa: E731
    rest, validation = loading.load_parts("digits", 100, 0, 0)
    forbidden = rows(rest.normalise(validation.x_test)) | rows(rest.normalise(rest.x_test))
    runner = Runner(Store(), "smoke", **CPU)
    for source in ("random", "herding"):
        made = next(case for case in cells("nas") if case.place["source"] == source)
        made = made.runs()[0].set
        images = torch.from_numpy(runner.do(made).images)
        assert len(images) == 10
        assert not rows(images) & forbidden
        assert rows(images) <= rows(rest.normalise(rest.x_train))
    assert loading.load_of(made) is rest
    assert loading.load_of(dataclasses.replace(made, held_out=0, whole=dataclasses.replace(made.whole, held_out=0))) is not rest


@pytest.mark.slow
def test_workers_get_what_a_run_needs(tiny, tmp_path):
    """A sequence of tasks takes all of its sets, a candidate its set, and herding the training on the whole set."""
    (continual,) = (case for case in cells("continual", memory=["condense"]) if case.place["distillation"])
    some = [continual, *cells("nas", space=["norm=none", "pooling=max"])]
    execute(some, Runner(Store(tmp_path / "alone"), "smoke", **CPU))
    store, done = Store(tmp_path / "spread"), {}

    def spread(run):
        if run.key not in done:
            needs = [spread(need) for need in run.needs()]
            done[run.key] = do(Job(run, "smoke", ("cpu", "eager")), needs, tmp_path / "workers" / run.key, lambda: False)
            assert {r["kind"] for r in done[run.key].records} == {type(run).__name__}, "nothing is made twice"
            done[run.key].unpack(store, "smoke")
        return done[run.key]

    for run in (run for case in some for run in case.runs()):
        spread(run)
    assert len(done) == 2 + 6 + 5 + 3 + 1
    assert store.incomplete(some) == []
    assert numbers(store.root) == numbers(tmp_path / "alone")


def test_records_of_another_machine_are_merged(tiny, tmp_path):
    some = [*cells("continual", memory=["random"]), *cells("nas", space=["norm=none", "pooling=max"])]
    execute(some, Runner(Store(tmp_path / "there"), "smoke", **CPU))
    merged = merge_into(Store(), [tmp_path / "there"])
    assert (merged.differences, merged.refused) == ([], [])
    assert numbers(tiny) == numbers(tmp_path / "there")
    assert Store().incomplete(some) == []
    assert merge_into(Store(), [tmp_path / "there"]).networks == 0


# --- found


def written(root, preset, case, values, **more):
    """Write a record for each run of a case."""
    store = Store(root)
    for run in case.runs():
        record = {"key": run.key, "kind": type(run).__name__, "run": {}, "started": "2026-01-01T00:00:00Z", "seconds": 60.0}
        store.add(preset, {**record, "accuracies": dict(enumerate(values)), **more})


def test_what_is_learnt_is_read_back(tmp_path):
    case = CONTINUAL.cells(experiments.CPU)[0]
    stages = [[90.0], [50.0, 80.0], [30.0, 60.0, 90.0]]
    written(tmp_path, "cpu", case, [60.0], stages=stages)
    found = studied.learned("best", Store(tmp_path))
    assert [bool(x.runs) for x in found] == [True] + [False] * 5
    assert (found[0].preset, found[1].preset, len(found[0].records)) == ("cpu", "", 3)
    assert found[0].means(1) == [65.0] * 3
    assert found[0].on_task(2, 1) == [60.0] * 3
    assert found[0].forgotten() == [(60 + 20) / 2] * 3


def test_best_takes_all_lines_from_the_most_faithful_preset_and_never_smoke(tmp_path):
    stages = [[90.0], [50.0, 80.0], [30.0, 60.0, 90.0]]
    written(tmp_path, "smoke", CONTINUAL.cells(experiments.SMOKE)[0], [60.0], stages=stages)
    assert not any(x.runs for x in studied.learned("best", Store(tmp_path)))
    for case in CONTINUAL.cells(experiments.CPU):
        written(tmp_path, "cpu", case, [60.0], stages=stages)
    assert all(x.preset == "cpu" for x in studied.learned("best", Store(tmp_path)))
    written(tmp_path, "paper", CONTINUAL.cells(experiments.PAPER)[1], [60.0], stages=stages)
    assert [x.preset for x in studied.learned("best", Store(tmp_path))] == ["", "paper", "", "", "", ""]


def some_search(count=12, without=()):
    names = tuple(f"ConvNet:width={w}" for w in range(8, 8 + count))
    whole = {n: (60.0 + j, 62.0 + j) for j, n in enumerate(names)}
    test = {n: (50.0 + j, 54.0 + j) for j, n in enumerate(names)}
    near = {n: (30.0 + j,) for j, n in enumerate(names)}
    far = {n: (30.0 - j,) for j, n in enumerate(names)}
    validation = dict(random=far, herding=far, condense=near, early=near, whole=whole) | {source: {} for source in without}
    images = dict(random=100, herding=100, condense=100, early=10_000, whole=45_000)
    return Search("mnist", names, "cpu", validation, test, dict.fromkeys(SOURCES, 90.0), images)


def test_the_best_found_and_its_test_accuracy():
    found = some_search()
    assert found.winner("condense") == found.winner("whole") == "ConvNet:width=19"
    assert found.performance("condense") == (61.0, 65.0)
    assert found.performance("random") == (50.0, 54.0)
    assert found.correlation("condense", 10).rho == pytest.approx(1)
    assert (found.correlation("random", 10).rho, found.correlation("random").count) == (pytest.approx(-1), 12)


def test_the_best_of_a_source_is_not_known_before_all_are_recorded():
    found = some_search()
    del found.validation["condense"]["ConvNet:width=8"]
    found.validation["condense"] = dict(list(found.validation["condense"].items())[:5])
    assert found.winner("condense") is None
    assert found.performance("condense") == ()
    assert "—" in report.search_table(found).splitlines()[2]


def line(table, *words):
    return next(row for row in table.splitlines() if all(word in row for word in words))


def test_table_4_in_our_numbers_and_the_papers():
    table = report.search_table(some_search())
    cells_ = lambda row: [x.strip() for x in row.strip("|").split("|")][1:]  # noqa: E731
    assert cells_(line(table, "best found")) == ["ours", "52.0 ± 2.0", "52.0 ± 2.0", "63.0 ± 2.0", "63.0 ± 2.0", "63.0 ± 2.0"]
    assert cells_(table.splitlines()[3]) == ["paper", "76.2", "76.2", "84.5", "84.5", "85.9"]
    assert cells_(table.splitlines()[5]) == ["paper", "−0.21", "−0.20", "+0.79", "+0.42", "+1.00"]
    assert cells_(line(table, "all recorded"))[0] == "ours"
    assert cells_(line(table, "images kept")) == ["ours", "100", "100", "100", "10,000", "45,000"]
    assert cells_(line(table, "min")) == ["ours"] + ["1.5"] * 5
    assert "45 of 60" not in report.search_missing(some_search())
    narrowed = report.search_missing(some_search(without=("early",)), datasets=None, space="width=8 depth=1")
    assert narrowed.endswith("`dclib run nas --preset cpu --space 'width=8 depth=1'` computes them.")
    assert report.search_missing(some_search(without=("early",))).startswith(
        "12 of 60 trainings of architectures are not recorded"
    )


def test_architectures_without_an_option_are_picked_out():
    found = some_search()
    name = "ConvNet:width=64,norm=batch,pooling=max"
    validation = {s: scores | {name: (90.0,) * len(scores["ConvNet:width=8"])} for s, scores in found.validation.items()}
    test = found.test | {name: (90.0, 92.0)}
    more = dataclasses.replace(found, networks=(*found.networks, name), validation=validation, test=test)
    assert more.without("norm=batch") == more.without("pooling=max") == found
    assert more.without("norm") == more.without("width=6") == more, "an option is named in full"
    table = report.search_table(more)
    assert line(table, "test accuracy of the best found").count("91.0 ± 1.0") == 5
    assert line(table, "the best found without batch norm").count("52.0 ± 2.0") == 2


def learnt(gain, memory="herding", held=False, tasks=("svhn10k", "mnist", "usps")):
    runs = tuple((((90.0 + r,), (50.0, 80.0), (30.0 + r + gain, 60.0, 90.0 + 2 * r))) for r in range(3))
    return Learned(tasks, memory, held, "cpu", runs)


def test_fig_4_as_a_table_and_the_gain():
    found = [learnt(0), learnt(6, "condense"), Learned(learnt(0).tasks, "random", False)]
    table = report.continual_table(found)
    assert "| after task 1 |          2 |          3 | SVHN-10k at the end |" in table
    assert "| herding   | without      |   91.0 ± 0.8 | 65.0 ± 0.0 | 61.0 ± 0.8 |" in table
    assert line(table, "random").count("—") == 7
    assert report.gains(found, False) == pytest.approx([2.0] * 3)
    assert report.gains(found, False, task=0) == pytest.approx([6.0] * 3)
    assert report.gains(found, False, "random") == []


@pytest.mark.slow
def test_the_figures_show_what_is_there():
    found = [learnt(0), learnt(6, "condense"), learnt(1, "herding", True), Learned(learnt(0).tasks, "random", False)]
    given = dict(report=reports, applications=report)
    picture = shown("continual", "continual-5", learned=found, **given)["continual-5"]
    assert [len(panel.containers) for panel in picture.figure.axes] == [2, 1] * 3
    scatter = shown("nas", "nas-5", search=some_search(), **given)["nas-5"]
    drawn = [[len(points.get_offsets()) for points in panel.collections] for panel in scatter.figure.axes]
    assert drawn == [[12, 10, 0, 0]] * 4
    assert scatter.figure.axes[2].get_title() == "condensed\nρ +1.00, all +1.00"
    for page, nothing in (("nas-5", dict(search=some_search(without=SOURCES))), ("continual-5", dict(learned=found[3:]))):
        assert shown(page.split("-")[0], page, **nothing, **given)[page].render().startswith(b"\x89PNG")


# --- asked for


@pytest.mark.slow
def test_the_command_computes_and_prints(tiny, capsys):
    assert main(["run", "continual", "--memories", "random", "herding"]) == 2
    capsys.readouterr()
    assert main(["run", "continual", "--memories", "random,herding", "--datasets", "digits digits+turned"]) == 0
    out = capsys.readouterr().out
    assert "digits turned at the end" in out
    assert "not recorded" not in out
    assert main(["run", "nas", "--space", "norm=none pooling=max"]) == 0
    assert "images kept" in capsys.readouterr().out
    assert main(["status", "--preset", "smoke"]) == 0
    rows = {row.split()[0]: row for row in capsys.readouterr().out.splitlines() if row}
    assert re.search(r" 0 of 5, \d in part: \d+ of \d+ networks$", rows["nas"]), "narrowed to some architectures"
    assert rows["continual"].endswith(" 0 of 6")


def write_own(path, classes, seed=0):
    """Images of noise in as many classes."""
    y = np.arange(120 * classes) % classes
    x = np.random.default_rng(seed).integers(0, 256, (len(y), 8, 8), dtype=np.uint8)
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
    return str(path)


def test_tasks_with_different_classes_are_one_sentence_before_anything_is_condensed(tiny, tmp_path, capsys):
    three = write_own(tmp_path / "three.npz", 3)
    assert main(["run", "continual", "--memories", "condense", "--datasets", f"digits,{three}"]) == 1
    err = capsys.readouterr().err
    assert "tasks must have equally many classes, but digits has 10 classes and three has 3: choose other" in err
    assert "condensing" not in err


def test_data_that_have_changed_are_refused(tiny, tmp_path, capsys):
    own = write_own(tmp_path / "own.npz", 10)
    request = ["run", "continual", "--datasets", f"digits {own}", "--memories"]
    assert main([*request, "random"]) == 0
    write_own(tmp_path / "own.npz", 10, seed=1)
    for memory in ("random", "herding"):  # what is recorded, and what is not
        capsys.readouterr()
        assert main([*request, memory]) == 1
        out, err = capsys.readouterr()
        assert ("own.npz has changed since" in err, out) == (True, "")
    with pytest.raises(DataError, match="has changed since"):
        reproduce("continual", preset="smoke", datasets=f"digits {own}")


def test_a_path_means_the_same_from_every_folder(tiny, tmp_path, monkeypatch):
    own = write_own(tmp_path / "own.npz", 10)
    monkeypatch.chdir(tmp_path)
    for spelling in ("own.npz", "./own.npz", own):
        assert main(["run", "continual", "--datasets", f"digits {spelling}+turned", "--memories", "random"]) == 0
    assert {tuple(r["run"]["tasks"]) for rs in Store().records.values() for r in rs} == {("digits", f"{own}+turned")}
    assert main(["run", "continual", "--datasets", f"own.npz {own}", "--memories", "random"]) == 1


def test_a_notebooks_call_reads_computes_and_compares(tiny, capsys):
    assert not any(x.runs for x in reproduce("continual", memories="random"))
    found = reproduce("continual", preset="smoke", device="cpu", memories="random herding", datasets=None)
    assert [x.memory for x in found if x.runs] == ["random", "herding"] * 2
    again = reproduce("continual", preset="smoke", device="cpu", memories=["random"], recompute=True)
    assert [x.runs for x in again] == [x.runs for x in found if x.memory == "random"]
    assert "Of 4 recorded accuracies computed again 4 are alike, the largest difference is 0.00 points." in capsys.readouterr().out
    search = reproduce("nas", preset="smoke", device="cpu", space="pooling=max norm=none")
    assert search.networks == ("ConvNet:width=4,depth=1,norm=none,pooling=max",)
    assert search.complete("herding")


def test_every_kind_of_record_has_a_cost_in_words():
    assert sentences.KINDS.keys() == FILES.keys()


def test_runs_are_paired_by_their_seeds():
    """Where a run is missing, those of other seeds are not compared with one another."""
    ours = dataclasses.replace(learnt(2.0, "condense"), seeds=(0, 2, 4))
    theirs = dataclasses.replace(learnt(0.0, "herding"), seeds=(0, 1, 2))
    assert report.gains([ours, theirs], False) == pytest.approx([2.0 / 3, 2.0 / 3 - 1.0])
