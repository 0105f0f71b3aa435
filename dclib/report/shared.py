"""What a page says of recorded outcomes: tables ours | paper | difference, the cost, and what is missing.

`tables` and `comparison` write the tables, `sentences` says the rest, `figures` and `charts` draw the same outcomes, and
`outcomes` takes them from the records. Their names are given here, too, so that a notebook needs this module alone.
"""

import inspect
from collections.abc import Callable, Sequence

from ..results import CondensedSet, Store
from ..results.outcomes import Outcome, look_up, title, varying
from .charts import curves, dot_plot
from .comparison import comparison_table, records_list
from .drawings import ladder, step_curves, tracks
from .figures import Picture, emergence, heatmap, image_grid, image_grids, image_rows, new_figure, save_grid
from .findings import choices_rows, order_sentence, rank_sentence, steps_rows
from .sentences import agreement_sentence, budget, cost_sentence, missing_sentence
from .tables import Numbered, list_table, matrix_table, numbered_table, pipe_table, relative_table

__all__ = [
    "Numbered",
    "Outcome",
    "Picture",
    "agreement_sentence",
    "budget",
    "choices_rows",
    "comparison_table",
    "cost_sentence",
    "curves",
    "dot_plot",
    "emergence",
    "heatmap",
    "image_grid",
    "image_grids",
    "image_rows",
    "ladder",
    "list_table",
    "listing",
    "look_up",
    "matrix_table",
    "missing_sentence",
    "new_figure",
    "numbered_table",
    "order_sentence",
    "pipe_table",
    "rank_sentence",
    "recorded_sets",
    "records_list",
    "relative_table",
    "save_grid",
    "step_curves",
    "steps_rows",
    "title",
    "tracks",
]


def listing(functions: Sequence[Callable], caption: str, name: str) -> Numbered:
    """Show the source of functions in a notebook's cell, likewise; the label is `code-…`."""
    source = "\n\n".join(inspect.getsource(function) for function in functions).rstrip()
    return Numbered("{code-block} python", {"caption": caption, "name": name}, caption, source)


def recorded_sets(outcomes: Sequence[Outcome]) -> dict[str, CondensedSet]:
    """The condensed sets of seed 0 that are recorded and kept, one for each outcome that has one, by its place in words."""
    found = {}
    for o in outcomes:
        store = Store(preset=o.preset)
        made = [r["key"] for r in o.records if r["kind"] == "MakeSet" and r["run"].get("seed") == 0]
        path = next(filter(None, map(store.find_set, made)), None)
        if path is not None:
            found[", ".join(title(o.place[axis]) for axis in varying(outcomes) or ["dataset"])] = CondensedSet.load(path)
    return found
