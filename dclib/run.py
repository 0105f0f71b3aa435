"""Executes declared runs: makes the sets that are missing, trains the networks that are missing, and records both.

The only module that knows experiments, results and the code that computes. Every run is resumable: a set goes on from its
checkpoint, and each trained network is recorded as soon as it is tested.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from . import data, train
from . import engine as engines
from . import spread as spreading
from .cluster import check_request, connected
from .errors import DataError, DclibError, Interrupted, SpecError
from .experiments import Cell
from .files import check_writable
from .jobs import Answer, Board, Job, answer
from .progress import Progress
from .provenance import now, provenance
from .ranks import launched
from .results import CondensedSet, Store
from .sets import as_set, choose_at_random, condense_images, describe, load, set_hash
from .spec import MakeSet, TrainNetworks, derive, full
from .stopping import stopping


@dataclasses.dataclass
class Runner:
    """What a run needs besides its spec.

    Args:
        store: where records and sets are found and written.
        preset: the folder of new records.
        device: "auto", "cpu", "cuda" …
        engine: "auto", "eager" or "compiled".
        should_stop: asked between steps.
    """

    store: Store
    preset: str
    device: str = "auto"
    engine: str = "auto"
    should_stop: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        engines.tune_allocator()
        self.where = engines.resolve_device(self.device)

    def make_set(self, run: MakeSet) -> CondensedSet:
        """Return the set of that run: read it, or make, keep and record it."""
        path = self.store.find_set(run.key)
        if path is not None:
            made = CondensedSet.load(path)
        else:
            made = self._keep(run, self._make(run))
        if run.key not in self.store.records and "started" in made.about:  # new, or its process was killed before this
            values = {name: made.about[name] for name in ("seconds", "losses", "data_hash") if name in made.about}
            self._record(run, made.about["started"], made.about["engine"], {**values, "set_hash": set_hash(made)})
        self.store.remove_checkpoint(self.preset, run.key)
        return made

    def _keep(self, run: MakeSet, made: CondensedSet) -> CondensedSet:
        """Keep a new set, unless another process has been faster: then its set is the one that networks are trained on."""
        if (path := self.store.find_set(run.key)) is not None:
            return CondensedSet.load(path)
        made.save(self.store.set_path(self.preset, run.key))
        return made

    def _make(self, run: MakeSet) -> CondensedSet:
        about, start, dataset = {"started": now()}, time.perf_counter(), load(run.dataset, run.image_size)
        if run.method == "condense":
            checkpoint = self.store.checkpoint_path(self.preset, run.key)
            images, how = condense_images(run, dataset, self.where, self.engine, checkpoint, self.should_stop)
        else:
            images, how = choose_at_random(run, dataset), {"seconds": time.perf_counter() - start, "engine": "eager"}
        made = as_set(images, dataset, run)
        return dataclasses.replace(made, about={**made.about, **about, **how, "data_hash": dataset.hash})

    def train_networks(self, run: TrainNetworks) -> dict[int, float]:
        """Return the accuracies of that run by network, training, testing and recording those that are missing."""
        recorded = self.store.accuracies(run.key)
        if not (missing := self.store.missing(run)):
            return recorded
        made, dataset = self.make_set(run.set), load(run.set.dataset, run.set.image_size)
        self._check_data(run.set, dataset)
        chosen = engines.choose(self.engine, self.where, train.work(run.hyper, len(missing), len(made.labels)))
        seeds = {derive(j, run.set.key): j for j in missing}
        mark = [now(), time.perf_counter()]

        def on_network(seed: int, accuracy: float) -> None:
            values = {"accuracies": {str(seeds[seed]): round(accuracy, 4)}, "seconds": round(time.perf_counter() - mark[1], 2)}
            self._record(run, mark[0], chosen, {**values, "data_hash": dataset.hash, "set_hash": set_hash(made)})
            recorded[seeds[seed]] = round(accuracy, 4)
            mark[:] = [now(), time.perf_counter()]
            progress.step(f"accuracy {accuracy:.1f} %")

        what = f"training {run.hyper.network} on {describe(run.set)}"
        with Progress(what, len(missing)) as progress:
            train.evaluate(
                torch.from_numpy(made.images),
                torch.from_numpy(made.labels),
                dataset,
                run.hyper,
                seeds=seeds,
                device=str(self.where),
                engine=chosen,
                on_network=on_network,
                should_stop=self.should_stop,
            )
        return recorded

    def _check_data(self, run: MakeSet, dataset: data.Dataset) -> None:
        """Refuse to train on a set that was made from other images, as when the user's own file has changed since.

        Raises:
            DataError: the hash recorded with the set is not the data's.
        """
        if any(record.get("data_hash", dataset.hash) != dataset.hash for record in self.store.records.get(run.key, [])):
            raise DataError(f"{run.dataset} has changed since {describe(run)} was recorded: give the new data another name")

    def _record(self, run: MakeSet | TrainNetworks, started: str, engine_name: str, values: dict[str, Any]) -> None:
        spelled = {"key": run.key, "kind": type(run).__name__, "run": full(run)}
        self.store.add_once(self.preset, {**spelled, **provenance(started, self._device_name(), engine_name), **values})

    def _device_name(self) -> str:
        return torch.cuda.get_device_name(self.where) if self.where.type == "cuda" else "cpu"


def execute(cells: Sequence[Cell], runner: Runner) -> None:
    """Do what is missing behind these cells, the cheapest first.

    Raises:
        Interrupted: told to stop; what is finished is recorded, what is not goes on next time.
    """
    runs = [run for cell in sorted(cells, key=lambda cell: cell.cost) for run in cell.runs()]
    for run in runs:
        if runner.should_stop():
            raise Interrupted("stopped between two runs; the same command goes on from there")
        runner.store.refresh()
        runner.train_networks(run)


def spread(cells: Sequence[Cell], store: Store, should_stop: Callable[[], bool], where: dict[str, Any], **how: Any) -> None:
    """Do what is missing behind these cells on workers, the cheapest first.

    Args:
        cells, store: as for `compute`.
        should_stop: asked all the time.
        where: the cluster or the number of workers.
        how: the preset, device and engine.

    Raises:
        DclibError: the first that a run raised; told to stop, Interrupted. What is finished is recorded.
    """
    board = Board(cells, store, **how, checkpoints=store.root.resolve() if where["workers"] else None)
    jobs = board.begin()
    with connected(**where) as client, Progress(f"runs on {where['cluster'] or 'worker processes'}", board.total) as progress:

        def take(job: Job, got: Answer) -> list[Job]:
            more = board.take(job, got)
            if got.error:
                raise got.error
            progress.step(job.title)
            return more

        try:
            spreading.spread(client, jobs, alone, take, should_stop)
        except Interrupted:
            done = f"{board.done} of {board.total} runs"
            raise Interrupted(f"stopped after {done}; the same command goes on from there") from None


def alone(job: Job, folder: Path, should_stop: Callable[[], bool]) -> Answer:
    """Do one job with nothing but what it carries: what a worker does."""
    store, error = job.unpack(folder), None
    try:
        if should_stop():
            raise Interrupted("stopped before it began")
        runner = Runner(store, job.preset, job.device, job.engine, should_stop)
        if isinstance(job.run, MakeSet):
            runner.make_set(job.run)
        else:
            runner.train_networks(job.run)
    except DclibError as caught:
        error = caught
    return answer(job, store, error)


def compute(
    cells: Sequence[Cell],
    store: Store,
    preset: str,
    *,
    device: str = "auto",
    engine: str = "auto",
    seconds: float | None = None,
    cluster: str | None = None,
    workers: int | None = None,
) -> list[Cell]:
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
    for name in sorted({cell.dataset for cell in cells}) if cluster is None else ():
        load(name, 0)
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
