"""Runs spread over Dask's workers (see `cluster`).

Each run is a task of Dask's that waits for the tasks of the runs it needs. It takes what these leave, works in a folder of its
worker's own, and returns what is to be recorded: only the caller writes into the store. If a worker is killed, its run is done
again on another.
"""

import tempfile
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ..errors import ClusterError, DclibError, Diverged, Interrupted, first_line
from ..results import Store
from ..results.lines import plain
from ..spec.keys import Run
from ..support.files import write_atomic
from ..support.progress import Progress
from ..support.provenance import versions
from .cluster import connected, mismatch

if TYPE_CHECKING:
    from distributed import Client, Future

TICK_SECONDS = 0.2
ONE_AT_A_TIME = threading.Lock()  # a worker with several threads has one torch, which a run needs for itself


@dataclass(frozen=True)
class Done:
    """What is known of a run, or what came of it.

    Args:
        records: of the run.
        files: the file that it leaves, by its place below a preset's folder.
        error: why it is not done; None if it is.
    """

    records: tuple[dict[str, Any], ...] = ()
    files: dict[str, bytes] = field(default_factory=dict, repr=False)
    error: DclibError | None = None

    @classmethod
    def found(cls, run: Run, store: Store, error: DclibError | None = None) -> "Done":
        """What a store holds of a run; files that its worker shares with others stay where they are."""
        records = tuple(map(plain, store.records.get(run.key, ())))
        paths = store.root.glob(f"*/{run.leaves}/{run.key}.safetensors") if run.leaves else ()
        return cls(records, {f"{path.parent.name}/{path.name}": path.read_bytes() for path in paths}, error)

    def unpack(self, store: Store, preset: str) -> None:
        """Bring what is known into a store, where it is not there already."""
        for name, content in self.files.items():
            folder, _, file = name.partition("/")
            if folder == "whole" or store.find_set(file.partition(".")[0]) is None:  # another process may have been first
                write_atomic(store.root / preset / name, content)
        for record in self.records:
            store.add_once(preset, record)


@dataclass(frozen=True)
class Job:
    """How a run is to be done on a worker.

    Args:
        run: which.
        preset: the folder of new records.
        how: the device and the engine, as for `Runner`.
        shared: the root of the caller's store, if the worker has the same disk.
        token: names the caller, who may tell it to stop.
        versions: the caller's.
        known: what is recorded of the run.
    """

    run: Run
    preset: str
    how: tuple[str, str]
    shared: Path | None = None
    token: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    known: Done = Done()


def on_worker(job: Job, *needs: Done | None) -> Done | None:
    """Do one run on a worker; it stops when its caller asks, or is gone.

    Args:
        job: which run, and how.
        needs: what is known of the runs that it needs; None, or with an error, where one is not done.

    Returns:
        What is new; None where a run that it needs is not done.
    """
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def should_stop() -> bool:
        task = worker.state.tasks.get(key)
        return job.token == getattr(worker, "dclib_stopped", None) or task is None or task.state == "cancelled"

    if error := mismatch(worker.address, versions(), job.versions):
        raise error
    if any(need is None or need.error for need in needs):
        return None
    with ONE_AT_A_TIME, tempfile.TemporaryDirectory(dir=worker.local_directory) as folder:
        return do(job, needs, Path(folder), should_stop)


def do(job: Job, needs: Iterable[Done], folder: Path, should_stop: Callable[[], bool]) -> Done:
    """Do one run in an empty folder, with nothing but what is known of it and of the runs that it needs."""
    from .runner import Runner

    store, error = Store(folder, job.shared), None
    for known in (job.known, *needs):
        known.unpack(store, job.preset)
    try:
        if should_stop():
            raise Interrupted("stopped before it began")
        Runner(store, job.preset, *job.how, should_stop).do(job.run)
    except DclibError as caught:
        error = caught
    return Done.found(job.run, store, error)


def ask_to_stop(token: str, dask_worker: Any = None) -> None:
    """Tell a worker, in its event loop, that the runs of this caller are to stop."""
    dask_worker.dclib_stopped = token


def spread(
    runs: Iterable[Run],
    store: Store,
    preset: str,
    how: tuple[str, str],
    should_stop: Callable[[], bool],
    *,
    cluster: str | None,
    workers: int | None,
) -> list[str]:
    """Do on workers what is missing of these runs and of those that they need.

    Args:
        runs: those first in order are begun first.
        store: where records and sets are found and written.
        preset: the folder of new records.
        how: the device and the engine.
        should_stop: asked all the time.
        cluster, workers: as for `connected`.

    Returns:
        A sentence for each run that left the finite numbers; all that does not need it is done.

    Raises:
        DclibError: the first that a run raised, or, told to stop, Interrupted; what is finished is recorded.
    """
    most: dict[str, Run] = {}  # each once, with the most networks that are asked for
    for run in runs:
        most[run.key] = max(most.get(run.key, run), run, key=lambda run: run.networks)
    missing = [run for run in most.values() if store.missing(run)]
    with connected(cluster, workers) as client:
        spreading = _Spread(client, store, preset, how, store.root.resolve() if workers else None)
        for rank, run in enumerate(missing):
            spreading.submit(run, -rank)
        total = len(spreading.running)
        with Progress(f"runs on {cluster or 'worker processes'}", total) as progress:
            try:
                spreading.collect(should_stop, progress)
            except Interrupted:
                done = f"{spreading.done} of {total} runs"
                raise Interrupted(f"stopped after {done}; the same command goes on from there") from None
    return spreading.failed


class _Spread:
    """The runs of one caller, as futures.

    Args:
        client: from `connected`.
        store, preset, how, shared: as for `spread` and `Job`.
    """

    def __init__(self, client: "Client", store: Store, preset: str, how: tuple[str, str], shared: Path | None):
        self.client, self.store, self.preset = client, store, preset
        self.token = uuid4().hex
        self.every_job = dict(preset=preset, how=how, shared=shared, token=self.token, versions=versions())
        self.futures: dict[str, Future] = {}  # by the run's key
        self.running: dict[str, Run] = {}  # by the future's key
        self.arrived: Queue[Future] = Queue()
        self.failed: list[str] = []
        self.done = 0
        self.error: Exception | None = None

    def submit(self, run: Run, priority: int) -> "Future":
        """Hand over a run after those that it needs; one that is done is handed over as what it has left."""
        if run.key not in self.futures:
            about = dict(key=f"dclib-{uuid4().hex}", priority=priority)
            known = Done.found(run, self.store)
            if self.store.has(run):
                self.futures[run.key] = self.client.submit(_given, known, **about)
            else:
                needs = [self.submit(need, priority) for need in run.needs()]
                future = self.client.submit(on_worker, Job(run, known=known, **self.every_job), *needs, **about)
                self.futures[run.key], self.running[future.key] = future, run
                future.add_done_callback(self.arrived.put)
        return self.futures[run.key]

    def collect(self, should_stop: Callable[[], bool], progress: Progress) -> None:
        """Record what comes back until nothing is under way; told to stop, workers finish their step and return their results."""
        while self.running:
            if self.error or should_stop():
                self.error = self.error or Interrupted("stopped; the same command goes on from there")
                with suppress(OSError):  # the scheduler may be gone; then every future says so
                    self.client.run(ask_to_stop, self.token, on_error="ignore")  # again each time: workers may join
            try:
                future = self.arrived.get(timeout=TICK_SECONDS)
            except Empty:
                continue
            run = self.running.pop(future.key)
            try:
                self._take(run, _result(future), progress)
            except Exception as error:
                if self.error is None or isinstance(self.error, Interrupted):
                    self.error = error
        if self.error:
            raise self.error

    def _take(self, run: Run, found: Done | None, progress: Progress) -> None:
        """Record what came of a run, each record once; raises what the run raised."""
        if found is None:
            return
        made = {r["set_hash"] for need in run.needs() for r in self.store.records.get(need.key, ()) if "set_hash" in r}
        if made and any(record.get("set_hash") not in (*made, None) for record in found.records):
            raise ClusterError(f"{run.words}: its set was made twice, with other pixels; the same command does this run again")
        found.unpack(self.store, self.preset)
        if isinstance(found.error, Diverged):
            self.failed.append(str(found.error))
        elif found.error:
            raise found.error
        else:
            self.done += 1
            self.store.remove_checkpoint(self.preset, run.key)
        progress.step(run.words)


def _given(known: Done) -> Done:
    return known


def _result(future: "Future") -> Done | None:
    """What a run returned.

    Raises:
        ClusterError: it was lost for a reason of the cluster's.
        Exception: what it raised.
    """
    from distributed import KilledWorker

    try:
        return future.result()
    except KilledWorker as error:
        raise ClusterError("a run was given up, because every worker that began it was killed: too little memory?") from error
    except CancelledError as error:
        raise ClusterError("the scheduler has gone: what came back is recorded; the same command goes on from there") from error
    except ImportError as error:
        raise ClusterError(f"a worker cannot load what it needs ({first_line(error)}): install the same dclib there") from error
