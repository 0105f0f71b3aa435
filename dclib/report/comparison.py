"""Ours, the paper's and the difference in one compact table, in which each number leads to the records behind it.

The rows are data sets and numbers of images, the columns what the images are made or chosen by, as in the paper's tables; a cell
has a line for each of ours ± , the paper's ± , the difference and what ours rests on. Below the table stands a list of the
records, with a place for every cell to link to.
"""

import re
from collections.abc import Sequence

from ..experiments import AXES
from ..results.outcomes import DASH, Outcome, made_by, title, varying
from ..results.records import FILES
from .tables import Numbered, counts, figure, list_table, pipe_table

LISTED = 5  # runs of one number that are listed
MAKERS = {"MakeSet": "set", "WholeTraining": "whole set", "TrainGan": "GAN"}


def comparison_table(outcomes: Sequence[Outcome], caption: str, name: str) -> Numbered:
    """Set outcomes in a numbered table for a page, and, as plain text, one below the other.

    Args:
        outcomes: from `look_up`, one for each data set, number of images and network.
        caption: a sentence; what the lines of a cell are is added.
        name: the label to refer to, `tab-…`.
    """
    lines = "ours, the paper's, the difference in points (in standard errors), and preset with sets × networks"
    across = list(dict.fromkeys(o.place["network"] for o in outcomes))
    rows: dict[tuple, dict[str, Outcome]] = {}
    for o in outcomes:
        rows.setdefault((o.place["dataset"], o.place["ipc"]), {})[o.place["network"]] = o
    body = [[_row(*row), *(_cell(found[x]) if x in found else "" for x in across)] for row, found in rows.items()]
    shown = pipe_table(["", *map(made_by, across)], body)
    caption = f"{' '.join(caption.split())}. Each cell: {lines}"
    return Numbered("{table} " + caption, {"name": name, "class": "compare"}, caption, list_table(outcomes), shown)


def _row(dataset: str, ipc: int) -> str:
    return f"{title(dataset)}, {ipc}/class"


def anchor(o: Outcome) -> str:
    """The place on a page where an outcome's records are listed."""
    return "records-" + re.sub(r"\W+", "-", "-".join(str(o.place[axis]) for axis in AXES)).rstrip("-")


def _cell(o: Outcome) -> str:
    """The lines of a cell; the first, our number, is the link."""
    if not o.sets:
        return f"{DASH}<br>{figure(o, 'paper')}" if o.paper else DASH
    lines = [f'<a href="#{anchor(o)}">{figure(o, "ours")}</a>']
    if o.paper:
        lines.append(figure(o, "paper"))
    if o.difference is not None:
        lines.append(_difference(o))
    return "<br>".join([*lines, f"<small>{o.preset}, {counts(o)}</small>"])


def _difference(o: Outcome) -> str:
    """In points and in standard errors; of another class beyond two of them, so that a page may colour it."""
    text = figure(o, "difference")
    if o.standard_errors is None:
        return text
    text += f" ({figure(o, 'in std. errors')})"
    return text if abs(o.standard_errors) <= 2 else f'<span class="apart">{text}</span>'


def records_list(outcomes: Sequence[Outcome]) -> str:
    """List in Markdown the records behind each number: keys, raw accuracies, and the files that hold them."""
    recorded = [o for o in outcomes if o.sets]
    if not recorded:
        return ""
    axes = [axis for axis in AXES if axis not in ("test_network", "variant") or axis in varying(outcomes)]
    head = ["number", "runs that trained networks: accuracies", "made by", "in `results/`"]
    text = pipe_table(head, (_listed(o, axes) for o in recorded), left=4)
    said = "The records behind each number: a run's key leads to its line in the file"
    return f'<details class="records" open><summary>{said}</summary>\n\n{text}\n\n</details>'


def _listed(o: Outcome, axes: Sequence[str]) -> list[str]:
    names = {"ipc": "{}/class".format, "network": made_by}
    words = ", ".join(names.get(axis, title)(o.place[axis]) for axis in axes)
    runs = [f"`{key}`: {', '.join(f'{a:.2f}' for a in found)}" for key, found in zip(o.keys, o.sets, strict=True)]
    makers = dict.fromkeys((MAKERS[r["kind"]], r["key"]) for r in o.records if r["kind"] in MAKERS)
    files = dict.fromkeys(f"`{r['preset']}/{FILES[r['kind']]}`" for r in o.records)
    columns = runs, [f"{what} `{key}`" for what, key in makers], list(files)
    return [f'<a id="{anchor(o)}"></a>{words}', *map(_shortened, columns)]


def _shortened(lines: Sequence[str]) -> str:
    more = [f"and {len(lines) - LISTED} more"] if len(lines) > LISTED else []
    return "<br>".join([*lines[:LISTED], *more])
