"""Does one declared run: makes a set, trains networks on it, or trains one on the whole set, and records what came of it.

The only module that maps a run's names to the functions that compute; what is recorded already is read, not computed.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import torch

from . import applying, data, sets, train, whole
from . import engine as engines
from .applications import ApplicationRun, LearnTasks
from .errors import DataError
from .presets import Run
from .progress import Progress
from .provenance import now, provenance
from .results import CondensedSet, Store
from .sets import as_set, condense_images, describe, load_of
from .spec import MakeSet, TrainNetworks, WholeTraining, derive, full


@dataclasses.dataclass
class Runner:
    """What a run needs besides its spec.

    Args:
        store: where records and sets are found and written.
        preset: the folder of new records.
        device: "auto", "cpu", "cuda" …
        engine: "auto", "eager", "compiled" or "captured".
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
            made = self._keep(run, self._make(run))
        if run.key not in self.store.records and "started" in made.about:  # new, or its process was killed before this
            values = {name: made.about[name] for name in ("seconds", "losses", "data_hash") if name in made.about}
            self.record(run, made.about["started"], made.about["engine"], {**values, "set_hash": made.hash})
        self.store.remove_checkpoint(self.preset, run.key)
        return made

    def _keep(self, run: MakeSet, made: CondensedSet) -> CondensedSet:
        """Keep a new set, unless another process has been faster: then its set is the one that networks are trained on."""
        if (path := self.store.find_set(run.key)) is not None:
            return CondensedSet.load(path)
        made.save(self.store.set_path(self.preset, run.key))
        return made

    def _make(self, run: MakeSet) -> CondensedSet:
        about, dataset = {"started": now()}, load_of(run)
        checkpoint = self.store.checkpoint_path(self.preset, run.key)
        images, how = condense_images(run, dataset, self.where, self.engine, checkpoint, self.should_stop)
        made = as_set(images, dataset, run)
        return dataclasses.replace(made, about={**made.about, **about, **how, "data_hash": dataset.hash})

    def _choose(self, run: MakeSet) -> CondensedSet:
        """The set of recorded indices, or of those chosen now, which takes a network trained on the whole set, or nothing."""
        dataset = load_of(run)
        self._check_data(run, dataset)
        indices = self.store.indices(run.key) or self._choose_now(run, dataset)
        return as_set(sets.pick(dataset, torch.tensor(indices)), dataset, run)

    def _choose_now(self, run: MakeSet, dataset: data.Dataset) -> list[list[int]]:
        """Choose and record indices; if another process has been faster, its own count."""
        trained = run.whole and self.train_whole(run.whole)
        started, start = now(), time.perf_counter()
        indices = sets.choose(run, dataset.to(self.where), trained)
        made = as_set(sets.pick(dataset, indices), dataset, run)
        values = {"seconds": round(time.perf_counter() - start, 2), "data_hash": dataset.hash, "set_hash": made.hash}
        self.record(run, started, "eager", {**values, "indices": indices.tolist()})
        return self.store.indices(run.key) or indices.tolist()

    def train_whole(self, run: WholeTraining) -> whole.Whole:
        """Return the network of that run, trained on the whole set: read it, or train, keep and record it."""
        dataset, started = load_of(run), now()
        chosen = whole.choose(self.engine, self.where, run, len(dataset.y_train))
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
            self.record(run, started, chosen, {**values, **epochs, "data_hash": dataset.hash})
        return state

    def train_networks(self, run: TrainNetworks) -> dict[int, float]:
        """Return the accuracies of that run by network, training, testing and recording those that are missing."""
        recorded = self.store.accuracies(run.key)
        if not (missing := self.store.missing(run)):
            return recorded
        made, dataset = self.make_set(run.set), load_of(run.set)
        self._check_data(run.set, dataset)
        chosen = engines.choose(self.engine, self.where, train.work(run.hyper, len(missing), len(made.labels)))
        seeds = {derive(j, run.set.key): j for j in missing}
        mark = [now(), time.perf_counter()]

        def on_network(seed: int, accuracy: float) -> None:
            values = {"accuracies": {str(seeds[seed]): round(accuracy, 4)}, "seconds": round(time.perf_counter() - mark[1], 2)}
            self.record(run, mark[0], chosen, {**values, "data_hash": dataset.hash, "set_hash": made.hash})
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

    def do(self, run: MakeSet | Run | ApplicationRun) -> None:
        """Do what is missing of that run, so that whatever stands on it can be done."""
        if isinstance(run, MakeSet):
            self.make_set(run)
        elif isinstance(run, WholeTraining):
            self.train_whole(run)
        elif isinstance(run, TrainNetworks):
            self.train_networks(run)
        elif isinstance(run, LearnTasks):
            applying.learn_tasks(self, run)
        else:
            applying.train_candidate(self, run)

    def test(self, run: Run | ApplicationRun) -> dict[int, float]:
        """Return the test accuracies of that run by network, computing and recording what is missing."""
        if self.store.missing(run):
            self.do(run)
        return self.store.accuracies(run.key)

    def _check_data(self, run: MakeSet, dataset: data.Dataset) -> None:
        """Refuse to train on a set that was made from other images, as when the user's own file has changed since.

        Raises:
            DataError: the hash recorded with the set is not the data's.
        """
        if any(record.get("data_hash", dataset.hash) != dataset.hash for record in self.store.records.get(run.key, [])):
            raise DataError(f"{run.dataset} has changed since {describe(run)} was recorded: give the new data another name")

    def record(self, run: MakeSet | Run | ApplicationRun, started: str, engine_name: str, values: dict[str, Any]) -> None:
        """Add a record of a run, with where and by what code it was done."""
        spelled = {"key": run.key, "kind": type(run).__name__, "run": full(run)}
        self.store.add_once(self.preset, {**spelled, **provenance(started, self._device_name(), engine_name), **values})

    def _device_name(self) -> str:
        return torch.cuda.get_device_name(self.where) if self.where.type == "cuda" else "cpu"
