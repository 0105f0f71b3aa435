"""Executes declared runs: makes the sets that are missing, trains the networks that are missing, and records both.

The only module that knows experiments, results and the code that computes. Every run is resumable: a set goes on from its
checkpoint, and each trained network is recorded as soon as it is tested.
"""

import dataclasses
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from . import data, sets, train, whole
from . import engine as engines
from .errors import DataError, Interrupted
from .files import check_writable
from .presets import Cell, Run
from .progress import Progress
from .provenance import now, provenance
from .results import CondensedSet, Store
from .sets import as_set, condense_images, describe, load, set_hash
from .spec import MakeSet, TrainNetworks, WholeTraining, derive, full


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
        """Return the set of that run: read it, or make, keep and record it; of real images, their indices are kept, not they."""
        if run.method != "condense":
            return self._choose(run)
        path = self.store.find_set(run.key)
        if path is not None:
            made = CondensedSet.load(path)
        else:
            made = self._make(run)
            made.save(self.store.set_path(self.preset, run.key))
        if run.key not in self.store.records and "started" in made.about:  # new, or its process was killed before this
            values = {name: made.about[name] for name in ("seconds", "losses", "data_hash") if name in made.about}
            self._record(run, made.about["started"], made.about["engine"], {**values, "set_hash": set_hash(made)})
        self.store.checkpoint_path(self.preset, run.key).unlink(missing_ok=True)
        return made

    def _make(self, run: MakeSet) -> CondensedSet:
        about, dataset = {"started": now()}, load(run.dataset, run.image_size)
        checkpoint = self.store.checkpoint_path(self.preset, run.key)
        images, how = condense_images(run, dataset, self.where, self.engine, checkpoint, self.should_stop)
        made = as_set(images, dataset, run)
        return dataclasses.replace(made, about={**made.about, **about, **how, "data_hash": dataset.hash})

    def _choose(self, run: MakeSet) -> CondensedSet:
        """The set of recorded indices, or of those chosen now, which takes a network trained on the whole set, or nothing."""
        dataset = load(run.dataset, run.image_size)
        self._check_data(run, dataset)
        if known := [r for r in self.store.records.get(run.key, []) if "indices" in r]:
            return as_set(sets.pick(dataset, torch.tensor(known[0]["indices"])), dataset, run)
        trained = run.whole and self.train_whole(run.whole)
        started, start = now(), time.perf_counter()
        indices = sets.choose(run, dataset.to(self.where), trained)
        made = as_set(sets.pick(dataset, indices), dataset, run)
        values = {"seconds": round(time.perf_counter() - start, 2), "data_hash": dataset.hash, "set_hash": set_hash(made)}
        self._record(run, started, "eager", {**values, "indices": indices.tolist()})
        return made

    def train_whole(self, run: WholeTraining) -> whole.Whole:
        """Return the network of that run, trained on the whole set: read it, or train, keep and record it."""
        dataset, started = load(run.dataset, run.image_size), now()
        chosen = engines.choose(self.engine, self.where, whole.work(run, len(dataset.y_train)))
        with Progress(f"training {run.network} on the whole of {run.dataset}", whole.steps(run, len(dataset.y_train))) as progress:
            state = whole.train(
                dataset,
                run,
                device=str(self.where),
                engine=chosen,
                checkpoint=self.store.whole_path(self.preset, run.key),
                on_step=lambda state: progress.step(whole.note(state)),
                on_resume=lambda state: progress.skip(state.step),
                should_stop=self.should_stop,
            )
        if run.key not in self.store.records:
            epochs = {name: [round(x, 4) for x in getattr(state, name)] for name in ("epoch_accuracies", "train_accuracies")}
            values = {"accuracies": {"0": epochs["epoch_accuracies"][-1]}, "seconds": round(state.seconds, 2)}
            self._record(run, started, chosen, {**values, **epochs, "data_hash": dataset.hash})
        return state

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

    def test(self, run: Run) -> dict[int, float]:
        """Return the test accuracies of that run by network, computing and recording what is missing."""
        if isinstance(run, TrainNetworks):
            return self.train_networks(run)
        if self.store.missing(run):
            self.train_whole(run)
        return self.store.accuracies(run.key)

    def _check_data(self, run: MakeSet, dataset: data.Dataset) -> None:
        """Refuse to train on a set that was made from other images, as when the user's own file has changed since.

        Raises:
            DataError: the hash recorded with the set is not the data's.
        """
        if any(record.get("data_hash", dataset.hash) != dataset.hash for record in self.store.records.get(run.key, [])):
            raise DataError(f"{run.dataset} has changed since {describe(run)} was recorded: give the new data another name")

    def _record(self, run: MakeSet | Run, started: str, engine_name: str, values: dict[str, Any]) -> None:
        spelled = {"key": run.key, "kind": type(run).__name__, "run": full(run)}
        self.store.add(self.preset, {**spelled, **provenance(started, self._device_name(), engine_name), **values})

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
        runner.test(run)


def compute(
    cells: Sequence[Cell], store: Store, preset: str, *, device: str = "auto", engine: str = "auto", seconds: float | None = None
) -> list[Cell]:
    """Do what is missing behind these cells, within so many seconds, and return the cells that are left.

    Raises:
        Interrupted: stopped by a signal.
        DclibError: the records' folder cannot be written, or a data set cannot be loaded; told before the work begins.
    """
    check_writable(store.root / preset / "sets.jsonl")
    for name in sorted({cell.dataset for cell in cells}):
        load(name)
    end = None if seconds is None else time.monotonic() + seconds
    try:
        with stopping(seconds) as should_stop:
            execute(cells, Runner(store, preset, device, engine, should_stop))
    except Interrupted:
        if end is None or time.monotonic() < end:
            raise
    return store.incomplete(cells)


@contextmanager
def stopping(seconds: float | None = None) -> Iterator[Callable[[], bool]]:
    """Give a `should_stop` that turns true on Ctrl-C, on SIGTERM, or after so many seconds; a second Ctrl-C stops at once."""
    asked, end = threading.Event(), None if seconds is None else time.monotonic() + seconds
    old = {}

    def ask(number: int, frame: object) -> None:
        asked.set()
        if number == signal.SIGINT:
            os.write(2, b"\nstopping after this step; Ctrl-C again stops at once\n")
        signal.signal(signal.SIGINT, signal.default_int_handler)

    if threading.current_thread() is threading.main_thread():
        old = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked.is_set() or (end is not None and time.monotonic() >= end)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
