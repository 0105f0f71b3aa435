"""Does one declared run: makes a set, trains networks on it, or one or a GAN on the whole set, and records what came of it.

The only module that maps a run's names to the functions that compute; what is recorded already is read, not computed.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..core import engine as engines
from ..core import train
from ..data import dataset as data
from ..errors import DataError
from ..experiments.presets import Run
from ..methods import full_training as whole
from ..methods import gan
from ..results import CondensedSet, Store
from ..spec import MakeSet, TrainGan, TrainNetworks, WholeTraining, derive, full
from ..spec.applications import ApplicationRun, LearnTasks
from ..spec.baselines import loss_summary
from ..support.files import locked
from ..support.progress import Progress
from ..support.provenance import now, provenance
from . import applying, distilled, sets
from .sets import as_set, check_data, condense_images, describe, load_of, load_tested


@dataclasses.dataclass
class Runner:
    """What a run needs besides its spec.

    Args:
        store: where records and sets are found and written.
        preset: the folder of new records.
        device: "auto", "cpu", "cuda" …
        engine: "auto", "eager", "compiled" or "captured".
        should_stop: asked between steps.
        courses: those that several of the sets to be made lie on, each with its longest K; their states are kept.
    """

    store: Store
    preset: str
    device: str = "auto"
    engine: str = "auto"
    should_stop: Callable[[], bool] = lambda: False
    courses: dict[str, int] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        engines.tune_allocator()
        self.where = engines.resolve_device(self.device)

    def make_set(self, run: MakeSet) -> CondensedSet:
        """Return the set of that run: read it, or make, keep and record it; of real images, their indices are kept, not they."""
        if not run.learned:
            return self._choose(run)
        path = self.store.find_set(run.key)
        if path is not None:
            made = CondensedSet.load(path)
        else:
            made = self._keep(run, self._make(run))
        if run.key not in self.store.records and "started" in made.about:  # new, or its process was killed before this
            kept = "seconds", "losses", "skipped", "data_hash", "course"
            values = {name: made.about[name] for name in kept if name in made.about}
            self.record(run, made.about["started"], made.about["engine"], {**values, "set_hash": made.hash})
        self.store.remove_checkpoint(self.preset, run.key)
        return made

    def _keep(self, run: MakeSet, made: CondensedSet) -> CondensedSet:
        """Keep a new set, unless another process has been faster: then its set is the one that networks are trained on."""
        with locked(self.store.root / self.preset):
            if (path := self.store.find_set(run.key)) is not None:
                return CondensedSet.load(path)
            made.save(self.store.set_path(self.preset, run.key))
            return made

    def _make(self, run: MakeSet) -> CondensedSet:
        about, dataset = {"started": now()}, load_of(run)
        course, longest = self._course(run)
        checkpoint = self.store.checkpoint_path(self.preset, course or run.key)
        if run.method == "distill":
            made = distilled.make(run, dataset, self.where, checkpoint, self.should_stop)
            return dataclasses.replace(made, about=made.about | about)
        if run.method == "gan":
            images, how = self._draw(run, dataset)
        else:
            images, how = condense_images(run, dataset, self.where, self.engine, checkpoint, self.should_stop, longest=longest)
        made = as_set(images, dataset, run)
        about |= {"course": course} if course else {}
        return dataclasses.replace(made, about=made.about | about | how)

    def _draw(self, run: MakeSet, dataset: data.Dataset) -> tuple[torch.Tensor, dict[str, Any]]:
        """Draw images from the run's GAN, which is trained once for all draws."""
        trained, start = self.train_gan(run.gan), time.perf_counter()
        with engines.arithmetic("float32", self.where):
            images = gan.sample(trained.generator, dataset, run.hyper.ipc, seed=run.seed)
        return images, {"seconds": round(time.perf_counter() - start, 2), "engine": "eager"}

    def _course(self, run: MakeSet) -> tuple[str, int]:
        """The course that a set lies on with others, and its length; empty if it is made for itself."""
        name = run.trajectory
        if name in self.courses:
            return name, self.courses[name]
        begun = self.store.checkpoints is None and self.store.checkpoint_path(self.preset, name).exists()
        return (name, run.hyper.outer_steps) if begun else ("", 0)

    def _choose(self, run: MakeSet) -> CondensedSet:
        """The set of recorded indices, or of those chosen now, which takes a network trained on the whole set, or nothing."""
        dataset = load_of(run)
        dataset.require(run.hyper.ipc, "lower ipc")  # before a network is trained to choose by
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
        checkpoint = self.store.whole_path(self.preset, run.key)
        state = sets.train_whole(run, dataset, self.where, chosen, checkpoint, self.should_stop)
        if run.key not in self.store.records:
            epochs = {name: [round(x, 4) for x in getattr(state, name)] for name in ("epoch_accuracies", "train_accuracies")}
            values = {"accuracies": {"0": epochs["epoch_accuracies"][-1]}, "seconds": round(state.seconds, 2)}
            self.record(run, started, chosen, {**values, **epochs, "data_hash": dataset.hash})
        return state

    def train_gan(self, run: TrainGan) -> gan.Gan:
        """Return the GAN of that run: read it, or train, keep and record it."""
        dataset, started = load_of(run), now()
        with Progress(f"training a GAN on {run.dataset}", run.hyper.steps) as progress:
            trained = gan.train(
                dataset,
                run.hyper,
                seed=run.seed,
                device=str(self.where),
                checkpoint=self.store.whole_path(self.preset, run.key),
                on_step=lambda gan: progress.step(f"losses {gan.losses[-1][0]:.2f}, {gan.losses[-1][1]:.2f}"),
                on_resume=lambda gan: progress.skip(gan.k),
                should_stop=self.should_stop,
            )
        if run.key not in self.store.records:
            values = {"seconds": round(trained.seconds, 2), "losses": loss_summary(trained.losses), "data_hash": dataset.hash}
            self.record(run, started, "eager", values)
        return trained

    def train_networks(self, run: TrainNetworks) -> dict[int, float]:
        """Return the accuracies of that run by network, training, testing and recording those that are missing."""
        self.train_on_sets([run])
        return self.store.accuracies(run.key)

    def train_on_sets(self, runs: Sequence[TrainNetworks]) -> None:
        """Train, test and record the networks of these runs that are missing, side by side.

        Args:
            runs: alike but for the seed of their sets, and how many networks each has; those that are done count, too, for how
                the others are computed, so that a network trained later is the same to the last bit.
        """
        todo = {derive(j, run.set.key): (run, j) for run in runs for j in self.store.missing(run)}
        if not todo:
            return
        made = {run.key: self.make_set(run.set) for run, _ in todo.values()}
        hyper, first, dataset, tested = runs[0].hyper, runs[0].set, load_of(runs[0].set), load_tested(runs[0])
        for run in runs:
            self._check_data(run.set, dataset)
        for one in made.values():
            check_data(one, dataset)
        networks, images = sum(run.networks for run in runs), len(next(iter(made.values())).labels)
        chosen = engines.choose(self.engine, self.where, train.work(hyper, networks, images))
        chosen = "eager" if runs[0].way == "rates" else chosen
        started = now()

        def on_network(seed: int, accuracy: float, seconds: float) -> None:
            run, j = todo[seed]
            values = {"accuracies": {str(j): round(accuracy, 4)}, "seconds": round(seconds, 2)}
            self.record(run, started, chosen, {**values, "data_hash": dataset.hash, "set_hash": made[run.key].hash})
            progress.step(f"accuracy {accuracy:.1f} %")

        what = describe(first) if len(made) == 1 else f"{len(made)} sets as {describe(first)}"
        how = dict(seeds=list(todo), device=str(self.where), on_network=on_network, should_stop=self.should_stop)
        with Progress(f"training {hyper.network} on {what}", len(todo)) as progress:
            if runs[0].way == "rates":  # of such runs there is one at a time
                distilled.evaluate(made[runs[0].key], runs[0], tested, **how)
            else:
                each = [made[run.key] for run, _ in todo.values()]
                small = [(torch.from_numpy(one.images), torch.from_numpy(one.labels)) for one in each]
                train.evaluate_each(small, tested, hyper, several=networks > 1, engine=chosen, **how)

    def do(self, run: MakeSet | TrainGan | Run | ApplicationRun) -> None:
        """Do what is missing of that run, so that whatever stands on it can be done."""
        if isinstance(run, MakeSet):
            self.make_set(run)
        elif isinstance(run, WholeTraining):
            self.train_whole(run)
        elif isinstance(run, TrainGan):
            self.train_gan(run)
        elif isinstance(run, TrainNetworks):
            self.train_networks(run)
        elif isinstance(run, LearnTasks):
            applying.learn_tasks(self, run)
        else:
            applying.train_candidate(self, run)

    def test(self, *runs: Run | ApplicationRun) -> dict[int, float]:
        """Compute and record what is missing of a run, or of several as for `train_on_sets`; return the first's accuracies."""
        if isinstance(runs[0], TrainNetworks):
            self.train_on_sets(runs)
        elif self.store.missing(runs[0]):
            self.do(runs[0])
        return self.store.accuracies(runs[0].key)

    def _check_data(self, run: MakeSet, dataset: data.Dataset) -> None:
        """Refuse to train on a set that was made from other images, as when the user's own file has changed since.

        Raises:
            DataError: the hash recorded with the set is not the data's.
        """
        if any(record.get("data_hash", dataset.hash) != dataset.hash for record in self.store.records.get(run.key, [])):
            raise DataError(f"{run.dataset} has changed since {describe(run)} was recorded: give the new data another name")

    def record(
        self, run: MakeSet | TrainGan | Run | ApplicationRun, started: str, engine_name: str, values: dict[str, Any]
    ) -> None:
        """Add a record of a run, with where and by what code it was done."""
        spelled = {"key": run.key, "kind": type(run).__name__, "run": full(run)}
        self.store.add_once(self.preset, {**spelled, **provenance(started, self._device_name(), engine_name), **values})

    def _device_name(self) -> str:
        return torch.cuda.get_device_name(self.where) if self.where.type == "cuda" else "cpu"
