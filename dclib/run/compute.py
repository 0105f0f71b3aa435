"""Executes declared runs: what is missing behind the cells of a table, one run after another or spread over workers.

Every run is resumable: a set or a training on the whole set goes on from its checkpoint, and each trained network is recorded as
soon as it is tested. `runner` does one run.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ..errors import DclibError, Diverged, Interrupted, SpecError
from ..experiments.presets import ORS, Cell, Run
from ..experiments.studies import Case
from ..experiments.work import size
from ..results import Store
from ..results.records import in_words
from ..spec import TrainNetworks, full, shared_trajectories
from ..spec.applications import ApplicationRun, LearnTasks, TrainCandidate
from ..support.files import check_writable
from ..support.progress import Progress, Uneven, stopping
from ..support.provenance import launched
from . import spread as spreading
from .cluster import check_request, connected
from .jobs import Answer, Board, Doable, Job, answer, needed
from .runner import Runner
from .sets import load
from .unchanged import check_recorded

TOGETHER = 100  # sets that are held in memory at once


def execute(cells: Sequence[Cell | Case], runner: Runner) -> None:
    """Do what is missing behind these cells, the cheapest first.

    Raises:
        Interrupted: told to stop; what is finished is recorded, what is not goes on next time.
        Diverged: a run left the finite numbers; all that does not stand on it is done.
    """
    ordered = [(cell, list(cell.runs())) for cell in sorted(cells, key=lambda cell: cell.cost)]
    runs = [run for _, its in ordered for run in its]
    runner.courses = shared_trajectories(run.set for run in runs if isinstance(run, TrainNetworks))
    groups = [some for cell, its in ordered for some in together(cell, its) if any(map(runner.store.missing, some))]
    failures = Failures(runner.store)
    sizes = [size(some[0]) for some in groups if isinstance(some[0], TrainCandidate)]
    with Uneven("training architectures", sizes, hidden=not sizes) as progress:  # other runs have bars of their own
        for some in groups:
            if runner.should_stop():
                raise Interrupted("stopped between two runs; the same command goes on from there")
            _do(some, runner, failures, progress.begin)
            if isinstance(some[0], TrainCandidate):
                progress.step()
    forget(runs, runner.store, runner.preset)
    failures.tell()


def _do(runs: list[Run | ApplicationRun], runner: Runner, failures: "Failures", begin: Callable[[], None]) -> None:
    """Do what is still missing of runs that are done together, unless they stand on one that has failed.

    With `begin` an architecture tells the bar of them all that its set, which has a bar of its own, is made.
    """
    if failures.skips(runs[0]) or not any(map(runner.store.missing, runs)):
        return
    runner.store.refresh()  # another process may have done it
    try:
        for made in needed(runs[0], runner.store) if isinstance(runs[0], TrainCandidate) else ():
            runner.do(made)
        begin()
        runner.test(*runs)
    except Diverged as error:
        failures.note(runs[0], error)


class Failures:
    """The runs that left the finite numbers.

    Args:
        store: where what a run stands on is found, if it is done.
    """

    def __init__(self, store: Store):
        self.store = store
        self.said: dict[str, str] = {}  # by the run's key

    def skips(self, run: Doable) -> bool:
        """Whether a run has failed, or anything that must be done before it."""
        return run.key in self.said or any(map(self.skips, needed(run, self.store)))

    def note(self, run: Doable, error: Diverged) -> None:
        """Note that a run has failed, or rather the first thing that had to be done before it and is not here."""
        while found := needed(run, self.store):
            run = found[0]
        self.said[run.key] = f"{in_words(full(run))}: {error}"

    def tell(self) -> None:
        """Raise what was said, once all other runs are done."""
        if self.said:
            raise Diverged(f"{'; '.join(self.said.values())}; all that does not stand on it is recorded")


def forget(runs: Iterable[Run | ApplicationRun], store: Store, preset: str) -> None:
    """Remove the states that several of these runs, which are done, have shared."""
    names = {run.set.trajectory for run in runs if isinstance(run, TrainNetworks)}
    names |= {run.first_task for run in runs if isinstance(run, LearnTasks)}
    for name in names:
        store.remove_checkpoint(preset, name)


def together(cell: Cell | Case, runs: Sequence[Run | ApplicationRun]) -> list[list[Run | ApplicationRun]]:
    """A cell's runs, those of optimal random selection a hundred at a time: each has one network, too few for a GPU."""
    size = TOGETHER if getattr(cell, "network", "") in ORS else 1
    return [runs[i : i + size] for i in range(0, len(runs), size)]


def spread(cells: Sequence[Cell | Case], store: Store, should_stop: Callable[[], bool], where: dict[str, Any], **how: Any) -> None:
    """Do what is missing behind these cells on workers, the cheapest first.

    Args:
        cells, store: as for `compute`.
        should_stop: asked all the time.
        where: the cluster or the number of workers.
        how: the preset, device and engine.

    Raises:
        DclibError: the first that a run raised, but where runs left the finite numbers all others are done first; told to stop,
            Interrupted. What is finished is recorded.
    """
    failures = Failures(store)
    board = Board(cells, store, **how, checkpoints=store.root.resolve() if where["workers"] else None)
    jobs = board.begin()
    with connected(**where) as client, Progress(f"runs on {where['cluster'] or 'worker processes'}", board.total) as progress:

        def take(job: Job, got: Answer) -> list[Job]:
            more = board.take(job, got)
            if isinstance(got.error, Diverged):
                failures.note(job.run, got.error)
            elif got.error:
                raise got.error
            progress.step(job.title)
            return more

        try:
            spreading.spread(client, jobs, alone, take, should_stop)
        except Interrupted:
            done = f"{board.done} of {board.total} runs"
            raise Interrupted(f"stopped after {done}; the same command goes on from there") from None
    forget([run for cell in cells for run in cell.runs()], store, how["preset"])
    failures.tell()


def alone(job: Job, folder: Path, should_stop: Callable[[], bool]) -> Answer:
    """Do one job with nothing but what it carries: what a worker does."""
    store, error = job.unpack(folder), None
    try:
        if should_stop():
            raise Interrupted("stopped before it began")
        runner = Runner(store, job.preset, job.device, job.engine, should_stop)
        runner.do(job.run)
    except DclibError as caught:
        error = caught
    return answer(job, store, error)


def compute(
    cells: Sequence[Cell | Case],
    store: Store,
    preset: str,
    *,
    device: str = "auto",
    engine: str = "auto",
    seconds: float | None = None,
    cluster: str | None = None,
    workers: int | None = None,
) -> list[Cell | Case]:
    """Do what is missing behind these cells, within so many seconds, and return the cells that are left.

    Args:
        cells: which.
        store: where records and sets are found and written.
        preset: the folder of new records.
        device, engine: as for `Runner`.
        seconds: None: without a limit.
        cluster: a Dask scheduler's address: its workers compute, with the data sets they have.
        workers: so many processes of this machine compute, each with its share of the cores. As with everything that starts
            processes, a script needs `if __name__ == "__main__":` around the call.

    Raises:
        Interrupted: stopped by a signal.
        DclibError: the records' folder cannot be written, or a data set cannot be loaded; told before the work begins, but
            for a cluster's data sets.
    """
    check_request(cluster, workers)
    check_writable(store.root / preset / "sets.jsonl")
    if launched() > 1:
        raise SpecError(f"torchrun has started {launched()} processes for the same runs: use workers={launched()} instead")
    for name in sorted({name for cell in cells for name in cell.datasets}) if cluster is None else ():
        load(name, 0, 0)
    check_recorded({name for cell in cells for name in cell.datasets}, store)
    end = None if seconds is None else time.monotonic() + seconds
    try:
        with stopping(seconds) as should_stop:
            if cluster is None and workers is None:
                execute(cells, Runner(store, preset, device, engine, should_stop))
            else:
                where = dict(cluster=cluster, workers=workers)
                spread(cells, store, should_stop, where, preset=preset, device=device, engine=engine)
    except Interrupted:
        if end is None or time.monotonic() < end:
            raise
    return store.incomplete(cells)
