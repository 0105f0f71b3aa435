"""What the two applications found, as tables and sentences: Fig. 4 in numbers, Table 4, and how sure they are."""

import shlex
from collections.abc import Sequence
from math import isnan
from typing import Any

from ..experiments import paper
from ..experiments.studies import PROXIES, SOURCES
from ..results.claims import Interval, interval
from ..results.outcomes import DASH, title
from ..results.ranking import Correlation, least_sure
from ..results.studied import TOP, Learned, Search, spread
from .sentences import cost_sentence, signed
from .tables import numbered_table, pipe_table

__all__ = [
    "budget", "continual_table", "cost_sentence", "found_sentence", "gain_sentence", "missing_sentence", "numbered_table",
    "search_table", "task_name",
]

MEMORY_NAMES = {"random": "random", "herding": "herding", "condense": "condensed"}
BATCH = "norm=batch"  # tested with statistics of what it was trained on, which condensed images do not share with real ones
SOURCE_NAMES = {**MEMORY_NAMES, "early": "early stopping", "whole": "whole set"}


def task_name(dataset: str) -> str:
    """A task in a table: a data set, or another look of it."""
    name, _, view = dataset.partition("+")
    return title(name).removesuffix(", a stand-in") + (f" {view}" if view else "")


def continual_table(found: Sequence[Learned]) -> str:
    """Fig. 4 as a table in Markdown: the mean after each stage, and what the last stage leaves of each task."""
    tasks, numbers = found[0].tasks, range(len(found[0].tasks))
    head = ["memory", "distillation", *(f"T{j + 1}" for j in numbers), *(f"{task_name(t)} at the end" for t in tasks), "forgotten"]
    rows = []
    for x in found:
        columns = [x.means(j) for j in numbers] + [x.on_task(len(tasks) - 1, j) for j in numbers] + [x.forgotten()]
        rows.append([MEMORY_NAMES[x.memory], "with" if x.distillation else "without", *map(_mean, columns)])
    return pipe_table(head, rows, left=2)


def _mean(values: Sequence[float]) -> str:
    if not values:
        return DASH
    mean, std = spread(values)
    return f"{mean:.1f}" + (f" ± {std:.1f}" if len(values) > 1 else "")


def gains(found: Sequence[Learned], distillation: bool, rival: str = "herding", task: int | None = None) -> list[float]:
    """For each seed recorded for both, by how many points condensed images end above a rival's, on all tasks or on one."""
    last = {x.memory: x.ends(task) for x in found if x.distillation == distillation and x.runs}
    ours, theirs = last.get("condense", {}), last.get(rival, {})
    return [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]


def gain_sentence(found: Sequence[Learned]) -> str:
    """How far condensed images end above herding's, without and with distillation, beside the one number that the paper prints."""
    said, runs = [], 0
    for held, words in ((False, "Without"), (True, "With")):
        if points := gains(found, held):
            runs = max(runs, len(points))
            same = not held and found[0].tasks[1:] == ("mnist", "usps")  # and SVHN, or its stand-in, before them
            printed = f" (the paper's: {signed(paper.CONTINUAL_GAIN)})" if same else ""
            first = _paired(gains(found, held, task=0))
            said.append(f"{words} distillation a condensed memory ends {_paired(points)} points from herding's{printed},")
            said[-1] += f" on {task_name(found[0].tasks[0])} alone {first}."
    if runs > 1:
        said.append(f"In brackets intervals of 95 % over {runs} runs, paired by their seeds.")
    return " ".join(said)


def _paired(points: Sequence[float]) -> str:
    """The mean of differences and its interval, if there are several."""
    mean, *ends = interval(points)
    return signed(mean) + (f" [{', '.join(map(signed, ends))}]" if len(points) > 1 else "")


def budget(found: Sequence[Learned] | Search) -> str:
    """What the numbers rest on, for a caption."""
    if isinstance(found, Search):
        counts = {len(values) for by_network in found.validation.values() for values in by_network.values()}
        trainings = f"{_span(counts)} training{'' if counts == {1} else 's'}"
        behind, preset = f"{trainings} of each of {len(found.networks)} architectures", found.preset
    else:
        counts, preset = {len(x.runs) for x in found if x.runs}, next((x.preset for x in found if x.preset), "")
        behind = f"{_span(counts)} run{'' if counts == {1} else 's'} behind each number"
    return f"preset {preset}; {behind}" if counts else "nothing recorded yet"


def _span(counts: set[int]) -> str:
    return " to ".join(map(str, sorted({min(counts), max(counts)}))) if counts else "0"


def search_table(found: Search) -> str:
    """Table 4 in Markdown, ours and the paper's, with intervals of 95 % and ρ over all architectures."""
    lines = [
        ("test accuracy of the best found", lambda s: _mean(found.performance(s)), "performance", "{:.1f}"),
        (f"ρ with the whole set, the best {TOP}", lambda s: _rho(found, s, TOP), "correlation", "{:+.2f}"),
        ("ρ, all recorded", lambda s: _rho(found, s, 0), "", ""),
        ("training and validating, min", lambda s: _minutes(found, s), "minutes", "{:.1f}"),
        ("images kept", lambda s: f"{found.images[s]:,}" if found.images[s] else DASH, "images", "{:,}"),
    ]
    if found.networks != (others := found.without(BATCH)).networks:
        lines[3:3] = [
            ("the best found without batch norm", lambda s: _mean(others.performance(s)), "", ""),
            ("ρ, all without batch norm", lambda s: _rho(others, s, 0), "", ""),
        ]
    rows = []
    for name, ours, printed, form in lines:
        rows.append([name, "ours", *(ours(source) for source in SOURCES)])
        if printed:
            numbers = paper.TABLE_4[printed]
            rows.append(["", "paper", *(form.format(numbers[s]).replace("-", "−") for s in SOURCES)])
    return pipe_table(["", "", *(SOURCE_NAMES[s] for s in SOURCES)], rows, left=2)


def _rho(found: Search, source: str, count: int) -> str:
    ready = found.complete(source) and found.complete("whole") if count else found.validation[source] and found.validation["whole"]
    if not ready:
        return DASH
    return "+1.00" if source == "whole" else rho_text(found.correlation(source, count))


def rho_text(c: Correlation | Interval) -> str:
    """A correlation, or a difference of two, with its interval."""
    value, low, high = c[:3]
    if isnan(value):
        return DASH
    ends = "" if isnan(low) else f" [{low:+.2f}, {high:+.2f}]"
    return f"{value:+.2f}{ends}".replace("-", "−")


def _minutes(found: Search, source: str) -> str:
    return f"{found.seconds[source] / 60:.1f}" if found.complete(source) else DASH


def found_sentence(found: Search) -> str:
    """Which architecture each source finds best, and whether the correlations of two proxies can be told apart."""
    best = [f"{SOURCE_NAMES[s]}: `{w}`" for s in SOURCES if (w := found.winner(s))]
    said = [f"The best found by {'; '.join(best)}."] if best else []
    intervals = {s: found.correlation(s) for s in PROXIES if found.validation[s] and found.validation["whole"]}
    sure = [SOURCE_NAMES[s] for s, c in intervals.items() if c.low > 0 or c.high < 0]
    if intervals:
        clear = ", ".join(sure) or "no proxy"
        said.append(f"Over all architectures the interval of ρ leaves out zero for {clear}; over {TOP} only a ρ beyond")
        said[-1] += f" ±{least_sure(TOP):.2f} does."
    if rivals := [s for s in intervals if s != "condense" and "condense" in intervals]:
        differences = [f"{SOURCE_NAMES[s]} {rho_text(found.advantage(s))}" for s in rivals]
        said.append(f"By how much ρ of condensed images lies above that of {', '.join(differences)} (paired bootstrap).")
    return " ".join(said)


def missing_sentence(found: Sequence[Learned] | Search, preset: str = "cpu", **narrow: Any) -> str:
    """What is not recorded, and which command fills it, at that preset; empty if nothing is missing.

    Args:
        found: what is recorded.
        preset: of the command.
        narrow: how the page was narrowed, by the command's options without their dashes; None and "" are left out.
    """
    if isinstance(found, Search):
        total = len(found.networks) * len(SOURCES)
        absent, what, name = total - sum(map(len, found.validation.values())), "trainings of architectures", "nas"
    else:
        total, absent, what, name = len(found), sum(not x.runs for x in found), "lines", "continual"
    if not absent:
        return ""
    words = ["dclib", "run", name, "--preset", preset]
    for option, value in narrow.items():
        if value:
            words += [f"--{option}", value if isinstance(value, str) else " ".join(value)]
    return f"{absent} of {total} {what} are not recorded yet and stand as {DASH}; `{shlex.join(words)}` computes them."
