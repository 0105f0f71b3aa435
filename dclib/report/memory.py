"""Table T11: what Dataset Distillation and condensation cost, measured by `benchmarks/bench_memory.py`; nothing is measured here.

A line of `results/memory.jsonl` holds one data set's contest: seconds of an iteration and peak memory of each contestant, which
was a process of its own. Dataset Distillation's memory grows with the steps it differentiates through, condensation's does not.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..experiments import paper
from ..results import Store
from ..results.outcomes import DASH, title
from ..results.records import parsed
from ..support.provenance import measured_on
from .figures import Picture, new_figure
from .tables import pipe_table

NAMES = {"unrolled": "DD, unrolled", "reverse": "DD, step by step in reverse", "condense": "condensation"}
LOOKS = {"unrolled": ("#D55E00", "s"), "reverse": ("#CC79A7", "^"), "condense": ("#0072B2", "o")}
DD_STEPS, T, EPOCHS, OUTER = 30, 10, 50, 1000  # the paper's, at ten images per class
DD_ITERATIONS = {"mnist": 400 * 59, "cifar10": 400 * 49}  # 400 epochs in batches of 1024


@dataclass(frozen=True)
class Cost:
    """What one iteration took, one way, through so many steps of the network.

    Args:
        seconds: of each repetition; none where only memory was measured.
        peak: of the process, in MB.
        own: what an iteration's tensors take at once, in MB.
        base: the peak before there was anything to iterate, in MB; 0 where it was not measured.
    """

    seconds: tuple[float, ...]
    peak: int
    own: float
    base: int = 0


@dataclass(frozen=True)
class Measured:
    """Both methods on one data set and machine.

    Args:
        dataset: its name.
        costs: by the way of computing ("unrolled", "reverse", "condense") and the number of steps.
        about: the rest of the record.
    """

    dataset: str
    costs: dict[tuple[str, int], Cost]
    about: dict[str, Any]

    def curve(self, way: str) -> dict[int, float]:
        """The memory that an iteration's tensors take at once, by the number of steps."""
        return {steps: cost.own for (name, steps), cost in sorted(self.costs.items()) if name == way}

    def line(self, way: str) -> tuple[float, float]:
        """The straight line through that curve's ends: MB without any step, and MB for each step."""
        curve = self.curve(way)
        first, last = min(curve), max(curve)
        each = (curve[last] - curve[first]) / (last - first)
        return curve[first] - first * each, each

    @property
    def timed(self) -> bool:
        """Whether time was measured, too."""
        return all(cost.seconds for cost in self.costs.values())

    def seconds(self, way: str, steps: int) -> float:
        """The median of an iteration; zero where nothing was timed."""
        return statistics.median(self.costs[way, steps].seconds or (0.0,))

    @property
    def outer_step(self) -> float:
        """Seconds of condensation's whole outer step, T updates of the images and T - 1 trainings, put together from parts."""
        update = self.seconds("condense", 0)
        training = self.seconds("condense", EPOCHS) - 2 * update
        return T * update + (T - 1) * max(0.0, training)

    def minutes(self, method: str) -> float:
        """The whole run of "DD" or "ours" at the paper's hyper-parameters, extrapolated from one iteration."""
        if method == "DD":
            return self.seconds("unrolled", DD_STEPS) * DD_ITERATIONS[self.dataset] / 60
        return self.outer_step * OUTER / 60


def load() -> list[Measured]:
    """Read the records; the last on each data set's processor, or on each kind of GPU, stays.

    Raises:
        FileError: a line is no such record.
    """
    found = {}
    for measured in parsed(Store().root / "memory.jsonl", _measured, "measurement of memory"):
        found[measured.dataset, measured.about["device"]] = measured
    return list(found.values())


def _measured(record: dict[str, Any]) -> Measured:
    costs = {}
    for name, entry in record["contestants"].items():
        way, _, steps = name.partition("/")
        numbers = int(entry["peak_mb"]), float(entry["allocated_mb"]), int(entry.get("base_mb", 0))
        costs[way, int(steps)] = Cost(tuple(map(float, entry["seconds"])), *numbers)
    found = Measured(record["case"]["dataset"], costs, {n: v for n, v in record.items() if n not in ("case", "contestants")})
    _check(found)
    return found


def _check(found: Measured) -> None:
    """Raise if a way of computing is unknown, or something that the table needs is not there."""
    if unknown := {way for way, _ in found.costs} - NAMES.keys():
        raise ValueError(f"unknown ways {unknown}")
    needed = [found.minutes("DD"), found.minutes("ours"), found.about["machine"], found.about["device"]]
    if None in needed:
        raise ValueError("no machine or device")


def titles(found: Sequence[Measured]) -> list[str]:
    """The data sets' names, with the device behind them where there are several."""
    several = len({m.about["device"] for m in found}) > 1
    return [title(m.dataset) + (f", {m.about['device']}" if several else "") for m in found]


def memory_table(found: Sequence[Measured]) -> str:
    """Both methods' peak memory, seconds of an iteration and extrapolated time, with their ratio, beside the paper's; Markdown."""
    body = []
    for name, m in zip(titles(found), found, strict=True):
        rows = {"DD": _row(m, "DD", "unrolled", DD_STEPS), "ours": _row(m, "ours", "condense", EPOCHS)}
        for method, numbers in rows.items():
            names = name if method == "DD" else "", "DD" if method == "DD" else "condensation"
            body.append([*names, *map(_number, numbers)])
        ratios = [f"{dd / ours:.2f}" if ours else DASH for dd, ours in zip(rows["DD"], rows["ours"], strict=True)]
        ratios[2:4] = "", ""  # iterations of either are not alike
        body.append(["", "ratio", *ratios])
    head = ["data set", "method", "peak MB", "tensors MB", "s/iteration", "iterations", "min in all", "paper MB", "paper min"]
    return pipe_table(head, body or [[DASH] * len(head)], left=2)


def _number(x: int | float) -> str:
    return DASH if x == 0 else f"{x:,.0f}" if x >= 15 else f"{x:.2f}"


def _row(m: Measured, method: str, way: str, steps: int) -> list[int | float]:
    cost, seconds = m.costs[way, steps], m.seconds(way, steps) if method == "DD" else m.outer_step
    iterations = DD_ITERATIONS[m.dataset] if method == "DD" else OUTER
    return [cost.peak, cost.own, seconds, iterations, m.minutes(method), *paper.TABLE_T11[method, m.dataset]]


def sentence(found: Sequence[Measured]) -> str:
    """Where it was measured."""
    if not found:
        return "Memory and time are not measured yet: `make bench-memory` does it."
    where = {measured_on(m.about) for m in found}
    said = f"Memory and time: each method in a process of its own on {' and '.join(sorted(where))}; the whole run is extrapolated."
    said += f" {'; '.join(map(_lines, titles(found), found))}."
    if bases := [cost.base for m in found for cost in m.costs.values() if cost.base]:
        said += f" Of each peak some {statistics.median(bases):.0f} MB are the process's own, before there is anything to iterate."
    untimed = [name for name, m in zip(titles(found), found, strict=True) if not m.timed]
    return said + (f" Not timed yet: {', '.join(untimed)}; `make bench-memory` does it on a quiet machine." if untimed else "")


def _lines(name: str, m: Measured) -> str:
    """What the tensors of either method take, and how it grows."""
    (dd, each), (ours, more) = m.line("unrolled"), m.line("condense")
    return f"{name}: DD's tensors take {dd:,.0f} MB and {each:.1f} for each step, condensation's {ours:,.0f} and {more:.1f}"


def memory_plot(found: Sequence[Measured]) -> Picture:
    """Draw the memory that an iteration takes against the number of the network's steps in it, a panel for each data set."""
    figure = new_figure(4.2)
    if not found:
        figure.text(0.5, 0.5, "not measured yet", ha="center", va="center", fontsize=14)
        return Picture(figure, "no memory is measured yet")
    for panel, name, m in zip(figure.subplots(1, len(found), squeeze=False)[0], titles(found), found, strict=True):
        for way, (colour, mark) in LOOKS.items():
            if curve := m.curve(way):
                look = dict(marker=mark, color=colour, linewidth=2, markersize=7)
                panel.plot(list(curve), list(curve.values()), label=NAMES[way], **look)
        panel.set_title(name, fontsize=14, loc="left")
        panel.set_xlabel("steps of the network", fontsize=13)
        panel.set_ylim(bottom=0)
        panel.tick_params(labelsize=12)
        panel.grid(color="0.9")
        panel.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("MB", fontsize=13)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=12, frameon=False)
    return Picture(figure, "memory that one iteration takes against the number of the network's steps in it")
