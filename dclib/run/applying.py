"""Does the runs of the two applications: learns tasks with a memory, and trains the candidates of a search."""

from typing import TYPE_CHECKING

import torch

from ..core import engine as engines
from ..methods import continual, nas
from ..spec import derive
from ..spec.applications import LearnTasks, TrainCandidate
from ..support.progress import Progress
from ..support.provenance import now
from .loading import data_hash, load, load_parts

if TYPE_CHECKING:
    from .runner import Runner


def learn_tasks(runner: "Runner", run: LearnTasks) -> None:
    """Learn the tasks of a run and record what was scored after each; a stopped run goes on from its checkpoint."""
    if not runner.store.missing(run):
        return
    tasks = [load(task, run.image_size, run.channels) for task in run.tasks]
    continual.check_tasks(tasks, run.hyper)  # before sets are condensed
    runner.check_data(run, data_hash(tasks))
    made, started = [runner.do(s) for s in run.sets] or None, now()
    what = f"learning {', '.join(run.tasks)} with a memory filled by {run.hyper.memory}, seed {run.seed}"
    total = sum(phase.steps for phase in continual.phases(run.hyper, len(tasks)))
    with Progress(what, total) as progress:
        work = continual.learn(
            tasks,
            run.hyper,
            seed=run.seed,
            sets=made and [torch.from_numpy(s.images).unflatten(0, (-1, run.hyper.ipc)) for s in made],
            engine=runner.engine,
            checkpoint=runner.store.checkpoint_path(runner.preset, run.key),
            first=runner.store.checkpoint_path(runner.preset, run.shared_state),
            **progress.follow(lambda work: f"loss {work.losses[-1]:.2f}"),
            **runner.how,
        )
    stages = [[round(x, 4) for x in row[: j + 1]] for j, row in enumerate(work.found.tolist())]
    values = {"accuracies": {"0": round(sum(stages[-1]) / len(tasks), 4)}, "stages": stages, "seconds": round(work.seconds, 2)}
    hashes = {"data_hash": data_hash(tasks), "set_hashes": [s.hash for s in made or ()]}
    runner.record(run, work.engine, {**values, **hashes}, started)
    runner.store.remove_checkpoint(runner.preset, run.key)


def train_candidate(runner: "Runner", run: TrainCandidate) -> None:
    """Train the networks of a run that are missing and record them in one line, or those that are done when it is stopped."""
    if not (missing := runner.store.missing(run)):
        return
    rest, validation = load_parts(run.dataset, run.held_out)
    runner.check_data(run, rest.hash)
    if run.set is None:
        images, labels = nas.pool(rest, run.images)
    else:
        made = runner.do(run.set)
        images, labels = torch.from_numpy(made.images), torch.from_numpy(made.labels)
    seeds, started, times = {derive(j, run.key): j for j in missing}, now(), []
    engine = "captured" if engines.choose(runner.engine, runner.where, 0) == "captured" else "eager"
    tests = [validation, rest] if run.tested else [validation]
    found: dict[str, tuple[float, ...]] = {}

    def on_network(seed: int, accuracies: tuple[float, ...], seconds: float) -> None:
        found[str(seeds[seed])] = accuracies
        times.append(seconds)

    how = dict(seeds=list(seeds), engine=engine, on_network=on_network, **runner.how)
    try:
        nas.evaluate(run.network, images, labels, tests, run.hyper, **how)
    finally:
        if found:
            columns = [{j: round(scores[i], 4) for j, scores in found.items()} for i in range(len(tests))]
            values = dict(zip(("accuracies", "test"), columns, strict=False))
            about = {"seconds": round(sum(times), 2), "pool": len(labels), "data_hash": rest.hash}
            runner.record(run, engine, {**values, **about}, started)
