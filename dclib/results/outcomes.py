"""Results as one tidy pandas DataFrame: a row for each cell of a table (`table`), or for each trained network (`records`).

A cell's number is the mean over all networks recorded for it, on whichever of the sets 0 … 4 exist. Optimal random selection
looks at more sets and keeps the best. At "best" each cell takes the most faithful preset that has records, never the highest
accuracy, and never `smoke`. A preset's grid only says what is computed: a run that another table recorded under the same key
fills its cell here, too.
"""

import itertools
from collections.abc import Iterable, Sequence
from statistics import fmean, pstdev, variance
from typing import TYPE_CHECKING, Any

from .. import experiments
from ..errors import SpecError, one_of
from ..experiments import AXES, GAN, INSTEAD, ORS, RANDOM, Cell, paper
from ..spec import FAMILIES, Network
from ..spec.keys import Run
from .store import Store

if TYPE_CHECKING:
    import pandas as pd

DASH = "—"
NAN = float("nan")
TITLES = {
    "": "default",  # variant
    "mnist": "MNIST",
    "fashionmnist": "FashionMNIST",
    "svhn": "SVHN",
    "svhn10k": "SVHN-10k, a stand-in",
    "cifar10": "CIFAR10",
    "cifar100": "CIFAR100",
    "usps": "USPS",
    RANDOM: "random real images",
    "formed": "real images, 2 × 2",
    "whole": "whole set",
    "ors": "random, all draws",
    "ors-tenth": "random, best tenth",
    "ors-hundredth": "random, best hundredth",
    GAN: "conditional GAN",
    "distill": "DD, its steps and rates",
    "distill-plain": "DD, as a plain set",
}


def table(experiment: str, preset: str = "best", store: Store | None = None, **narrow: Sequence | int | None) -> "pd.DataFrame":
    """Return what is recorded for each cell of an experiment, one row a cell; nothing is computed.

    The columns, with accuracies in percent and NaN for numbers that do not exist:

    - `experiment`, `dataset`, `ipc`, `network` (which made the images), `test_network`, `variant`: where the cell stands;
    - `preset`: whose hyper-parameters the numbers belong to; empty where nothing is recorded;
    - `ours`, `std`: mean and population standard deviation over all networks;
    - `sets`, `networks`: how many of each stand behind the number; `planned_sets`, `planned_networks` (on each set): how many
      the preset has; `complete`: whether it has them all;
    - `paper`, `paper_std`: what the paper prints; `difference`: ours minus the paper's;
    - `error`: the standard error of `ours`; `standard_error`: that of `difference`; both NaN for a single set;
    - `accuracies`: of each network, a tuple for each set; `keys`: of the runs of stage T, one for each set;
    - `records`: of these runs and of those that made the sets.

    Args:
        experiment: its name.
        preset: smoke, cpu or paper; "best" takes for each cell the first of `experiments.BEST` that has records, and each cell
            that is in the grid of any of them.
        store: where records are; by default those of `results.results_root`.
        narrow: values for an axis in place of the grid's.

    Raises:
        SpecError: an unknown experiment, preset, axis or network.
    """
    import pandas as pd

    declared, store = experiments.find(experiment), store or Store(preset=preset)
    if declared.narrowed_by != AXES:
        raise SpecError(f"{experiment} is no grid of accuracies: read it with `dclib.results.studied.read`")
    one_of("preset", preset, ("best", *experiments.PRESETS))
    presets = experiments.BEST if preset == "best" else (experiments.find_preset(preset),)
    places = {tuple(cell.place.values()): cell.place for p in presets for cell in declared.cells(p, **narrow)}
    rows = [_first_recorded(experiment, [declared.cell(p, **place) for p in presets], store) for place in places.values()]
    return pd.DataFrame(rows, columns=["experiment", *AXES, "preset", *summarise([]), "keys", "records"])


def records(store: Store | None = None) -> "pd.DataFrame":
    """Return all trained networks on record, one row a network.

    `number` is that of the network in its run, `accuracy` is in percent; the other columns are those of the record, the
    spelled-out run's fields with dots, as `run.set.dataset`, `run.set.hyper.ipc` and `run.hyper.network`.
    """
    import pandas as pd

    rows = []
    for record in itertools.chain(*(store or Store()).records.values()):
        about = {name: value for name, value in record.items() if name != "accuracies"}
        rows += [dict(number=int(n), accuracy=a, **about) for n, a in record.get("accuracies", {}).items()]
    return pd.json_normalize(rows)


def summarise(accuracies: Sequence[Sequence[float]], printed: tuple[float, float] | None = None, planned=(1, 1)) -> dict[str, Any]:
    """Return the statistics of a cell, as `table` names them.

    The `error` of our mean is not known for a single set. Else it is taken from the spread of the sets' means or from that of
    networks, whichever gives more, the latter not below the paper's (two sets may agree by luck). The paper's spread is over all
    networks; its standard error is taken as if all of it were between its five sets.

    Args:
        accuracies: in percent, of the networks on each set.
        printed: the paper's mean and standard deviation, if it has any.
        planned: how many sets, and how many networks on each, the preset has.
    """
    every = list(itertools.chain(*accuracies))
    ours, std = (fmean(every), pstdev(every)) if every else (NAN, NAN)
    theirs, spread = printed or (NAN, NAN)
    squared, n = NAN, len(every)
    if len(accuracies) > 1:
        floor = spread**2 / n if printed else 0.0
        squared = max(variance(map(fmean, accuracies)) / len(accuracies), std**2 / (n - 1), floor)
    complete = sum(len(found) >= planned[1] for found in accuracies) >= planned[0]
    return dict(
        ours=ours,
        std=std,
        sets=len(accuracies),
        networks=n,
        planned_sets=planned[0],
        planned_networks=planned[1],
        complete=complete,
        paper=theirs,
        paper_std=spread,
        difference=ours - theirs,
        error=squared**0.5,
        standard_error=(squared + spread**2 / paper.SETS) ** 0.5,
        accuracies=tuple(map(tuple, accuracies)),
    )


def _first_recorded(experiment: str, cells: Sequence[Cell], store: Store) -> dict[str, Any]:
    """The row at the first of these cells, one for each preset, that has records.

    Where later presets have the same runs, it is the row of the first at which it is complete, or of the last.
    """
    every = [_recorded(experiment, cell, store) for cell in cells]
    first = next((row for row in every if row["sets"]), every[0])
    same = [row for row in every if row["keys"] == first["keys"]]
    return next((row for row in same if row["complete"]), same[-1])


def _recorded(experiment: str, cell: Cell, store: Store) -> dict[str, Any]:
    """The row of a cell at its preset."""
    runs = cell.counted()
    sets = _accuracies(cell, runs, store)
    planned = (len(sets) or 1 if ORS.get(cell.network, 1.0) < 1 else cell.sets), runs[0].networks
    return dict(
        experiment=experiment,
        **cell.place,
        preset=cell.preset.name if sets else "",
        **summarise(list(sets.values()), paper.find(experiment, cell.place), planned),
        keys=tuple(sets),
        records=records_behind(runs, store) if sets else (),
    )


def _accuracies(cell: Cell, runs: Sequence[Run], store: Store) -> dict[str, tuple[float, ...]]:
    """For each recorded run of a cell its accuracies, by key; of optimal random selection, the best share once all are there.

    The draws are ranked by the accuracy that is then reported, as in the paper.
    """
    found = {run.key: store.accuracies(run.key) for run in runs}
    sets = {key: tuple(by_network[j] for j in sorted(by_network)) for key, by_network in found.items() if by_network}
    if (share := ORS.get(cell.network, 1.0)) == 1:
        return sets
    if len(sets) < cell.sets:
        return {}
    ranked = sorted(sets, key=lambda key: fmean(sets[key]), reverse=True)
    return {key: sets[key] for key in ranked[: max(1, round(share * len(sets)))]}


def records_behind(runs: Iterable[Run], store: Store) -> tuple[dict[str, Any], ...]:
    """The records of runs and of all runs that these need, each once."""
    keys = dict.fromkeys(one.key for run in runs for one in run.behind())
    return tuple(record for key in keys for record in store.records.get(key, []))


def varying(cells: "pd.DataFrame") -> list[str]:
    """The axes on which cells differ; where each network is trained on its own set, the trained one is none of them."""
    own = (cells.test_network == cells.network).all()
    return [axis for axis in AXES if cells[axis].nunique() > 1 and not (own and axis == "test_network")]


def title(value: Any) -> str:
    """How a value of an axis is written in a table."""
    return TITLES.get(value, str(value))


def made_by(network: str) -> str:
    """What stands in a row or column of a table that has other images beside condensed ones."""
    return title(network) if network in INSTEAD else f"condensed, {network}"


def labels(cells: "pd.DataFrame", axis: str) -> dict[Any, str]:
    """How the values of an axis are written side by side: networks that differ in one option by its value."""
    values = list(cells[axis].unique())
    if len(values) > 1 and axis in ("network", "test_network") and len({v.partition(":")[0] for v in values}) == 1:
        networks = [Network.parse(v) for v in values]
        differing = [name for name in FAMILIES[networks[0].family] if len({n[name] for n in networks}) > 1]
        if len(differing) == 1:
            return {v: str(n[differing[0]]) for v, n in zip(values, networks, strict=True)}
    return {v: title(v) for v in values}
