"""Table T11's measurements read back: what iterating takes, ratios, extrapolation, and what is refused."""

import json

import pytest

from dclib.errors import FileError
from dclib.report import memory


def entry(seconds, peak):
    return {"seconds": seconds, "peak_mb": peak, "allocated_mb": peak - 300.0}


def record(**changes):
    contestants = {"unrolled/10": entry([1.0], 500), "unrolled/30": entry([2.0, 3.0, 4.0], 900), "reverse/30": entry([4.0], 480)}
    contestants |= {"condense/0": entry([0.5], 700), "condense/50": entry([1.5], 700)}
    about = {"bench": "memory", "machine": "a machine", "device": "cpu"}
    return {"case": {"dataset": "mnist", "network": "LeNet"}, "contestants": contestants} | about | changes


@pytest.fixture
def written(tmp_path, monkeypatch):
    monkeypatch.setenv("DCLIB_RESULTS", str(tmp_path))

    def write(*records):
        (tmp_path / "memory.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
        return memory.load()

    return write


def test_what_iterating_takes_and_the_whole_run(written):
    (found,) = written(record())
    assert found.curve("unrolled") == {10: 200, 30: 600}
    assert found.curve("condense") == {0: 400, 50: 400}
    assert found.seconds("unrolled", 30) == 3.0
    assert found.outer_step == pytest.approx(10 * 0.5 + 9 * (1.5 - 2 * 0.5))
    assert found.minutes("DD") == pytest.approx(3.0 * 23600 / 60)
    assert found.minutes("ours") == pytest.approx(9.5 * 1000 / 60)
    assert found.line("unrolled") == (0, 20)
    assert found.line("condense") == (400, 0)
    said = memory.sentence([found])
    assert "a machine" in said
    assert "MNIST: DD's tensors take 0 MB and 20.0 for each step, condensation's 400 and 0.0." in said
    assert "process's own" not in said


def test_what_a_process_takes_before_is_told(written):
    contestants = {name: {**e, "base_mb": 500} for name, e in record()["contestants"].items()}
    assert "Of each peak some 500 MB are the process's own" in memory.sentence(written(record(contestants=contestants)))


def test_the_table_sets_ratios_beside_the_papers(written):
    rows = [[x.strip() for x in line.split("|")[1:-1]] for line in memory.memory_table(written(record())).splitlines()[2:]]
    assert rows == [
        ["MNIST", "DD", "900", "600", "3.00", "23,600", "1,180", "785", "160"],
        ["", "condensation", "700", "400", "9.50", "1,000", "158", "653", "46"],
        ["", "ratio", "1.29", "1.50", "", "", "7.45", "1.20", "3.48"],
    ]


def test_where_only_memory_was_measured_there_is_no_time(written):
    untimed = {name: {**e, "seconds": []} for name, e in record()["contestants"].items()}
    (found,) = written(record(contestants=untimed))
    rows = [[x.strip() for x in line.split("|")[1:-1]] for line in memory.memory_table([found]).splitlines()[2:]]
    assert [row[4] for row in rows] == ["—", "—", ""]
    assert [row[6] for row in rows] == ["—"] * 3
    assert rows[2][2] == "1.29"
    assert "Not timed yet: MNIST" in memory.sentence([found])


def test_devices_are_told_apart(written):
    found = written(record(), record(device="a GPU"), record(device="a GPU"))
    assert [m.about["device"] for m in found] == ["cpu", "a GPU"]
    assert memory.titles(found) == ["MNIST, cpu", "MNIST, a GPU"]
    assert memory.titles(found[:1]) == ["MNIST"]


def test_the_last_measurement_on_a_device_counts(written):
    later = record(contestants=record()["contestants"] | {"unrolled/30": entry([9.0], 950)}, machine="another machine")
    (found,) = written(record(), later)
    assert found.curve("unrolled")[30] == 650


def test_the_plot_has_a_curve_for_each_way(written):
    other = record(case={"dataset": "cifar10", "network": "AlexCifarNet"})
    left, right = memory.memory_plot(written(record(), other)).figure.axes
    assert [list(line.get_xdata()) for line in left.lines] == [[10, 30], [30], [0, 50]]
    assert left.get_ylim()[0] == 0
    assert right.get_title(loc="left") == "CIFAR10"


def test_nothing_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("DCLIB_RESULTS", str(tmp_path))
    assert memory.load() == []
    assert "—" in memory.memory_table([])
    assert "make bench-memory" in memory.sentence([])
    assert memory.memory_plot([]).render()[:4] == b"\x89PNG"


WRONG = {
    "no JSON": "{",
    "no record": "[]",
    "no steps": json.dumps(record(contestants={"unrolled": entry([1.0], 2)})),
    "another way": json.dumps(record(contestants=record()["contestants"] | {"forward/30": entry([1.0], 2)})),
    "a point that the table needs is missing": json.dumps(record(contestants={"condense/0": entry([1.0], 2)})),
    "no machine": json.dumps({name: value for name, value in record().items() if name != "machine"}),
}


@pytest.mark.parametrize("line", WRONG.values(), ids=WRONG)
def test_a_line_that_is_no_measurement_is_named(written, line, tmp_path):
    written(record())
    with open(tmp_path / "memory.jsonl", "a") as file:
        file.write(line + "\n")
    with pytest.raises(FileError, match="line 2, is no measurement of memory: delete that line"):
        memory.load()
