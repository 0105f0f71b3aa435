"""Executes declared runs: makes the sets that are missing, trains the networks that are missing, and records both.

The only module that knows experiments, results and the code that computes. Every run is resumable: a set goes on from its
checkpoint, and each trained network is recorded as soon as it is tested.
"""

import dataclasses
import hashlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from . import condense as algorithm
from . import data, engine, train
from .errors import Interrupted
from .experiments import Cell
from .progress import Progress
from .provenance import now, provenance
from .results import CondensedSet, Store
from .spec import Condensation, MakeSet, TrainNetworks, derive, full


@lru_cache(maxsize=4)
def load(name: str, image_size: int = 0) -> data.Dataset:
    """Load a data set once for all runs of this process."""
    return data.load(name, image_size=image_size)


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
        engine.tune_allocator()
        self.where = engine.resolve_device(self.device)

    def make_set(self, run: MakeSet) -> CondensedSet:
        """Return the set of that run: read it, or make, record and keep it."""
        path = self.store.find_set(run.key)
        if path is not None:
            return CondensedSet.load(path)
        started, start, dataset = now(), time.perf_counter(), load(run.dataset, run.image_size)
        if run.method == "condense":
            images, about = self._condense(run, dataset)
        else:
            images, about = choose_at_random(run, dataset), {"seconds": time.perf_counter() - start}
        made = as_set(images, dataset, run)
        made.save(self.store.set_path(self.preset, run.key))
        values = {**about, "data_hash": dataset.hash, "set_hash": set_hash(made)}
        self._record(run, started, about.get("engine", "eager"), values)
        self.store.checkpoint_path(self.preset, run.key).unlink(missing_ok=True)
        return made

    def _condense(self, run: MakeSet, dataset: data.Dataset) -> tuple[torch.Tensor, dict[str, Any]]:
        h, checkpoint = run.hyper, self.store.checkpoint_path(self.preset, run.key)
        what = f"condensing {run.dataset}, {h.ipc}/class, {h.network}, seed {run.seed}"
        chosen = engine.choose(self.engine, self.where, algorithm.work(h, dataset.classes))
        with Progress(what, h.outer_steps) as progress:
            state = algorithm.condense(
                dataset,
                h,
                seed=run.seed,
                device=str(self.where),
                engine=chosen,
                checkpoint=checkpoint,
                on_step=lambda state: progress.step(f"loss {state.losses[-1]:.1f}"),
                on_resume=lambda state: progress.skip(state.k),
                should_stop=self.should_stop,
            )
        return state.images, {"seconds": round(state.seconds, 2), "losses": [round(x, 3) for x in state.losses], "engine": chosen}

    def train_networks(self, run: TrainNetworks) -> dict[int, float]:
        """Return the accuracies of that run by network, training, testing and recording those that are missing."""
        recorded = self.store.accuracies(run.key)
        missing = [j for j in range(run.networks) if j not in recorded]
        if not missing:
            return recorded
        made, dataset = self.make_set(run.set), load(run.set.dataset, run.set.image_size)
        chosen = engine.choose(self.engine, self.where, train.work(run.hyper, len(missing), len(made.labels)))
        seeds = {derive(j, run.set.key): j for j in missing}
        mark = [now(), time.perf_counter()]

        def on_network(seed: int, accuracy: float) -> None:
            values = {"accuracies": {str(seeds[seed]): round(accuracy, 4)}, "seconds": round(time.perf_counter() - mark[1], 2)}
            self._record(run, mark[0], chosen, {**values, "data_hash": dataset.hash, "set_hash": set_hash(made)})
            recorded[seeds[seed]] = accuracy
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

    def _record(self, run: MakeSet | TrainNetworks, started: str, engine_name: str, values: dict[str, Any]) -> None:
        spelled = {"key": run.key, "kind": type(run).__name__, "run": full(run)}
        self.store.add(self.preset, {**spelled, **provenance(started, self._device_name(), engine_name), **values})

    def _device_name(self) -> str:
        return torch.cuda.get_device_name(self.where) if self.where.type == "cuda" else "cpu"


def describe(run: MakeSet) -> str:
    """A set in a few words."""
    how = f"condensed with {run.hyper.network}" if run.method == "condense" else "random"
    return f"{run.dataset}, {run.hyper.ipc}/class, {how}, seed {run.seed}"


def choose_at_random(run: MakeSet, dataset: data.Dataset) -> torch.Tensor:
    """Real images chosen at random, as (classes, ipc, c, h, w): the same draw as the initial images of `init="real"`."""
    return algorithm.initial_images(dataset, Condensation(ipc=run.hyper.ipc, init="real"), run.seed, torch.float32)


def as_set(images: torch.Tensor, dataset: data.Dataset, run: MakeSet) -> CondensedSet:
    """Wrap images of shape (classes, ipc, c, h, w) as a set with all that it takes to use it."""
    labels = np.arange(dataset.classes).repeat(images.shape[1])
    flat = images.flatten(0, 1).float().cpu().numpy()
    return CondensedSet(flat, labels, dataset.name, dataset.class_names, dataset.mean, dataset.std, run.key, full(run))


def set_hash(made: CondensedSet) -> str:
    """16 hexadecimal digits of a SHA-256 over images and labels."""
    return hashlib.sha256(made.images.tobytes() + made.labels.tobytes()).hexdigest()[:16]


def execute(cells: Sequence[Cell], runner: Runner) -> None:
    """Do what is missing behind these cells, the cheapest first.

    Raises:
        Interrupted: told to stop; what is finished is recorded, what is not goes on next time.
    """
    runs = [run for cell in sorted(cells, key=lambda cell: cell.cost) for run in cell.runs()]
    for run in runs:
        if runner.should_stop():
            raise Interrupted("stopped between two runs; the same command goes on from there")
        runner.train_networks(run)


@contextmanager
def stopping(seconds: float | None = None) -> Iterator[Callable[[], bool]]:
    """Give a `should_stop` that turns true on Ctrl-C, on SIGTERM, or after so many seconds; a second Ctrl-C stops at once."""
    asked, end = threading.Event(), None if seconds is None else time.monotonic() + seconds
    old = {}

    def ask(number: int, frame: object) -> None:
        asked.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    if threading.current_thread() is threading.main_thread():
        old = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked.is_set() or (end is not None and time.monotonic() >= end)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
