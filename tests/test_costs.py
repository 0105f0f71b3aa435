"""The page `costs` on made-up records: what is measured, what is forecast and from what; and the runs that it counts."""

import dataclasses

import pytest
import torch
from pages import shown

from dclib import experiments
from dclib.experiments import CORESETS, CPU, METHOD, SMOKE
from dclib.report import costs
from dclib.results import Store
from dclib.support import provenance

ABOUT = dict(device="cpu", share=1.0, machine="a machine, 2 cores", started="2026-01-01", peak_memory_mb=1500, run={})
ALL = "all of them"


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("DCLIB_RESULTS", str(tmp_path))
    return Store(tmp_path)


def record(store, run, seconds, preset="smoke", **more):
    about = {name: value for name, value in (ABOUT | more).items() if value is not None}
    store.add(preset, {**about, "key": run.key, "kind": type(run).__name__, "seconds": seconds})


@pytest.fixture
def method(store):
    """The run of `method` at smoke, recorded: 36 s for the set and 18 s for its network."""
    (run,) = METHOD.cells(SMOKE)[0].runs()
    record(store, run.set, 36.0, peak_memory_mb=900)
    record(store, run, 18.0, accuracies={"0": 80.0})
    return run


def table(cells=("pace", "plan", "table"), **given):
    """The rows of the first table at smoke, by the experiment's name."""
    return {row[0]: row[1:] for row in shown("costs", *cells, **{"preset": "smoke"} | given)["table"]}


def hours(row):
    return float(row[0].removeprefix("≈ ").split()[0].replace(",", ""))


def test_recorded_runs_cost_what_they_took_and_others_are_forecast_from_them(store, method):
    found = table()
    assert found["method"] == ["0.015 (100 %)", "0.031", "1.5"]
    assert found["nas"][0].startswith("≈ 0.0")
    assert "%" not in found["nas"][0]
    assert hours(found["cross_arch"]) > hours(found["method"])
    assert hours(found[ALL]) < sum(hours(row) for name, row in found.items() if name != ALL), "shared runs count once in all"


@pytest.mark.slow
def test_a_forecast_scales_with_the_operations_of_the_nearest_known_run(store):
    (cell,) = CORESETS.cells(CPU, dataset="mnist", ipc=1, network="ConvNet")
    one = cell.runs()[0]
    record(store, one.set, 3600.0, "cpu")
    record(store, one, 216.0, "cpu", accuracies={str(j): 90.0 for j in range(3)})
    planned = {row["key"]: row for row in costs.planned("cpu") if row["experiment"] == "method"}
    sets = [row for row in planned.values() if row["kind"] == "condense"]
    expected = sum(3600 * row["flop"] / planned[one.set.key]["flop"] for row in sets)
    trained = [row for row in planned.values() if row["kind"] == "TrainNetworks"]
    expected += sum(72 * row["networks"] * row["flop"] / planned[one.key]["flop"] for row in trained)
    assert hours(table(preset="cpu")["method"]) == pytest.approx(expected / 3600, rel=0.05)


@pytest.mark.slow
def test_runs_side_by_side_cost_the_share_of_the_machine_that_each_had(store, method):
    record(store, dataclasses.replace(method, networks=2), 40.0, share=0.5, accuracies={"1": 81.0})
    assert hours(table()["method"]) == pytest.approx((36 + (18 + 20) / 2) / 3600, abs=6e-4)


@pytest.mark.slow
def test_of_an_unknown_share_hours_are_the_most_that_they_can_be(store):
    (run,) = METHOD.cells(SMOKE)[0].runs()
    record(store, run.set, 27.0, share=None)
    record(store, run, 27.0, share=None, accuracies={"0": 80.0})
    assert table()["method"][0] == "≤ 0.015 (100 %)"


@pytest.mark.slow
def test_records_on_a_gpu_are_apart(store, method):
    record(store, method.set, 90.0, device="a GPU")
    record(store, method, 18.0, device="a GPU", accuracies={"0": 80.0})
    assert table()["method"][:2] == ["0.015 (100 %)", "0.030 (100 %)"]


@pytest.mark.slow
def test_without_records_nothing_is_forecast_and_nothing_drawn(store):
    page = shown("costs", preset="smoke")
    assert all((row[1], row[3]) == ("—", "—") for row in page["table"])
    assert page["pace"] == [["—"] * 5]
    assert page["figure"].render().startswith(b"\x89PNG")


@pytest.mark.slow
def test_of_sets_on_one_trajectory_the_longest_counts():
    declared = {run.set.key: run.set for cell in experiments.find("ablation_loops").cells(SMOKE) for run in cell.runs()}
    planned = {row["key"] for row in costs.planned("smoke") if row["experiment"] == "ablation_loops"}
    counted = [made.hyper.outer_steps for key, made in declared.items() if key in planned]
    assert 0 < len(counted) < len(declared)
    assert set(counted) == {max(made.hyper.outer_steps for made in declared.values())}


@pytest.mark.slow
def test_the_pace_is_that_of_the_records(store):
    cells = {c.network: c for c in CORESETS.cells(CPU, dataset="mnist", ipc=1)}
    condensed, random = (cells[name].runs()[0] for name in ("ConvNet", "random"))
    record(store, condensed.set, 600.0, "cpu")
    record(store, condensed, 20.0, "cpu", accuracies={"0": 90.0})
    record(store, condensed, 40.0, "cpu", accuracies={"1": 91.0})
    record(store, random.set, 0.1, "cpu")
    record(store, random, 30.0, "cpu", accuracies={"0": 60.0})
    record(store, cells["whole"].runs()[0], 900.0, "cpu", accuracies={"0": 99.0}, epoch_accuracies=[97.0, 98.0, 99.0])
    page = shown("costs", preset="cpu")
    assert page["pace"] == [
        ["MNIST", "random real images, 1/class", "—", "30 s", "60.0"],
        ["MNIST", "condensed, ConvNet, 1/class", "10 min", "30 s", "90.5"],
        ["MNIST", "whole set, 1 epoch", "—", "5 min", "97.0"],
        ["MNIST", "whole set, 3 epochs", "—", "15 min", "99.0"],
    ]
    drawn = {line.get_label(): list(line.get_xdata()) for line in page["figure"].figure.axes[0].lines}
    assert drawn["whole set, after each epoch"] == [300.0, 600.0, 900.0]
    assert drawn["condensed, ConvNet, with their making"] == [630.0]


def test_a_record_says_what_share_of_the_machine_its_run_had(monkeypatch):
    monkeypatch.setattr(provenance, "_cores", lambda: 4)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert provenance.provenance("2026-01-01", "cpu", "eager")["share"] == 0.25
        torch.set_num_threads(8)
        assert (provenance.share("cpu"), provenance.share("cuda")) == (1.0, 1.0)
    finally:
        torch.set_num_threads(before)
