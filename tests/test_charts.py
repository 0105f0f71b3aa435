"""dclib.report.charts, and the tables of Table 1 and Fig. 3: what is drawn is what is recorded, ours apart from the paper's."""

import dataclasses
import re
import shlex

import numpy as np
import pytest

from dclib import experiments, report
from dclib.report.charts import OURS, PAPER
from dclib.report.sentences import OPTIONS
from dclib.results import CondensedSet, Store
from dclib.results.outcomes import Outcome
from dclib.spec import Condensation, MakeSet, full
from dclib.support.console import whole, words


def outcome(network, accuracies=(), ipc=1, dataset="mnist", paper=None, preset="cpu", **more):
    place = dict(dataset=dataset, ipc=ipc, network=network, test_network="ConvNet", variant="")
    sets = (tuple(accuracies),) if accuracies else ()
    return Outcome("coresets", place, preset if sets else "", sets, paper=paper, **more)


ROWS = [
    outcome("herding", (88.0, 90.0), paper=(89.2, 1.6)),
    outcome("forgetting", paper=(35.5, 5.6)),
    outcome("ConvNet", (90.0, 92.0), paper=(91.7, 0.5)),
    outcome("whole", (99.0,), paper=(99.6, 0.0)),
    outcome("ConvNet", (96.0,), ipc=10),
]


def drawn(panel):
    """(x, y, half the interval, colour, filled) of each dot."""
    dots = []
    for bar in panel.containers:
        line, _, (spread,) = bar.lines
        ((x, y),) = line.get_xydata()
        (segment,) = spread.get_segments()
        half = round((segment[1][0] - segment[0][0]) / 2, 6)
        dots.append((x, round(float(y)), half, line.get_color(), line.get_markerfacecolor() != "white"))
    return dots


def test_dots_are_the_means_with_their_spread_ours_filled_and_the_papers_hollow():
    one, ten = report.dot_plot(ROWS).figure.axes
    assert drawn(one) == [
        (89.0, 0, 1.0, OURS, True),
        (89.2, 0, 1.6, PAPER, False),
        (35.5, 1, 5.6, PAPER, False),
        (91.0, 2, 1.0, OURS, True),
        (91.7, 2, 0.5, PAPER, False),
    ]
    assert drawn(ten) == [(96.0, 2, 0.0, OURS, True)]
    assert [t.get_text() for t in one.get_yticklabels()] == ["herding", "forgetting", "condensed, ConvNet"]
    assert (one.get_title("left"), ten.get_title("left")) == ("MNIST\n1 image/class", "\n10 images/class")
    for panel in (one, ten):
        assert [(line.get_xdata()[0], line.get_color()) for line in panel.lines if len(set(line.get_xdata())) == 1][-2:] == [
            (99.0, OURS),
            (99.6, PAPER),
        ]


def test_nothing_recorded_can_be_drawn():
    for picture in (report.dot_plot([outcome("herding")]), report.curves([outcome("herding")])):
        assert picture.render().startswith(b"\x89PNG")


def test_curves_are_absolute_above_and_relative_to_the_whole_set_below():
    rows = [*ROWS, outcome("ConvNet", (30.0,), dataset="cifar10")]
    above, below = report.curves(rows).figure.axes
    lines = {line.get_label(): line for line in above.lines}
    assert lines["MNIST, condensed, ConvNet"].get_xydata().tolist() == [[1.0, 91.0], [10.0, 96.0]]
    assert lines["MNIST, herding"].get_linestyle() == "--"
    assert "CIFAR10, condensed, ConvNet" in lines
    assert "MNIST, forgetting" not in lines
    relative = {line.get_label(): line for line in below.lines}
    assert relative["MNIST, condensed, ConvNet"].get_ydata().tolist() == pytest.approx([91.91919, 96.969696])
    assert "CIFAR10, condensed, ConvNet" not in relative, "there is no whole set to compare with"


# --- tables


def test_the_relative_table():
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report.relative_table(ROWS).splitlines()]
    assert rows[0] == ["data set", "images", "1", "10", "whole set"]
    assert rows[2:] == [
        ["MNIST", "herding", "89.0 ± 1.0 (90 %)", "", "99.0"],
        ["MNIST", "forgetting", "—", "", "99.0"],
        ["MNIST", "condensed, ConvNet", "91.0 ± 1.0 (92 %)", "96.0 (97 %)", "99.0"],
    ]
    assert "%" not in report.relative_table([outcome("ConvNet", (90.0,))])


def test_what_cpu_does_not_fill_is_told_with_the_preset_that_does():
    rows = [outcome("ConvNet"), outcome("ConvNet", dataset="svhn")]
    assert filled(rows) == {"cpu": [rows[0].place], "paper": [rows[1].place]}
    assert filled(rows[1:]) == {"paper": [rows[1].place]}


def filled(rows, preset=""):
    """The cells without a number that each command of the sentence computes, by its preset; it may compute others beside them."""
    found = {}
    for command in re.findall("`(dclib run [^`]+)`", report.missing_sentence(rows, preset)):
        _, _, name, *options = shlex.split(command)
        given = dict(zip(options[::2], options[1::2], strict=True))
        budget = experiments.find_preset(given.pop("--preset"))
        narrow = {axis: words([given[option]]) if option in given else None for axis, option in OPTIONS.items()}
        narrow["ipc"] = whole(narrow["ipc"])
        places = [cell.place for cell in experiments.find(name).cells(budget, **narrow)]
        found[budget.name] = [o.place for o in rows if not o.sets and o.place in places]
    return found


@pytest.mark.parametrize(
    ("name", "narrow"),
    [
        ("coresets", dict(dataset=("cifar100",), ipc=(1,))),
        ("coresets", dict(dataset=("mnist",), network=("k-center",), ipc=(10, 50))),
        ("coresets", dict(network=("LeNet",), test_network=("LeNet",))),
        ("cross_arch", dict(network=("ConvNet:width=64",), test_network=("MLP", "LeNet"))),
        ("ablation_distance", dict(network=("MLP",), test_network=("MLP",), variant=("", "distance=cosine,image_lr=1"))),
        ("more_baselines", {}),
        ("choices", {}),
        ("distillation", dict(dataset=("cifar10",))),
    ],
)
def test_the_commands_that_are_named_fill_every_missing_cell_with_the_narrowing_that_was_given(name, narrow, tmp_path):
    rows = report.look_up(name, store=Store(tmp_path), **narrow)
    computed = filled(rows)
    assert all(any(o.place in places for places in computed.values()) for o in rows)
    assert ("--" in report.missing_sentence(rows).replace("--preset", "")) == bool(narrow)
    assert filled(rows, "smoke") == {"smoke": [o.place for o in rows]}


# --- images


def a_set(ipc=1, classes=10):
    images = np.linspace(-1, 1, classes * ipc * 16, dtype=np.float32).reshape(-1, 1, 4, 4)
    return CondensedSet(images, np.repeat(np.arange(classes), ipc), "made", tuple("abcdefghij"[:classes]), (0.5,), (0.5,))


def test_several_grids_name_their_sets_and_classes():
    figure = report.image_grids({"one": a_set(), "other": a_set()}).figure
    assert [part.get_suptitle() for part in figure.subfigs] == ["one", "other"]
    assert [text.get_text() for text in figure.subfigs[0].axes[0].texts] == list("abcdefghij")
    more = report.image_grids({"x": a_set(4), "y": a_set(4), "z": a_set(4)}).figure
    assert [label.get_text() for label in more.subfigs[1].axes[0].get_yticklabels()] == list("abcdefghij")
    assert more.subfigs[0].axes[0].images[0].get_array().shape == (10 * 4 + 9, 4 * 4 + 3)


def test_no_grid_says_so():
    (text,) = report.image_grids({}).figure.texts
    assert text.get_text() == "none is recorded yet"


def test_recorded_sets_are_those_of_seed_0_whose_file_is_here(tmp_path, monkeypatch):
    monkeypatch.setenv("DCLIB_RESULTS", str(tmp_path))
    runs = [MakeSet("mnist", seed=seed, hyper=Condensation(ipc=ipc)) for seed in (1, 0) for ipc in (1, 2)]
    for run in runs[:3]:
        dataclasses.replace(a_set(run.hyper.ipc), about={"seed": run.seed}).save(Store().set_path("cpu", run.key))
    made = [dict(kind="MakeSet", key=run.key, run=full(run)) for run in runs]
    rows = [outcome("ConvNet", (90.0,), ipc=ipc, records=tuple(made[i::2])) for i, ipc in enumerate((1, 2))]
    found = report.recorded_sets([*rows, outcome("ConvNet", ipc=3)])
    assert {name: s.about["seed"] for name, s in found.items()} == {"1": 0}
