"""Recorded outcomes as tables in Markdown, legible as they are, and the directive that lets the book number one."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..experiments import AXES
from ..experiments.presets import INSTEAD, RANDOM, WHOLE
from ..results.outcomes import DASH, Outcome, labels, made_by, title, varying
from .sentences import AXIS_NAMES, presets_of, signed

BELOW = " ↓"  # marks an accuracy below that of random real images


def matrix_table(outcomes: Sequence[Outcome], rows: str = "network", columns: str = "test_network") -> str:
    """Set outcomes in a matrix in Markdown, each row with a line of ours, and the paper's and the difference where it has any.

    Where there are random real images, an arrow marks whatever trains a network worse than they do.

    Args:
        outcomes: from `look_up`.
        rows: the axis that goes down; other axes on which the outcomes differ are put beside it.
        columns: the axis that goes across.
    """
    down = [axis for axis in AXES if axis == rows or (axis in varying(outcomes) and axis != columns)]
    across = list(dict.fromkeys(o.place[columns] for o in outcomes))
    mixed, kinds = len(presets_of(outcomes)) > 1, _kinds(outcomes)
    names = {axis: labels(outcomes, axis).__getitem__ for axis in AXES}
    lines: dict[tuple, dict[Any, Outcome]] = {}
    for o in outcomes:
        lines.setdefault(tuple(o.place[axis] for axis in down), {})[o.place[columns]] = o
    body, lower = [], _below_random(outcomes)
    if any(map(lower, outcomes)):
        marked = {RANDOM: f"{title(RANDOM)} ({BELOW.strip()}: worse than these)"}
        names["network"] = (labels(outcomes, "network") | marked).__getitem__
    for label, found in lines.items():
        for kind in [k for k in kinds if k == "ours" or any(o.paper for o in found.values())]:
            words = [names[axis](x) for axis, x in zip(down, label, strict=True)] if kind == kinds[0] else [""] * len(down)
            numbers = [figure(found[x], kind, mixed) + lower(found[x]) * (kind == "ours") if x in found else "" for x in across]
            body.append([*words, *([kind] if len(kinds) > 1 else []), *numbers])
    head = [*(AXIS_NAMES[axis] for axis in down), *([""] if len(kinds) > 1 else []), *map(names[columns], across)]
    return pipe_table(head, body, left=len(head) - len(across))


def _below_random(outcomes: Sequence[Outcome]) -> Callable[[Outcome], str]:
    """A function that returns the mark of an outcome that random real images beat, which else is empty."""

    def place(o: Outcome) -> tuple:
        return tuple(o.place[axis] for axis in AXES if axis not in ("network", "variant"))

    random = {place(o): o.mean for o in outcomes if o.place["network"] == RANDOM and o.sets}
    return lambda o: BELOW if o.sets and o.mean < random.get(place(o), 0) else ""


def relative_table(outcomes: Sequence[Outcome]) -> str:
    """Set accuracies against images per class in Markdown, in brackets in percent of the whole set's, which comes last."""
    sizes = list(dict.fromkeys(o.place["ipc"] for o in outcomes if o.place["network"] != WHOLE))
    whole = {o.place["dataset"]: o for o in outcomes if o.place["network"] == WHOLE}
    lines: dict[tuple, dict[int, str]] = {}
    for o in (o for o in outcomes if o.place["network"] != WHOLE):
        bound = whole.get(o.place["dataset"])
        text = figure(o, "ours", len(presets_of(outcomes)) > 1)
        share = f" ({100 * o.mean / bound.mean:.0f} %)" if o.shown and bound and bound.shown else ""
        lines.setdefault((o.place["dataset"], o.place["network"]), {})[o.place["ipc"]] = text + share
    body = [
        [title(d), made_by(n), *(found.get(x, "") for x in sizes), figure(whole[d], "ours") if d in whole else DASH]
        for (d, n), found in lines.items()
    ]
    return pipe_table(["data set", "images", *map(str, sizes), title(WHOLE)], body, left=2)


def list_table(outcomes: Sequence[Outcome]) -> str:
    """Set outcomes one below the other in Markdown, with the difference in standard errors and what each number rests on."""
    axes, kinds = varying(outcomes) or ["dataset"], _kinds(outcomes)
    names, titles = dict.fromkeys(AXES, title), dict(AXIS_NAMES)
    if any(o.place["network"] in INSTEAD for o in outcomes):
        names["network"], titles["network"] = made_by, "images"
    kinds = [*kinds, "in std. errors"] if len(kinds) > 1 else kinds
    body = []
    for o in outcomes:
        row = [*(names[axis](o.place[axis]) for axis in axes), *(figure(o, kind) for kind in kinds)]
        body.append([*row, counts(o) if o.sets else DASH, o.preset or DASH])
    head = [*(titles[axis] for axis in axes), *kinds, "sets × networks", "preset"]
    return pipe_table(head, body, left=len(axes))


def _kinds(outcomes: Iterable[Outcome]) -> list[str]:
    return ["ours", "paper", "difference"] if any(o.paper for o in outcomes) else ["ours"]


def counts(o: Outcome) -> str:
    """Sets × networks, or, where sets have different numbers of networks, sets and all networks; of how many, if that is more."""
    sets, networks = o.planned
    if len(set(map(len, o.sets))) == 1:
        return f"{len(o.sets)} × {len(o.sets[0])}" + ("" if o.complete else f" of {sets} × {networks}")
    return f"{len(o.sets)}, {len(o.accuracies)}" + ("" if o.complete else f" of {sets}, {sets * networks}")


def figure(o: Outcome, kind: str, name_preset: bool = False) -> str:
    """Write "ours", the "paper"'s, the "difference" or the same "in std. errors"."""
    if kind == "in std. errors":
        return DASH if o.standard_errors is None else signed(o.standard_errors)
    if kind == "paper":
        return f"{o.paper[0]:.1f} ± {o.paper[1]:.1f}" if o.paper else DASH
    if not o.shown or (kind == "difference" and not o.paper):
        return DASH
    if kind == "difference":
        return signed(o.difference)
    spread = f" ± {o.std:.1f}" if len(o.accuracies) > 1 else ""
    return f"{o.mean:.1f}{spread}" + (f" ({o.preset}{'' if o.complete else ', in part'})" if name_preset else "")


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
    """A table or listing that the book numbers: MyST's directive as Markdown, and what it holds as plain text.

    Args:
        directive: with its argument.
        options: of the directive.
        caption: a sentence.
        text: what stands in it.
        page: the same for a page, where that is another text.
        notes: paragraphs that follow it.
    """

    directive: str
    options: dict[str, str]
    caption: str
    text: str
    page: str = ""
    notes: tuple[str, ...] = ()

    def _repr_markdown_(self) -> str:
        options = "".join(f":{name}: {value}\n" for name, value in self.options.items())
        return "\n\n".join((f":::{self.directive}\n{options}\n{self.page or self.text}\n:::", *self.notes))

    def __repr__(self) -> str:
        return "\n\n".join((self.caption, self.text, *self.notes))


def numbered_table(text: str, caption: str, name: str, notes: Iterable[str] = ()) -> Numbered:
    """Wrap a table in Markdown for a notebook's cell (with metadata `mystnb: {markdown_format: myst}`).

    Args:
        text: from `matrix_table`, `list_table` or `pipe_table`.
        caption: a sentence.
        name: the label to refer to, `tab-…`.
        notes: paragraphs to follow it; empty ones are left out.
    """
    caption = " ".join(caption.split())
    return Numbered(f"{{table}} {caption}", {"name": name}, caption, text, notes=tuple(filter(None, notes)))
