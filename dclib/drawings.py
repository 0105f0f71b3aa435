"""Figures of the ablations: accuracy by outer and inner steps, choices as dots below one another, and weights along training."""

from collections.abc import Mapping, Sequence

import numpy as np

from .charts import COLOURS, MARKS, OURS, ROW
from .figures import Picture, new_figure
from .findings import loops_of
from .outcomes import Outcome, title


def step_curves(outcomes: Sequence[Outcome]) -> Picture:
    """Draw accuracy against K, a panel for each data set and in it a line for each T, with a band of ± a standard deviation."""
    datasets = list(dict.fromkeys(o.place["dataset"] for o in outcomes))
    every_T = list(dict.fromkeys(loops_of(o)[1] for o in outcomes))
    lines = -(-len(datasets) // 2)
    figure = new_figure(3.4 * lines + 0.6)
    panels = figure.subplots(lines, min(2, len(datasets)), squeeze=False).ravel()
    for panel in panels[len(datasets) :]:
        panel.axis("off")
    for panel, dataset in zip(panels, datasets, strict=False):
        for i, T in enumerate(every_T):
            found = sorted((loops_of(o)[0], o.mean, o.std) for o in outcomes if _drawn(o, dataset, T))
            K, mean, std = np.array(found).reshape(-1, 3).T
            panel.fill_between(K, mean - std, mean + std, color=COLOURS[i], alpha=0.2, linewidth=0)
            panel.plot(K, mean, color=COLOURS[i], marker=MARKS[i], linewidth=2, markersize=7, label=f"T = {T}")
        panel.set_title(title(dataset), fontsize=14, loc="left")
        panel.set_xscale("log")
        ticks = sorted({loops_of(o)[0] for o in outcomes if o.place["dataset"] == dataset})
        panel.set_xticks(ticks, map(str, ticks))
        panel.minorticks_off()
        panel.set_xlabel("outer steps K", fontsize=13)
        panel.tick_params(labelsize=12)
        panel.grid(color="0.9")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("accuracy in %", fontsize=13)
    if any(o.shown for o in outcomes):
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=12, frameon=False)
    return Picture(figure, f"accuracy against outer steps, a line for each of T = {', '.join(map(str, every_T))}")


def _drawn(o: Outcome, dataset: str, T: int) -> bool:
    return o.shown and o.place["dataset"] == dataset and loops_of(o)[1] == T


def ladder(outcomes: Sequence[Outcome]) -> Picture:
    """Draw mean ± standard deviation of each choice below one another, a panel for each number of images per class."""
    sizes = list(dict.fromkeys(o.place["ipc"] for o in outcomes))
    groups = [[o for o in outcomes if o.place["ipc"] == size] for size in sizes]
    figure = new_figure(sum(len(group) * ROW + 0.9 for group in groups))
    panels = figure.subplots(len(groups), 1, height_ratios=[len(group) + 1 for group in groups], squeeze=False)[:, 0]
    for panel, size, group in zip(panels, sizes, groups, strict=True):
        for y, o in enumerate(group):
            if o.shown:
                panel.errorbar(o.mean, y, xerr=o.std, fmt="o", color=OURS, markersize=7, capsize=3)
        if group[0].shown:
            panel.axvline(group[0].mean, color="0.6", linewidth=1)
        panel.set_yticks(range(len(group)), [f"{o.place['network']}\n{title(o.place['variant'])}" for o in group], fontsize=10)
        panel.set_ylim(len(group) - 0.5, -0.5)
        panel.set_title(f"{size} image{'' if size == 1 else 's'}/class", fontsize=13, loc="left")
        panel.tick_params(axis="y", length=0)
        panel.grid(axis="x", color="0.9")
        panel.spines[["top", "right", "left"]].set_visible(False)
    panels[-1].set_xlabel("accuracy in %", fontsize=13)
    return Picture(figure, f"accuracies of {len(outcomes)} choices, one below the other")


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
    for panel, what in zip(panels, ("of the weights", "of what was learned"), strict=True):
        panel.set_ylabel(f"distance {what}", fontsize=13)
        panel.set_ylim(bottom=0)
        panel.tick_params(labelsize=12)
        panel.grid(color="0.9")
        panel.spines[["top", "right"]].set_visible(False)
    panels[1].set_xlabel("step of SGD", fontsize=13)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=12, frameon=False)
    return Picture(figure, f"distance of weights along training: {', '.join(found)}")
