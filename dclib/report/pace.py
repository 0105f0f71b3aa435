"""How soon a network is how good: trained on a few images, learned before, and on the whole set; for the notebook `costs`."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ..experiments.presets import GUIDED, WHOLE
from ..results import Store, table
from ..results.outcomes import DASH, made_by, title
from ..support.progress import clock
from .figures import Picture, new_figure
from .tables import pipe_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EXPERIMENT = "coresets"
CONDENSED = "ConvNet"
LOOKS = {CONDENSED: ("#0072B2", "o"), "random": ("#009E73", "D"), WHOLE: ("#D55E00", "s")}


@dataclass(frozen=True)
class Pace:
    """Networks trained on one thing.

    Args:
        dataset: its name.
        network: what the images are: condensed with that network, random real ones, or all.
        ipc: images per class; of the whole set 0.
        seconds: of one network's training and test, on the whole set after each epoch, with a test.
        accuracies: in percent, at these times.
        before: seconds that making one set takes first.
    """

    dataset: str
    network: str
    ipc: int
    seconds: tuple[float, ...]
    accuracies: tuple[float, ...]
    before: float = 0.0

    @property
    def name(self) -> str:
        """What the networks are trained on."""
        return title(WHOLE) if self.network == WHOLE else f"{made_by(self.network)}, {self.ipc}/class"


def paces(preset: str, store: Store, datasets: Sequence[str] | None = None) -> list[Pace]:
    """What is recorded of a ConvNet's training on condensed, on random and on all images, on each data set that has the last.

    Args:
        preset: as for `results.table`.
        store: where the records are.
        datasets: some of them.
    """
    cells = [o for o in table(EXPERIMENT, preset, store, dataset=datasets).itertuples() if o.sets]
    whole = {o.dataset for o in cells if o.network == WHOLE}
    return [_pace(o) for o in cells if o.dataset in whole and o.network not in GUIDED]


def _pace(o: Any) -> Pace:
    dataset, network, ipc = o.dataset, o.network, o.ipc
    if network == WHOLE:
        (record, *_) = [r for r in o.records if r["kind"] == "WholeTraining"]
        epochs = record["epoch_accuracies"]
        times = tuple(record["seconds"] * (i + 1) / len(epochs) for i in range(len(epochs)))
        return Pace(dataset, network, 0, times, tuple(epochs))
    trained = [r for r in o.records if r["kind"] == "TrainNetworks"]
    one = sum(r["seconds"] for r in trained) / sum(len(r["accuracies"]) for r in trained)
    before = fmean(r["seconds"] for r in o.records if r["kind"] == "MakeSet")
    return Pace(dataset, network, ipc, (one,), (o.ours,), before)


def pace_table(found: Sequence[Pace]) -> str:
    """Time and accuracy of one network on each thing, of the whole set after its first and its last epoch, in Markdown."""
    rows = []
    for p in found:
        ends = {0: "1 epoch", len(p.seconds) - 1: f"{len(p.seconds)} epochs"} if p.network == WHOLE else {0: ""}
        for i, text in ends.items():
            what = ", ".join(filter(None, (p.name, text)))
            before = clock(p.before) if p.before >= 1 else DASH
            rows.append([title(p.dataset), what, before, clock(p.seconds[i]), f"{p.accuracies[i]:.1f}"])
    head = ["data set", "trained on", "made before in", "one network in", "accuracy"]
    return pipe_table(head, rows or [[DASH] * len(head)], left=2)


def pace_plot(found: Sequence[Pace]) -> Picture:
    """Draw accuracy against seconds, a panel for each data set: a curve for the whole set, a point for each small one.

    Where a set had to be learned first, a hollow point lies later by that time.
    """
    datasets = list(dict.fromkeys(p.dataset for p in found))
    if not datasets:
        figure = new_figure(3.0)
        figure.text(0.5, 0.5, "no training on a whole set is recorded yet", ha="center", va="center", fontsize=13)
        return Picture(figure, "no training on a whole set is recorded yet")
    figure = new_figure(3.2 * len(datasets) + 0.8)
    panels = figure.subplots(len(datasets), 1, sharex=True, squeeze=False)[:, 0]
    for panel, dataset in zip(panels, datasets, strict=True):
        for pace in (p for p in found if p.dataset == dataset):
            _draw(panel, pace)
        panel.set_xscale("log")
        panel.margins(0.1, 0.15)
        panel.set_title(title(dataset), fontsize=14, loc="left")
        panel.set_ylabel("accuracy in %", fontsize=13)
        panel.tick_params(labelsize=12)
        panel.grid(color="0.9")
        panel.spines[["top", "right"]].set_visible(False)
    panels[-1].xaxis.set_major_formatter("{x:,.0f}")
    panels[-1].set_xlabel("seconds", fontsize=13)
    handles = {label: handle for panel in panels for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=2, fontsize=12, frameon=False)
    return Picture(figure, f"accuracy against seconds of training on few and on all images of {', '.join(map(title, datasets))}")


def _draw(panel: "Axes", pace: Pace) -> None:
    colour, mark = LOOKS[pace.network]
    look: dict[str, Any] = dict(color=colour, marker=mark, markersize=8)
    label = "whole set, after each epoch" if pace.network == WHOLE else made_by(pace.network)
    panel.plot(pace.seconds, pace.accuracies, label=label, linewidth=2 if pace.network == WHOLE else 0, **look)
    if pace.network == WHOLE:
        return
    (x,), (y,) = pace.seconds, pace.accuracies
    panel.annotate(f"{pace.ipc}/class", (x, y), xytext=(0, 8), textcoords="offset points", ha="center", fontsize=11)
    if pace.network == CONDENSED:
        later = x + pace.before
        panel.plot([x, later], [y, y], color=colour, linestyle=":", linewidth=1.5)
        panel.plot(later, y, label=f"{label}, with the time to learn them", linewidth=0, markerfacecolor="white", **look)
