"""Trains networks on sets and tests them (stage T): those of a declared run that are missing, or named ones."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from ..core import engine as engines
from ..core import train
from ..core.stacked import STOPPED
from ..data.dataset import Dataset
from ..errors import Interrupted
from ..methods import distill
from ..results import CondensedSet
from ..spec import TrainNetworks, derive
from ..support.progress import Progress
from ..support.provenance import now
from .loading import load_of, load_parts
from .sets import check_data

if TYPE_CHECKING:
    from .runner import Runner

Named = Sequence[tuple[TrainNetworks, int]]  # runs with the numbers of their networks


def train_networks(runner: "Runner", *runs: TrainNetworks) -> dict[int, float]:
    """Train, test and record the networks of these runs that are missing; returns the first run's accuracies by network.

    Args:
        runner: does the sets, and records.
        runs: alike but for the seed of their sets, and how many networks each has. Those that are recorded count, too, for how
            the others are computed, so that a network trained later is the same to the last bit.
    """
    missing = [(run, j) for run in runs for j in runner.store.missing(run)]
    if missing:
        made = {run.key: runner.do(run.set) for run in dict.fromkeys(run for run, _ in missing)}
        started, data_hash = now(), load_of(runs[0].set).hash

        def on_network(run: TrainNetworks, j: int, accuracy: float, seconds: float, engine: str) -> None:
            values = {"accuracies": {str(j): round(accuracy, 4)}, "seconds": round(seconds, 2)}
            runner.record(run, engine, {**values, "data_hash": data_hash, "set_hash": made[run.key].hash}, started)

        train_named(runner, missing, made, sum(run.networks for run in runs), on_network)
    return runner.store.accuracies(runs[0].key)


def train_named(
    runner: "Runner",
    named: Named,
    made: Mapping[str, CondensedSet],
    networks: int,
    on_network: Callable[[TrainNetworks, int, float, float, str], None],
) -> None:
    """Train and test these networks, side by side.

    Args:
        runner: says where and how; nothing is recorded.
        named: runs that are alike but for the seed of their sets, each with the number of a network.
        made: the set of each run, by the run's key.
        networks: of how many these are; it decides how they are computed.
        on_network: called with run, number, accuracy in percent, seconds and engine.

    Raises:
        DataError: the data is not that of the sets, or has changed since the runs were recorded.
    """
    first = named[0][0]
    dataset = tested = load_of(first.set)
    if first.tested_on == "held-out":
        tested = load_parts(first.set.dataset, first.set.held_out, first.set.image_size, first.set.channels)[1]
    for run in dict.fromkeys(run for run, _ in named):
        runner.check_data(run, dataset.hash)
        check_data(made[run.key], dataset)
    by_rates, size = first.way == "rates", len(made[first.key].labels) * made[first.key].factor ** 2
    engine = engines.choose(runner.engine, runner.where, train.work(first.hyper, networks, size))
    engine = "eager" if by_rates else engine
    seeds = {derive(j, run.set.key): (run, j) for run, j in named}

    def trained(seed: int, accuracy: float, seconds: float) -> None:
        on_network(*seeds[seed], accuracy, seconds, engine)
        progress.step(f"accuracy {accuracy:.1f} %")

    count = len({run.key for run, _ in named})
    what = first.set.words if count == 1 else f"{count} sets as {first.set.words}"
    how = dict(seeds=list(seeds), on_network=trained, **runner.how)
    with Progress(f"training {first.hyper.network} on {what}", len(named)) as progress:
        if by_rates:  # of such runs there is one at a time
            _train_by_rates(made[first.key], first, tested, **how)
        else:
            each = [made[run.key].enlarged() for run, _ in named]
            of = {name: [torch.from_numpy(getattr(one, name)) for one in each] for name in ("images", "labels")}
            images, labels = (tensors[0] if count == 1 else torch.stack(tensors) for tensors in of.values())
            train.evaluate(images, labels, tested, first.hyper, several=networks > 1, engine=engine, **how)


def _train_by_rates(
    made: CondensedSet,
    run: TrainNetworks,
    tested: Dataset,
    seeds: Iterable[int],
    device: str,
    on_network: Callable[[int, float, float], None],
    should_stop: Callable[[], bool],
) -> None:
    """Train one network for each seed by a distilled set's ordered steps at its learned rates, and test it.

    Weights of the network that learned the images are drawn as they were then.
    """
    h, where = run.set.distillation, engines.resolve_device(device)
    images, rates = torch.from_numpy(made.images).unflatten(0, (-1, h.ipc)).to(where), torch.from_numpy(made.rates).to(where)
    other = None if run.hyper.network == h.network else run.hyper.network
    tested = tested.to(where)
    for seed in seeds:
        if should_stop():
            raise Interrupted(STOPPED)
        start = time.perf_counter()
        first = run.set.seed if h.start == "fixed" and other is None else seed  # one fixed θ_0 is that of the learning
        with engines.arithmetic("float32", where):
            accuracy = train.accuracy(distill.replay(images, rates, h, network=other, seed=first), tested)
        on_network(seed, accuracy, time.perf_counter() - start)
