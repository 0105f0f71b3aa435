"""What several notebooks show of the rows of `results.table`: tables, lines of facts, plots and images; no torch."""

import inspect
from collections.abc import Callable, Sequence
from textwrap import dedent
from typing import TYPE_CHECKING

from ..results import CondensedSet, Store
from ..results.outcomes import title, varying
from .comparison import comparison_table, records_list
from .downloads import csv_link, set_links
from .figures import Picture, image_grid, image_grids, image_rows, new_figure, nothing, plain, save_grid
from .judgement import judged_table
from .plots import dot_plot, heatmap
from .sentences import agreement_sentence, budget, cost_sentence, facts, images_of, missing_sentence
from .tables import (
    ERRORS,
    Numbered,
    counts,
    list_table,
    matrix_table,
    means_table,
    number,
    numbered_table,
    pipe_table,
    recorded_rows,
    signed,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ERRORS", "Numbered", "Picture", "agreement_sentence", "budget", "comparison_table", "cost_sentence", "counts", "csv_link",
    "dot_plot", "facts", "heatmap", "image_grid", "image_grids", "image_rows", "images_of", "judged_table", "list_table", "listing",
    "matrix_table", "means_table", "missing_sentence", "new_figure", "nothing", "number", "numbered_table", "pipe_table",
    "plain", "recorded_rows", "recorded_sets", "records_list", "save_grid", "set_links", "signed", "title",
]  # fmt: skip


def listing(functions: Sequence[Callable], caption: str, name: str) -> Numbered:
    """Show the source of functions in a notebook's cell; the label is `code-…`."""
    source = "\n\n".join(dedent(inspect.getsource(function)) for function in functions).rstrip()
    return Numbered("{code-block} python", {"caption": caption, "name": name}, caption, source)


def recorded_sets(cells: "pd.DataFrame") -> dict[str, CondensedSet]:
    """The condensed sets of seed 0 that are recorded and kept, one for each cell that has one, by its place in words."""
    found, axes = {}, varying(cells) or ["dataset"]
    for cell in cells.itertuples():
        made = [r["key"] for r in cell.records if r["kind"] == "MakeSet" and r["run"].get("seed") == 0]
        if path := next(filter(None, map(Store(preset=cell.preset).find_set, made)), None):
            found[", ".join(title(getattr(cell, axis)) for axis in axes)] = CondensedSet.load(path)
    return found
