"""Figures of numbers: a table as dots with intervals beside the paper's, and accuracy against the number of images.

Ours is filled and the paper's hollow, in colours that the colour-blind tell apart and with a mark for each; the ground is white,
so that they can be read on a dark page, too.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..experiments.presets import INSTEAD, WHOLE
from ..results.outcomes import Outcome, made_by, title
from .figures import Picture, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OURS, PAPER = "#0072B2", "#D55E00"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKS = "osD^vPX"
ROW = 0.42  # inches


def _axis(outcomes: Iterable[Outcome], axis: str) -> list[Any]:
    return list(dict.fromkeys(o.place[axis] for o in outcomes))


def dot_plot(outcomes: Sequence[Outcome]) -> Picture:
    """Draw mean ± standard deviation of each cell and, hollow, the paper's; the whole set's numbers as upright lines.

    A panel for each data set, below one another, and number of images, beside one another; in it, a line for each method.
    """
    whole = {o.place["dataset"]: o for o in outcomes if o.place["network"] == WHOLE}
    outcomes = [o for o in outcomes if o.place["network"] != WHOLE] or list(outcomes)
    names, columns, lines = (_axis(outcomes, axis) for axis in ("network", "ipc", "dataset"))
    figure = new_figure(len(lines) * (len(names) * ROW + 0.75) + 0.6)
    panels = figure.subplots(len(lines), len(columns), sharex="row", sharey=True, squeeze=False)
    for (i, line), (j, column) in ((a, b) for a in enumerate(lines) for b in enumerate(columns)):
        panel = panels[i, j]
        _dots(panel, [o for o in outcomes if (o.place["dataset"], o.place["ipc"]) == (line, column)], names)
        _uprights(panel, whole.get(line))
        panel.set_title(f"{'' if j else title(line)}\n{column} image{'' if column == 1 else 's'}/class", fontsize=12, loc="left")
        panel.set_yticks(range(len(names)), map(made_by, names), fontsize=12)
        panel.set_ylim(len(names) - 0.4, -0.6)
        panel.tick_params(axis="x", labelsize=11)
        panel.tick_params(axis="y", length=0)
        panel.grid(axis="x", color="0.9")
        panel.spines[["top", "right", "left"]].set_visible(False)
    _legend(figure, bool(whole))
    return Picture(figure, f"test accuracies in percent, ours and the paper's: {', '.join(map(made_by, names))}")


def _dots(panel: "Axes", outcomes: Sequence[Outcome], names: Sequence[Any]) -> None:
    for o in outcomes:
        y = names.index(o.place["network"])
        if o.shown:
            panel.errorbar(o.mean, y - 0.14, xerr=o.std, fmt="o", color=OURS, markersize=7, capsize=3)
        if o.paper:
            style = dict(fmt="s", color=PAPER, markersize=7, markerfacecolor="white", capsize=3)
            panel.errorbar(o.paper[0], y + 0.18, xerr=o.paper[1], **style)


def _uprights(panel: "Axes", whole: Outcome | None) -> None:
    if whole and whole.shown:
        panel.axvline(whole.mean, color=OURS, linewidth=1.5)
    if whole and whole.paper:
        panel.axvline(whole.paper[0], color=PAPER, linewidth=1.5, linestyle="--")


def _legend(figure: Any, whole: bool) -> None:
    from matplotlib.lines import Line2D

    keys = [Line2D([], [], color=OURS, marker="o", linestyle="", label="ours")]
    keys += [Line2D([], [], color=PAPER, marker="s", markerfacecolor="white", linestyle="", label="paper")]
    if whole:
        keys += [Line2D([], [], color=OURS, label="whole set, ours")]
        keys += [Line2D([], [], color=PAPER, linestyle="--", label="whole set, paper")]
    figure.legend(handles=keys, loc="outside lower center", ncols=2, fontsize=12, frameon=False)


def curves(outcomes: Sequence[Outcome]) -> Picture:
    """Draw accuracy against images per class, with a band of ± a standard deviation; below, relative to the whole set's.

    A colour and mark for each data set; learned images are solid and filled, others dashed and hollow.
    """
    figure = new_figure(9.0)
    panels = figure.subplots(2, 1, sharex=True)
    whole = {o.place["dataset"]: o.mean for o in outcomes if o.place["network"] == WHOLE and o.shown}
    lines: dict[tuple, list[Outcome]] = {}
    for o in outcomes:
        if o.place["network"] != WHOLE and o.shown:
            lines.setdefault((o.place["dataset"], o.place["network"]), []).append(o)
    datasets = _axis(outcomes, "dataset")
    for (dataset, network), found in lines.items():
        look = dict(color=COLOURS[datasets.index(dataset) % 7], marker=MARKS[datasets.index(dataset) % 7])
        if network in INSTEAD:
            look |= dict(linestyle="--", markerfacecolor="white")
        label = f"{title(dataset)}, {made_by(network)}"
        _curve(panels[0], found, 1.0, label, look)
        if dataset in whole:
            _curve(panels[1], found, 100 / whole[dataset], label, look)
    for panel, what in zip(panels, ("accuracy in %", "% of the whole set's"), strict=True):
        panel.set_ylabel(what, fontsize=14)
        panel.tick_params(labelsize=13)
        panel.grid(color="0.9")
        panel.spines[["top", "right"]].set_visible(False)
    panels[1].set_xlabel("images per class", fontsize=14)
    panels[1].set_xticks(_axis([o for o in outcomes if o.place["network"] != WHOLE], "ipc"))
    if lines:
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=12, frameon=False)
    return Picture(figure, "accuracy against images per class, absolute and relative to the whole set's")


def _curve(panel: "Axes", found: Sequence[Outcome], factor: float, label: str, look: dict[str, Any]) -> None:
    x = [o.place["ipc"] for o in found]
    y, spread = (factor * np.array([getattr(o, name) for o in found]) for name in ("mean", "std"))
    panel.fill_between(x, y - spread, y + spread, color=look["color"], alpha=0.2, linewidth=0)
    panel.plot(x, y, label=label, linewidth=2, markersize=7, **look)
