"""What the benchmarks recorded, read back: medians, ratios, shares of the peak, and what is refused."""

import json

import pytest

from dclib.errors import FileError, SpecError
from dclib.report import speed

ABOUT = {"machine": "a machine", "device": "cpu", "versions": {"torch": "2.14.1"}}


def record(**changes):
    contestants = {"plain": {"seconds": [4.0, 6.0, 5.0], "peak_mb": 2000}, "tuned": {"seconds": [4.0], "peak_mb": 1900}}
    contestants |= {"compiled/bfloat16": {"seconds": [2.0, 2.0], "peak_mb": 1000}}
    made = {"bench": "condense", "title": "a case", "case": {"device": "cpu"}, "contestants": contestants}
    return made | {"gflop": 100.0, "peak_gflops": 50.0} | ABOUT | changes


@pytest.fixture
def written(tmp_path, monkeypatch):
    monkeypatch.setenv("DCLIB_RESULTS", str(tmp_path))

    def write(*records):
        (tmp_path / "speed.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))

    return write


def test_medians_ratios_and_shares(written):
    written(record())
    (contest,) = speed.contests()
    assert contest.median("plain") == 5.0
    assert contest.ratio("compiled/bfloat16", "plain") == 2.5
    assert contest.ratio("compiled/bfloat16", "tuned") == 2.0
    assert contest.ratio("plain", "nobody") is None
    assert contest.share("compiled/bfloat16") == 1.0
    row = speed.speed_table([contest]).splitlines()[4]
    assert [x.strip() for x in row.split("|")[1:-1]] == [
        "", "dclib, compiled, bfloat16", "2.50", "2.00", "100", "2.00", "2.00 … 2.00", "1,000",
    ]  # fmt: skip


def test_contestants_stand_in_their_order(written):
    written(record(contestants=dict(reversed(record()["contestants"].items()))))
    assert list(speed.contests()[0].seconds) == ["plain", "tuned", "compiled/bfloat16"]


def test_the_last_of_a_case_counts_and_devices_are_told_apart(written):
    gpu = record(device="a GPU", case={"device": "cuda"})
    written(record(gflop=1.0), gpu, record(gflop=2.0))
    assert [c.about["gflop"] for c in speed.contests()] == [2.0, 100.0]
    assert [c.about["device"] for c in speed.contests(preset="cpu")] == ["cpu"]
    assert [c.about["device"] for c in speed.contests(preset="paper")] == ["a GPU"]
    assert [c.about["device"] for c in speed.contests(device="cuda")] == ["a GPU"]
    assert not speed.missing_sentence(speed.contests())
    assert "make bench-cuda" in speed.missing_sentence(speed.contests(device="cpu"))


def test_nothing_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("DCLIB_RESULTS", str(tmp_path))
    assert speed.contests() == []
    assert "—" in speed.speed_table([])
    assert "make bench" in speed.machines([])
    assert speed.ratios([]).render()[:4] == b"\x89PNG"
    assert speed.scaling([]).render()[:4] == b"\x89PNG"


def test_figures(written):
    points = [record(bench="scaling", title=f"side: {n}", case={"device": "cpu", "axis": "side"}) for n in (8, 16)]
    written(record(), *points)
    found = speed.contests()
    assert len(speed.ratios(found).figure.axes) == 1
    time, memory = speed.scaling(found).figure.axes
    assert list(time.lines[0].get_xdata()) == list(memory.lines[0].get_xdata()) == [8, 16]
    assert "a machine, torch 2.14.1, where a matrix product reached 50 to 50 GFLOP/s" in speed.machines(found)


def test_the_largest_case_is_told_apart_from_the_curves(written):
    case = {"device": "cpu", "axis": "largest", "T": 1, "real": 16}
    only = {"eager": {"seconds": [283.6], "peak_mb": 4520}}
    written(record(), record(bench="scaling", title="100 classes", case=case, contestants=only))
    said = "one outer step with T = 1 and 16 real images per class took 284 s and, at its peak, 4.5 GB"
    assert speed.largest_sentence(speed.contests()) == f"The largest case, 100 classes: {said} (dclib, uncompiled; measured once)."
    assert speed.largest_sentence(speed.contests(device="cuda")) == ""


def test_smoke_times_something_now():
    (contest,) = speed.contests(preset="smoke")
    assert set(contest.seconds) == {"plain", "eager"}
    assert all(s > 0 for seconds in contest.seconds.values() for s in seconds)
    assert "smoke" in contest.title


@pytest.mark.parametrize(
    "given", [{"datasets": "digits"}, {"recompute": True, "preset": "cpu"}, {"preset": "smok"}, {"devise": "cpu"}]
)
def test_what_makes_no_sense_is_refused(given):
    with pytest.raises(SpecError):
        speed.contests(**given)


@pytest.mark.parametrize("line", ["{", "{}", "[]", '{"bench": 1}'])
def test_a_line_that_is_no_contest_is_named(tmp_path, monkeypatch, line):
    monkeypatch.setenv("DCLIB_RESULTS", str(tmp_path))
    (tmp_path / "speed.jsonl").write_text(json.dumps(record()) + "\n" + line + "\n")
    with pytest.raises(FileError, match="line 2, is no contest"):
        speed.contests()


def test_machines_are_told_apart(written):
    written(record(), record(machine="another", gflop=50.0))
    found = speed.contests()
    rows = [row.split("|")[1].strip() for row in speed.speed_table(found).splitlines()[2:]]
    assert rows == ["**a machine**", "a case", "", "", "**another**", "a case", "", ""]
    figure = speed.ratios(found).figure
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["a case"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a machine", "another"]
    assert "another, torch 2.14.1" in speed.machines(found)


def test_curves_of_machines_are_lines_of_their_own(written):
    case = {"device": "cpu", "axis": "side"}
    written(*(record(bench="scaling", title=f"side: {n}", case=case, machine=m) for m in ("one", "two") for n in (8, 16)))
    time, _ = speed.scaling(speed.contests()).figure.axes
    assert [line.get_label() for line in time.lines] == ["one", "two"]
    assert len(time.figure.legends) == 1
