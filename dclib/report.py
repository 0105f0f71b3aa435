"""What a page says of recorded outcomes: tables ours | paper | difference, the cost, and what is missing.

Everything here is text; `figures` draws the same outcomes, and `outcomes` takes them from the records. Their names are given
here, too, so that a notebook needs this module alone.
"""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from . import experiments
from .experiments import AXES
from .figures import emergence, heatmap, image_grid, image_rows, save_grid
from .outcomes import DASH, Outcome, look_up, title, varying
from .progress import clock

__all__ = [
    "Numbered",
    "Outcome",
    "agreement_sentence",
    "budget",
    "cost_sentence",
    "emergence",
    "heatmap",
    "image_grid",
    "image_rows",
    "list_table",
    "listing",
    "look_up",
    "matrix_table",
    "missing_sentence",
    "numbered_table",
    "pipe_table",
    "save_grid",
    "title",
]

AXIS_NAMES = {"dataset": "data set", "ipc": "images/class", "network": "condensed with", "test_network": "trained"}


def matrix_table(outcomes: Sequence[Outcome], rows: str = "network", columns: str = "test_network") -> str:
    """Set outcomes in a matrix in Markdown, each row with a line of ours, and the paper's and the difference where it has any.

    Args:
        outcomes: from `look_up`.
        rows: the axis that goes down; other axes on which the outcomes differ are put beside it.
        columns: the axis that goes across.
    """
    down = [axis for axis in AXES if axis == rows or (axis in varying(outcomes) and axis != columns)]
    across = list(dict.fromkeys(o.place[columns] for o in outcomes))
    mixed, kinds = len(_presets(outcomes)) > 1, _kinds(outcomes)
    lines: dict[tuple, dict[Any, Outcome]] = {}
    for o in outcomes:
        lines.setdefault(tuple(o.place[axis] for axis in down), {})[o.place[columns]] = o
    body = []
    for label, found in lines.items():
        for kind in kinds:
            words = [title(x) for x in label] if kind == kinds[0] else [""] * len(down)
            numbers = [_text(found[x], kind, mixed) if x in found else "" for x in across]
            body.append([*words, *([kind] if len(kinds) > 1 else []), *numbers])
    head = [*(AXIS_NAMES[axis] for axis in down), *([""] if len(kinds) > 1 else []), *map(title, across)]
    return pipe_table(head, body, left=len(head) - len(across))


def list_table(outcomes: Sequence[Outcome]) -> str:
    """Set outcomes one below the other in Markdown, with the difference in standard errors and what each number rests on."""
    axes, kinds = varying(outcomes) or ["dataset"], _kinds(outcomes)
    body = []
    for o in outcomes:
        rests = f"{len(o.sets)} × {len(o.sets[0])}" if len(set(map(len, o.sets))) == 1 else f"{len(o.sets)}, {len(o.accuracies)}"
        errors = [DASH if o.standard_errors is None else _signed(o.standard_errors)] if len(kinds) > 1 else []
        row = [*(title(o.place[axis]) for axis in axes), *(_text(o, kind, False) for kind in kinds), *errors]
        body.append([*row, rests if o.sets else DASH, o.preset or DASH])
    errors = ["in std. errors"] if len(kinds) > 1 else []
    head = [*(AXIS_NAMES[axis] for axis in axes), *kinds, *errors, "sets × networks", "preset"]
    return pipe_table(head, body, left=len(axes))


def _kinds(outcomes: Iterable[Outcome]) -> list[str]:
    return ["ours", "paper", "difference"] if any(o.paper for o in outcomes) else ["ours"]


def _presets(outcomes: Iterable[Outcome]) -> list[str]:
    return [name for name in reversed(experiments.PRESETS) if any(o.preset == name for o in outcomes)]


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def _text(o: Outcome, kind: str, name_preset: bool) -> str:
    if kind == "paper":
        return f"{o.paper[0]:.1f} ± {o.paper[1]:.1f}" if o.paper else DASH
    if not o.shown or (kind == "difference" and not o.paper):
        return DASH
    if kind == "difference":
        return _signed(o.difference)
    spread = f" ± {o.std:.1f}" if len(o.accuracies) > 1 else ""
    return f"{o.mean:.1f}{spread}" + (f" ({o.preset})" if name_preset else "")


def pipe_table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """Write a table in Markdown that is also legible as it is; the first `left` columns are aligned to the left."""
    lines = [list(head), *map(list, rows)]
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    sides = [str.ljust if c < left else str.rjust for c in range(len(widths))]
    text = ["| " + " | ".join(side(x, w) for side, x, w in zip(sides, line, widths, strict=True)) + " |" for line in lines]
    rule = "|" + "|".join(f"{'-' * (w + 1)}{'-' if c < left else ':'}" for c, w in enumerate(widths)) + "|"
    return "\n".join([text[0], rule, *text[1:]])


@dataclass(frozen=True)
class Numbered:
    """A table or listing that the book numbers: MyST's directive as Markdown, and what it holds as plain text."""

    directive: str
    options: dict[str, str]
    caption: str
    text: str

    def _repr_markdown_(self) -> str:
        options = "".join(f":{name}: {value}\n" for name, value in self.options.items())
        return f":::{self.directive}\n{options}\n{self.text}\n:::"

    def __repr__(self) -> str:
        return f"{self.caption}\n\n{self.text}"


def numbered_table(text: str, caption: str, name: str) -> Numbered:
    """Wrap a table in Markdown for a notebook's cell (with metadata `mystnb: {markdown_format: myst}`).

    Args:
        text: from `matrix_table`, `list_table` or `pipe_table`.
        caption: a sentence.
        name: the label to refer to, `tab-…`.
    """
    caption = " ".join(caption.split())
    return Numbered(f"{{table}} {caption}", {"name": name}, caption, text)


def listing(functions: Sequence[Callable], caption: str, name: str) -> Numbered:
    """Show the source of functions in a notebook's cell, likewise; the label is `code-…`."""
    source = "\n\n".join(inspect.getsource(function) for function in functions).rstrip()
    return Numbered("{code-block} python", {"caption": caption, "name": name}, caption, source)


# --- sentences


def budget(outcomes: Sequence[Outcome]) -> str:
    """What the numbers rest on, for a caption: the presets, and how many sets and networks are behind a number."""
    recorded = [o for o in outcomes if o.sets]
    if not recorded:
        return "nothing recorded yet"
    sets, networks = [len(o.sets) for o in recorded], [len(a) for o in recorded for a in o.sets]
    presets = _presets(recorded)
    rests = f"{_span(sets, 'set')} × {_span(networks, 'network')} for each number"
    return f"preset{'s' if len(presets) > 1 else ''} {' and '.join(presets)}; {rests}"


def _span(counts: Sequence[int], what: str) -> str:
    low, high = min(counts), max(counts)
    return f"{low if low == high else f'{low} to {high}'} {what}{'' if high == 1 else 's'}"


def missing_sentence(outcomes: Sequence[Outcome]) -> str:
    """Say which cells are dashes, why, and which command fills them; empty if there is none."""
    absent, weak = sum(not o.sets for o in outcomes), sum(bool(o.sets) and not o.counts for o in outcomes)
    said = []
    if absent:
        command = f"dclib run {outcomes[0].experiment} --preset cpu"
        said.append(f"{absent} of {len(outcomes)} cells are not recorded yet and stand as {DASH}; `{command}` computes them.")
    if weak:
        said.append(
            f"{weak} of {len(outcomes)} cells stand as {DASH} because at smoke a number must beat randomly chosen real images "
            "that train the same network."
        )
    return " ".join(said)


def agreement_sentence(outcomes: Sequence[Outcome]) -> str:
    """How far our numbers lie from the paper's: how many within two standard errors, the median, the farthest; maybe empty."""
    if not any(o.paper for o in outcomes):
        return ""
    both = [o for o in outcomes if o.difference is not None]
    if not both:
        return "There is no number of ours beside one of the paper's yet."
    near = sum(abs(o.difference) <= 2 * o.standard_error for o in both)
    said = f"Within two standard errors of the paper's number lie {near} of {len(both)}"
    if len(both) < 3:
        return said + "."
    far = max(both, key=lambda o: abs(o.difference))
    where = ", ".join(f"{AXIS_NAMES[axis]} {title(far.place[axis])}" for axis in varying(outcomes))
    middle = _signed(median(o.difference for o in both))
    return f"{said}; the median difference is {middle} points, the largest {_signed(far.difference)} ({where})."


def cost_sentence(outcomes: Sequence[Outcome]) -> str:
    """What the recorded runs cost, and where and by what code they ran: a sentence for each preset."""
    said = [_cost(name, [o for o in outcomes if o.preset == name]) for name in _presets(outcomes)]
    return " ".join(said) or "No run behind this page is recorded yet."


def _cost(preset: str, outcomes: Sequence[Outcome]) -> str:
    records = {(r["key"], r["started"], str(r.get("accuracies"))): r for o in outcomes for r in o.records}.values()
    sets, trained = ([r for r in records if r["kind"] == kind] for kind in ("MakeSet", "TrainNetworks"))
    networks = sum(len(r["accuracies"]) for r in trained)
    parts = [f"{_count(networks, 'trained network')} took {clock(sum((r['seconds'] for r in trained), 0.0))}"]
    if sets:
        parts.insert(0, f"{_count(len(sets), 'set')} took {clock(sum((r['seconds'] for r in sets), 0.0))}")
    machines = dict.fromkeys(r["machine"] if r["device"] == "cpu" else f"{r['device']} ({r['machine']})" for r in records)
    memory = max(r["peak_memory_mb"] for r in records) / 1000
    return (
        f"At preset {preset}, {' and '.join(parts)} on {' and '.join(machines)}, "
        f"with at most {memory:.1f} GB of memory; code at {_commits(records)}."
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _commits(records: Iterable[dict[str, Any]]) -> str:
    """The commits behind records, oldest first; a long list by its ends."""
    ordered = sorted(records, key=lambda r: r["started"])
    names = list(dict.fromkeys(r.get("commit", "an unknown commit")[:7] for r in ordered))
    changed = " (partly with changes not committed)" if any(r.get("dirty") for r in records) else ""
    if len(names) > 4:
        return f"{len(names)} commits from {names[0]} to {names[-1]}{changed}"
    return f"{'commit ' if len(names) == 1 else 'commits '}{', '.join(names)}{changed}"
