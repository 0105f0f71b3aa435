"""Rows of `results.table` as tables in Markdown, legible as they are, and the directive that gives one a caption in the book."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..experiments import AXES, INSTEAD, RANDOM
from ..results.outcomes import DASH, labels, made_by, title, varying

if TYPE_CHECKING:
    import pandas as pd

AXIS_NAMES = {"dataset": "data set", "ipc": "images/class", "network": "condensed with", "test_network": "trained"}
AXIS_NAMES["variant"] = "variant"
BELOW = " ↓"  # marks an accuracy below that of random real images
# for the caption of a table with a column "in std. errors"
ERRORS = """Standard errors are those of the difference, from the spread of sets or of networks, whichever gives more; for a
single set they are not known"""


def matrix_table(cells: "pd.DataFrame", rows: str = "network", columns: str = "test_network", head: str = "") -> str:
    """Set cells in a matrix in Markdown: each row has a line of ours and, where the paper has numbers, of its and the difference.

    Where there are random real images, an arrow marks whatever trains a network worse than they do.

    Args:
        cells: from `results.table`.
        rows: the axis that goes down; other axes on which the cells differ are put beside it.
        columns: the axis that goes across.
        head: what stands above the rows; by default the axis's name.
    """
    down = [axis for axis in AXES if axis == rows or (axis in varying(cells) and axis != columns)]
    across, kinds = list(cells[columns].unique()), _kinds(cells)
    mixed, lower = cells.preset[cells.sets > 0].nunique() > 1, _below_random(cells)
    names = {axis: labels(cells, axis) for axis in AXES}
    if lower:
        names["network"][RANDOM] = f"{title(RANDOM)} ({BELOW.strip()}: worse than these)"
    body = []
    for values, line in cells.groupby(down, sort=False):
        found = {getattr(cell, columns): cell for cell in line.itertuples()}
        words = [names[axis][value] for axis, value in zip(down, values, strict=True)]
        for kind in kinds if line.paper.notna().any() else kinds[:1]:
            numbers = [number(found[x], kind, mixed) if x in found else "" for x in across]
            if kind == "ours":
                numbers = [text + BELOW * (x in found and found[x].Index in lower) for x, text in zip(across, numbers, strict=True)]
            body.append([*words, *([kind] if len(kinds) > 1 else []), *numbers])
            words = [""] * len(down)
    above = AXIS_NAMES | ({rows: head} if head else {})
    heads = [*(above[axis] for axis in down), *([""] if len(kinds) > 1 else []), *(names[columns][x] for x in across)]
    return pipe_table(heads, body, left=len(heads) - len(across))


def _below_random(cells: "pd.DataFrame") -> set[Any]:
    """The index of every cell whose accuracy, as it is printed, is below that of random real images at its place."""
    place = [axis for axis in AXES if axis not in ("network", "variant")]
    printed = cells.assign(ours=cells.ours.map("{:.1f}".format).astype(float))
    random = printed[cells.network == RANDOM].groupby(place).ours.max().rename("random")
    return set(cells.index[printed.ours < cells[place].join(random, on=place).random])


def recorded_rows(cells: "pd.DataFrame", *axes: str) -> "pd.DataFrame":
    """Return the rows with a record, or all of them where nothing is recorded.

    Args:
        cells: from `results.table`.
        axes: a row stays, too, if another at the same place on these axes has a record.
    """
    found = cells.groupby(list(axes), sort=False).filter(lambda rows: rows.sets.any()) if axes else cells[cells.sets > 0]
    return cells if found.empty else found


def list_table(cells: "pd.DataFrame") -> str:
    """Set cells one below the other in Markdown, with the difference in standard errors and what each number rests on."""
    axes, kinds = varying(cells) or ["dataset"], _kinds(cells)
    names, titles = dict.fromkeys(AXES, title), dict(AXIS_NAMES)
    if cells.network.isin(INSTEAD).any():
        names["network"], titles["network"] = made_by, "images"
    kinds = [*kinds, "in std. errors"] if len(kinds) > 1 else kinds
    body = []
    for cell in cells.itertuples():
        row = [*(names[axis](getattr(cell, axis)) for axis in axes), *(number(cell, kind) for kind in kinds)]
        body.append([*row, counts(cell) if cell.sets else DASH, cell.preset or DASH])
    return pipe_table([*(titles[axis] for axis in axes), *kinds, "sets × networks", "preset"], body, left=len(axes))


def means_table(cells: "pd.DataFrame", axis: str, over: str) -> str:
    """Tabulate the mean accuracy of each value of an axis, ours and the paper's, our highest first.

    Args:
        cells: from `results.table`, a matrix of two axes.
        axis: whose values are compared.
        over: the axis over which the mean is taken, as far as all cells have a number of ours.
    """
    complete = cells.groupby(over, sort=False).filter(lambda column: column.ours.notna().all())
    means = complete.groupby(axis, sort=False)[["ours", "paper"]].mean(skipna=False).sort_values("ours", ascending=False)
    names = labels(cells, axis)
    body = [[names[value], *(DASH if mean != mean else f"{mean:.1f}" for mean in both)] for value, *both in means.itertuples()]
    part, whole = complete[over].nunique(), cells[over].nunique()
    head = f"{AXIS_NAMES[axis]}, mean over {part}" + (f" of {whole}" if part < whole else "")
    return pipe_table([head, "ours", "paper"], body)


def _kinds(cells: "pd.DataFrame") -> list[str]:
    return ["ours", "paper", "difference"] if cells.paper.notna().any() else ["ours"]


def counts(cell: Any) -> str:
    """Sets × networks, or, where sets have different numbers of networks, sets and all networks; of how many, if that is more."""
    if len(set(map(len, cell.accuracies))) == 1:
        planned = f" of {cell.planned_sets} × {cell.planned_networks}"
        return f"{cell.sets} × {len(cell.accuracies[0])}" + ("" if cell.complete else planned)
    planned = f" of {cell.planned_sets}, {cell.planned_sets * cell.planned_networks}"
    return f"{cell.sets}, {cell.networks}" + ("" if cell.complete else planned)


def number(cell: Any, kind: str, name_preset: bool = False) -> str:
    """Write "ours", the "paper"'s number, the "difference" or the same "in std. errors"; a dash where there is none.

    Args:
        cell: a row of `results.table`.
        kind: which of them.
        name_preset: whether to add the preset to ours.
    """
    if kind == "ours":
        spread = f" ± {cell.std:.1f}" if cell.networks > 1 else ""
        preset = f" ({cell.preset}{'' if cell.complete else ', in part'})" if name_preset else ""
        return f"{cell.ours:.1f}{spread}{preset}" if cell.sets else DASH
    if kind == "paper":
        return f"{cell.paper:.1f} ± {cell.paper_std:.1f}" if cell.paper == cell.paper else DASH
    return signed(cell.difference if kind == "difference" else in_errors(cell.difference, cell.standard_error))


def in_errors(difference: float, error: float) -> float:
    """A difference in units of its standard error; NaN where that is zero or not known."""
    return difference / error if error else float("nan")


def signed(value: float) -> str:
    """Write a difference; NaN is a dash."""
    return f"{value:+.1f}".replace("-", "−") if value == value else DASH


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
    """A table or listing with a caption and a name to link to: MyST's directive as Markdown, and what it holds as plain text.

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


def numbered_table(text: str, caption: str, name: str, notes: Iterable[str] = (), style: str = "") -> Numbered:
    """Give a table in Markdown a caption and a name, for a notebook's cell (with metadata `mystnb: {markdown_format: myst}`).

    Args:
        text: from `matrix_table`, `list_table` or `pipe_table`.
        caption: a sentence.
        name: the label to refer to, `tab-…`.
        notes: paragraphs to follow it; empty ones are left out.
        style: its class in the book's style sheet: `claims`, whose sentences may take several lines.
    """
    caption = " ".join(caption.split())
    options = {"name": name} | ({"class": style} if style else {})
    return Numbered(f"{{table}} {caption}", options, caption, text, notes=tuple(filter(None, notes)))
