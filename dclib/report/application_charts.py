"""The figures of the two applications: Fig. 4 with what its means hide, and Fig. F1's scatter for each proxy.

As in `charts`, each function returns a `Picture`, and letters are sized for a screen as narrow as a phone's.
"""

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from ..experiments.studies import MEMORIES, PROXIES
from ..results.ranking import best
from ..results.studied import TOP, Learned, Search, spread
from .application_report import BATCH, MEMORY_NAMES, SOURCE_NAMES, rho_text, task_name
from .figures import Picture, new_figure
from .plots import COLOURS, MARKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def learning_lines(found: Sequence[Learned]) -> Picture:
    """Draw the mean accuracy after each stage, and below it that on each task but the last, left without distillation, right with.

    A bar reaches a standard deviation over runs to either side.
    """
    tasks = found[0].tasks
    figure = new_figure(3.0 * len(tasks) + 0.8)
    panels = figure.subplots(len(tasks), 2, sharex=True, sharey="row", squeeze=False)
    for row in range(len(tasks)):
        for column, held in enumerate((False, True)):
            panel = panels[row][column]
            for x in (x for x in found if x.distillation == held and x.runs):
                _line(panel, x, row - 1)
            _frame(panel, tasks)
        panels[row][0].set_ylabel("mean, in %" if row == 0 else f"{task_name(tasks[row - 1])}, in %", fontsize=13)
    for panel, words in zip(panels[0], ("without distillation", "with distillation"), strict=True):
        panel.set_title(words, fontsize=14)
    handles, labels = panels[0][0].get_legend_handles_labels()
    if not handles:
        handles, labels = panels[0][1].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=13, frameon=False)
    return Picture(figure, "accuracy after each stage, the mean over the tasks learnt and that on each task")


def _line(panel: "Axes", x: Learned, task: int) -> None:
    """One memory's line: of the mean, or of a task from the stage on in which it is learnt."""
    stages = range(max(task, 0), len(x.tasks))
    points = [spread(x.means(j) if task < 0 else x.on_task(j, task)) for j in stages]
    number, shift = MEMORIES.index(x.memory), 0.05 * (MEMORIES.index(x.memory) - 1)  # side by side where bars overlap
    look: dict[str, Any] = dict(color=COLOURS[number], marker=MARKS[number], markersize=7, linewidth=2, capsize=3)
    means, deviations = zip(*points, strict=True)
    panel.errorbar([j + shift for j in stages], means, yerr=deviations, label=MEMORY_NAMES[x.memory], **look)


def _frame(panel: "Axes", tasks: Sequence[str]) -> None:
    panel.set_xticks(range(len(tasks)), [f"T{j + 1}" for j in range(len(tasks))])
    panel.set_xlim(-0.3, len(tasks) - 0.7)
    panel.tick_params(labelsize=13)
    panel.grid(color="0.9")
    panel.spines[["top", "right"]].set_visible(False)


def rank_scatter(found: Search) -> Picture:
    """Draw each architecture's accuracy after training on a proxy against that after training on the whole set.

    The best of each proxy are filled, those with batch norm square; the titles give ρ over the best and over all.
    """
    figure = new_figure(8.0)
    whole, with_batch = found.scores("whole"), set(found.networks) - set(found.without(BATCH).networks)
    for panel, source in zip(figure.subplots(2, 2, sharey=True).flat, PROXIES, strict=True):
        proxy = {network: score for network, score in found.scores(source).items() if network in whole}
        top = set(best(proxy, TOP))
        for chosen, batch in product((False, True), repeat=2):
            points = [(proxy[n], whole[n]) for n in proxy if ((n in top), (n in with_batch)) == (chosen, batch)]
            colour, mark = COLOURS[batch], "os"[batch]
            if points:
                face = colour if chosen else "white"
                panel.plot(*zip(*points, strict=True), mark, color=colour, markerfacecolor=face, markersize=7)
        few, every = (rho_text(found.correlation(source, count)).partition(" ")[0] for count in (TOP, 0))
        panel.set_title(f"{SOURCE_NAMES[source]}\nρ {few}, all {every}", fontsize=13)
        panel.set_xlabel("on the proxy, in %", fontsize=13)
        panel.tick_params(labelsize=12)
        panel.grid(color="0.9")
        panel.spines[["top", "right"]].set_visible(False)
    figure.supylabel("on the whole set, in %", fontsize=14)
    if with_batch:
        marks = [figure.axes[0].plot([], [], mark, color=COLOURS[i])[0] for i, mark in enumerate("os")]
        look = dict(loc="outside lower center", ncols=2, fontsize=13, frameon=False)
        figure.legend(marks, ["other architectures", "with batch norm"], **look)
    return Picture(figure, "validation accuracy of each architecture, by proxy, against training on the whole set")
