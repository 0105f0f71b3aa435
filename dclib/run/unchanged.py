"""Whether data is still what records of it were measured on: its hash is compared with those recorded."""

import hashlib
from collections.abc import Iterable, Sequence

from ..data.dataset import Dataset
from ..data.sources import own_place
from ..errors import DataError
from ..results import Store
from ..results.lines import DataOf
from .sets import load_rest


def data_hash(tasks: Sequence[Dataset]) -> str:
    """The hash of a data set, or one hash of several, in their order."""
    if len(tasks) == 1:
        return tasks[0].hash
    return hashlib.sha256(" ".join(task.hash for task in tasks).encode()).hexdigest()[:16]


def check_unchanged(store: Store, about: DataOf, found: str) -> None:
    """Refuse data other than that of the same name in the records.

    Args:
        store: where the records are.
        about: what names the data.
        found: the hash of the data that is here.

    Raises:
        DataError: a hash recorded is another, as when the user's own file has changed since.
    """
    if store.data.get(about, set()) - {found}:
        advice = "give the new data another name, or name another folder for its records"
        raise DataError(f"{about.title} has changed since runs on it were recorded: {advice}")


def check_recorded(names: Iterable[str], store: Store) -> None:
    """Refuse the user's own data if it is not that of the records that name it; known data, and data not here, is not asked for.

    Raises:
        DataError: it is not, or cannot be loaded.
    """
    own = {name for name in names if own_place(name)}
    for about in [about for about in store.data if own & set(about.names)]:
        shape = about.image_size, about.channels
        check_unchanged(store, about, data_hash([load_rest(name, about.held_out, *shape) for name in about.names]))
