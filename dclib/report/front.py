"""The accuracies that the book's first page and the README open with: ours beside the paper's, for one and ten images per class."""

from typing import TYPE_CHECKING, Any, NamedTuple

from ..experiments import WHOLE
from ..results import Store
from ..results.outcomes import DASH, table, title
from .decisions import OURS
from .tables import counts, number, pipe_table

if TYPE_CHECKING:
    import pandas as pd

IPC = (1, 10)


class Entry(NamedTuple):
    """A row of `results.table`, and whether its set was learned by the recipe for two cores."""

    row: Any
    recipe: bool = False


def headline(store: Store | None = None) -> dict[str, dict[int | str, Entry]]:
    """Return for each data set of Tables 1 and T9 its rows by images per class, and that of the whole set.

    A set that was learned by the recipe stands before one of the tables' own, whatever their accuracies.
    """
    store, found = store or Store(), {}
    for name in ("coresets", "cifar100"):
        _enter(found, table(name, store=store, ipc=IPC, network=(OURS, WHOLE), test_network=(OURS,)), recipe=False)
    recipe = table("recipe_test", store=store)
    _enter(found, recipe[recipe.sets > 0], recipe=True)
    return found


def _enter(found: dict[str, dict[int | str, Entry]], cells: "pd.DataFrame", recipe: bool) -> None:
    for row in cells.itertuples():
        found.setdefault(row.dataset, {})[WHOLE if row.network == WHOLE else row.ipc] = Entry(row, recipe)


def headline_table(found: dict[str, dict[int | str, Entry]]) -> str:
    """Set them in a table in Markdown: the data sets with a record, each number of ours with what it rests on."""
    head = ["data set", "1 image per class: ours", "paper", "10 images per class: ours", "paper", "all images: ours", "paper"]
    rows = []
    for dataset, entries in found.items():
        if any(entry.row.sets for entry in entries.values()):
            pairs = [(_ours(entries[place]), number(entries[place].row, "paper")) for place in (*IPC, WHOLE)]
            rows.append([title(dataset), *(text for pair in pairs for text in pair)])
    return pipe_table(head, rows)


def _ours(entry: Entry) -> str:
    if not entry.row.sets:
        return DASH
    behind, _, _ = counts(entry.row).partition(" of ")
    return f"{number(entry.row, 'ours')}<br><small>{'recipe' if entry.recipe else entry.row.preset}, {behind}</small>"


def not_recorded(found: dict[str, dict[int | str, Entry]]) -> str:
    """The data sets without a record, in a line; empty if there is none."""
    absent = [title(dataset) for dataset, entries in found.items() if not any(entry.row.sets for entry in entries.values())]
    return f"Not recorded yet: {', '.join(absent)}." if absent else ""
