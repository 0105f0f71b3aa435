"""Makes the sets of declared runs, and trains on whole data sets what they rest on; each is kept in a file or by its indices."""

import time
from typing import TYPE_CHECKING, Any

import torch

from ..methods.coresets import pick
from ..results import CondensedSet
from ..spec import MakeSet, TrainGan, WholeTraining
from ..support.files import locked
from ..support.provenance import now
from . import sets
from .loading import load_of

if TYPE_CHECKING:
    from .runner import Runner

RECORDED = ("seconds", "losses", "skipped", "data_hash", "course")  # of what a set's file says of itself


def make_set(runner: "Runner", run: MakeSet) -> CondensedSet:
    """Return the set of a run: read it, or make, keep and record it; of real images, only their indices are kept."""
    if not run.learned:
        return _choose(runner, run)
    store = runner.store
    if path := store.find_set(run.key):
        made = CondensedSet.load(path)
    else:
        course, longest = _trajectory(runner, run)
        dataset, about = load_of(run), {"started": now(), "engine": "eager"} | ({"course": course} if course else {})
        how = dict(engine=runner.engine, checkpoint=store.checkpoint_path(runner.preset, course or run.key), longest=longest)
        trained = run.base and runner.do(run.base)
        made = sets.make_set(run, dataset=dataset, about=about, trained=trained, **how, **runner.how)
        with locked(store.root / runner.preset):
            if path := store.find_set(run.key):  # another process was faster: its set is the one that counts
                made = CondensedSet.load(path)
            else:
                made.save(store.set_path(runner.preset, run.key))
    if run.key not in store.records and "started" in made.about:  # new, or its process was killed before this
        values = {name: made.about[name] for name in RECORDED if name in made.about}
        runner.record(run, made.about["engine"], {**values, "set_hash": made.hash}, made.about["started"])
    store.remove_checkpoint(runner.preset, run.key)
    return made


def _trajectory(runner: "Runner", run: MakeSet) -> tuple[str, int]:
    """The trajectory that a set shares with others, and its length; empty if it is made for itself."""
    name = run.shared_state
    if name in runner.trajectories:
        return name, runner.trajectories[name]
    begun = runner.store.shared is None and runner.store.checkpoint_path(runner.preset, name).exists()
    return (name, run.hyper.outer_steps) if begun else ("", 0)


def _choose(runner: "Runner", run: MakeSet) -> CondensedSet:
    """The set of recorded indices, or of images chosen now, which may take a network trained on the whole set."""
    dataset = load_of(run)
    dataset.require(run.hyper.ipc, "lower ipc")  # before a network is trained to choose by
    runner.check_data(run, dataset.hash)
    if (indices := runner.store.indices(run.key)) is None:
        trained = run.whole and runner.do(run.whole)
        started, start = now(), time.perf_counter()
        made = sets.make_set(run, dataset=dataset, trained=trained, engine=runner.engine, **runner.how)
        values: dict[str, Any] = {"seconds": round(time.perf_counter() - start, 2), "data_hash": dataset.hash}
        runner.record(run, "eager", {**values, "set_hash": made.hash, "indices": made.about["indices"]}, started)
        indices = runner.store.indices(run.key)  # those of another process, if it has been faster
    return sets.as_set(pick(dataset, torch.tensor(indices)), dataset, run)


def train_on_whole(runner: "Runner", run: WholeTraining | TrainGan) -> Any:
    """Return what a run trains on a whole set: read it, or train, keep and record it."""
    dataset, started, checkpoint = load_of(run), now(), runner.store.whole_path(runner.preset, run.key)
    trained = sets.train_on_whole(run, dataset, engine=runner.engine, checkpoint=checkpoint, **runner.how)
    if run.key not in runner.store.records:
        values = {"seconds": round(trained.seconds, 2), "data_hash": dataset.hash}
        runner.record(run, trained.engine, {**trained.result(), **values}, started)
    return trained
