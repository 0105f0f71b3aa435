"""Figures of the ablations: accuracy by outer and inner steps, choices as dots below one another, and weights along training."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..results.outcomes import Outcome, title
from .charts import COLOURS, MARKS, OURS, ROW
from .figures import Picture, new_figure
from .findings import loops_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def step_curves(outcomes: Sequence[Outcome]) -> Picture:
    """Draw accuracy against K, a panel for each data set and in it a line for each T, with a band of ± a standard deviation.

    Data sets without a number are left out.
    """
    shown = [o for o in outcomes if o.shown]
    if not shown:
        return _nothing()
    datasets = list(dict.fromkeys(o.place["dataset"] for o in shown))
    every_T = list(dict.fromkeys(loops_of(o)[1] for o in shown))
    lines = -(-len(datasets) // 2)
    figure = new_figure(3.4 * lines + 0.6)
    panels = figure.subplots(lines, min(2, len(datasets)), squeeze=False).ravel()
    for panel in panels[len(datasets) :]:
        panel.axis("off")
    for panel, dataset in zip(panels, datasets, strict=False):
        _step_panel(panel, [o for o in shown if o.place["dataset"] == dataset], every_T)
        panel.set_title(title(dataset), fontsize=14, loc="left")
    panels[0].set_ylabel("accuracy in %", fontsize=13)
    named = {label: line for p in panels for line, label in zip(*p.get_legend_handles_labels(), strict=True)}
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=4, fontsize=12, frameon=False)
    return Picture(figure, f"accuracy against outer steps, a line for each of T = {', '.join(map(str, every_T))}")


def _step_panel(panel: "Axes", shown: Sequence[Outcome], every_T: Sequence[int]) -> None:
    for T in dict.fromkeys(loops_of(o)[1] for o in shown):
        K, mean, std = np.array(sorted((loops_of(o)[0], o.mean, o.std) for o in shown if loops_of(o)[1] == T)).T
        look = dict(color=COLOURS[every_T.index(T)], marker=MARKS[every_T.index(T)])
        panel.fill_between(K, mean - std, mean + std, color=look["color"], alpha=0.2, linewidth=0)
        panel.plot(K, mean, linewidth=2, markersize=7, label=f"T = {T}", **look)
    ticks = sorted({loops_of(o)[0] for o in shown})
    panel.set_xscale("log")
    panel.set_xticks(ticks, map(str, ticks))
    panel.minorticks_off()
    panel.set_xlabel("outer steps K", fontsize=13)
    panel.tick_params(labelsize=12)
    _plain(panel)


def ladder(outcomes: Sequence[Outcome]) -> Picture:
    """Draw mean ± standard deviation of each choice that has a number below one another, a panel for each number of images."""
    groups: dict[int, list[Outcome]] = {}
    for o in (o for o in outcomes if o.shown):
        groups.setdefault(o.place["ipc"], []).append(o)
    if not groups:
        return _nothing()
    figure = new_figure(sum(len(group) * ROW + 0.9 for group in groups.values()))
    tall = [len(group) + 1 for group in groups.values()]
    panels = figure.subplots(len(groups), 1, height_ratios=tall, squeeze=False)[:, 0]
    for panel, (size, group) in zip(panels, groups.items(), strict=True):
        for y, o in enumerate(group):
            panel.errorbar(o.mean, y, xerr=o.std, fmt="o", color=OURS, markersize=7, capsize=3)
        panel.axvline(group[0].mean, color="0.6", linewidth=1)
        panel.set_yticks(range(len(group)), [_choice(o) for o in group], fontsize=11)
        panel.set_ylim(len(group) - 0.5, -0.5)
        panel.set_title(f"{size} image{'' if size == 1 else 's'}/class", fontsize=13, loc="left")
        panel.tick_params(axis="y", length=0)
        _plain(panel)
    panels[-1].set_xlabel("accuracy in %", fontsize=13)
    return Picture(figure, f"accuracies of {sum(map(len, groups.values()))} choices, one below the other")


def _choice(o: Outcome) -> str:
    """The network and what was changed, on two lines where both have something to say."""
    return "\n".join(filter(None, (o.place["network"], o.place["variant"])))


def _plain(panel: "Axes") -> None:
    panel.grid(color="0.9")
    panel.spines[["top", "right"]].set_visible(False)


def _nothing() -> Picture:
    figure = new_figure(1.0)
    figure.text(0.5, 0.5, "nothing is recorded yet", ha="center", va="center", fontsize=14)
    return Picture(figure, "no numbers")


def tracks(found: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Picture:
    """Draw how far weights trained on small sets are from those trained on the real images, step by step.

    Args:
        found: by the set's name, the mean 1 - cos of a row of weights, and the same of what has been added to them since θ_0.
    """
    figure = new_figure(6.0)
    panels = figure.subplots(2, 1, sharex=True)
    for i, (name, both) in enumerate(found.items()):
        for panel, values in zip(panels, both, strict=True):
            panel.plot(range(1, len(values) + 1), values, color=COLOURS[i], linewidth=2, label=name)
    for panel, what in zip(panels, ("weights", "changes"), strict=True):
        panel.set_ylabel(f"distance of {what}", fontsize=13)
        panel.set_ylim(bottom=0)
        panel.tick_params(labelsize=12)
        _plain(panel)
    panels[1].set_xlabel("step of SGD", fontsize=13)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=12, frameon=False)
    return Picture(figure, f"distance of weights along training: {', '.join(found)}")
