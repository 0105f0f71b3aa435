"""Runs as jobs for other processes: a job carries as plain data all that is known of its run, and what it computes comes back so.

A job trains a network on the whole set, makes one set (stage C) or trains the networks of one run on one set (stage T). Each is
given out when what it stands on is here, so that this is done once however many cells share it, and a lost worker costs no more
than the run it was at. Only the `Board` writes into the store: a worker needs no disk of ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import DclibError
from ..experiments.presets import Cell, Run
from ..experiments.studies import Case
from ..results import CondensedSet, Store
from ..results.records import in_words, plain
from ..spec import MakeSet, TrainGan, TrainNetworks, WholeTraining, full
from ..spec.applications import ApplicationRun, LearnTasks, behind
from ..support.files import write_atomic

Whole = WholeTraining | TrainGan
Doable = MakeSet | TrainGan | Run | ApplicationRun


@dataclass(frozen=True)
class Job:
    """One run, and how it is to be done.

    Args:
        run: of stage C or T, on the whole set, or of an application.
        rank: its place in the order of all runs; 0 comes first.
        preset: the folder of new records.
        device, engine: as for `run.Runner`.
        checkpoints: the root of the store where a set under way is kept, if the worker shares its disk.
        known: the records of the run and of what it stands on.
        made: the condensed sets that it trains networks on.
        state: of the training on the whole set that the run is or stands on, if the worker does not share the disk.
    """

    run: Doable
    rank: int
    preset: str
    device: str
    engine: str
    checkpoints: Path | None = None
    known: tuple[dict[str, Any], ...] = ()
    made: tuple[CondensedSet, ...] = ()
    state: bytes | None = field(default=None, repr=False)

    @property
    def title(self) -> str:
        """The run in a few words."""
        return in_words(full(self.run))

    def unpack(self, folder: Path) -> Store:
        """Return a store of the worker's own that holds what is known."""
        store = Store(folder, self.checkpoints)
        for record in self.known:
            store.add(self.preset, record)
        for made in self.made:
            made.save(store.set_path(self.preset, made.key))
        if self.state is not None:
            write_atomic(store.whole_path(self.preset, _whole(self.run).key), self.state)
        return store


@dataclass(frozen=True)
class Answer:
    """What came of a job.

    Args:
        records: the new ones.
        made: the condensed set, if the job was to make one and did.
        state: of the training on the whole set that the job was, done or stopped, if its worker does not share our disk.
        error: why it is not done; None if it is.
    """

    records: tuple[dict[str, Any], ...]
    made: CondensedSet | None = None
    state: bytes | None = field(default=None, repr=False)
    error: DclibError | None = None


def answer(job: Job, store: Store, error: DclibError | None) -> Answer:
    """Collect what a job has left in the worker's store."""
    records = [plain(record) for records in store.records.values() for record in records]
    path, whole = store.find_set(job.run.key), job.run if isinstance(job.run, Whole) else None
    new = tuple(record for record in records if record not in job.known)
    return Answer(new, path and CondensedSet.load(path), _state(store, job.preset, whole), error)


def _sets(run: Doable) -> tuple[MakeSet, ...]:
    """The runs that make the sets on which a run trains networks."""
    if isinstance(run, MakeSet | Whole):
        return ()
    return (run.set,) if isinstance(run, TrainNetworks) else behind(run)


def needed(run: Doable, store: Store) -> list[MakeSet | Whole]:
    """What must be done before a run and is not here."""
    if isinstance(run, MakeSet):
        return [run.base] if run.base and not store.is_trained(run.base) else []
    find = {True: store.find_set, False: store.indices}
    return [made for made in _sets(run) if not find[made.learned](made.key)]


def _whole(run: Doable) -> Whole | None:
    """The training on the whole set that a run is, or that a set is chosen with or drawn from."""
    return run if isinstance(run, Whole) else getattr(run, "base", None)


def _state(store: Store, preset: str, whole: Whole | None) -> bytes | None:
    """The file of a training on the whole set, unless it is none, or others find it where it is."""
    if whole is None or store.checkpoints is not None:
        return None
    path = store.whole_path(preset, whole.key)
    return path.read_bytes() if path.exists() else None


class Board:
    """Which runs are missing behind these cells, and what may be begun.

    Args:
        cells: the cheapest are begun first.
        store: where records and sets are found and written.
        how: the preset, device, engine and checkpoints of every job.
    """

    def __init__(self, cells: Sequence[Cell | Case], store: Store, **how: Any):
        self.store, self.how = store, how
        self.waiting: dict[str, list[tuple[int, Doable]]] = {}  # by the key of what they stand on, "" if it is here
        self.noted: set[str] = set()
        self.done = 0
        for rank, run in enumerate(self._missing(cells)):
            self._note(rank, run)
        self.total = len(self.noted)

    def _missing(self, cells: Sequence[Cell | Case]) -> list[Any]:
        """Each run once, with the most networks that a cell asks for."""
        runs: dict[str, Any] = {}
        for run in (run for cell in sorted(cells, key=lambda cell: cell.cost) for run in cell.runs()):
            if run.key not in runs or run.networks > runs[run.key].networks:
                runs[run.key] = run
        return [run for run in runs.values() if self.store.missing(run)]

    def _note(self, rank: int, run: Doable) -> None:
        """Note a run once, and with it what it stands on."""
        if run.key in self.noted:
            return
        self.noted.add(run.key)
        bases = needed(run, self.store)
        self.waiting.setdefault(bases[0].key if bases else "", []).append((rank, run))
        for base in bases:
            self._note(rank, base)

    def begin(self) -> list[Job]:
        """The jobs that nothing stands before: trainings on the whole set, sets to be made, and runs whose sets are here."""
        return self._on("")

    def take(self, job: Job, got: Answer) -> list[Job]:
        """Record what came of a job and return the jobs that it makes possible."""
        preset, key = job.preset, job.run.key
        if got.made is not None and self.store.find_set(key) is None:  # another process may have been first
            got.made.save(self.store.set_path(preset, key))
        if got.state is not None:
            write_atomic(self.store.whole_path(preset, key), got.state)
        for record in got.records:
            self.store.add_once(preset, record)
        if got.error is not None:
            return []
        self.done += 1
        if isinstance(job.run, MakeSet | LearnTasks):
            self.store.remove_checkpoint(preset, key)
        return self._on(key)

    def _on(self, key: str) -> list[Job]:
        """The jobs that stand on the run of that key, which is done, and on nothing that is not; lower ranks first."""
        ready = []
        for rank, run in sorted(self.waiting.pop(key, []), key=lambda ranked: ranked[0]):
            if others := [base for base in needed(run, self.store) if base.key != key] if key else []:
                self.waiting.setdefault(others[0].key, []).append((rank, run))
            else:
                ready.append(self._job(rank, run))
        return ready

    def _job(self, rank: int, run: Doable) -> Job:
        bases = _sets(run) or tuple(filter(None, (_whole(run),)))
        paths = [self.store.find_set(base.key) for base in bases]
        made = tuple(CondensedSet.load(path) for path in paths if path)
        state = None if self.how.get("checkpoints") else _state(self.store, self.how["preset"], _whole(run))
        return Job(run, rank, known=self._known(*{base.key for base in bases} | {run.key}), made=made, state=state, **self.how)

    def _known(self, *keys: str) -> tuple[dict[str, Any], ...]:
        return tuple(plain(record) for key in keys for record in self.store.records.get(key, []))
