"""Independent jobs spread over Dask's workers.

Of a job nothing is known here but its rank: `work` does it on a worker, in a folder of the worker's own, and `take` receives
what came of it. A job whose worker is killed is done again on another. Asked to stop, the workers finish their step and hand
over what they have.
"""

import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ..errors import ClusterError, Interrupted, first_line
from ..support.provenance import versions
from .cluster import mismatch

if TYPE_CHECKING:
    from distributed import Client, Future

TICK_SECONDS = 0.2
ONE_AT_A_TIME = threading.Lock()  # a worker with several threads has one torch, which a job needs for itself

Work = Callable[[Any, Path, Callable[[], bool]], Any]


def on_worker(work: Work, job: Any, ours: dict[str, str], token: str) -> Any:
    """Do one job on a worker; stops when its caller asks, or is gone."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def should_stop() -> bool:
        task = worker.state.tasks.get(key)
        return token == getattr(worker, "dclib_stopped", None) or task is None or task.state == "cancelled"

    if error := mismatch(worker.address, versions(), ours):
        raise error
    with ONE_AT_A_TIME, tempfile.TemporaryDirectory(dir=worker.local_directory) as folder:
        return work(job, Path(folder), should_stop)


def ask_to_stop(token: str, dask_worker: Any = None) -> None:
    """Tell a worker, in its event loop, that the jobs of this caller are to stop."""
    dask_worker.dclib_stopped = token


def spread(
    client: "Client",
    jobs: Iterable[Any],
    work: Work,
    take: Callable[[Any, Any], Iterable[Any]],
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Do all jobs, and those that `take` returns for what comes back.

    Args:
        client: from `connected`.
        jobs: each with a `rank`; lower ones go first.
        work: called on a worker with a job, an empty folder and what to ask between steps; a function of a module.
        take: called here with a job and what `work` returned; raises if that is no success, and then the others are stopped.
        should_stop: asked all the time.

    Raises:
        Interrupted: `should_stop` said so.
        Exception: what `take` or `work` raised, after the other jobs' results were taken.
    """
    _Spread(client, work, take).run(jobs, should_stop)


class _Spread:
    def __init__(self, client: "Client", work: Work, take: Callable[[Any, Any], Iterable[Any]]):
        self.client, self.work, self.take, self.token = client, work, take, uuid4().hex
        self.running: dict[str, tuple[Any, Future]] = {}
        self.done: Queue[Future] = Queue()
        self.error: Exception | None = None

    def run(self, jobs: Iterable[Any], should_stop: Callable[[], bool]) -> None:
        for job in jobs:
            self._submit(job)
        while self.running:
            if self.error or should_stop():
                self.error = self.error or Interrupted("stopped; the same command goes on from there")
                self._ask_to_stop()  # again each time: workers may join
            try:
                future = self.done.get(timeout=TICK_SECONDS)
            except Empty:
                continue
            self._take(self.running.pop(future.key)[0], future)
        if self.error:
            raise self.error

    def _ask_to_stop(self) -> None:
        with suppress(OSError):  # the scheduler may be gone; then every future says so
            self.client.run(ask_to_stop, self.token, on_error="ignore")

    def _submit(self, job: Any) -> None:
        key = f"dclib-{uuid4().hex}"
        future = self.client.submit(on_worker, self.work, job, versions(), self.token, key=key, priority=-job.rank)
        self.running[key] = job, future
        future.add_done_callback(self.done.put)

    def _take(self, job: Any, future: "Future") -> None:
        try:
            for more in self.take(job, _result(future)):
                if self.error:
                    return
                self._submit(more)
        except Exception as error:
            if self.error is None or isinstance(self.error, Interrupted):
                self.error = error
        finally:
            future.release()


def _result(future: "Future") -> Any:
    """What a job returned.

    Raises:
        ClusterError: it was lost for a reason of the cluster's.
        Exception: what it raised.
    """
    from concurrent.futures import CancelledError

    from distributed import KilledWorker

    try:
        return future.result()
    except KilledWorker as error:
        raise ClusterError("a run was given up, because every worker that began it was killed: too little memory?") from error
    except CancelledError as error:
        raise ClusterError("the scheduler has gone: what came back is recorded; the same command goes on from there") from error
    except ImportError as error:
        raise ClusterError(f"a worker cannot load what it needs ({first_line(error)}): install the same dclib there") from error
