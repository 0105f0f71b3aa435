"""From records to outcomes: what is recorded for each cell of a table, beside what the paper prints there.

A cell's number is the mean over every network recorded for it, on whichever of the sets 0 … 4 exist; optimal random selection
looks at more sets and keeps the best. At "best" each cell takes the most faithful preset that has records, never the highest
accuracy, and never `smoke`. A preset's grid says only what is computed: a run that another table recorded under the same key
fills its cell here, too.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, pstdev, variance
from typing import Any

from .. import experiments
from ..experiments import paper
from ..experiments.presets import Run
from ..errors import one_of
from ..experiments import AXES, GAN, INSTEAD, ORS, RANDOM, Cell
from .store import Store
from ..spec import FAMILIES, Network, WholeTraining

DASH = "—"
SETS = range(5)  # seeds of the sets that count where they are recorded
NAMES = {
    "": "default",  # variant
    "mnist": "MNIST",
    "fashionmnist": "FashionMNIST",
    "svhn": "SVHN",
    "svhn10k": "SVHN-10k, a stand-in",
    "cifar10": "CIFAR10",
    "cifar100": "CIFAR100",
    "usps": "USPS",
    RANDOM: "random real images",
    "whole": "whole set",
    "ors": "random, all draws",
    "ors-tenth": "random, best tenth",
    "ors-hundredth": "random, best hundredth",
    GAN: "conditional GAN",
    "distill": "DD, its steps and rates",
    "distill-plain": "DD, as a plain set",
}


@dataclass(frozen=True)
class Outcome:
    """What is recorded for one cell of an experiment, and what the paper prints there.

    Args:
        experiment: its name.
        place: the cell's coordinates, by axis.
        preset: whose hyper-parameters the numbers belong to; empty where nothing is recorded.
        sets: test accuracies in percent, one tuple for each set.
        keys: of the runs of stage T, one for each set.
        records: of these runs and of those that made the sets.
        paper: mean and standard deviation that the paper prints, if any.
        planned: how many sets the preset has for this cell, and how many networks on each.
    """

    experiment: str
    place: dict[str, Any]
    preset: str = ""
    sets: tuple[tuple[float, ...], ...] = ()
    keys: tuple[str, ...] = ()
    records: tuple[dict[str, Any], ...] = ()
    paper: tuple[float, float] | None = None
    planned: tuple[int, int] = (1, 1)

    @property
    def accuracies(self) -> list[float]:
        """One for each trained network, in percent."""
        return list(itertools.chain(*self.sets))

    @property
    def shown(self) -> bool:
        """Whether there is a number to show."""
        return bool(self.sets)

    @property
    def complete(self) -> bool:
        """Whether the number rests on as many sets and networks as the preset has."""
        sets, networks = self.planned
        return sum(len(found) >= networks for found in self.sets) >= sets

    @cached_property
    def mean(self) -> float | None:
        """Over all networks; None where nothing is recorded."""
        return fmean(self.accuracies) if self.sets else None

    @cached_property
    def std(self) -> float | None:
        """The population's standard deviation over all networks, as in the paper."""
        return pstdev(self.accuracies) if self.sets else None

    @property
    def difference(self) -> float | None:
        """Our mean minus the paper's."""
        return self.mean - self.paper[0] if self.shown and self.paper else None

    @property
    def squared_error(self) -> float | None:
        """The variance of our mean, on the safe side; None for a single set, whose spread is not known.

        It is taken from the spread of the sets' means or from that of networks, whichever gives more, the latter not below the
        paper's, if it has one (two sets may agree by luck).
        """
        if len(self.sets) < 2:
            return None
        n, theirs = len(self.accuracies), self.paper[1] if self.paper else 0.0
        return max(variance(map(fmean, self.sets)) / len(self.sets), self.std**2 / (n - 1), theirs**2 / n)

    @property
    def standard_error(self) -> float | None:
        """Of the difference; None for a single set. Ours is by `squared_error`, the paper's its standard deviation over √5.

        What the paper prints is over all networks; at most all of it is between its five sets.
        """
        if not self.shown or not self.paper or self.squared_error is None:
            return None
        return (self.squared_error + self.paper[1] ** 2 / paper.SETS) ** 0.5

    @property
    def standard_errors(self) -> float | None:
        """The difference in units of its standard error; None where that is zero."""
        return self.difference / self.standard_error if self.standard_error else None


def error_between(one: Outcome, other: Outcome) -> float | None:
    """The standard error of the difference of two of our means; None where one is of a single set."""
    errors = [one.squared_error, other.squared_error]
    return None if None in errors else sum(errors) ** 0.5


def look_up(experiment: str, preset: str = "best", store: Store | None = None, **narrow: Sequence | int | None) -> list[Outcome]:
    """Return what is recorded for each cell of an experiment; nothing is computed.

    Args:
        experiment: its name.
        preset: smoke, cpu or paper; "best" takes for each cell the first of `experiments.BEST` that has records, and each cell
            that is in the grid of any of them.
        store: where records are; by default those of `results.results_root`.
        narrow: values for an axis in place of the grid's.

    Raises:
        SpecError: an unknown experiment, preset, axis or network.
    """
    declared, store = experiments.find(experiment), store or Store(preset=preset)
    one_of("preset", preset, ("best", *experiments.PRESETS))
    presets = experiments.BEST if preset == "best" else (experiments.find_preset(preset),)
    places = {tuple(cell.place.values()): cell.place for p in presets for cell in declared.cells(p, **narrow)}
    return [_first_recorded(experiment, [declared.cell(p, **place) for p in presets], store) for place in places.values()]


def _first_recorded(experiment: str, cells: Sequence[Cell], store: Store) -> Outcome:
    """The outcome at the first of these cells, one for each preset, that has records.

    Where later presets have the same runs, it is said to be at the first at which it is complete, or at the last.
    """
    every = [_recorded(experiment, cell, store) for cell in cells]
    first = next((o for o in every if o.sets), every[0])
    same = [o for o in every if o.keys == first.keys]
    return next((o for o in same if o.complete), same[-1])


def _recorded(experiment: str, cell: Cell, store: Store) -> Outcome:
    """What is recorded for a cell at its preset."""
    printed = paper.find(experiment, cell.place)
    if not (sets := _accuracies(cell, store)):
        return Outcome(experiment, cell.place, paper=printed)
    keys = dict.fromkeys(key for run in cell.runs(_seeds(cell)) for key in _behind(run))
    records = tuple(r for key in keys for r in store.records.get(key, []))
    planned = (len(sets) if ORS.get(cell.network, 1.0) < 1 else cell.sets), cell.runs([0])[0].networks
    return Outcome(experiment, cell.place, cell.preset.name, tuple(sets.values()), tuple(sets), records, printed, planned)


def _accuracies(cell: Cell, store: Store) -> dict[str, tuple[float, ...]]:
    """For each recorded run of the cell its accuracies, by key."""
    found = {run.key: store.accuracies(run.key) for run in cell.runs(_seeds(cell))}
    sets = {key: tuple(by_network[j] for j in sorted(by_network)) for key, by_network in found.items() if by_network}
    share = ORS.get(cell.network, 1.0)
    return sets if share == 1 else _best(sets, share) if len(sets) == cell.sets else {}


def _best(sets: dict[str, tuple[float, ...]], share: float) -> dict[str, tuple[float, ...]]:
    """That share of the sets which trains networks best; they are ranked by what is then reported, as in the paper."""
    ranked = sorted(sets, key=lambda key: fmean(sets[key]), reverse=True)
    return {key: sets[key] for key in ranked[: max(1, round(share * len(sets)))]}


def _seeds(cell: Cell) -> range:
    return range(cell.sets) if cell.network in ORS else SETS


def _behind(run: Run) -> list[str]:
    """The keys of a run and of those that made its set."""
    if isinstance(run, WholeTraining):
        return [run.key]
    return [*([run.set.base.key] if run.set.base else []), run.set.key, run.key]


def varying(outcomes: Sequence[Outcome]) -> list[str]:
    """The axes on which the outcomes differ; where each network is trained on its own set, the trained one is none of them."""
    own = all(o.place["test_network"] == o.place["network"] for o in outcomes)
    axes = [axis for axis in AXES if not (own and axis == "test_network")]
    return [axis for axis in axes if len({o.place[axis] for o in outcomes}) > 1]


def made_by(network: str) -> str:
    """What stands in a row or column of a table that has other images beside condensed ones."""
    return title(network) if network in INSTEAD else f"condensed, {network}"


def labels(outcomes: Iterable[Outcome], axis: str) -> dict[Any, str]:
    """How the values of an axis are written side by side: networks that differ in one option by its value."""
    values = list(dict.fromkeys(o.place[axis] for o in outcomes))
    if len(values) > 1 and axis in ("network", "test_network") and len({v.partition(":")[0] for v in values}) == 1:
        networks = [Network.parse(v) for v in values]
        differing = [name for name in FAMILIES[networks[0].family] if len({n[name] for n in networks}) > 1]
        if len(differing) == 1:
            return {v: str(n[differing[0]]) for v, n in zip(values, networks, strict=True)}
    return {v: title(v) for v in values}


def title(value: Any) -> str:
    """How a value of an axis is written in a table."""
    return NAMES.get(value, str(value))
