"""What a set is worth: networks trained on it by one protocol, beside random and herded real images, as many of each class.

For each kind of network and each augmentation the same number of networks is trained: all on the set, all on the images that
herding chooses, and one on each of as many random draws.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ..core import engine as engines
from ..core import train
from ..data.dataset import Dataset
from ..experiments.cells import COST
from ..methods.coresets import pick
from ..results import CondensedSet, Store, judged
from ..spec import Condensation, MakeSet, Training, derive, variants
from ..spec.keys import spell
from ..support.files import append_line, check_writable
from ..support.progress import Progress
from ..support.provenance import now, provenance
from . import sets


class Images(NamedTuple):
    """What networks are trained on.

    Args:
        images: "set", "herding" or "random".
        key: of the run that makes them, or the set's hash; the seeds of the networks come from it.
        make: makes the images of the network of a number.
    """

    images: str
    key: str
    make: Callable[[int], CondensedSet]


class Job(NamedTuple):
    """Networks that are not yet trained: on which images, how, their numbers, and what identifies them in a file of records."""

    on: Images
    hyper: Training
    numbers: list[int]
    about: dict[str, Any]

    @property
    def place(self) -> tuple[str, str, str]:
        """Network, augmentation and images."""
        return str(self.hyper.network), self.hyper.augment, self.on.images


def judge(
    made: CondensedSet,
    dataset: Dataset,
    trainings: Sequence[Training],
    *,
    networks: int,
    guide_epochs: int = 0,
    seed: int = 0,
    record: Path | None = None,
    device: str = "auto",
    engine: str = "auto",
    checkpoint: Path | None = None,
    on_network: Callable[[tuple[str, str, str], float], None],
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Train and test networks on a set, and on as many real images, under a progress bar.

    Args:
        made: the set.
        dataset: the real images, for training and for testing, normalised as the set.
        trainings: resolved hyper-parameters of stage T, for each kind of network and each augmentation.
        networks: how many are trained on each.
        guide_epochs: of the network by whose features herding chooses; 0: ten.
        seed: the number of the first network, and of its random draw.
        record: a file that keeps each accuracy; what it has is not computed again.
        device, engine: as for `dclib.train`.
        checkpoint: as for `methods.Context`, of the choice by herding.
        on_network: called with network, augmentation and images, and an accuracy in percent, recorded ones first.
        should_stop: asked often; True raises `Interrupted`.
    """
    engines.tune_allocator()
    if record:
        check_writable(record)
    where, numbers = engines.resolve_device(device), range(seed, seed + networks)
    choice = dict(device=str(where), engine=engine, checkpoint=checkpoint, should_stop=should_stop)
    counts, lines, jobs = np.bincount(made.labels, minlength=dataset.classes).tolist(), judged.read_lines(record), []
    same = {"data_hash": dataset.hash, "mean": list(made.mean), "std": list(made.std), "counts": counts}
    every = of(made, dataset, guide_epochs, **choice)
    for hyper in trainings:
        for on in every:
            about = {"images": on.images, "key": on.key, **same, "training": spell(hyper)}
            known = judged.recorded(lines, about)
            job = Job(on, hyper, [j for j in numbers if j not in known], about)
            for j in sorted(known.keys() & set(numbers)):
                on_network(job.place, known[j])
            jobs += [job] if job.numbers else []
    for job in jobs:
        job.on.make(seed)  # what takes long is made before the clock of the networks starts
    costs = [1 + round(100 * COST.get(job.hyper.network.family, 1.0)) for job in jobs for _ in job.numbers]
    with Progress(f"judging {made.ipc}/class of {made.dataset}", costs) as progress:
        for job in jobs:

            def told(accuracy: float, job: Job = job) -> None:
                progress.step(f"{job.hyper.network} on {job.on.images}: {accuracy:.1f} %")
                on_network(job.place, accuracy)

            chosen = engines.choose(engine, where, train.work(job.hyper, networks, len(made.labels) * made.factor**2))
            _train(job, dataset, record, told, several=networks > 1, device=str(where), engine=chosen, should_stop=should_stop)


def of(made: CondensedSet, dataset: Dataset, guide_epochs: int = 0, **how: Any) -> tuple[Images, ...]:
    """The set, and real images as many of each class; `how` is as for `sets.make_set`, for the choice by herding."""
    counts = np.bincount(made.labels, minlength=dataset.classes)
    name, ipc = dataset.source or dataset.name, int(counts.max())
    herding = variants.selection(name, "herding", ipc, epochs=guide_epochs)
    random = MakeSet(name, "random", 0, Condensation(ipc=ipc))

    def fitted(found: CondensedSet) -> CondensedSet:
        """The first of each class, as many as the set has."""
        first = np.concatenate([np.flatnonzero(found.labels == c)[:n] for c, n in enumerate(counts)])
        return dataclasses.replace(found, images=found.images[first], labels=found.labels[first])

    @cache
    def herded() -> CondensedSet:
        """A recorded choice from the same data, or one made now."""
        store = Store()
        if any(record.get("data_hash") == dataset.hash for record in store.records.get(herding.key, ())):
            return fitted(sets.as_set(pick(dataset, torch.tensor(store.indices(herding.key))), dataset, herding))
        return fitted(sets.make_set(herding, dataset=dataset, **how))

    def drawn(j: int) -> CondensedSet:
        return fitted(sets.make_set(dataclasses.replace(random, seed=j), dataset=dataset))

    return (
        Images(judged.SET, made.hash, lambda j: made),
        Images("herding", herding.key, lambda j: herded()),
        Images("random", random.key, drawn),
    )


def _train(job: Job, dataset: Dataset, record: Path | None, on_network: Callable[[float], None], **how: Any) -> None:
    """Train the networks of a job and record those that are finished, also when the others are interrupted."""
    seeds = {derive(j, job.on.key): j for j in job.numbers}
    small = [job.on.make(j).as_dataset().tensors for j in job.numbers]
    images, labels = (torch.stack(tensors) for tensors in zip(*small, strict=True))
    found, started, total = {}, now(), [0.0]

    def trained(seed: int, accuracy: float, seconds: float) -> None:
        found[str(seeds[seed])], total[0] = round(accuracy, 4), total[0] + seconds
        on_network(round(accuracy, 4))

    try:
        train.evaluate(images, labels, dataset, job.hyper, seeds=list(seeds), on_network=trained, **how)
    finally:
        if record and found:
            line = {**job.about, "accuracies": found, "seconds": round(total[0], 2)}
            append_line(record, json.dumps(line | provenance(started, how["device"], how["engine"]), sort_keys=True))
