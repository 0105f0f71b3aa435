"""What the two applications found: Fig. 4 in numbers and Table 4, for their pages and for `dclib run`."""

import shlex
from collections.abc import Sequence
from math import isfinite, isnan
from typing import Any

from ..experiments import paper
from ..experiments.paper import PROXIES, SOURCES
from ..results.claims import Interval, interval
from ..results.outcomes import DASH, title
from ..results.ranking import Correlation
from ..results.studied import TOP, Learned, Search, spread
from .tables import pipe_table

MEMORY_NAMES = {"random": "random", "herding": "herding", "condense": "condensed"}
SOURCE_NAMES = {**MEMORY_NAMES, "early": "early stopping", "whole": "whole set"}
BATCH = "norm=batch"  # tested with statistics of what it was trained on, which condensed images do not share with real ones


def task_name(dataset: str) -> str:
    """A task in a table: a data set, or another look of it."""
    name, _, view = dataset.partition("+")
    return title(name).removesuffix(", a stand-in") + (f" {view}" if view else "")


def continual_table(found: Sequence[Learned]) -> str:
    """Fig. 4 as a table in Markdown: the mean after each stage, and what the last stage leaves of each task."""
    tasks, numbers = found[0].tasks, range(len(found[0].tasks))
    after = ["after task 1", *(str(j + 1) for j in numbers[1:])]
    head = ["memory", "distillation", *after, *(f"{task_name(t)} at the end" for t in tasks), "forgotten"]
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
    """One line: by how many points condensed images end above herding's, with intervals of 95 % over runs paired by seed."""
    first, parts = task_name(found[0].tasks[0]), []
    for held, words in ((False, "without distillation"), (True, "with distillation")):
        if points := gains(found, held):
            of_first = interval(gains(found, held, task=0))
            parts.append(f"{words} {with_ends(interval(points), '.1f')}, on {first} {with_ends(of_first, '.1f')}")
    return f"Condensed images minus herding's, in points after the last task: {'; '.join(parts)}." if parts else ""


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


def _minutes(found: Search, source: str) -> str:
    return f"{found.seconds[source] / 60:.1f}" if found.complete(source) else DASH


def _rho(found: Search, source: str, count: int) -> str:
    ready = found.complete(source) and found.complete("whole") if count else found.validation[source] and found.validation["whole"]
    if not ready:
        return DASH
    return "+1.00" if source == "whole" else with_ends(found.correlation(source, count))


def with_ends(number: Correlation | Interval, form: str = ".2f") -> str:
    """A correlation, or a difference, with its interval where there is one."""
    value, low, high = number[:3]
    if isnan(value):
        return DASH
    ends = "" if not isfinite(low) else f" [{low:+{form}}, {high:+{form}}]"
    return f"{value:+{form}}{ends}".replace("-", "−")


def found_sentence(found: Search) -> str:
    """One line: the best architecture by each source, and by how much condensed images' ρ lies above that of other proxies."""
    best = [f"{SOURCE_NAMES[s]} `{network}`" for s in SOURCES if (network := found.winner(s))]
    rivals = [s for s in PROXIES if s != "condense" and all(found.validation[x] for x in (s, "condense", "whole"))]
    above = [f"{SOURCE_NAMES[s]} {with_ends(found.advantage(s))}" for s in rivals]
    said = [f"Best found: {'; '.join(best)}."] if best else []
    said += [f"ρ of condensed images minus that of {', '.join(above)} (paired bootstrap)."] if above else []
    return " ".join(said)


def continual_missing(found: Sequence[Learned], preset: str = "cpu", **narrow: Any) -> str:
    """Say which lines are not recorded, and which command fills them at a preset; empty if nothing is missing.

    Args:
        found: what is recorded.
        preset: of the command.
        narrow: how the page was narrowed, by the command's options without their dashes; None and "" are left out.
    """
    return _missing("continual", sum(not x.runs for x in found), len(found), "lines", preset, narrow)


def search_missing(found: Search, preset: str = "cpu", **narrow: Any) -> str:
    """Say the same of the trainings of architectures."""
    total = len(found.networks) * len(SOURCES)
    absent = total - sum(map(len, found.validation.values()))
    return _missing("nas", absent, total, "trainings of architectures", preset, narrow)


def _missing(name: str, absent: int, total: int, what: str, preset: str, narrow: dict[str, Any]) -> str:
    if not absent:
        return ""
    words = ["dclib", "run", name, "--preset", preset]
    for option, value in narrow.items():
        if value:
            words += [f"--{option}", value if isinstance(value, str) else " ".join(value)]
    return f"{absent} of {total} {what} are not recorded yet and stand as {DASH}; `{shlex.join(words)}` computes them."
