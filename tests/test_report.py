"""dclib.report on made rows: tables, the list of records behind them, and lines of facts."""

import json
import re
import shlex
from base64 import b64decode
from io import BytesIO

import numpy as np
import pandas as pd
import pytest
from cells import cell, frame

from dclib import experiments, report, results
from dclib.experiments import RANDOM, ablations, paper
from dclib.results import CondensedSet, Store
from dclib.support.console import words


def lines(text):
    """The cells of a table in Markdown, line by line, without the rule."""
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    return [row for row in rows if not row[0].startswith("---")]


# --- tables


def test_matrix_table():
    """Every number is printed, also one that lost; the paper's lines stand where it has numbers."""
    found = frame(
        cell([90.0, 92.0], network="MLP", test_network="ConvNet", paper=(90.0, 1.0)),
        cell(network="MLP", test_network="LeNet"),
        cell([80.04], network="ConvNet", test_network="ConvNet", paper=(90.0, 1.0)),
        cell([85.0], [75.0], network=RANDOM, test_network="ConvNet"),
    )
    assert lines(report.matrix_table(found)) == [
        ["condensed with", "", "ConvNet", "LeNet"],
        ["MLP", "ours", "91.0 ± 1.0", "—"],
        ["", "paper", "90.0 ± 1.0", "—"],
        ["", "difference", "+1.0", "—"],
        ["ConvNet", "ours", "80.0", ""],
        ["", "paper", "90.0 ± 1.0", ""],
        ["", "difference", "−10.0", ""],
        ["random real images", "ours", "80.0 ± 5.0", ""],
    ]
    lost = frame(cell([79.9], network="LeNet"), cell([80.0], network=RANDOM))
    assert [row[1] for row in lines(report.matrix_table(lost))[1:]] == ["79.9 ↓", "80.0"]
    level = frame(cell([79.96], network="LeNet"), cell([80.04], network=RANDOM))
    body = lines(report.matrix_table(level, head="images"))
    assert body == [["images", "ConvNet"], ["LeNet", "80.0"], ["random real images", "80.0"]], "no arrow between equals"


def test_matrix_table_names_presets_where_they_differ_and_keeps_apart_what_differs_on_a_third_axis():
    mixed = frame(cell([90.0]), cell([91.0], preset="paper", network="MLP", planned=(2, 1)))
    assert lines(report.matrix_table(mixed))[1:] == [["ConvNet", "90.0 (cpu)"], ["MLP", "91.0 (paper, in part)"]]
    two = frame(cell([90.0]), cell([70.0], dataset="usps"))
    assert lines(report.matrix_table(two))[1:] == [["MNIST", "ConvNet", "90.0"], ["USPS", "ConvNet", "70.0"]]
    own = frame(*(cell(network=n, test_network=n, variant=v) for n in ("MLP", "LeNet") for v in ("", "distance=cosine")))
    assert lines(report.matrix_table(own, rows="variant", columns="network"))[0] == ["variant", "MLP", "LeNet"]


def test_list_table():
    found = frame(
        cell([90.0, 92.0], [90.0, 92.0], paper=(90.0, 1.0), planned=(2, 2)),
        cell([96.0, 98.0], paper=(90.0, 1.0), dataset="usps", planned=(2, 2)),
        cell([1.0, 2.0], [3.0], dataset="digits"),
        cell(dataset="svhn10k"),
    )
    assert lines(report.list_table(found)) == [
        ["data set", "ours", "paper", "difference", "in std. errors", "sets × networks", "preset"],
        ["MNIST", "91.0 ± 1.0", "90.0 ± 1.0", "+1.0", "+1.4", "2 × 2", "cpu"],
        ["USPS", "97.0 ± 1.0", "90.0 ± 1.0", "+7.0", "—", "1 × 2 of 2 × 2", "cpu"],
        ["digits", "2.0 ± 0.8", "—", "—", "—", "2, 3", "cpu"],
        ["SVHN-10k, a stand-in", "—", "—", "—", "—", "—", "—"],
    ]


def test_means_table_takes_only_columns_that_are_complete():
    numbers = [[None, 80.0, 90.0], [70.0, 81.0, 91.0], [70.0, 82.0, 92.0]]
    names = ["MLP", "LeNet", "ConvNet"]
    places = [(n, t, numbers[i][j]) for i, n in enumerate(names) for j, t in enumerate(names)]
    found = frame(*(cell(*([[a]] if a else []), network=n, test_network=t, paper=(a or 1.0, 1.0)) for n, t, a in places))
    by_made, by_trained = (
        lines(report.means_table(found, *axes)) for axes in (("network", "test_network"), ("test_network", "network"))
    )
    assert "mean over 2 of 3" in by_made[0][0]
    assert by_made[1:] == [["ConvNet", "87.0", "87.0"], ["LeNet", "86.0", "86.0"], ["MLP", "85.0", "85.0"]]
    assert by_trained[1:] == [["ConvNet", "91.5", "91.5"], ["LeNet", "81.5", "81.5"], ["MLP", "70.0", "70.0"]]


# --- the table whose numbers lead to their records

MADE = [
    dict(kind="WholeTraining", key="whole-key", preset="cpu"),
    dict(kind="MakeSet", key="set-key", preset="paper"),
    dict(kind="TrainNetworks", key="k-center-key-0", preset="cpu"),
]
ROWS = frame(
    cell([88.0, 90.0], [88.0, 90.0], network="k-center", paper=(89.2, 1.6), records=MADE),
    cell(network="forgetting", paper=(35.5, 5.6)),
    cell([80.0, 80.0], [80.0, 80.0], paper=(91.7, 0.5)),
    cell([99.0], network="whole", paper=(99.6, 0.0)),
    cell(network="k-center", ipc=10),
    cell([96.0], ipc=10),
)


def test_a_comparison_has_ours_the_papers_the_difference_and_what_ours_rests_on():
    shown = report.comparison_table(ROWS, "One\n table", "tab-one")
    head, one, ten = lines(shown._repr_markdown_())
    assert head == ["", "k-center", "forgetting", "condensed, ConvNet", "whole set"]
    link = '<a href="#records-mnist-1-k-center-ConvNet">89.0 ± 1.0</a>'
    assert one[:2] == ["MNIST, 1/class", f"{link}<br>89.2 ± 1.6<br>−0.2 (−0.2)<br><small>cpu, 2 × 2</small>"]
    assert one[2] == "—<br>35.5 ± 5.6", "the paper's number never stands in our line"
    assert re.search(r'<span class="apart">−11.7 \(−\d+\.\d\)</span>', one[3]), "beyond two standard errors"
    assert one[4].split("<br>")[2] == "−0.6", "a single set has no spread that is known"
    assert (ten[1], ten[2], ten[4]) == ("—", "", "")
    as_text = lines(repr(shown))
    assert as_text[1] == ["1", "k-center", "89.0 ± 1.0", "89.2 ± 1.6", "−0.2", "−0.2", "2 × 2", "cpu"]
    assert len(as_text) == 1 + len(ROWS)


def test_every_link_leads_to_the_records_of_its_cell():
    links = re.findall(r'href="#([^"]+)"', report.comparison_table(ROWS, "x", "tab-x")._repr_markdown_())
    assert links == re.findall(r'id="([^"]+)"', report.records_list(ROWS))
    assert len(set(links)) == len(links) == (ROWS.sets > 0).sum()
    (first,) = [row for row in lines(report.records_list(ROWS)) if links[0] in row[0]]
    assert first[1:] == [
        "`k-center-key-0`: 88.00, 90.00<br>`k-center-key-1`: 88.00, 90.00",
        "whole set `whole-key`<br>set `set-key`",
        "`cpu/whole.jsonl`<br>`paper/sets.jsonl`<br>`cpu/networks.jsonl`",
    ]
    many = lines(report.records_list(frame(cell(*[[float(i)] for i in range(100)]))))[1][1]
    assert many.endswith(f"and {100 - many.count('-key-')} more")
    assert report.records_list(frame(cell())) == ""


# --- files that a page holds


def held(text):
    """The files that links hold, by name."""
    return {name: b64decode(data) for data, name in re.findall(r'href="data:[^;]+;base64,([^"]+)" download="([^"]+)"', text)}


def test_facts_end_with_the_recorded_rows_as_csv():
    rows = frame(cell([88.0, 90.0], [87.0], records=[trained("k")], paper=(89.2, 1.6)), cell(ipc=10))
    found = pd.read_csv(BytesIO(held(report.facts(rows))["coresets.csv"]))
    assert found.columns.tolist() == rows.columns.drop("records").tolist()
    (row,) = found.itertuples()
    assert (row.ipc, row.ours, row.paper) == (1, rows.ours[0], 89.2)
    assert json.loads(row.accuracies) == [[88.0, 90.0], [87.0]]
    assert json.loads(row.keys) == ["ConvNet-key-0", "ConvNet-key-1"]
    assert not held(report.facts(rows[1:])), "nothing is recorded"


def test_sets_are_held_as_pictures_and_small_ones_as_files(tmp_path):
    labels = np.arange(3)
    small, large = (
        CondensedSet(np.zeros((3, 1, side, side), np.float32), labels, "made", tuple("abc"), (0.5,), (0.5,), key=f"of-{side}")
        for side in (4, 100)
    )
    files = held(report.set_links({"small": small, "large": large}))
    assert files.keys() == {"of-4.png", "of-4.safetensors", "of-100.png"}
    assert files["of-4.png"].startswith(b"\x89PNG")
    (tmp_path / "set").write_bytes(files["of-4.safetensors"])
    assert CondensedSet.load(tmp_path / "set").hash == small.hash
    assert report.set_links({}) == ""


# --- lines of facts


def test_a_caption_says_what_its_numbers_rest_on():
    rows = frame(cell([90.0]), cell([90.0], planned=(2, 1)), cell([90.0], dataset="usps", planned=(1, 2)))
    assert report.budget(rows).endswith("1 set × 1 network for each number; 2 of 3 numbers have fewer than the preset plans")
    assert report.budget(rows[:2]).endswith("; 1 of 2 numbers has fewer than the preset plans")
    assert report.images_of(rows) == "MNIST, USPS, one image per class"
    assert report.images_of(frame(cell(ipc=10))) == "MNIST, 10 images per class"


def test_agreement_counts_names_the_farthest_and_compares_the_orders():
    numbers = {"MLP": 90.1, "ConvNet": 89.0, "LeNet": 80.0, "VGG11": 91.0}
    printed = dict(zip(numbers, (90.0, 90.2, 91.0, 92.0), strict=True))
    rows = [cell([a] * 20, [a] * 20, network=n, paper=(printed[n], 1.0)) for n, a in numbers.items()]
    said = report.agreement_sentence(frame(*rows))
    assert re.findall(r"\d+ of \d+|[−+]?\d+\.\d+|LeNet", said) == ["1 of 4", "−1.1", "−11.0", "LeNet", "0.20"]
    single = frame(cell([96.0], paper=(90.0, 1.0)), cell([80.0], [80.0], paper=(90.0, 1.0)))
    assert "0 of 1 (1 more" in report.agreement_sentence(single), "what rests on a single set is not compared"
    assert report.agreement_sentence(frame(cell([90.0]))) == ""


def test_the_printed_ablations_rank_as_themselves():
    """Every ablation's own numbers, cell by cell: a table read in the wrong direction would not be in its order."""
    for name in paper.ABLATIONS:
        cells = [c for c in experiments.find(name).cells(experiments.PAPER) if c.variant != ablations.OWN_RATE]
        found = [(c.place, paper.find(name, c.place)) for c in cells]
        rows = frame(*(cell([printed[0]], paper=printed, **place) for place, printed in found))
        assert "Spearman's ρ = 1.00" in report.agreement_sentence(rows)


RECORD = dict(device="cpu", machine="a machine, 2 cores", commit="abcdef123456", dirty=False, peak_memory_mb=1500, seconds=30.0)


def trained(key, network=0, **other):
    started = f"2026-01-0{network + 1}T00:00:00Z"
    return RECORD | dict(kind="TrainNetworks", key=key, started=started, accuracies={str(network): 90.0}) | other


def test_cost_counts_each_record_once_and_a_course_by_its_longest_set_and_names_devices_and_changed_code():
    made = RECORD | dict(kind="MakeSet", key="s", started="2026-01-01T00:00:00Z", seconds=7200.0, peak_memory_mb=2000)
    gan = RECORD | dict(kind="TrainGan", key="g", started="2026-01-01T00:00:00Z", seconds=60.0)
    for course, hours in (({}, "3.0 h"), ({"course": "c"}, "2.0 h")):
        shared = [made | course, made | dict(key="e", seconds=3600.0) | course, gan]
        rows = frame(*(cell([90.0, 91.0], records=[*shared, trained(n), trained(n, 1)]) for n in "ab"))
        said = report.cost_sentence(rows)
        for part in (f"2 sets took {hours}", "1 GAN took 60 s", "4 trained networks took 2 min", "2 cores", "2.0 GB", "abcdef1"):
            assert part in said
    records = [trained("k", device="A GPU"), trained("k", 1, dirty=True, commit="1234567890ab")]
    text = report.cost_sentence(frame(cell([90.0, 91.0], records=records)))
    for part in ("A GPU (a machine, 2 cores) and a machine, 2 cores", "abcdef1, 1234567", "not committed"):
        assert part in text


OPTIONS = {"--datasets": "dataset", "--networks": "network", "--test-networks": "test_network", "--variants": "variant"}
OPTIONS["--ipc"] = "ipc"


def filled(rows, preset=""):
    """The cells without a number that each command of the line computes, by its preset; it may compute others beside them."""
    found = {}
    places = rows[rows.sets == 0][list(experiments.AXES)].to_dict("records")
    for command in re.findall("`(dclib run [^`]+)`", report.missing_sentence(rows, preset)):
        _, _, name, *options = shlex.split(command)
        given = dict(zip(options[::2], options[1::2], strict=True))
        budget = experiments.find_preset(given.pop("--preset"))
        narrow = {axis: words([given[option]]) if option in given else None for option, axis in OPTIONS.items()}
        narrow["ipc"] = narrow["ipc"] and [int(value) for value in narrow["ipc"]]
        grid = [c.place for c in experiments.find(name).cells(budget, **narrow)]
        found[budget.name] = [place for place in places if place in grid]
    return found, places


@pytest.mark.parametrize(
    ("name", "narrow"),
    [
        ("coresets", dict(dataset=("cifar100",), ipc=(1,))),
        ("coresets", dict(dataset=("mnist",), network=("k-center",), ipc=(10, 50))),
        ("coresets", dict(network=("LeNet",), test_network=("LeNet",))),
        ("cross_arch", dict(network=("ConvNet:width=64",), test_network=("MLP", "LeNet"))),
        ("ablation_distance", dict(network=("MLP",), test_network=("MLP",), variant=("", "distance=cosine,image_lr=1"))),
        pytest.param("ablation_loops", {}, marks=pytest.mark.slow),
        ("more_baselines", dict(network=("gan", "ConvNet"))),
        ("choices", {}),
        ("distillation", dict(dataset=("cifar10",))),
    ],
)
def test_the_commands_that_are_named_fill_every_missing_cell_with_the_narrowing_that_was_given(name, narrow, tmp_path):
    rows = results.table(name, store=Store(tmp_path), **narrow)
    computed, places = filled(rows)
    assert all(any(place in found for found in computed.values()) for place in places)
    assert ("--" in report.missing_sentence(rows).replace("--preset", "")) == bool(narrow)
    assert filled(rows, "smoke")[0] == {"smoke": places}
    assert report.missing_sentence(rows).startswith(f"{len(rows)} of {len(rows)} ")
    if name == "ablation_loops":
        assert {preset: len(found) for preset, found in computed.items()} == {"cpu": 8, "paper": 96}
