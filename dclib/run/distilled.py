"""One distilled set at a time: made under a progress bar, wrapped with the steps that it was learned for, and tested by them.

As `sets` does for condensation; `runner` makes the sets of declared experiments from the same parts.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean

import torch

from ..core import engine as engines
from ..core import train
from ..core.stacked import STOPPED
from ..data.dataset import Dataset
from ..errors import Interrupted
from ..methods import distill
from ..results import CondensedSet
from ..results.records import in_words
from ..spec import MakeSet, TrainNetworks, full
from ..support.progress import Progress
from .sets import as_set

LOSSES = 1000  # that a record holds at most


def make(
    run: MakeSet, dataset: Dataset, where: torch.device, checkpoint: Path | str | None, should_stop: Callable[[], bool]
) -> CondensedSet:
    """Learn the images and rates of one set; it keeps which images each step sees and at which rate.

    Args:
        run: which data, which `distillation`, which seed.
        dataset: the data, loaded.
        where: the device.
        checkpoint, should_stop: as for `distill.distill`.

    Raises:
        DclibError: as `distill.distill` raises it.
    """
    h = run.distillation
    with Progress(in_words(full(run)), h.epochs * -(-len(dataset.y_train) // h.batch)) as progress:
        work = distill.distill(
            dataset,
            h,
            seed=run.seed,
            device=str(where),
            checkpoint=checkpoint,
            on_step=lambda work: progress.step(f"loss {work.losses[-1]:.2f}"),
            on_resume=lambda work: progress.skip(work.k),
            should_stop=should_stop,
        )
    made = as_set(work.images, dataset, run)
    about = {"seconds": round(work.seconds, 2), "losses": thinned(work.losses), "engine": "eager", "mode": h.mode}
    about |= {"skipped": work.skipped} if work.skipped else {}
    order, rates = distill.order(h, dataset.classes), work.rates.detach().float().cpu()
    return dataclasses.replace(made, about=made.about | about, order=order.numpy(), rates=rates.numpy())


def thinned(losses: list[float]) -> list[float | None]:
    """At most a thousand losses, each the mean over as many iterations but those skipped; None where all were."""
    each = -(-len(losses) // LOSSES)
    parts = [[x for x in losses[i : i + each] if x < math.inf] for i in range(0, len(losses), each)]
    return [round(fmean(part), 4) if part else None for part in parts]


def evaluate(
    made: CondensedSet,
    run: TrainNetworks,
    dataset: Dataset,
    *,
    seeds: Iterable[int],
    device: str = "auto",
    on_network: Callable[[int, float, float], None] = lambda seed, accuracy, seconds: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[float]:
    """Train one network for each seed by the set's ordered steps at its rates and return their test accuracies in percent.

    Args:
        made: the set of `run.set`.
        run: its `hyper.network` is trained; where that is the network that learned the images, weights are drawn as then.
        dataset: whose test images are classified.
        seeds: one for each network.
        device: "auto", "cpu", "cuda" …
        on_network: called with each seed, accuracy and the seconds that it took.
        should_stop: asked before each network.

    Raises:
        Interrupted: `should_stop` said so.
    """
    h, where, found = run.set.distillation, engines.resolve_device(device), []
    images, rates = torch.from_numpy(made.images).unflatten(0, (-1, h.ipc)).to(where), torch.from_numpy(made.rates).to(where)
    other = None if run.hyper.network == h.network else run.hyper.network
    tested = dataset.to(where)
    for seed in seeds:
        if should_stop():
            raise Interrupted(STOPPED)
        start = time.perf_counter()
        first = run.set.seed if h.start == "fixed" and other is None else seed  # one fixed θ_0 is that of the learning
        with engines.arithmetic("float32", where):
            accuracy = train.accuracy(distill.replay(images, rates, h, network=other, seed=first), tested)
        found.append(accuracy)
        on_network(seed, accuracy, time.perf_counter() - start)
    return found
