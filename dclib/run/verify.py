"""Whether the recorded accuracies come out again: a few networks are trained once more on each recorded set, nothing is recorded.

What is compared is the mean over the networks trained again with the mean of the same networks as recorded. Their seeds derive
from the run's key, so on the machine that recorded them, with as many threads, they are identical to the last bit.
"""

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from .. import experiments
from ..errors import DataError, FileError, SpecError
from ..results import CondensedSet, Store
from ..results.outcomes import DASH, SETS
from ..results.records import in_words, plain
from ..spec import TrainNetworks, full
from ..support.console import table
from ..support.files import write_atomic

FLOOR = 1.0  # points that are always allowed
ERRORS = 3.0  # standard errors of the difference that are allowed beyond
SAME = 1e-3  # accuracies are recorded to four digits
SCRATCH = "again"  # the folder of what is thrown away


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


@dataclass(frozen=True)
class Checked:
    """What became of one run: of its set, and of its networks trained again.

    Args:
        what: the run in words.
        recorded: the accuracies of the networks that were trained again, as recorded.
        again: as they came out; none where nothing was trained.
        allowed: by how many points the means may differ.
        wrong: what is wrong with the set; empty if nothing is.
        left_out: why nothing was compared though nothing is wrong; empty if it was.
    """

    what: str
    recorded: tuple[float, ...] = ()
    again: tuple[float, ...] = ()
    allowed: float = 0.0
    wrong: str = ""
    left_out: str = ""

    @property
    def difference(self) -> float:
        """The mean of the networks trained again minus the recorded one."""
        return fmean(self.again) - fmean(self.recorded)

    @property
    def identical(self) -> bool:
        """Whether each network came out as recorded."""
        return bool(self.again) and all(abs(a - b) < SAME for a, b in zip(self.recorded, self.again, strict=True))

    @property
    def differs(self) -> bool:
        """Whether the set is wrong or the means lie too far apart."""
        return bool(self.wrong) or (bool(self.again) and abs(self.difference) > self.allowed)

    @property
    def verdict(self) -> str:
        """In a word or two, with the reason where there is one."""
        if self.left_out:
            return f"not compared: {self.left_out}"
        if self.differs:
            return f"differs{f': {self.wrong}' if self.wrong else ''}"
        return "ok, identical" if self.identical else "ok"

    def row(self) -> list[str]:
        """For a table."""
        if not self.again:
            return [self.what, *[DASH] * 4, self.verdict]
        means = (f"{fmean(each):.2f}" for each in (self.recorded, self.again))
        return [self.what, *means, f"{self.difference:+.2f}".replace("-", "−"), f"{self.allowed:.1f}", self.verdict]


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
            refused = error
    if refused and not cells:
        raise refused
    runs = [run for cell in cells for run in cell.runs(range(max(cell.sets, len(SETS))))]
    found = {run.key: run for run in runs if isinstance(run, TrainNetworks) and store.accuracies(run.key)}
    if not found:
        which = names[0] if len(names) == 1 else "these experiments"
        raise SpecError(f"nothing of {which} is recorded at preset {preset} in {store.root}: compute it first with `dclib run`")
    return list(found.values())


def verify(
    runs: Sequence[TrainNetworks], store: Store, *, networks: int = 2, should_stop: Callable[[], bool] = lambda: False, **how: str
) -> list[Checked]:
    """Check the sets of recorded runs and train the first networks of each again.

    Args:
        runs: which, each recorded.
        store: where records and sets are; nothing is written there.
        networks: how many of each run are trained, or as many as are recorded.
        should_stop: asked between steps.
        how: `device` and `engine`, as for `runner.Runner`; "auto" is the engine that the record names, where it can be had.

    Raises:
        SpecError: not even one network of each.
        Interrupted: stopped.
    """
    if networks < 1:
        raise SpecError(f"networks-each must be a whole number of at least 1, not {networks}")
    return [_verify(run, store, networks, should_stop, **how) for run in runs]


def report(checked: Sequence[Checked]) -> str:
    """A table of all runs, and a sentence."""
    head = ("run", "recorded", "again", "difference", "allowed", "")
    return f"{table(head, [one.row() for one in checked])}\n{sentence(checked)}"


def sentence(checked: Sequence[Checked]) -> str:
    """How many agree, how many of them to the last digit, how many differ, and how many were not compared."""
    agree = [one for one in checked if one.again and not one.differs]
    differ, left = sum(one.differs for one in checked), sum(bool(one.left_out) for one in checked)
    counts = f"{len(agree)} agree, {sum(one.identical for one in agree)} of them identical, {differ} differ"
    return f"Of {len(checked)} recorded runs {counts} and {left} {'was' if left == 1 else 'were'} not compared."


def _verify(run: TrainNetworks, store: Store, networks: int, should_stop: Callable[[], bool], **how: str) -> Checked:
    what, accuracies = in_words(full(run)), store.accuracies(run.key)
    wrong, left_out = check_set(run, store)
    if wrong or left_out:
        return Checked(what, wrong=wrong, left_out=left_out)
    chosen = sorted(accuracies)[:networks]
    again = _train_again(run, store, chosen, should_stop, **how)
    allowed = tolerance(list(accuracies.values()), len(chosen))
    return Checked(what, tuple(accuracies[j] for j in chosen), tuple(again[j] for j in chosen), allowed)


def check_set(run: TrainNetworks, store: Store) -> tuple[str, str]:
    """Check that a run's set is the recorded one, and that the data here is.

    Returns:
        What is wrong, and why the run cannot be compared though nothing is; at most one of them is not empty.
    """
    from .sets import check_data, load_of

    records = [*store.records.get(run.set.key, []), *store.records[run.key]]
    pixels, data = ({record[name] for record in records if name in record} for name in ("set_hash", "data_hash"))
    if run.set.learned:
        wrong, left_out = _check_file(run, store, pixels)
        if wrong or left_out:
            return wrong, left_out
    elif store.indices(run.set.key) is None:
        return "", "the indices of its images are not recorded"
    try:
        dataset = load_of(run.set)
    except DataError as error:
        return "", str(error)
    if data - {dataset.hash}:
        return "", f"{run.set.dataset} here is other data than that of the record"
    if run.set.learned:
        try:
            check_data(CondensedSet.load(store.find_set(run.set.key)), dataset)
        except DataError as error:
            return "", str(error)
    return ("", "") if run.set.learned else (_check_choice(run, store, dataset, pixels), "")


def _check_file(run: TrainNetworks, store: Store, hashes: set[str]) -> tuple[str, str]:
    path = store.find_set(run.set.key)
    if path is None:
        return "", "its set is not kept"
    try:
        made = CondensedSet.load(path)
    except FileError:
        return f"{path} is damaged", ""
    same = made.key == run.set.key and not hashes - {made.hash}
    return "" if same else f"{path} is not the set that is recorded", ""


def _check_choice(run: TrainNetworks, store: Store, dataset: Any, hashes: set[str]) -> str:
    import torch

    from .sets import as_set, pick

    try:
        made = as_set(pick(dataset, torch.tensor(store.indices(run.set.key))), dataset, run.set)
    except (IndexError, ValueError):
        return "the recorded indices are none of this data"
    return "the recorded indices give other images than those recorded" if hashes - {made.hash} else ""


def _train_again(
    run: TrainNetworks, store: Store, chosen: Sequence[int], should_stop: Callable, device: str = "auto", engine: str = "auto"
) -> dict[int, float]:
    """Train these networks of a run as when they were recorded: as some of all, in a store that has all but them."""
    from .runner import Runner

    total, first = max(store.accuracies(run.key)) + 1, store.records[run.key][0]
    with tempfile.TemporaryDirectory() as folder:
        scratch = Store(Path(folder))
        runner = Runner(scratch, SCRATCH, device, engine, should_stop)
        runner.engine = _engine(engine, first, runner.where.type)
        for record in store.records.get(run.set.key, []):
            scratch.add(SCRATCH, plain(record))
        if (path := store.find_set(run.set.key)) is not None:
            write_atomic(scratch.set_path(SCRATCH, run.set.key), path.read_bytes())
        others = {str(j): 0.0 for j in range(total) if j not in chosen}
        scratch.add(SCRATCH, {**plain(first), "accuracies": others})
        return runner.train_networks(dataclasses.replace(run, networks=total))


def _engine(asked: str, record: dict[str, Any], device: str) -> str:
    """The engine asked for, or that of the record if it was of the same kind of device and can be had."""
    from ..core.engine import has_compiler

    recorded = record.get("engine", "auto")
    alike = (device == "cpu") == (record.get("device", "cpu") == "cpu")
    return recorded if asked == "auto" and alike and (recorded != "compiled" or has_compiler()) else asked
