"""Figures of numbers, ours beside the paper's: a table as a map of colours, and as dots with intervals.

Ours is filled and the paper's hollow, in colours that the colour-blind tell apart and with a mark for each.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..experiments.presets import WHOLE
from ..results.outcomes import DASH, labels, made_by, title
from .figures import INK, WIDTH, Picture, new_figure, nothing, plain

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

OURS, PAPER = "#0072B2", "#D55E00"
COLOURS = (OURS, PAPER, "#009E73", "#CC79A7", "#2A9BD4", "#C98500", INK)
MARKS = "osD^vPX"
ROW = 0.42  # inches
HEAT = "viridis"


def heatmap(cells: "pd.DataFrame", rows: str = "network", columns: str = "test_network") -> Picture:
    """Draw cells as a map of colours with whole percents, and the paper's beside it on the same scale, where it has any.

    Args:
        cells: from `results.table`; of several at one place the last is drawn.
        rows: the axis that goes down.
        columns: the axis that goes across.
    """
    down, across = labels(cells, rows), labels(cells, columns)
    last = cells.drop_duplicates([rows, columns], keep="last")
    shown = ["ours", "paper"] if cells.paper.notna().any() else ["ours"]
    maps = {name: last.pivot(index=rows, columns=columns, values=name).loc[list(down), list(across)] for name in shown}
    known = cells[shown].stack()
    scale = (known.min(), known.max()) if len(known) else (0.0, 1.0)
    side = (WIDTH - 1.6) / (len(maps) * len(across))
    figure = new_figure(min(1.0, side) * len(down) + 1.7)
    panels = figure.subplots(1, len(maps), sharey=True, squeeze=False)[0]
    for panel, (name, values) in zip(panels, maps.items(), strict=True):
        _draw_map(panel, values, *scale)
        panel.set_title(name, fontsize=16)
        panel.set_xticks(range(len(across)), across.values(), rotation=60, ha="right", rotation_mode="anchor", fontsize=13)
        panel.set_yticks(range(len(down)), down.values(), fontsize=13)
    return Picture(figure, f"accuracies in percent: {', '.join(maps)}")


def _draw_map(panel: "Axes", values: "pd.DataFrame", low: float, high: float) -> None:
    """One map; a cell without a number is hatched."""
    from matplotlib.patches import Rectangle

    panel.imshow(values, vmin=low, vmax=high, cmap=HEAT, aspect="auto")
    for y, row in enumerate(values.to_numpy()):
        for x, value in enumerate(row):
            missing, dark = value != value, value < (low + high) / 2
            if missing:
                panel.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor="none", edgecolor=INK, hatch="//", linewidth=0))
            text, color = (DASH, INK) if missing else (f"{value:.0f}", "#ffffff" if dark else "#000000")
            panel.text(x, y, text, ha="center", va="center", fontsize=15, color=color)
    panel.tick_params(length=0)


def dot_plot(cells: "pd.DataFrame") -> Picture:
    """Draw mean ± standard deviation of each cell and, hollow, the paper's; the whole set's numbers as upright lines.

    A panel for each data set, below one another, and number of images, beside one another; in it, a line for each method.
    """
    whole, small = cells[cells.network == WHOLE], cells[cells.network != WHOLE]
    if small.empty:
        return nothing()
    names, sizes, datasets = (list(small[axis].unique()) for axis in ("network", "ipc", "dataset"))
    figure = new_figure(len(datasets) * (len(names) * ROW + 0.75) + 0.6)
    panels = figure.subplots(len(datasets), len(sizes), sharex="row", sharey=True, squeeze=False)
    for line, dataset in zip(panels, datasets, strict=True):
        for panel, ipc in zip(line, sizes, strict=True):
            _dots(panel, small[(small.dataset == dataset) & (small.ipc == ipc)], names)
            for bound in whole[whole.dataset == dataset].itertuples():
                panel.axvline(bound.ours, color=OURS, linewidth=1.5)
                panel.axvline(bound.paper, color=PAPER, linewidth=1.5, linestyle="--")
            name = title(dataset) if ipc == sizes[0] else ""
            panel.set_title(f"{name}\n{ipc} image{'' if ipc == 1 else 's'}/class", fontsize=12, loc="left")
    _legend(figure, not whole.empty)
    return Picture(figure, f"test accuracies in percent, ours and the paper's: {', '.join(map(made_by, names))}")


def _dots(panel: "Axes", cells: "pd.DataFrame", names: Sequence[str]) -> None:
    for cell in cells.itertuples():
        y = names.index(cell.network)
        panel.errorbar(cell.ours, y - 0.14, xerr=cell.std, fmt="o", color=OURS, markersize=7, capsize=3)
        style = dict(fmt="s", color=PAPER, markersize=7, markerfacecolor="none", capsize=3)
        panel.errorbar(cell.paper, y + 0.18, xerr=cell.paper_std, **style)
    plain(panel, 11)
    panel.set_yticks(range(len(names)), map(made_by, names), fontsize=12)
    panel.set_ylim(len(names) - 0.4, -0.6)
    panel.tick_params(axis="y", length=0)
    panel.grid(False, axis="y")
    panel.spines["left"].set_visible(False)


def _legend(figure: Any, whole: bool) -> None:
    from matplotlib.lines import Line2D

    keys = [Line2D([], [], color=OURS, marker="o", linestyle="", label="ours")]
    keys += [Line2D([], [], color=PAPER, marker="s", markerfacecolor="none", linestyle="", label="paper")]
    if whole:
        keys += [Line2D([], [], color=OURS, label="whole set, ours")]
        keys += [Line2D([], [], color=PAPER, linestyle="--", label="whole set, paper")]
    figure.legend(handles=keys, loc="outside lower center", ncols=2, fontsize=12, frameon=False)
