"""dclib.report.comparison on made outcomes: every number beside the paper's, with what it rests on and where its records are."""

import re

import pytest

from dclib import report
from dclib.report.comparison import LISTED, anchor
from dclib.results.outcomes import Outcome


def outcome(network, *sets, ipc=1, dataset="mnist", paper=None, **more):
    place = dict(dataset=dataset, ipc=ipc, network=network, test_network="ConvNet", variant="")
    keys = tuple(f"{network}-key-{i}" for i in range(len(sets)))
    return Outcome("coresets", place, "cpu" if sets else "", sets, keys, paper=paper, **more)


MADE = [
    dict(kind="WholeTraining", key="whole-key", preset="cpu"),
    dict(kind="MakeSet", key="set-key", preset="paper"),
    dict(kind="TrainNetworks", key="k-center-key-0", preset="cpu"),
]
ROWS = [
    outcome("k-center", (88.0, 90.0), (88.0, 90.0), paper=(89.2, 1.6), records=tuple(MADE)),
    outcome("forgetting", paper=(35.5, 5.6)),
    outcome("ConvNet", (80.0, 80.0), (80.0, 80.0), paper=(91.7, 0.5)),
    outcome("whole", (99.0,), paper=(99.6, 0.0)),
    outcome("k-center", ipc=10),
    outcome("ConvNet", (96.0,), ipc=10),
]


@pytest.fixture
def shown():
    return report.comparison_table(ROWS, "One\n table", "tab-one")


def cells(text):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]


def test_a_row_for_each_number_of_images_and_a_column_for_each_method(shown):
    head, _, one, ten = cells(shown._repr_markdown_())
    assert head == ["", "k-center", "forgetting", "condensed, ConvNet", "whole set"]
    assert [row[0] for row in (one, ten)] == ["MNIST, 1/class", "MNIST, 10/class"]
    assert ten[1:] == ["—", "", '<a href="#records-mnist-10-ConvNet-ConvNet">96.0</a><br><small>cpu, 1 × 1</small>', ""]


def test_a_cell_has_ours_the_papers_the_difference_and_what_it_rests_on(shown):
    one = cells(shown._repr_markdown_())[2]
    assert one[1].split("<br>") == [
        '<a href="#records-mnist-1-k-center-ConvNet">89.0 ± 1.0</a>',
        "89.2 ± 1.6",
        "−0.2 (−0.2)",
        "<small>cpu, 2 × 2</small>",
    ]
    assert one[2] == "—<br>35.5 ± 5.6", "the paper's number never stands in our line"


def test_beyond_two_standard_errors_a_difference_is_of_another_class_and_so_is_its_text(shown):
    one = cells(shown._repr_markdown_())[2]
    assert re.search(r'<span class="apart">−11.7 \(−\d+\.\d\)</span>', one[3])
    assert "apart" not in one[1]
    assert one[4].split("<br>")[2] == "−0.6", "a single set has no spread that is known"


def test_as_text_it_is_a_list(shown):
    assert repr(shown).startswith("One table. Each cell: ours, the paper's, ")
    rows = cells(repr(shown))
    assert rows[0] == ["images/class", "images", "ours", "paper", "difference", "in std. errors", "sets × networks", "preset"]
    assert rows[2] == ["1", "k-center", "89.0 ± 1.0", "89.2 ± 1.6", "−0.2", "−0.2", "2 × 2", "cpu"]
    assert len(rows) == 2 + len(ROWS)
    assert "<" not in repr(shown)


def test_every_link_leads_to_the_records_of_its_cell(shown):
    links = re.findall(r'href="#([^"]+)"', shown._repr_markdown_())
    places = re.findall(r'id="([^"]+)"', report.records_list(ROWS))
    assert links == places == [anchor(o) for o in ROWS if o.sets]
    assert len(set(places)) == len(places)
    row = cells(report.records_list(ROWS))[2]
    assert row[0] == f'<a id="{links[0]}"></a>MNIST, 1/class, k-center'
    assert row[1] == "`k-center-key-0`: 88.00, 90.00<br>`k-center-key-1`: 88.00, 90.00"
    assert row[2] == "whole set `whole-key`<br>set `set-key`"
    assert row[3] == "`cpu/whole.jsonl`<br>`paper/sets.jsonl`<br>`cpu/networks.jsonl`"


def test_of_many_runs_the_first_are_listed():
    many = outcome("ors", *[(float(i),) for i in range(LISTED + 3)])
    text = cells(report.records_list([many]))[2][1]
    assert text.count("ors-key") == LISTED
    assert text.endswith("<br>and 3 more")


def test_without_records_there_is_no_list():
    assert report.records_list([outcome("ConvNet")]) == ""
