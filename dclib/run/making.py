"""Makes the sets of declared runs, and trains on whole data sets what they rest on; each is kept in a file or by its indices."""

import math
import time
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch

from ..core import engine as engines
from ..data.dataset import Dataset
from ..methods import distill, gan
from ..methods import full_training as whole
from ..results import CondensedSet
from ..spec import MakeSet, TrainGan, WholeTraining
from ..spec.baselines import loss_summary
from ..support.files import locked
from ..support.progress import Progress
from ..support.provenance import now
from . import sets
from .loading import load_of

if TYPE_CHECKING:
    from .runner import Runner

LOSSES = 1000  # that a record holds at most
RECORDED = ("seconds", "losses", "skipped", "data_hash", "course")  # of what a set's file says of itself


def make_set(runner: "Runner", run: MakeSet) -> CondensedSet:
    """Return the set of a run: read it, or make, keep and record it; of real images, only their indices are kept."""
    if not run.learned:
        return _choose(runner, run)
    if path := runner.store.find_set(run.key):
        made = CondensedSet.load(path)
    else:
        made = LEARN[run.method](runner, run, load_of(run), now())
        with locked(runner.store.root / runner.preset):
            if path := runner.store.find_set(run.key):  # another process was faster: its set is the one that counts
                made = CondensedSet.load(path)
            else:
                made.save(runner.store.set_path(runner.preset, run.key))
    if run.key not in runner.store.records and "started" in made.about:  # new, or its process was killed before this
        values = {name: made.about[name] for name in RECORDED if name in made.about}
        runner.record(run, made.about["engine"], {**values, "set_hash": made.hash}, made.about["started"])
    runner.store.remove_checkpoint(runner.preset, run.key)
    return made


def _condense(runner: "Runner", run: MakeSet, dataset: Dataset, started: str) -> CondensedSet:
    course, longest = _trajectory(runner, run)
    about = {"started": started} | ({"course": course} if course else {})
    state = dict(checkpoint=runner.store.checkpoint_path(runner.preset, course or run.key), longest=longest)
    return sets.condense_set(run, dataset=dataset, about=about, engine=runner.engine, **state, **runner.how)


def _trajectory(runner: "Runner", run: MakeSet) -> tuple[str, int]:
    """The trajectory that a set shares with others, and its length; empty if it is made for itself."""
    name = run.shared_state
    if name in runner.trajectories:
        return name, runner.trajectories[name]
    begun = runner.store.shared is None and runner.store.checkpoint_path(runner.preset, name).exists()
    return (name, run.hyper.outer_steps) if begun else ("", 0)


def _distill(runner: "Runner", run: MakeSet, dataset: Dataset, started: str) -> CondensedSet:
    """Learn images and rates; the set keeps which images each step sees and at which rate."""
    h, checkpoint = run.distillation, runner.store.checkpoint_path(runner.preset, run.key)
    with Progress(run.words, h.epochs * -(-len(dataset.y_train) // h.batch)) as progress:
        callbacks = progress.follow(lambda work: f"loss {work.losses[-1]:.2f}")
        work = distill.distill(dataset, h, seed=run.seed, checkpoint=checkpoint, **callbacks, **runner.how)
    about = {"seconds": round(work.seconds, 2), "losses": thinned(work.losses), "engine": "eager", "mode": h.mode}
    about |= {"skipped": work.skipped} if work.skipped else {}
    steps = {"order": distill.order(h, dataset.classes), "rates": work.rates.detach().float().cpu()}
    return sets.as_set(work.images, dataset, run, {"started": started, **about}, **steps)


def thinned(losses: list[float]) -> list[float | None]:
    """At most a thousand losses, each the mean over as many iterations but those skipped; None where all were."""
    each = -(-len(losses) // LOSSES)
    parts = [[x for x in losses[i : i + each] if x < math.inf] for i in range(0, len(losses), each)]
    return [round(fmean(part), 4) if part else None for part in parts]


def _draw(runner: "Runner", run: MakeSet, dataset: Dataset, started: str) -> CondensedSet:
    """Draw images from the run's GAN, which is trained once for all draws."""
    trained, start = runner.do(run.gan), time.perf_counter()
    with engines.arithmetic("float32", runner.where):
        images = gan.sample(trained.generator, dataset, run.hyper.ipc, seed=run.seed)
    about = {"started": started, "seconds": round(time.perf_counter() - start, 2), "engine": "eager"}
    return sets.as_set(images, dataset, run, about)


LEARN = {"condense": _condense, "distill": _distill, "gan": _draw}


def _choose(runner: "Runner", run: MakeSet) -> CondensedSet:
    """The set of recorded indices, or of images chosen now, which may take a network trained on the whole set."""
    dataset = load_of(run)
    dataset.require(run.hyper.ipc, "lower ipc")  # before a network is trained to choose by
    runner.check_data(run, dataset.hash)
    if (indices := runner.store.indices(run.key)) is None:
        trained = run.whole and runner.do(run.whole)
        started, start = now(), time.perf_counter()
        chosen = sets.choose(run, dataset.to(runner.where), trained)
        made = sets.as_set(sets.pick(dataset, chosen), dataset, run)
        values: dict[str, Any] = {"seconds": round(time.perf_counter() - start, 2), "data_hash": dataset.hash}
        runner.record(run, "eager", {**values, "set_hash": made.hash, "indices": chosen.tolist()}, started)
        indices = runner.store.indices(run.key)  # those of another process, if it has been faster
    return sets.as_set(sets.pick(dataset, torch.tensor(indices)), dataset, run)


def train_whole(runner: "Runner", run: WholeTraining) -> whole.Whole:
    """Return the network of a run, trained on the whole set: read it, or train, keep and record it."""
    dataset, started = load_of(run), now()
    chosen = whole.choose(runner.engine, runner.where, run, len(dataset.y_train))
    checkpoint = runner.store.whole_path(runner.preset, run.key)
    state = sets.train_whole(run, dataset, engine=chosen, checkpoint=checkpoint, **runner.how)
    if run.key not in runner.store.records:
        epochs = {name: [round(x, 4) for x in getattr(state, name)] for name in ("epoch_accuracies", "train_accuracies")}
        values = {"accuracies": {"0": epochs["epoch_accuracies"][-1]}, "seconds": round(state.seconds, 2)}
        runner.record(run, chosen, {**values, **epochs, "data_hash": dataset.hash}, started)
    return state


def train_gan(runner: "Runner", run: TrainGan) -> gan.Gan:
    """Return the GAN of a run: read it, or train, keep and record it."""
    dataset, started, checkpoint = load_of(run), now(), runner.store.whole_path(runner.preset, run.key)
    with Progress(f"training a GAN on {run.dataset}", run.hyper.steps) as progress:
        callbacks = progress.follow(lambda gan: f"losses {gan.losses[-1][0]:.2f}, {gan.losses[-1][1]:.2f}")
        trained = gan.train(dataset, run.hyper, seed=run.seed, checkpoint=checkpoint, **callbacks, **runner.how)
    if run.key not in runner.store.records:
        values = {"seconds": round(trained.seconds, 2), "losses": loss_summary(trained.losses), "data_hash": dataset.hash}
        runner.record(run, "eager", values, started)
    return trained
