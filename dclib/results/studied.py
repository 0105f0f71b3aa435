"""What the two applications found: accuracies after each stage (Fig. 4), and rankings of architectures (Table 4).

As for tables, "best" is the most faithful preset that has records and never `smoke`. All that is found of an application comes from
one preset, since its lines are compared with one another.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev
from typing import Any

from ..errors import one_of
from ..experiments import BEST, CONTINUAL, NAS, PRESETS, Experiment
from ..experiments.applications import Line
from ..experiments.paper import SOURCES
from .claims import Interval
from .outcomes import records_behind, table
from .ranking import Correlation, advantage, agreement, best
from .store import Store

TOP = 10  # architectures that the paper's ρ looks at


@dataclass(frozen=True)
class Learned:
    """What is recorded of one memory, with or without distillation.

    Args:
        tasks: names of the data sets, in the order in which they were learnt.
        memory: what filled the memory.
        distillation: whether the network was held to its outputs.
        preset: whose hyper-parameters these are; empty where nothing is recorded.
        runs: for each run, for each stage, the test accuracy in percent on each task learnt so far.
        records: of the runs and of the condensed sets behind them.
        seeds: of each run, in their order; by default they count from 0.
    """

    tasks: tuple[str, ...]
    memory: str
    distillation: bool
    preset: str = ""
    runs: tuple[tuple[tuple[float, ...], ...], ...] = ()
    records: tuple[dict[str, Any], ...] = ()
    seeds: tuple[int, ...] = ()

    def ends(self, task: int | None = None) -> dict[int, float]:
        """For each run, by its seed, the mean over all tasks after the last stage, or the accuracy on one."""
        values = self.means(-1) if task is None else self.on_task(-1, task)
        return dict(zip(self.seeds or range(len(self.runs)), values, strict=True))

    def means(self, stage: int) -> list[float]:
        """For each run the mean over the tasks learnt up to a stage: what Fig. 4 shows."""
        return [fmean(run[stage]) for run in self.runs]

    def on_task(self, stage: int, task: int) -> list[float]:
        """For each run the accuracy on one task after a stage."""
        return [run[stage][task] for run in self.runs]

    def forgotten(self) -> list[float]:
        """For each run, by how many points the tasks but the last have fallen since they were learnt, on average."""
        earlier = range(len(self.tasks) - 1)
        return [fmean(run[j][j] - run[-1][j] for j in earlier) for run in self.runs]


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and population standard deviation."""
    return fmean(values), pstdev(values)


def _chosen(experiment: Experiment, preset: str, store: Store, narrow: dict[str, Any]) -> tuple[str, list[Line]]:
    """The preset whose records are shown, and the experiment's cells at it."""
    one_of("preset", preset, ("best", *PRESETS))
    candidates = BEST if preset == "best" else (PRESETS[preset],)
    cells = {p.name: experiment.cells(p, **narrow) for p in candidates}
    recorded = [name for name in cells if any(store.accuracies(run.key) for cell in cells[name] for run in cell.runs())]
    name = recorded[0] if recorded else candidates[-1].name  # with nothing recorded the smallest budget, which is soonest filled
    return (name if recorded else ""), cells[name]


def learned(preset: str = "best", store: Store | None = None, **narrow: Any) -> list[Learned]:
    """Return what is recorded for each memory, without distillation and with it; nothing is computed.

    Args:
        preset: smoke, cpu or paper; "best" takes the first of `experiments.BEST` that has records.
        store: where records are; by default those of `results.results_root`.
        narrow: `dataset` and `memory`, as for `Continual.cells`.

    Raises:
        SpecError: an unknown preset or memory, or fewer than two tasks.
    """
    store = store or Store(preset=preset)
    name, cells = _chosen(CONTINUAL, preset, store, narrow)
    found = []
    for cell in cells:
        done = [run for run in cell.runs() if run.key in store.records]
        runs = tuple(tuple(map(tuple, store.records[run.key][0]["stages"])) for run in done)
        seeds = tuple(run.seed for run in done)
        found.append(Learned(**cell.place, preset=name if runs else "", runs=runs, records=records_behind(done, store), seeds=seeds))
    return found


@dataclass(frozen=True)
class Search:
    """What is recorded of a search.

    Args:
        dataset: on which.
        networks: the architectures of the space, in text form.
        preset: whose hyper-parameters these are; empty where nothing is recorded.
        validation: for each source, the validation accuracies in percent of the architectures recorded, one for each training.
        test: likewise the test accuracies, of networks trained on the whole set.
        seconds: for each source what training and validating took, over all its architectures.
        images: for each source how many training images must be kept.
        records: all behind it.
    """

    dataset: str
    networks: tuple[str, ...]
    preset: str
    validation: dict[str, dict[str, tuple[float, ...]]]
    test: dict[str, tuple[float, ...]]
    seconds: dict[str, float]
    images: dict[str, int]
    records: tuple[dict[str, Any], ...] = ()

    def scores(self, source: str) -> dict[str, float]:
        """The mean validation accuracy of each architecture recorded for a source."""
        return {network: fmean(values) for network, values in self.validation[source].items()}

    def without(self, option: str) -> "Search":
        """The same search without architectures that have this option, such as "norm=batch"; seconds and images stay those of all."""

        def kept(found: dict[str, Any]) -> dict[str, Any]:
            return {network: value for network, value in found.items() if network in networks}

        networks = tuple(n for n in self.networks if option not in re.split("[:,]", n))
        validation = {source: kept(found) for source, found in self.validation.items()}
        return replace(self, networks=networks, validation=validation, test=kept(self.test))

    def complete(self, source: str) -> bool:
        """Whether every architecture is recorded for a source, in equally many trainings: only then is the best of them known."""
        found = self.validation[source]
        return len(found) == len(self.networks) and len(set(map(len, found.values()))) == 1

    def winner(self, source: str) -> str | None:
        """The architecture with the highest validation accuracy; None unless all are recorded."""
        return best(self.scores(source), 1)[0] if self.complete(source) else None

    def performance(self, source: str) -> tuple[float, ...]:
        """Test accuracies in percent of the architecture that a source finds best, trained on the whole set; maybe none."""
        return self.test.get(self.winner(source) or "", ())

    def correlation(self, source: str, count: int = 0) -> Correlation:
        """ρ between a source and the whole set, over all architectures with both, or the `count` best by the source."""
        return agreement(self.scores(source), self.scores("whole"), count)

    def advantage(self, rival: str) -> Interval:
        """By how much ρ of condensed images with the whole set lies above a rival's, over the architectures that all have."""
        return advantage(self.scores("condense"), self.scores(rival), self.scores("whole"))


def searched(preset: str = "best", store: Store | None = None, **narrow: Any) -> Search:
    """Return what is recorded of the search; nothing is computed.

    Args:
        preset, store: as for `learned`.
        narrow: `dataset` and `space`, as for `experiments.applications.Search.cells`.

    Raises:
        SpecError: an unknown preset, or no architecture is left.
    """
    store = store or Store(preset=preset)
    name, cells = _chosen(NAS, preset, store, narrow)
    validation: dict[str, dict[str, tuple[float, ...]]] = {source: {} for source in SOURCES}
    test, seconds, images, done = {}, dict.fromkeys(SOURCES, 0.0), {}, []
    for source, run in ((cell.place["source"], run) for cell in cells for run in cell.runs()):
        network = str(run.network)
        images[source] = max(images.get(source, 0), _images(run, store))
        if not (by_network := store.accuracies(run.key)):
            continue
        validation[source][network] = tuple(by_network[j] for j in sorted(by_network))
        own = store.records[run.key]
        seconds[source] += sum(record["seconds"] for record in own)
        if source == "whole":
            test[network] = tuple({n: x for record in reversed(own) for n, x in record["test"].items()}.values())
        done.append(run)
    about = (cells[0].place["dataset"], cells[0].place["networks"], name)
    return Search(*about, validation, test, seconds, images, records_behind(done, store))


def _images(run: Any, store: Store) -> int:
    """How many training images a candidate's run needs; 0: all there are, and nothing is recorded that says how many."""
    recorded = next((r["pool"] for r in store.records.get(run.key, []) if "pool" in r), 0)
    return min(recorded, run.hyper.steps * run.hyper.batch)


READ = {CONTINUAL.name: learned, NAS.name: searched}


def read(experiment: str, preset: str = "best", store: Store | None = None, **narrow: Any) -> Any:
    """Return what is recorded of any experiment: what `learned` or `searched` gives, else the rows of `table`.

    Args:
        experiment: its name.
        preset, store, narrow: as for `table`, by the experiment's own axes.
    """
    if reader := READ.get(experiment):
        return reader(preset, store, **narrow)
    return table(experiment, preset, store, **narrow)
