"""Whether data is still what records of it were measured on: its hash is compared with those recorded."""

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from ..data.dataset import Dataset
from ..data.sources import own_place
from ..errors import DataError
from ..results import Store
from ..results.records import data_of
from .sets import load, load_parts


def data_hash(tasks: Sequence[Dataset]) -> str:
    """One hash of several data sets, in their order."""
    return hashlib.sha256(" ".join(task.hash for task in tasks).encode()).hexdigest()[:16]


def check_unchanged(store: Store, run: dict[str, Any], found: str) -> None:
    """Refuse data other than those of the same name that recorded runs, with which this one is compared, have used.

    Args:
        store: where the records are.
        run: the run, spelled out in full.
        found: the hash of the data that is here.

    Raises:
        DataError: a hash recorded is another, as when the user's own file has changed since.
    """
    about = data_of({"run": run})
    if _recorded(store).get(about, {}).keys() - {found}:
        advice = "give the new data another name, or name another folder for its records"
        raise DataError(f"{about[0]} has changed since runs on it were recorded: {advice}")


def _recorded(store: Store) -> dict[tuple, dict[str, dict[str, Any]]]:
    """For all data that records name, each hash recorded, with one of the runs."""
    found: dict[tuple, dict[str, dict[str, Any]]] = {}
    for record in itertools.chain(*store.records.values()):
        if "data_hash" in record:
            found.setdefault(data_of(record), {})[record["data_hash"]] = record["run"]
    return found


def check_recorded(names: Iterable[str], store: Store) -> None:
    """Refuse the user's own data if it is not that of the records that name it; known data, and data not here, is not asked for.

    Raises:
        DataError: it is not, or cannot be loaded.
    """
    own = {name for name in names if own_place(name)}
    for hashes in _recorded(store).values() if own else ():
        run = next(iter(hashes.values()))
        source = run.get("set") or run
        if own & {*source.get("tasks", ()), source.get("dataset")}:
            check_unchanged(store, run, _hash_of(source))


def _hash_of(run: dict[str, Any]) -> str:
    """The hash of the data here that a run names, seen as the run saw it."""
    shape, held = (run.get("image_size", 0), run.get("channels", 0)), run.get("held_out", 0)
    if "tasks" in run:
        return data_hash([load(task, *shape) for task in run["tasks"]])
    return (load_parts(run["dataset"], held, *shape)[0] if held else load(run["dataset"], *shape)).hash
