"""Whether the recorded accuracies come out again: a few networks are trained once more on each recorded set, nothing is recorded.

The mean over the networks trained again is compared with the mean of the same networks as recorded. Their seeds derive from the
set's key, so on the machine that recorded them, with as many threads, they are identical to the last bit.
"""

import math
from collections.abc import Callable, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

from tabulate import tabulate

from .. import experiments
from ..errors import DataError, FileError, SpecError
from ..results import CondensedSet, Store
from ..results.outcomes import DASH
from ..spec import TrainNetworks

if TYPE_CHECKING:
    from .runner import Runner

FLOOR = 1.0  # points that are always allowed
ERRORS = 3.0  # standard errors of the difference that are allowed beyond
EXACT = 1e-3  # accuracies are recorded to four digits
OK, SAME, DIFFERS, LEFT_OUT = "ok", "ok, identical", "differs", "not compared"


def tolerance(recorded: Sequence[float], networks: int) -> float:
    """How far the mean of networks trained again may lie from the recorded one, in points.

    On another machine sums are rounded otherwise, and hundreds of epochs can turn that into another local minimum: at worst the
    network is an independent draw from the distribution that the recorded networks are drawn from. The difference of two means
    over n such draws has the standard error s·√(2/n), with s the standard deviation of the recorded networks; three of them are
    allowed. Two networks may lie close by luck, so a point is allowed in any case. Where recorded networks lie far apart, as
    those of an unstable training do, little can be told, and the tolerance, which the table shows, says so.

    Args:
        recorded: the accuracies of all recorded networks of the run, in percent.
        networks: n, how many of them are trained again.
    """
    return max(FLOOR, ERRORS * (stdev(recorded) if len(recorded) > 1 else 0.0) * (2 / networks) ** 0.5)


class Checked(NamedTuple):
    """What became of one run.

    Args:
        what: the run in words.
        recorded: the mean accuracy of the networks that were trained again, as recorded; NaN where none was.
        again: their mean as they came out.
        allowed: by how many points the means may differ.
        verdict: "ok", "ok, identical" or "differs"; where nothing was trained "differs: " or "not compared: " and the reason.
    """

    what: str
    recorded: float = math.nan
    again: float = math.nan
    allowed: float = math.nan
    verdict: str = ""

    def row(self) -> list[str]:
        """For a table, with the difference of the means."""
        numbers = [f"{self.recorded:.2f}", f"{self.again:.2f}", f"{self.again - self.recorded:+.2f}".replace("-", "−")]
        return [self.what, *([DASH] * 4 if math.isnan(self.again) else [*numbers, f"{self.allowed:.1f}"]), self.verdict]


def recorded_runs(names: Sequence[str], preset: str, store: Store, **narrow: Sequence | None) -> list[TrainNetworks]:
    """The runs behind these experiments' cells that train networks on a set and are recorded, each once.

    Args:
        names: of the experiments.
        preset: smoke, cpu or paper.
        store: where the records are.
        narrow: values for an axis in place of the grid's; an experiment without such cells is left out, unless none has any.

    Raises:
        SpecError: an unknown name or value, or nothing is recorded.
    """
    cells, refused = [], None
    for name in names:
        try:
            cells += experiments.find(name).cells(experiments.find_preset(preset), **narrow)
        except SpecError as error:
            refused = refused or error
    if refused and not cells:
        raise refused
    runs = [run for cell in cells for run in cell.counted() if run.repeatable]
    found = {run.key: run for run in runs if store.accuracies(run.key)}
    if not found:
        which = names[0] if len(names) == 1 else "these experiments"
        if not runs:
            raise SpecError(f"no network of {which} is trained on a set that `dclib verify` could take again: name a table")
        raise SpecError(f"nothing of {which} is recorded at preset {preset} in {store.root}: compute it first with `dclib run`")
    return list(found.values())


def verify(
    runs: Sequence[TrainNetworks],
    store: Store,
    *,
    networks: int = 2,
    device: str = "auto",
    engine: str = "auto",
    should_stop: Callable[[], bool] = lambda: False,
) -> list[Checked]:
    """Check the sets of recorded runs and train the first networks of each again.

    Args:
        runs: which, each recorded.
        store: where records and sets are; nothing is written there.
        networks: how many of each run are trained, or as many as are recorded.
        device, engine: as for `runner.Runner`; "auto" is the engine that the record names, where it can be had.
        should_stop: asked between steps.

    Raises:
        SpecError: not even one network of each.
        Interrupted: stopped.
    """
    if networks < 1:
        raise SpecError(f"networks-each must be a whole number of at least 1, not {networks}")
    from .runner import Runner

    return [_verify(run, Runner(store, "", device, engine, should_stop), networks) for run in runs]


def report(checked: Sequence[Checked]) -> str:
    """A table of all runs, and a sentence."""
    head = ("run", "recorded", "again", "difference", "allowed", "")
    align = ("left", *["right"] * 4, "left")
    rows = [one.row() for one in checked]
    return f"{tabulate(rows, head, tablefmt='plain', disable_numparse=True, colalign=align)}\n{sentence(checked)}"


def sentence(checked: Sequence[Checked]) -> str:
    """How many agree, how many of them to the last digit, how many differ, and how many were not compared."""
    n = {begin: sum(one.verdict.startswith(begin) for one in checked) for begin in (OK, SAME, DIFFERS, LEFT_OUT)}
    counts = f"{n[OK]} agree, {n[SAME]} of them identical, {n[DIFFERS]} differ"
    return f"Of {len(checked)} recorded runs {counts} and {n[LEFT_OUT]} {'was' if n[LEFT_OUT] == 1 else 'were'} not compared."


def failed(checked: Sequence[Checked]) -> bool:
    """Whether anything differs, or nothing could be compared."""
    return any(c.verdict.startswith(DIFFERS) for c in checked) or all(c.verdict.startswith(LEFT_OUT) for c in checked)


def _verify(run: TrainNetworks, runner: "Runner", networks: int) -> Checked:
    from .training import train_named

    store, again = runner.store, {}
    try:
        made = recorded_set(run, store)
    except FileError as error:
        return Checked(run.words, verdict=f"{DIFFERS}: {error}")
    except DataError as error:
        return Checked(run.words, verdict=f"{LEFT_OUT}: {error}")
    accuracies = store.accuracies(run.key)
    chosen = sorted(accuracies)[:networks]

    def on_network(run: TrainNetworks, j: int, accuracy: float, *rest: Any) -> None:
        again[j] = round(accuracy, 4)

    runner.engine = _engine(runner.engine, store.records[run.key][0], runner.where.type)
    train_named(runner, [(run, j) for j in chosen], {run.key: made}, max(accuracies) + 1, on_network)  # as some of all that are
    means, allowed = [fmean(x[j] for j in chosen) for x in (accuracies, again)], tolerance(list(accuracies.values()), len(chosen))
    same = all(abs(accuracies[j] - again[j]) < EXACT for j in chosen)
    return Checked(run.words, *means, allowed, DIFFERS if abs(means[1] - means[0]) > allowed else SAME if same else OK)


def recorded_set(run: TrainNetworks, store: Store) -> CondensedSet:
    """Return the set of a recorded run, checked against its record and the data here.

    Raises:
        FileError: it is damaged, or not the one that is recorded.
        DataError: it cannot be compared: it is not kept, or the data is not here, or is other data.
    """
    import torch

    from ..methods.coresets import pick
    from . import loading, sets

    records = [*store.records.get(run.set.key, []), *store.records[run.key]]
    hashes, data = ({record[name] for record in records if name in record} for name in ("set_hash", "data_hash"))
    path, indices = store.find_set(run.set.key), store.indices(run.set.key)
    if path is None and run.set.learned:
        raise DataError("its set is not kept")
    if indices is None and not run.set.learned:
        raise DataError("the indices of its images are not recorded")
    try:
        made = CondensedSet.load(path) if run.set.learned else None
    except FileError:
        raise FileError(f"{path} is damaged") from None
    if made and (made.key != run.set.key or hashes - {made.hash}):
        raise FileError(f"{path} is not the set that is recorded")
    dataset = loading.load_of(run.set)
    if data - {dataset.hash}:
        raise DataError(f"{run.set.dataset} here is other data than that of the record")
    try:
        made = made or sets.as_set(pick(dataset, torch.tensor(indices)), dataset, run.set)
    except (IndexError, ValueError):
        raise FileError("the recorded indices are none of this data") from None
    if hashes - {made.hash}:
        raise FileError("the recorded indices give other images than those recorded")
    sets.check_data(made, dataset)
    return made


def _engine(asked: str, record: dict[str, Any], device: str) -> str:
    """The engine asked for, or that of the record if it was of the same kind of device and can be had."""
    from ..core.engine import has_compiler

    recorded = record.get("engine", "auto")
    alike = (device == "cpu") == (record.get("device", "cpu") == "cpu")
    return recorded if asked == "auto" and alike and (recorded != "compiled" or has_compiler()) else asked
