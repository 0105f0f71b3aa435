"""Figures: what is drawn is what is recorded, ours apart from the paper's; and grids of images."""

import dataclasses
from io import BytesIO

import numpy as np
import pytest
from cells import cell, frame
from PIL import Image

from dclib import report
from dclib.errors import SpecError
from dclib.report.figures import DPI, INK
from dclib.report.plots import OURS, PAPER
from dclib.results import CondensedSet, Store
from dclib.spec import Condensation, MakeSet, full


def texts(panel):
    return [text.get_text() for text in panel.texts]


# --- numbers


def test_heatmap_draws_ours_and_the_papers_on_one_scale():
    found = frame(cell([95.4], paper=(90.0, 1.0)), cell(test_network="LeNet", paper=(50.0, 1.0)))
    ours, theirs = report.heatmap(found).figure.axes
    assert (texts(ours), texts(theirs)) == (["95", "—"], ["90", "50"])
    assert (ours.get_title(), theirs.get_title()) == ("ours", "paper")
    assert ours.images[0].get_clim() == theirs.images[0].get_clim() == (50.0, 95.4)
    assert [p.get_hatch() for p in ours.patches] == ["//"]
    assert [t.get_text() for t in ours.get_xticklabels()] == ["ConvNet", "LeNet"]
    (alone,) = report.heatmap(frame(cell([95.0]))).figure.axes
    assert texts(alone) == ["95"], "a paper without numbers is left out"


def drawn(panel):
    """(x, y, half the interval, colour, filled) of each dot."""
    dots = []
    for bar in panel.containers:
        line, _, (spread,) = bar.lines
        ((x, y),) = line.get_xydata()
        if x == x:
            (segment,) = spread.get_segments()
            half = round((segment[1][0] - segment[0][0]) / 2, 6)
            dots.append((x, round(float(y)), half, line.get_color(), line.get_markerfacecolor() != "none"))
    return dots


def test_dots_are_the_means_with_their_spread_ours_filled_and_the_papers_hollow():
    rows = frame(
        cell([88.0, 90.0], network="herding", paper=(89.2, 1.6)),
        cell(network="forgetting", paper=(35.5, 5.6)),
        cell([90.0, 92.0], paper=(91.7, 0.5)),
        cell([99.0], network="whole", paper=(99.6, 0.0)),
        cell([96.0], ipc=10),
    )
    one, ten = report.dot_plot(rows).figure.axes
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
        uprights = [(line.get_xdata()[0], line.get_color()) for line in panel.lines if len(set(line.get_xdata())) == 1]
        assert uprights[-2:] == [(99.0, OURS), (99.6, PAPER)]


@pytest.mark.parametrize("draw", [report.dot_plot, report.heatmap])
@pytest.mark.parametrize("network", ["herding", "whole"])
def test_nothing_recorded_can_be_drawn(draw, network):
    assert draw(frame(cell(network=network))).render().startswith(b"\x89PNG")


def test_a_picture_has_a_transparent_ground_and_letters_that_show_on_white_and_on_black():
    figure = report.new_figure(1.0)
    panel = figure.subplots()
    panel.set_title("grey")
    panel.text(0, 0, "chosen", color="#000000")
    image = np.asarray(Image.open(BytesIO(report.Picture(figure, "x").render())))
    assert image[0, 0, 3] == 0
    assert [text.get_color() for text in (panel.title, *panel.get_xticklabels()[:1], *panel.texts)] == [INK, INK, "#000000"]


def test_a_legend_wider_than_its_figure_is_not_cut():
    widths = []
    for letters in (5, 200):
        figure = report.new_figure(1.0, width=2.0)
        figure.subplots().plot([0, 1], label="x" * letters)
        figure.legend(loc="outside lower center")
        picture = Image.open(BytesIO(report.Picture(figure, "x").render()))
        widths.append(picture.width / DPI)
    assert widths == [2.0, pytest.approx(figure.legends[0].get_window_extent().width / figure.dpi, abs=0.3)]


# --- images


def a_set(ipc=1, channels=1, classes=3):
    images = np.linspace(-1, 1, classes * ipc * channels * 16, dtype=np.float32).reshape(-1, channels, 4, 4)
    labels = np.repeat(np.arange(classes), ipc)
    return CondensedSet(images, labels, "made", tuple("abcdefghijkl"[:classes]), (0.5,) * channels, (0.5,) * channels)


def picture(panel, made):
    """What is drawn, in the set's channels; transparent is 255."""
    *colours, alpha = np.moveaxis(np.asarray(panel.images[0].get_array()), -1, 0)
    whole = np.where(alpha[..., None] == 0, 255, np.stack(colours, -1))
    return whole if made.images.shape[1] == 3 else whole[..., 0]


@pytest.mark.parametrize("channels", [1, 3])
def test_image_grid_names_the_only_image_of_a_class_or_has_a_row_for_each_class(channels):
    made = a_set(classes=12, channels=channels)
    (panel,) = report.image_grid(made).figure.axes
    assert texts(panel) == list("abcdefghijkl")
    whole = picture(panel, made)
    assert whole.shape[:2] == (2 * 6 - 1, 10 * 5 - 1), "two lines of ten, with room for names"
    for i, (top, left) in {0: (1, 0), 1: (1, 5), 11: (7, 5)}.items():
        np.testing.assert_array_equal(whole[top : top + 4, left : left + 4], made.pixels()[i])
    made = a_set(ipc=2, channels=channels)
    (panel,) = report.image_grid(made).figure.axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["a", "b", "c"]
    strip = picture(panel, made)[10:14]
    np.testing.assert_array_equal(strip[:, :4], made.pixels()[4])
    np.testing.assert_array_equal(strip[:, 5:], made.pixels()[5])
    assert (strip[:, 4] == 255).all()


@pytest.mark.parametrize("ipc", [1, 3])
def test_a_set_of_very_many_classes_is_one_picture_of_all_its_images(ipc):
    """Of as many objects as any other: drawing a panel for each of 1,500 classes took minutes."""
    images = np.random.default_rng(0).uniform(-1, 1, (1500 * ipc, 1, 8, 8)).astype(np.float32)
    made = CondensedSet(images, np.arange(1500).repeat(ipc), "made", tuple(map(str, range(1500))), (0.5,), (0.5,))
    (panel,) = report.image_grid(made).figure.axes
    assert not texts(panel)
    whole = picture(panel, made)
    assert 0.5 < whole.shape[0] / whole.shape[1] < 2
    for i in (0, 1499):
        wanted = made.pixels()[i * ipc]
        assert (np.lib.stride_tricks.sliding_window_view(whole, (8, 8)) == wanted).all((2, 3)).any()


def test_several_sets_are_named_and_snapshots_have_a_row_each_beside_the_curve():
    figure = report.image_grids({"one": a_set(), "other": a_set(4)}).figure
    assert [part.get_suptitle() for part in figure.subfigs] == ["one", "other"]
    assert texts(figure.subfigs[0].axes[0]) == list("abc")
    assert [label.get_text() for label in figure.subfigs[1].axes[0].get_yticklabels()] == list("abc")
    assert "nothing is recorded" in report.image_grids({}).figure.texts[0].get_text()
    *rows, curve = report.image_rows({"k = 0": a_set(), "k = 5": a_set()}, [3.0, 2.0, 1.0]).figure.axes
    assert [r.get_ylabel() for r in rows] == ["k = 0", "k = 5"]
    np.testing.assert_array_equal(curve.lines[0].get_xydata(), [[1, 3.0], [2, 2.0], [3, 1.0]])
    rows = report.image_rows({"one": a_set(), "two, a stand-in": a_set(ipc=2, classes=12)}).figure.axes
    assert [r.get_ylabel() for r in rows] == ["one", "two,\na stand-in"]
    strip = picture(rows[1], a_set())
    assert strip.shape == (4, 10 * 5 - 1), "at most ten classes"
    np.testing.assert_array_equal(strip[:, 5:9], a_set(ipc=2, classes=12).pixels()[2])


def test_save_grid_writes_the_format_of_the_name_and_refuses_others(tmp_path):
    for ending, start in {"png": b"\x89PNG", "PDF": b"%PDF", "svg": b"<?xml", "jpg": b"\xff\xd8"}.items():
        report.save_grid(a_set(), tmp_path / f"grid.{ending}")
        assert (tmp_path / f"grid.{ending}").read_bytes().startswith(start)
    for name in ("grid.bmp", "grid"):
        with pytest.raises(SpecError, match=r"picture format .*png, jpg, pdf, svg"):
            report.save_grid(a_set(), tmp_path / name)


def test_recorded_sets_are_those_of_seed_0_whose_file_is_here(tmp_path, monkeypatch):
    monkeypatch.setenv("DCLIB_RESULTS", str(tmp_path))
    runs = [MakeSet("mnist", seed=seed, hyper=Condensation(ipc=ipc)) for seed in (1, 0) for ipc in (1, 2)]
    for run in runs[:3]:
        dataclasses.replace(a_set(run.hyper.ipc), about={"seed": run.seed}).save(Store().set_path("cpu", run.key))
    made = [dict(kind="MakeSet", key=run.key, run=full(run)) for run in runs]
    rows = frame(*(cell([90.0], ipc=ipc, records=made[i::2]) for i, ipc in enumerate((1, 2))), cell(ipc=3))
    assert {name: s.about["seed"] for name, s in report.recorded_sets(rows).items()} == {"1": 0}
