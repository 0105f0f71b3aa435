"""Recorded outcomes in words: what they rest on, what is missing, how near the paper they are, what they cost."""

import shlex
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from .. import experiments
from ..results.outcomes import DASH, Outcome, title, varying
from ..results.records import machine_of
from ..support.progress import clock

AXIS_NAMES = {"dataset": "data set", "ipc": "images/class", "network": "condensed with", "test_network": "trained"}
AXIS_NAMES["variant"] = "variant"
OPTIONS = {"dataset": "--datasets", "ipc": "--ipc", "network": "--networks", "test_network": "--test-networks"}
OPTIONS["variant"] = "--variants"
Place = dict[str, Any]

KINDS = {"WholeTraining": "training on a whole set", "TrainGan": "GAN", "MakeSet": "set", "TrainNetworks": "trained network"}
KINDS |= {"LearnTasks": "run on all tasks", "TrainCandidate": "trained candidate"}


def presets_of(outcomes: Iterable[Any]) -> list[str]:
    """The presets of recorded outcomes, the smallest budget last."""
    return [name for name in reversed(experiments.PRESETS) if any(o.preset == name for o in outcomes)]


def signed(value: float) -> str:
    """Write a difference."""
    return f"{value:+.1f}".replace("-", "−")


def budget(outcomes: Sequence[Outcome]) -> str:
    """What the numbers rest on, for a caption: the presets, and how many sets and networks are behind a number."""
    recorded = [o for o in outcomes if o.sets]
    if not recorded:
        return "nothing recorded yet"
    sets, networks = [len(o.sets) for o in recorded], [len(a) for o in recorded for a in o.sets]
    presets = presets_of(recorded)
    rests = f"{_span(sets, 'set')} × {_span(networks, 'network')} for each number"
    part = sum(not o.complete for o in recorded)
    short = f", of fewer than the preset has for {part} of {len(recorded)}" if part else ""
    return f"preset{'s' if len(presets) > 1 else ''} {' and '.join(presets)}; {rests}{short}"


def _span(counts: Sequence[int], what: str) -> str:
    low, high = min(counts), max(counts)
    return f"{low if low == high else f'{low} to {high}'} {what}{'' if high == 1 else 's'}"


def missing_sentence(outcomes: Sequence[Outcome], preset: str = "") -> str:
    """Say which cells are dashes and which commands fill them; empty if there is none.

    Args:
        outcomes: of one experiment, from `look_up`.
        preset: at which they are to be filled; by default the smallest whose grid has them, but for `smoke`, else `cpu`.
    """
    absent = [o.place for o in outcomes if not o.sets]
    if not absent:
        return ""
    fills = _fills(outcomes, absent, preset)
    return f"{len(absent)} of {len(outcomes)} cells are not recorded yet and stand as {DASH}; {fills}"


def _fills(outcomes: Sequence[Outcome], absent: Sequence[Place], preset: str) -> str:
    """Which commands compute the cells that are not recorded, and how many each, with the narrowing that it takes."""
    name = outcomes[0].experiment
    grids = {p.name: [cell.place for cell in experiments.find(name).cells(p)] for p in experiments.PRESETS.values()}
    smallest, larger = (experiments.CPU.name, experiments.PAPER.name) if not preset else (preset, preset)
    beyond = [place for place in absent if place not in grids[smallest] and place in grids[larger]]
    rest = [place for place in absent if place not in beyond]
    groups = [(p, places) for p, places in ((smallest, rest), (larger, beyond)) if places]
    commands = [(_command(name, p, outcomes, places, grids[p]), len(places)) for p, places in groups]
    if len(commands) == 1:
        return f"`{commands[0][0]}` computes them."
    return ", ".join(f"`{command}` computes {number} of them" for command, number in commands) + "."


def _command(name: str, preset: str, outcomes: Sequence[Outcome], wanted: Sequence[Place], grid: Sequence[Place]) -> str:
    """The command that computes these cells at a preset: an axis is narrowed where the page's is, or where they leave the grid."""
    words = ["dclib", "run", name, "--preset", preset]
    for axis, option in OPTIONS.items():
        page, known = {o.place[axis] for o in outcomes}, {place[axis] for place in grid}
        values = list(dict.fromkeys(place[axis] for place in wanted))
        if not page >= known or not known >= set(values):
            words += [option, " ".join(str(value) or "default" for value in values)]
    return shlex.join(words)


def agreement_sentence(outcomes: Sequence[Outcome]) -> str:
    """How far our numbers lie from the paper's: how many within two standard errors, the median, the farthest; maybe empty."""
    if not any(o.paper for o in outcomes):
        return ""
    both = [o for o in outcomes if o.difference is not None]
    if not both:
        return "There is no number of ours beside one of the paper's yet."
    sure = [o for o in both if o.standard_error is not None]
    near = sum(abs(o.difference) <= 2 * o.standard_error for o in sure)
    single = f"; {len(both) - len(sure)} with a single set have no standard error" if len(sure) < len(both) else ""
    said = f"Within two standard errors of the paper's number lie {near} of {len(sure)}{single}"
    if len(both) < 3:
        return said + "."
    far = max(both, key=lambda o: abs(o.difference))
    where = ", ".join(_named(axis, far.place[axis]) for axis in varying(outcomes))
    middle = signed(median(o.difference for o in both))
    return f"{said}; the median difference is {middle} points, the largest {signed(far.difference)} ({where})."


def _named(axis: str, value: Any) -> str:
    return title(value) if value in experiments.INSTEAD else f"{AXIS_NAMES[axis]} {title(value)}"


def cost_sentence(outcomes: Sequence[Any]) -> str:
    """What the recorded runs cost, and where and by what code they ran: a sentence for each preset.

    Args:
        outcomes: or anything else that has `preset` and `records`.
    """
    said = [_cost(name, [o for o in outcomes if o.preset == name]) for name in presets_of(outcomes)]
    return " ".join(said) or "No run behind this page is recorded yet."


def _cost(preset: str, outcomes: Sequence[Any]) -> str:
    records = {(r["key"], r["started"], str(r.get("accuracies"))): r for o in outcomes for r in o.records}.values()
    parts = []
    for kind, what in KINDS.items():
        found = [r for r in records if r["kind"] == kind]
        number = sum(len(r["accuracies"]) for r in found) if kind in ("TrainNetworks", "TrainCandidate") else len(found)
        if found:
            parts.append(f"{_count(number, what)} took {clock(_spent(found))}")
    machines = dict.fromkeys(map(machine_of, records))
    memory = max(r["peak_memory_mb"] for r in records) / 1000
    return (
        f"At preset {preset}, {_listed(parts)} on {' and '.join(machines)}, "
        f"with at most {memory:.1f} GB of memory; code at {_commits(records)}."
    )


def _spent(records: Sequence[dict[str, Any]]) -> float:
    """Seconds behind records; of the sets on one course the longest counts, for it went on from the others."""
    longest: dict[str, float] = {}
    for r in (r for r in records if "course" in r):
        longest[r["course"]] = max(r["seconds"], longest.get(r["course"], 0.0))
    return sum((r["seconds"] for r in records if "course" not in r), sum(longest.values(), 0.0))


def _count(number: int, what: str) -> str:
    noun, of, rest = what.partition(" on ")
    return f"{number} {noun}{'' if number == 1 else 's'}{of}{rest}"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _commits(records: Iterable[dict[str, Any]]) -> str:
    """The commits behind records, oldest first; a long list by its ends."""
    ordered = sorted(records, key=lambda r: r["started"])
    names = list(dict.fromkeys(r.get("commit", "an unknown commit")[:7] for r in ordered))
    changed = " (partly with changes not committed)" if any(r.get("dirty") for r in records) else ""
    if len(names) > 4:
        return f"{len(names)} commits from {names[0]} to {names[-1]}{changed}"
    return f"{'commit ' if len(names) == 1 else 'commits '}{', '.join(names)}{changed}"
