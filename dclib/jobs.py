"""Runs as jobs for other processes: a job carries as plain data all that is known of its run, and what it computes comes back so.

A job makes one set (stage C) or trains the networks of one run on one set (stage T). Those of stage T are given out when their
set is here, so that a set is made once however many cells share it, and a lost worker costs no more than the run it was at.
Only the `Board` writes into the store: a worker needs no disk of ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .errors import DclibError
from .experiments import Cell
from .records import in_words, plain
from .results import CondensedSet, Store
from .spec import MakeSet, TrainNetworks, full


@dataclass(frozen=True)
class Job:
    """One run, and how it is to be done.

    Args:
        run: of stage C or T.
        rank: its place in the order of all runs; 0 comes first.
        preset: the folder of new records.
        device, engine: as for `run.Runner`.
        checkpoints: the root of the store where a set under way is kept, if the worker shares its disk.
        known: the records of the run and of its set.
        made: the set, for stage T.
    """

    run: MakeSet | TrainNetworks
    rank: int
    preset: str
    device: str
    engine: str
    checkpoints: Path | None = None
    known: tuple[dict[str, Any], ...] = ()
    made: CondensedSet | None = None

    @property
    def title(self) -> str:
        """The run in a few words."""
        return in_words(full(self.run))

    def unpack(self, folder: Path) -> Store:
        """Return a store of the worker's own that holds what is known."""
        store = Store(folder, self.checkpoints)
        for record in self.known:
            store.add(self.preset, record)
        if self.made is not None:
            self.made.save(store.set_path(self.preset, self.made.key))
        return store


@dataclass(frozen=True)
class Answer:
    """What came of a job.

    Args:
        records: the new ones.
        made: the set, if the job was to make one and did.
        error: why it is not done; None if it is.
    """

    records: tuple[dict[str, Any], ...]
    made: CondensedSet | None = None
    error: DclibError | None = None


def answer(job: Job, store: Store, error: DclibError | None) -> Answer:
    """Collect what a job has left in the worker's store."""
    records = [plain(record) for records in store.records.values() for record in records]
    path = store.find_set(job.run.key)
    return Answer(tuple(r for r in records if r not in job.known), path and CondensedSet.load(path), error)


class Board:
    """Which runs are missing behind these cells, and what may be begun.

    Args:
        cells: the cheapest are begun first.
        store: where records and sets are found and written.
        how: the preset, device, engine and checkpoints of every job.
    """

    def __init__(self, cells: Sequence[Cell], store: Store, **how: Any):
        self.store, self.how = store, how
        self.waiting: dict[str, list[tuple[int, TrainNetworks]]] = {}  # by the key of their set
        self.total = self.done = 0
        for rank, run in enumerate(self._missing(cells)):
            self.waiting.setdefault(run.set.key, []).append((rank, run))
            self.total += 1

    def _missing(self, cells: Sequence[Cell]) -> list[TrainNetworks]:
        """Each run once, with the most networks that a cell asks for."""
        runs: dict[str, TrainNetworks] = {}
        for run in (run for cell in sorted(cells, key=lambda cell: cell.cost) for run in cell.runs()):
            most = max(run.networks, runs[run.key].networks if run.key in runs else 0)
            runs[run.key] = replace(run, networks=most)
        return [run for run in runs.values() if self.store.missing(run)]

    def begin(self) -> list[Job]:
        """The jobs that nothing stands before: sets to be made, and runs whose sets are here."""
        jobs = []
        for key, runs in list(self.waiting.items()):
            if self.store.find_set(key) is not None:
                jobs += self._on(key)
            else:
                self.total += 1
                rank, run = runs[0]
                jobs.append(Job(run.set, rank, known=self._known(key), **self.how))
        return sorted(jobs, key=lambda job: job.rank)

    def take(self, job: Job, got: Answer) -> list[Job]:
        """Record what came of a job and return the jobs that it makes possible."""
        preset, key = job.preset, job.run.key
        if got.made is not None and self.store.find_set(key) is None:  # another process may have been first
            got.made.save(self.store.set_path(preset, key))
        for record in got.records:
            self.store.add_once(preset, record)
        if got.error is not None:
            return []
        self.done += 1
        if not isinstance(job.run, MakeSet):
            return []
        self.store.remove_checkpoint(preset, key)
        return self._on(key)

    def _on(self, key: str) -> list[Job]:
        """The jobs of stage T on the set of that key, which is here."""
        made = CondensedSet.load(self.store.find_set(key))
        return [
            Job(run, rank, known=self._known(key, run.key), made=made, **self.how) for rank, run in self.waiting.pop(key, [])
        ]

    def _known(self, *keys: str) -> tuple[dict[str, Any], ...]:
        return tuple(plain(record) for key in keys for record in self.store.records.get(key, []))
