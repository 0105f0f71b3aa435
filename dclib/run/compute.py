"""Executes declared runs: what is missing behind the cells of a table, one run after another or on workers.

Every run is resumable: a set, or a training on a whole data set, goes on from its checkpoint, and each trained network is
recorded as soon as it is tested. `runner` does one run, `workers` spreads them.
"""

import time
from collections.abc import Sequence
from typing import Any

from ..errors import Diverged, Interrupted, SpecError
from ..experiments.work import size
from ..results import Store
from ..results.lines import data_of
from ..spec import full, shared_trajectories
from ..spec.keys import Run
from ..support.files import check_writable
from ..support.progress import Progress, stopping
from ..support.provenance import launched
from .cluster import check_request
from .loading import check_recorded, load
from .runner import Runner
from .workers import spread


def compute(
    cells: Sequence[Any],
    store: Store,
    preset: str,
    *,
    device: str = "auto",
    engine: str = "auto",
    seconds: float | None = None,
    cluster: str | None = None,
    workers: int | None = None,
) -> list[Any]:
    """Do what is missing behind these cells, within so many seconds, and return the cells that are left.

    Args:
        cells: of any experiments.
        store: where records and sets are found and written.
        preset: the folder of new records.
        device, engine: as for `Runner`.
        seconds: None: without a limit.
        cluster: a Dask scheduler's address: its workers compute, with the data sets they have.
        workers: so many processes of this machine compute, each with its share of the cores. As with everything that starts
            processes, a script needs `if __name__ == "__main__":` around the call.

    Raises:
        Interrupted: stopped by a signal; what is finished is recorded, what is not goes on next time.
        Diverged: a run left the finite numbers; all that does not need it is done.
        DclibError: the records' folder cannot be written, or a data set cannot be loaded; told before the work begins, but
            for a cluster's data sets.
    """
    check_request(cluster, workers)
    check_writable(store.root / preset / "sets.jsonl")
    if launched() > 1:
        raise SpecError(f"torchrun has started {launched()} processes for the same runs: use workers={launched()} instead")
    seen = dict.fromkeys(data_of({"run": full(run)}) for cell in cells for run in list(cell.runs())[:1])
    for about in seen if cluster is None else ():
        for name in about.names:
            load(name, about.image_size, about.channels)
    check_recorded({name for about in seen for name in about.names}, store)
    end = None if seconds is None else time.monotonic() + seconds
    try:
        with stopping(seconds) as should_stop:
            if cluster is None and workers is None:
                execute(cells, Runner(store, preset, device, engine, should_stop))
            else:
                runs = [run for cell in sorted(cells, key=lambda cell: cell.cost) for run in cell.runs()]
                failed = spread(runs, store, preset, (device, engine), should_stop, cluster=cluster, workers=workers)
                _finish(runs, store, preset, failed)
    except Interrupted:
        if end is None or time.monotonic() < end:
            raise
    return store.incomplete(cells)


def execute(cells: Sequence[Any], runner: Runner) -> None:
    """Do what is missing behind these cells, one run after another, the cheapest cell first.

    Raises:
        Interrupted, Diverged: as for `compute`.
    """
    groups = [some for cell in sorted(cells, key=lambda cell: cell.cost) for some in _together(list(cell.runs()), cell.together)]
    runs = [run for some in groups for run in some]
    runner.trajectories = shared_trajectories(need for run in runs for need in run.needs())
    missing = [some for some in groups if any(map(runner.store.missing, some))]
    sizes = [size(some[0]) for some in missing if some[0].brief]
    with Progress("training architectures", sizes, hidden=not sizes) as progress:  # other runs have bars of their own
        for some in missing:
            if runner.should_stop():
                raise Interrupted("stopped between two runs; the same command goes on from there")
            runner.store.refresh()  # another process may have done it
            try:
                for need in some[0].needs() if some[0].brief else ():
                    runner.do(need)
                progress.begin()
                runner.do(*some)
            except Diverged:
                pass  # `runner.failed` has it
            if some[0].brief:
                progress.step()
    _finish(runs, runner.store, runner.preset, list(map(str, runner.failed.values())))


def _together(runs: Sequence[Run], count: int) -> list[Sequence[Run]]:
    return [runs[i : i + count] for i in range(0, len(runs), count)]


def _finish(runs: Sequence[Run], store: Store, preset: str, failed: Sequence[str]) -> None:
    """Remove the states that several of these runs have shared, and tell of those that left the finite numbers."""
    for name in {one.shared_state for run in runs for one in (run, *run.needs())} - {""}:
        store.remove_checkpoint(preset, name)
    if failed:
        raise Diverged(f"{'; '.join(failed)}; all that does not stand on it is recorded")
