"""Ours, the paper's and the difference in one compact table, in which each number leads to the records behind it.

The rows are data sets and numbers of images, the columns what the images are made or chosen by, as in the paper's tables. A cell
has a line for each of ours, the paper's, the difference and what ours rests on. Below the table stands a list of the records,
with a place for every cell to link to.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..experiments import AXES
from ..results.lines import FILES
from ..results.outcomes import DASH, made_by, title, varying
from .tables import Numbered, counts, in_errors, list_table, number, pipe_table

if TYPE_CHECKING:
    import pandas as pd

LISTED = 5  # runs of one number that are listed
MAKERS = {"MakeSet": "set", "WholeTraining": "whole set", "TrainGan": "GAN"}


def comparison_table(cells: "pd.DataFrame", caption: str, name: str) -> Numbered:
    """Set cells in a numbered table for a page, and, as plain text, one below the other.

    Args:
        cells: from `results.table`, one for each data set, number of images and network.
        caption: a sentence; what the lines of a cell are is added.
        name: the label to refer to, `tab-…`.
    """
    lines = "ours, the paper's, the difference in points (in standard errors), and preset with sets × networks"
    across = cells.network.unique()
    body = []
    for (dataset, ipc), line in cells.groupby(["dataset", "ipc"], sort=False):
        found = {cell.network: _lines(cell) for cell in line.itertuples()}
        body.append([f"{title(dataset)}, {ipc}/class", *(found.get(network, "") for network in across)])
    shown = pipe_table(["", *map(made_by, across)], body)
    red = "; red: more than two standard errors from the paper's" * ('class="apart"' in shown)
    caption = f"{' '.join(caption.split())}. Each cell: {lines}{red}"
    return Numbered("{table} " + caption, {"name": name, "class": "compare"}, caption, list_table(cells), shown)


def anchor(cell: Any) -> str:
    """The place on a page where a cell's records are listed."""
    return "records-" + re.sub(r"\W+", "-", "-".join(str(getattr(cell, axis)) for axis in AXES)).rstrip("-")


def _lines(cell: Any) -> str:
    """The lines of a cell. Our number is the link; a page colours a difference beyond two standard errors (class `apart`)."""
    lines = [f'<a href="#{anchor(cell)}">{number(cell, "ours")}</a>' if cell.sets else DASH]
    if (printed := number(cell, "paper")) != DASH:
        lines.append(printed)
    if (difference := number(cell, "difference")) != DASH:
        errors = in_errors(cell.difference, cell.standard_error)
        text = difference + (f" ({number(cell, 'in std. errors')})" if errors == errors else "")
        lines.append(f'<span class="apart">{text}</span>' if abs(errors) > 2 else text)
    return "<br>".join([*lines, *([f"<small>{cell.preset}, {counts(cell)}</small>"] if cell.sets else [])])


def records_list(cells: "pd.DataFrame") -> str:
    """List in Markdown the records behind each number: keys, raw accuracies, and the files that hold them."""
    recorded = cells[cells.sets > 0]
    if recorded.empty:
        return ""
    axes = [axis for axis in AXES if axis not in ("test_network", "variant") or axis in varying(cells)]
    head = ["number", "runs that trained networks: accuracies", "made by", "in `results/`"]
    text = pipe_table(head, (_listed(cell, axes) for cell in recorded.itertuples()), left=4)
    said = "The records behind each number: a run's key leads to its line in the file"
    return f'<details class="records" open><summary>{said}</summary>\n\n{text}\n\n</details>'


def _listed(cell: Any, axes: Sequence[str]) -> list[str]:
    names = {"ipc": "{}/class".format, "network": made_by}
    words = ", ".join(names.get(axis, title)(getattr(cell, axis)) for axis in axes)
    runs = [f"`{key}`: {', '.join(f'{a:.2f}' for a in found)}" for key, found in zip(cell.keys, cell.accuracies, strict=True)]
    makers = dict.fromkeys(f"{MAKERS[r['kind']]} `{r['key']}`" for r in cell.records if r["kind"] in MAKERS)
    files = dict.fromkeys(f"`{r['preset']}/{FILES[r['kind']]}`" for r in cell.records)
    return [f'<a id="{anchor(cell)}"></a>{words}', *map(_shortened, (runs, list(makers), list(files)))]


def _shortened(lines: Sequence[str]) -> str:
    more = [f"and {len(lines) - LISTED} more"] if len(lines) > LISTED else []
    return "<br>".join([*lines[:LISTED], *more])
