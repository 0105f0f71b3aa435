"""dclib.report: `costs` and `pace` on made records: what is measured, what is forecast and from what, and how it is written."""

import dataclasses
import re

import pytest
import torch

from dclib import experiments
from dclib.errors import SpecError
from dclib.experiments import CORESETS, CPU, METHOD, SMOKE
from dclib.experiments.work import flop
from dclib.report.costs import TOTAL, Speeds, cost_table, costs, kind, plan, sentence, spelled_out
from dclib.report.pace import pace_plot, pace_table, paces
from dclib.results import Store
from dclib.support import provenance

ABOUT = dict(device="cpu", share=1.0, machine="a machine, 2 cores", started="2026-01-01", peak_memory_mb=1500, run={})


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("DCLIB_RESULTS", str(tmp_path))
    return Store(tmp_path)


def record(store, run, seconds, preset="smoke", **more):
    store.add(preset, {**ABOUT, "key": run.key, "kind": type(run).__name__, "seconds": seconds, **more})


@pytest.fixture
def method(store):
    """The run of `method` at smoke, recorded: 36 s for the set and 18 s for its network."""
    (run,) = METHOD.cells(SMOKE)[0].runs()
    record(store, run.set, 36.0, peak_memory_mb=900)
    record(store, run, 18.0, accuracies={"0": 80.0})
    return run


def at_smoke(**more):
    found, _ = costs(preset="smoke", **more)
    return {cost.name: cost for cost in found}


def test_recorded_runs_cost_what_they_took_and_others_are_forecast_from_them(store, method):
    found = at_smoke()
    assert (found["method"].measured, found["method"].forecast, found["method"].memory) == (54.0, 0.0, 1500)
    assert found["cross_arch"].measured == found[TOTAL].measured == 54.0, "shared runs count in each, and once in all"
    assert found["cross_arch"].forecast > found["method"].forecast
    assert found["nas"].measured == 0.0 < found["nas"].forecast
    assert sum(c.forecast for c in found.values() if c.name != TOTAL) >= found[TOTAL].forecast > 0
    assert found["method"].disk == 4 * 10 * 28**2
    lines = cost_table(list(found.values())).splitlines()
    assert re.search(r"^\| method +\| smoke +\| +0\.015 \| +100 % \| not measured \| +0\.031 \| +1\.5 \|$", lines[2])
    assert re.search(r"^\| nas +\| smoke +\| +≈ 0\.0\d+ \| +0 % ", "\n".join(lines), re.M)
    assert sentence() == "Hours are of a machine, 2 cores, all cores at work. No run is recorded on a GPU."


def test_a_forecast_takes_the_nearest_speed_there_is(store, method):
    cells = {name: experiments.find("cross_arch").cells(SMOKE, network=name, test_network=name)[0] for name in ("ConvNet", "MLP")}
    speeds = Speeds(store, spelled_out(METHOD.cells(SMOKE)).values(), gpu=False)
    made, trained = flop(method.set) / 36, flop(method) / 18
    for name, cell in cells.items():
        run = dataclasses.replace(cell, networks=1).runs()[0]
        assert kind(run) == ("TrainNetworks", name)
        measured, forecast = speeds.seconds([(run, 3)])
        done = run.key == method.key
        assert (measured, forecast) == (18.0 * done, pytest.approx((3 - done) * flop(run) / trained))
        assert speeds.seconds([(run.set, 1)])[1] == pytest.approx(0.0 if done else flop(run.set) / made)


def test_only_the_networks_that_are_needed_count(store, method):
    record(store, method, 10.0, accuracies={"1": 81.0})
    assert at_smoke()["method"].measured == pytest.approx(36.0 + 14.0)


def test_runs_side_by_side_cost_the_share_of_the_machine_that_each_had(store):
    """Two in pairs on two cores, an hour each, are an hour of the machine, and one alone foretells others."""
    pair = [run.set for run in CORESETS.cells(CPU, dataset="mnist", ipc=1, network="ConvNet")[0].runs()]
    for run in pair:
        record(store, run, 3600.0, "cpu", share=0.5)
    runs = {run.key: (run, 1) for run in pair}
    speeds = Speeds(store, runs.values(), gpu=False)
    assert speeds.seconds(runs.values()) == (3600.0, 0.0)
    assert speeds.unknown(runs.values()) == 0.0
    alone, other = (run.set for run in CORESETS.cells(CPU, dataset="fashionmnist", ipc=1, network="ConvNet")[0].runs())
    assert speeds.seconds([(alone, 1)])[1] == pytest.approx(1800.0, rel=0.01)
    record(store, alone, 1200.0, "cpu")
    speeds = Speeds(store, [*runs.values(), (alone, 1)], gpu=False)
    assert speeds.seconds([(other, 1)])[1] == pytest.approx(1200.0), "of runs that were alone, where there are some"


def test_of_an_unknown_share_hours_are_the_most_that_they_can_be_and_it_is_said(store):
    (run,) = METHOD.cells(SMOKE)[0].runs()
    for one, more in ((run.set, {}), (run, {"accuracies": {"0": 80.0}})):
        known = {name: value for name, value in ABOUT.items() if name != "share"}
        store.add("smoke", {**known, "key": one.key, "kind": type(one).__name__, "seconds": 27.0, **more})
    cost = at_smoke()["method"]
    assert (cost.measured, cost.unknown, cost.forecast) == (54.0, 54.0, 0.0)
    assert "| ≤ 0.015 |" in cost_table([cost])
    assert "2 of 2 records do not say what share" in sentence()


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


def test_records_on_a_gpu_are_apart(store, method):
    record(store, method.set, 3.6, device="a GPU")
    record(store, method, 1.8, device="a GPU", accuracies={"0": 80.0})
    found = at_smoke()
    assert (found["method"].measured, found["method"].gpu) == (54.0, pytest.approx(5.4))
    assert found[TOTAL].gpu < found[TOTAL].seconds
    assert "not measured" not in cost_table(list(found.values()))
    assert sentence().endswith("GPU hours are forecast from records on a GPU.")


def test_without_records_nothing_is_forecast(store):
    found, none = costs(preset="smoke")
    assert none == []
    assert {cost.seconds for cost in found} == {None}
    assert all(line.count("—") == 3 for line in cost_table(found).splitlines()[2:])
    assert sentence() == "Nothing is recorded yet, so that nothing can be forecast."
    assert "—" in pace_table([])
    assert pace_plot([]).render().startswith(b"\x89PNG")


def test_narrowed_to_a_data_set_what_needs_others_is_left_out(store, method):
    assert at_smoke(datasets="digits").keys() == at_smoke().keys() - {"continual"}
    assert at_smoke(datasets="mnist").keys() == {TOTAL}
    with pytest.raises(SpecError, match="did you mean 'datasets'"):
        costs(dataset="mnist")


def test_of_sets_on_one_course_the_longest_counts():
    cells = experiments.find("ablation_loops").cells(SMOKE)
    declared = {run.set.key: run.set for cell in cells for run in cell.runs()}
    counted = [declared[key] for key in spelled_out(cells) if key in declared]
    assert 0 < len(counted) < len(declared)
    assert max(s.hyper.outer_steps for s in declared.values()) in {s.hyper.outer_steps for s in counted}


def test_the_plan_of_a_preset_has_each_experiment():
    assert plan("smoke").keys() == {*experiments.ALL, "continual", "nas", TOTAL}


def test_the_pace_is_that_of_the_records(store):
    cells = {c.network: c for c in CORESETS.cells(CPU, dataset="mnist", ipc=1)}
    condensed, random = (cells[name].runs()[0] for name in ("ConvNet", "random"))
    record(store, condensed.set, 600.0, "cpu")
    record(store, condensed, 20.0, "cpu", accuracies={"0": 90.0})
    record(store, condensed, 40.0, "cpu", accuracies={"1": 91.0})
    record(store, random.set, 0.1, "cpu")
    record(store, random, 30.0, "cpu", accuracies={"0": 60.0})
    assert paces("best", store) == [], "without the whole set there is nothing to set them beside"
    record(store, cells["whole"].runs()[0], 900.0, "cpu", accuracies={"0": 99.0}, epoch_accuracies=[97.0, 98.0, 99.0])
    found = paces("best", store)
    text = pace_table(found)
    assert [line.split("|")[2:-1] for line in re.sub(" +", " ", text).splitlines()[2:]] == [
        [" random real images, 1/class ", " — ", " 30 s ", " 60.0 "],
        [" condensed, ConvNet, 1/class ", " 10 min ", " 30 s ", " 90.5 "],
        [" whole set, 1 epoch ", " — ", " 5 min ", " 97.0 "],
        [" whole set, 3 epochs ", " — ", " 15 min ", " 99.0 "],
    ]
    assert paces("best", store, ["fashionmnist"]) == []
    panel = pace_plot(found).figure.axes[0]
    drawn = {line.get_label(): list(line.get_xdata()) for line in panel.lines if not line.get_label().startswith("_")}
    assert drawn["whole set, after each epoch"] == [300.0, 600.0, 900.0]
    assert drawn["condensed, ConvNet, with the time to learn them"] == [630.0]
