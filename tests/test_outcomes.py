"""`results.table` and `results.records` on made records: which records count for a cell, and its statistics."""

import dataclasses

import numpy as np
import pytest
from cells import cell, frame

from dclib import experiments, results
from dclib.errors import SpecError
from dclib.experiments import CORESETS, CPU, CROSS_ARCH, METHOD, PAPER, RANDOM, SMOKE
from dclib.results import Store
from dclib.results.outcomes import labels, varying


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def only(experiment, preset, **place):
    """The cell of an experiment at a place."""
    return next(c for c in experiment.cells(preset, dataset=place.pop("dataset", None)) if c.place.items() >= place.items())


def record(store, run, *accuracies, preset="cpu"):
    """Record networks 0, 1 … of a run."""
    about = dict(kind=type(run).__name__, key=run.key, started="2026-01-01T00:00:00Z", machine="a machine", run={"dataset": "x"})
    for j, accuracy in enumerate(accuracies):
        store.add(preset, about | {"accuracies": {str(j): accuracy}})


def method(store, preset="best", **narrow):
    """The cell of MNIST in the experiment `method`."""
    (row,) = results.table("method", preset, store, **{"dataset": "mnist"} | narrow).itertuples()
    return row


def test_nothing_recorded_is_nan_beside_the_papers_number(store):
    row = method(store)
    assert (row.sets, row.networks, row.preset, row.keys, row.paper, row.paper_std) == (0, 0, "", (), 91.7, 0.5)
    assert np.isnan([row.ours, row.std, row.difference, row.error, row.standard_error]).all()


def test_the_mean_is_over_all_networks_of_the_first_five_sets(store):
    runs = only(METHOD, CPU, dataset="mnist").runs(range(6))
    record(store, runs[5], 10.0)
    assert method(store).sets == 0
    record(store, runs[0], 90.0, 92.0)
    record(store, runs[4], 88.0)
    row = method(store)
    assert row.accuracies == ((90.0, 92.0), (88.0,))
    assert (row.ours, row.std) == pytest.approx((90.0, np.std([90.0, 92.0, 88.0])))
    assert (row.sets, row.networks, row.keys) == (2, 3, (runs[0].key, runs[4].key))
    assert row.difference == pytest.approx(-1.7)


def test_best_is_the_most_faithful_preset_and_neither_the_highest_number_nor_smoke(store):
    for network, accuracy in (("ConvNet", 99.0), (RANDOM, 70.0)):
        record(store, dataclasses.replace(only(METHOD, SMOKE), network=network).runs([0])[0], accuracy)
    assert method(store, "smoke", dataset="digits").ours == 99.0
    assert method(store, "best", dataset="digits").sets == 0
    record(store, only(METHOD, CPU, dataset="mnist").runs([0])[0], 95.0, preset="paper")  # wherever it is recorded
    assert (method(store).preset, method(store, "paper").sets) == ("cpu", 0)
    record(store, only(METHOD, PAPER, dataset="mnist").runs([0])[0], 91.0)
    assert (method(store).preset, method(store).ours, method(store, "cpu").ours) == ("paper", 91.0, 95.0)


def test_a_run_that_another_table_recorded_fills_every_cell_that_it_answers(store):
    """T8's grid at `cpu` has MNIST at one image alone, and T7's three networks; what Table 1 and Table 2 record counts there."""
    record(store, only(CORESETS, CPU, dataset="cifar10", ipc=10, network="ConvNet").runs([0])[0], 39.0, 40.0, 41.0)
    record(store, only(CROSS_ARCH, CPU, network="VGG11", test_network="VGG11").runs([0])[0], 60.0)
    record(store, only(CORESETS, CPU, dataset="cifar10", network="whole").runs([0])[0], 82.0)
    guided = only(CORESETS, CPU, dataset="mnist", network="herding", ipc=1).runs()[0]
    record(store, guided.set.whole, 99.2)
    record(store, guided, 88.0, 89.0)
    (row,) = results.table("coresets", "cpu", store, dataset="mnist", network="herding", ipc=1).itertuples()
    assert [r["key"] for r in row.records] == [guided.set.whole.key, guided.key, guided.key], "the training that guides is one"
    t8 = results.table("more_baselines", store=store, dataset="cifar10", network="ConvNet")
    assert t8[t8.sets > 0][["preset", "ours", "complete"]].values.tolist() == [["cpu", 40.0, True]]
    (bound,) = results.table("images_per_class", store=store, dataset="cifar10", network="whole").itertuples()
    assert (bound.ours, bound.planned_sets, bound.planned_networks, bound.complete) == (82.0, 1, 1, True)
    t7 = results.table("ablation_distance", store=store)
    (vgg,) = t7[t7.sets > 0].itertuples()
    assert (vgg.network, vgg.ours, vgg.planned_sets, vgg.planned_networks, vgg.complete) == ("VGG11", 60.0, 2, 3, False)
    grid = results.table("more_baselines", "cpu", store, network=["ConvNet", "gan"])
    assert not grid.sets.any(), "a preset's own table is its grid"


def test_a_cell_is_at_the_preset_whose_number_of_sets_and_networks_it_has(store):
    """Random images of FashionMNIST are trained on alike at `cpu` and `paper`: 2 × 3 are all of the one and few of the other."""
    place = dict(dataset="fashionmnist", ipc=1, network=RANDOM)
    runs = only(CORESETS, PAPER, **place).runs(range(5))
    for n, wanted in ((1, ("cpu", False)), (2, ("cpu", True))):
        record(store, runs[n - 1], 50.0, 51.0, 52.0)
        (row,) = results.table("coresets", store=store, **place).itertuples()
        assert (row.preset, row.complete) == wanted
    (asked,) = results.table("coresets", "paper", store, **place).itertuples()
    assert (asked.preset, asked.complete, asked.planned_sets, asked.planned_networks) == ("paper", False, 5, 20)
    for run in runs:
        record(store, run, *map(float, range(20)))
    (full,) = results.table("coresets", store=store, **place).itertuples()
    assert (full.preset, full.complete) == ("paper", True)


def test_optimal_random_selection_keeps_the_best_once_all_are_there(store):
    place = dict(dataset="mnist", ipc=1, network=list(experiments.ORS))
    first, *_ = experiments.find("more_baselines").cells(CPU, **place)
    *runs, last = first.runs()
    for i, run in enumerate(runs):
        record(store, run, float(i * 37 % 100))
    assert results.table("more_baselines", "cpu", store, **place).sets.tolist() == [99, 0, 0]
    record(store, last, float(99 * 37 % 100))
    found = results.table("more_baselines", "cpu", store, **place)
    assert found[["ours", "sets", "paper"]].values.tolist() == [[49.5, 100, 64.3], [94.5, 10, 74.4], [99.0, 1, 78.2]]


@pytest.mark.parametrize(
    ("name", "preset", "narrow", "words"),
    [
        ("cross_arhc", "best", {}, "cross_arch"),
        ("method", "cup", {}, "best, smoke, cpu, paper"),
        ("method", "best", {"netwrok": "MLP"}, "network"),
        ("method", "best", {"network": "ConvNex"}, "ConvNet"),
        ("method", "best", {"ipc": []}, "empty"),
    ],
)
def test_wrong_names_are_refused(store, name, preset, narrow, words):
    with pytest.raises(SpecError, match=words):
        results.table(name, preset, store, **narrow)


# --- standard errors


@pytest.mark.parametrize(
    ("sets", "error", "standard_error"),
    [
        (([96.0, 97.0, 98.0],), np.nan, np.nan),  # the spread of a single set is not known
        (([88.0, 92.0], [88.0, 92.0]), (4 / 3) ** 0.5, (4 / 3 + 1 / 5) ** 0.5),  # the networks' spread, as a sample's
        (([90.0, 90.0], [90.0, 90.0]), (1 / 4) ** 0.5, (1 / 4 + 1 / 5) ** 0.5),  # not below the paper's
        (([80.0] * 5, [90.0] * 5), (50 / 2) ** 0.5, (50 / 2 + 1 / 5) ** 0.5),  # the sets' spread, where it is larger
    ],
)
def test_the_standard_error(sets, error, standard_error):
    row = cell(*sets, paper=(90.0, 1.0))
    assert (row.error, row.standard_error) == pytest.approx((error, standard_error), nan_ok=True)
    assert np.isnan(cell(*sets).standard_error), "the paper has no number"


# --- axes and names


def test_networks_that_differ_in_one_option_are_named_by_it_and_the_diagonal_is_no_axis():
    norms = {"ConvNet:norm=none": "none", "ConvNet:norm=batch": "batch", "ConvNet": "instance"}
    assert labels(frame(*(cell(network=name) for name in norms)), "network") == norms
    for two in (["ConvNet:width=8", "ConvNet:depth=2"], ["random", "ConvNet"]):
        found = labels(frame(*(cell(network=name) for name in two)), "network")
        assert list(found.values()) == [name.replace("random", "random real images") for name in two]
    pairs = [cell(network=n, test_network=n, variant=v) for n in ("MLP", "LeNet") for v in ("", "distance=cosine")]
    assert varying(frame(*pairs)) == ["network", "variant"]
    assert varying(frame(*pairs, cell(network="MLP", test_network="LeNet"))) == ["network", "test_network", "variant"]


# --- the trained networks


def test_records_has_a_row_for_each_trained_network_on_record():
    store, found = Store(), results.records()
    for kind in ("TrainNetworks", "WholeTraining", "TrainCandidate", "LearnTasks"):
        kept = [r for records in store.records.values() for r in records if r["kind"] == kind]
        assert (found.kind == kind).sum() == sum(len(r["accuracies"]) for r in kept) > 0
    (row,) = results.table("coresets", store=store, dataset="mnist", ipc=1, network="ConvNet").itertuples()
    same = found[found.key.isin(row.keys)]
    assert sorted(same.accuracy) == sorted(a for accuracies in row.accuracies for a in accuracies)
    about = same[["run.set.dataset", "run.set.hyper.ipc", "run.hyper.network"]].drop_duplicates()
    assert about.values.tolist() == [["mnist", 1, "ConvNet"]]
