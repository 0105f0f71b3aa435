"""The data of runs: each loaded once in a process, and compared with what earlier runs were recorded on."""

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from ..data import dataset as data
from ..data.dataset import Dataset
from ..data.sources import own_place, spelled, stamp
from ..errors import DataError
from ..results import Store
from ..results.lines import DataOf
from ..spec import MakeSet, TrainGan, WholeTraining


def load(name: str | Path, image_size: int = 0, channels: int = 0) -> Dataset:
    """Load a data set once for all runs of this process, and the user's own again when it has changed."""
    source = spelled(name)
    return _load(source, image_size, channels, stamp(source))


@lru_cache(maxsize=8)
def _load(source: str, image_size: int, channels: int, state: str) -> Dataset:
    return data.load(source, image_size=image_size, channels=channels)


load.cache_clear = _load.cache_clear  # type: ignore[attr-defined]
_hold_out = lru_cache(maxsize=2)(data.hold_out)


def load_parts(name: str, held_out: int, image_size: int = 0, channels: int = 0) -> tuple[Dataset, Dataset]:
    """Load a data set without the training images held out of it, and it with these in place of its test images."""
    return _hold_out(load(name, image_size, channels), held_out)


def load_rest(name: str, image_size: int = 0, channels: int = 0, held_out: int = 0) -> Dataset:
    """Load a data set without the training images held out of it, of which there may be none."""
    shape = image_size, channels
    return load_parts(name, held_out, *shape)[0] if held_out else load(name, *shape)


def load_of(run: MakeSet | WholeTraining | TrainGan) -> Dataset:
    """Load the images that a run stands on."""
    return load_rest(run.dataset, run.image_size, run.channels, run.held_out)


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
        check_unchanged(store, about, data_hash([load_rest(name, *about[1:]) for name in about.names]))
