"""What the benchmarks measured, as a table and figures for the notebook `speed`; nothing is timed here but at `smoke`.

A contest is one line of `results/speed.jsonl`, written by `benchmarks/`: on one case, the seconds of every repetition of each
contestant, which took turns in processes of their own. Of contests on the same case the last on each device counts.
"""

import statistics
import timeit
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import SpecError
from ..reproduce import Given, as_list, check, check_names
from ..results import Store
from ..results.outcomes import DASH
from ..results.records import parsed
from ..support.provenance import measured_on, now, peak_memory_mb, provenance
from .figures import Picture, new_figure
from .tables import pipe_table

CONTESTANTS = {"plain": "the literal loop", "tuned": "the same, allocator set", "eager": "dclib, uncompiled"}
CONTESTANTS |= {"compiled": "dclib, compiled", "captured": "dclib, CUDA graphs"}


@dataclass(frozen=True)
class Contest:
    """One case and what it took each contestant.

    Args:
        bench: "condense" (stage C), "train" (stage T) or "scaling".
        title: the case in words.
        case: the case.
        seconds: of each repetition, by contestant.
        memory: the peak of each contestant's process in MB.
        about: the rest of the record.
    """

    bench: str
    title: str
    case: dict[str, Any]
    seconds: dict[str, list[float]]
    memory: dict[str, int]
    about: dict[str, Any]

    @property
    def place(self) -> str:
        """The processor or the GPU that it was measured on."""
        return measured_on(self.about)

    def median(self, name: str) -> float:
        """Of a contestant's seconds."""
        return statistics.median(self.seconds[name])

    def ratio(self, name: str, to: str) -> float | None:
        """How many times faster a contestant is than another; None if that one took no part."""
        return self.median(to) / self.median(name) if to in self.seconds else None

    def share(self, name: str) -> float | None:
        """The reference's floating-point operations over a contestant's seconds, as a share of the measured peak."""
        gflop, peak = self.about.get("gflop"), self.about.get("peak_gflops")
        return gflop / self.median(name) / peak if gflop and peak else None


def contests(
    *, preset: Given = "best", recompute: Given = False, device: Given = "auto", datasets: Given = None, **unknown: Any
) -> list[Contest]:
    """Return the recorded contests, or at `smoke` one that is timed now.

    Args:
        preset: "best" is every record, "cpu" those of processors, "paper" those of GPUs; "smoke" times one step of a small case.
        recompute: not here: the benchmarks need a machine of their own.
        device: "cpu" or "cuda" takes the records of that device alone.
        datasets: the time of a step does not depend on the images; must be None.
        unknown: none is allowed.

    Raises:
        SpecError: an unknown parameter, or a value that its parameter cannot take.
        FileError: the records cannot be read.
    """
    check_names(unknown, contests)
    check(preset, False, device, as_list(datasets) or ())
    if datasets is not None or recompute:
        raise SpecError("speed has no datasets and is not recomputed here: run `make bench` on a machine that does nothing else")
    if preset == "smoke":
        return [_quick()]
    kind = {"cpu": "cpu", "paper": "cuda"}.get(str(preset)) or str(device).partition(":")[0]
    return [c for c in load() if kind == "auto" or c.case["device"] == kind]


def load() -> list[Contest]:
    """Read the records; of contests on the same case the last on each machine's device stays.

    Raises:
        FileError: a line is no contest.
    """
    read = parsed(Store().root / "speed.jsonl", _contest, "contest")
    return list({(c.bench, c.title, c.about["device"], c.about["machine"]): c for c in read}.values())


def _contest(record: dict[str, Any]) -> Contest:
    entries = sorted(record["contestants"].items(), key=lambda entry: list(CONTESTANTS).index(entry[0].partition("/")[0]))
    seconds, memory = ({name: entry[part] for name, entry in entries} for part in ("seconds", "peak_mb"))
    about = {name: value for name, value in record.items() if name not in ("bench", "title", "case", "contestants")}
    return Contest(record["bench"], record["title"], {"device": "cpu", **record["case"]}, seconds, memory, about)


def _quick() -> Contest:
    """Time one outer step on digits, with a narrow network: shows that both work, and no more."""
    import torch

    from ..core import reference
    from ..core.condense import Condenser, initial_images
    from ..run import sets
    from ..spec import Condensation, ConvNet

    dataset, hyper = sets.load("digits"), Condensation(network=ConvNet(width=32), real_batch=16).resolve()
    S = initial_images(dataset, hyper, 0, torch.float32).requires_grad_()
    optimiser, condenser = torch.optim.SGD([S], lr=hyper.image_lr), Condenser(dataset, hyper, 0)
    steps = {"plain": lambda: reference.outer_step(dataset, hyper, 0, 0, S, optimiser), "eager": condenser.step}
    seconds = {name: timeit.repeat(step, number=1, repeat=4) for name, step in steps.items()}
    memory = dict.fromkeys(steps, peak_memory_mb())
    return Contest("condense", "smoke: digits, a narrow ConvNet", {"device": "cpu"}, seconds, memory, provenance(now(), "cpu", ""))


def speed_table(found: Sequence[Contest]) -> str:
    """Each contestant's median, spread, ratios to the literal loop, share of the machine's peak, and memory, in Markdown."""
    head = ["the work", "done by", "× literal", "× tuned", "% of peak", "median s", "least … most", "peak MB"]
    return _by_place(head, [c for c in found if c.bench in ("condense", "train")], _speeds, left=2)


def _speeds(contest: Contest) -> Iterator[list[str]]:
    for name in contest.seconds:
        ratios = [_number(contest.ratio(name, to), ".2f") for to in ("plain", "tuned")]
        spread = f"{min(contest.seconds[name]):.2f} … {max(contest.seconds[name]):.2f}"
        share, first = contest.share(name), name == next(iter(contest.seconds))
        numbers = [*ratios, _number(share and 100 * share, ".0f"), f"{contest.median(name):.2f}", spread]
        yield [contest.title if first else "", _called(name), *numbers, f"{contest.memory[name]:,}"]


def profile_table(found: Sequence[Contest]) -> str:
    """For each piece of the work its seconds, and what of them is arithmetic: in convolutions, and at the machine's peak."""
    head = ["one step of", "ms", "% in convolutions and products", "floor, ms", "× floor", "GFLOP", "GFLOP/s"]
    return _by_place(head, [c for c in found if c.bench == "profile"], _pieces)


def _pieces(c: Contest) -> Iterator[list[str]]:
    seconds, gflop = c.median("compiled"), c.about["gflop"]
    floor = gflop / c.about["peak_gflops"]
    numbers = [f"{1000 * seconds:.0f}", f"{100 * c.about['heavy']:.0f}", f"{1000 * floor:.0f}", f"{seconds / floor:.2f}"]
    yield [c.title, *numbers, f"{gflop:.1f}", f"{gflop / seconds:.0f}"]


def _by_place(head: list[str], found: Sequence[Contest], rows_of: Callable[[Contest], Iterator[list[str]]], left: int = 1) -> str:
    """A table of the rows of each contest, under the name of the machine where there are several."""
    places, rows = list(dict.fromkeys(c.place for c in found)), []
    for place in places:
        rows += [[f"**{place}**"] + [""] * (len(head) - 1)] if len(places) > 1 else []
        rows += [row for c in found if c.place == place for row in rows_of(c)]
    return pipe_table(head, rows or [[DASH] * len(head)], left=left)


def _called(name: str) -> str:
    engine, _, precision = name.partition("/")
    return CONTESTANTS.get(engine, engine) + (f", {precision}" if precision else "")


def _number(value: float | None, form: str) -> str:
    return DASH if value is None else format(value, form)


def machines(found: Sequence[Contest]) -> str:
    """Where it was measured, in a sentence."""
    peaks: dict[str, list[float]] = {}
    for c in (c for c in found if "peak_gflops" in c.about):
        peaks.setdefault(f"{c.place}, torch {c.about['versions']['torch']}", []).append(c.about["peak_gflops"])
    where = [f"{name}, where a matrix product reached {min(p):.0f} to {max(p):.0f} GFLOP/s" for name, p in peaks.items()]
    return f"Measured on {'; '.join(where)}." if where else "Nothing is measured yet: `make bench` does it."


def missing_sentence(found: Sequence[Contest]) -> str:
    """What is not measured."""
    return "" if any(c.case["device"] == "cuda" for c in found) else "On a GPU nothing is measured yet: `make bench-cuda` does it."


def largest_sentence(found: Sequence[Contest]) -> str:
    """What the largest case took, in time and memory; empty where it is not measured."""
    said = []
    for c in (c for c in found if c.case.get("axis") == "largest"):
        (name,) = c.seconds
        step = f"one outer step with T = {c.case['T']} and {c.case['real']} real images per class"
        took = f"{c.median(name):.0f} s and, at its peak, {c.memory[name] / 1000:.1f} GB ({_called(name)}; measured once)"
        said.append(f"The largest case, {c.title}: {step} took {took}.")
    return " ".join(said)


def ratios(found: Sequence[Contest]) -> Picture:
    """Draw how many times faster than the literal loop each contestant is, on each machine."""
    shown = [c for c in found if c.bench in ("condense", "train") and "plain" in c.seconds]
    titles, places = list(dict.fromkeys(c.title for c in shown)), list(dict.fromkeys(c.place for c in shown))
    figure = new_figure(1.4 + (0.9 + 0.6 * len(places)) * max(1, len(titles)))
    grid = figure.subplots(max(1, len(titles)), squeeze=False, sharex=True)[:, 0]
    for axes, title in zip(grid, titles, strict=False):
        of_title = [c for c in shown if c.title == title]
        names = list(dict.fromkeys(name for c in of_title for name in c.seconds))[::-1]
        _bars(axes, of_title, names, places)
        axes.set_yticks(range(len(names)), map(_called, names))
        axes.set_title(title, loc="left", fontsize=10)
        axes.margins(x=0.12)
        axes.spines[["top", "right"]].set_visible(False)
    _legend(figure, places)
    return Picture(figure, "how many times faster than the literal loop each way of doing the work is")


def _bars(axes: Any, of_title: Sequence[Contest], names: Sequence[str], places: Sequence[str]) -> None:
    """Draw a bar for each contestant of each contest: those of one name lie together, the first machine's above."""
    high = 0.8 / len(places)
    for c in of_title:
        place, values = places.index(c.place), [c.ratio(n, "plain") for n in c.seconds]
        at = [names.index(n) + 0.4 - (place + 0.5) * high for n in c.seconds]
        axes.bar_label(axes.barh(at, values, high, color=f"C{place}", label=c.place), [f"{v:.2f}×" for v in values], padding=3)


def _legend(figure: Any, places: Sequence[str]) -> None:
    """Name the machines above the panels, where there are several."""
    if len(places) > 1:
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=len(places), frameon=False)


def scaling(found: Sequence[Contest]) -> Picture:
    """Draw how the seconds and the memory of one outer step grow, an axis beside the other."""
    points: dict[str, dict[str, list[tuple[int, float, float]]]] = {}
    for c in (c for c in found if c.bench == "scaling" and c.case["axis"] != "largest"):
        name = next(iter(c.seconds))
        of_place = points.setdefault(c.case["axis"], {}).setdefault(c.place, [])
        of_place.append((int(c.title.split(": ")[1]), c.median(name), c.memory[name] / 1000))
    figure = new_figure(4.4)
    grid = figure.subplots(2, max(1, len(points)), squeeze=False, sharex="col")
    for column, (axis, places) in enumerate(sorted(points.items())):
        for place, found_points in places.items():
            x, *values = zip(*sorted(found_points), strict=True)
            for row in (0, 1):
                grid[row, column].plot(x, values[row], "o-", label=place)
        for row, label in enumerate(("seconds", "GB")):
            grid[row, column].set_ylim(bottom=0)
            grid[row, column].spines[["top", "right"]].set_visible(False)
            grid[row, 0].set_ylabel(label)
        grid[1, column].set_xlabel(axis)
    _legend(figure, list(dict.fromkeys(c.place for c in found)))
    return Picture(figure, "seconds and memory of one outer step against classes, images per class and image size")
