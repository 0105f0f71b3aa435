"""What each experiment costs at each preset: measured where it is recorded, forecast elsewhere; for the notebook `costs`.

A recorded run costs the seconds of its record, times the share of the machine that it had: of two runs side by side each has half.
Where the share is not recorded, it counts as the whole machine, which is said. Of any other run the operations are counted (see
`work`) and divided by the speed at which recorded runs of the same kind and network got through theirs; where none is recorded, of
the same kind; else of any kind. Of these, runs that had the machine for themselves count, where there are some.
Memory is the largest peak recorded, or, of runs that are not, the usual one of the same kind and network. The other half of the
notebook is in `pace`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from math import floor, log10, prod
from statistics import median
from typing import Any

from .. import experiments
from ..experiments import studies
from ..experiments.presets import ORS, Run
from ..experiments.work import flop, shape_of
from ..reproduce import Given, as_list, check, check_names, check_records, in_full
from ..results import Store
from ..results.outcomes import DASH
from ..spec import MakeSet, TrainNetworks, WholeTraining, shared_trajectories
from ..spec.applications import ApplicationRun, TrainCandidate, behind
from ..spec.baselines import TrainGan
from .pace import Pace, paces
from .tables import pipe_table

AnyRun = MakeSet | TrainGan | Run | ApplicationRun
Runs = Mapping[str, tuple[AnyRun, int]]  # by key, with the number of networks that each trains
DECLARED = {**experiments.ALL, **studies.ALL}
TOTAL = "all of them"


@dataclass(frozen=True)
class Cost:
    """What one experiment costs at one preset.

    Args:
        name: of the experiment.
        preset: its name.
        measured: seconds of the whole machine of what is recorded on a CPU.
        forecast: seconds of all else on that CPU; None where no speed is known.
        gpu: seconds of all of it on a GPU, measured or forecast; None where no speed is known.
        disk: bytes of its sets of learned images.
        memory: the largest peak of its runs, recorded or usual for such runs, in MB; None where there is none.
        unknown: of `measured`, seconds of runs whose share of the machine is not recorded, so that it is at most so much.
    """

    name: str
    preset: str
    measured: float
    forecast: float | None
    gpu: float | None
    disk: int
    memory: int | None
    unknown: float = 0.0

    @property
    def seconds(self) -> float | None:
        """Of all of it."""
        return None if self.forecast is None else self.measured + self.forecast


def costs(
    *, preset: Given = "best", recompute: Given = False, device: Given = "auto", datasets: Given = None, **unknown: Any
) -> tuple[list[Cost], list[Pace]]:
    """Add up what is recorded of each experiment, forecast the rest, and add a line for all, in which each run counts once.

    Args:
        preset: "best" is all three presets.
        recompute, device: there is nothing to compute.
        datasets: only what needs no other data sets.
        unknown: none is allowed.

    Returns:
        The costs, and how fast networks become how good on small sets and on whole ones.

    Raises:
        SpecError: an unknown parameter, or a value that its parameter cannot take.
        FileError: the records cannot be read.
    """
    check_names(unknown, costs)
    given, store = as_list(datasets), Store(preset=preset)
    check(preset, recompute, device, given or ())
    names = in_full(given)
    check_records(names, store)
    recorded = {r["preset"] for records in store.records.values() for r in records}
    plans = {p: plan(p) for p in experiments.PRESETS if preset in ("best", p) or p in recorded}
    every = list(chain(*(runs.values() for found in plans.values() for runs in found.values())))
    speeds = [Speeds(store, every, gpu) for gpu in (False, True)]
    wanted = [p for p in plans if preset in ("best", p)]
    plans = {p: plan(p, names and tuple(names)) for p in wanted}
    found = [_cost(name, p, runs, *speeds) for p in wanted for name, runs in plans[p].items()]
    return found, paces(str(preset), store, names)


@cache
def plan(preset: str, datasets: tuple[str, ...] | None = None) -> dict[str, Runs]:
    """The runs behind each experiment at a preset, or behind those of its cells that need no other data sets, and behind all."""
    found, every = {}, {}
    for name, declared in DECLARED.items():
        cells = declared.cells(experiments.find_preset(preset))
        if runs := spelled_out(c for c in cells if datasets is None or set(c.datasets) <= set(datasets)):
            found[name] = runs
            every |= {key: max(one, every.get(key, one), key=lambda pair: pair[1]) for key, one in runs.items()}
    return {**found, TOTAL: every}


def spelled_out(cells: Iterable[Any]) -> Runs:
    """Every run behind these cells, each once; of sets on one course the longest."""
    found: dict[str, tuple[AnyRun, int]] = {}
    for cell in cells:
        if getattr(cell, "network", "") in [*ORS][1:]:
            continue  # the runs of the first
        for run in cell.runs():
            for one in (run, *_below(run)):
                found[one.key] = one, max(getattr(one, "networks", 1), found.get(one.key, (one, 1))[1])
    longest = shared_trajectories(run for run, _ in found.values() if isinstance(run, MakeSet))
    return {key: (run, n) for key, (run, n) in found.items() if not _is_passed(run, longest)}


def _below(run: Run | ApplicationRun) -> list[AnyRun]:
    """What a run stands on: its sets, and what they stand on."""
    made = (run.set,) if isinstance(run, TrainNetworks) else () if isinstance(run, WholeTraining) else behind(run)
    return [*made, *(one.base for one in made if one.base)]


def _is_passed(run: AnyRun, longest: dict[str, int]) -> bool:
    """Whether a longer run passes through this set."""
    learned = longest and isinstance(run, MakeSet) and run.method == "condense"
    return bool(learned) and run.hyper.outer_steps < longest.get(run.trajectory, 0)


def kind(run: AnyRun) -> tuple[str, str]:
    """What a speed is known for: the kind of run, and the family of the network that it is spent on."""
    if isinstance(run, TrainGan):
        return "TrainGan", ""
    if isinstance(run, MakeSet):
        base = run.distillation or (run.hyper if run.method == "condense" else run.whole)
        return run.method, base.network.family if base else ""
    network = run.network if isinstance(run, WholeTraining | TrainCandidate) else run.hyper.network
    return type(run).__name__, network.family


class Speeds:
    """How fast recorded runs got through their operations, and in how much memory, on a CPU or on a GPU.

    Args:
        store: where the records are.
        runs: whose records count.
        gpu: whether of those on a GPU.
    """

    def __init__(self, store: Store, runs: Iterable[tuple[AnyRun, int]], gpu: bool):
        self.store, self.gpu = store, gpu
        found: dict[tuple[str, ...], dict[int, list[float]]] = {}  # by how sure the share of the machine is
        peaks: dict[tuple[str, str], list[int]] = {}
        for run in {run.key: run for run, _ in runs if run.key in store.records}.values():
            if records := self._records(run):
                peaks.setdefault(kind(run), []).extend(r["peak_memory_mb"] for r in records)
                for which in (kind(run), kind(run)[:1], ()) if flop(run) else ():
                    sure = max(map(_unsure, records))
                    found.setdefault(which, {}).setdefault(sure, []).append(flop(run) / max(self.recorded(run)[0], 0.01))
        self.speeds = {which: median(some[min(some)]) for which, some in found.items()}
        self.peaks = {which: round(median(some)) for which, some in peaks.items()}

    def _records(self, run: AnyRun) -> list[dict[str, Any]]:
        return [r for r in self.store.records.get(run.key, []) if (r["device"] != "cpu") == self.gpu]

    def recorded(self, run: AnyRun) -> tuple[float, int]:
        """The recorded seconds of the whole machine for one network of a run, or a run of one, and how many are recorded."""
        records = self._records(run)
        if not isinstance(run, TrainNetworks | TrainCandidate):
            return (_machine_seconds(records[0]), 1) if records else (0.0, 0)
        n = sum(len(r["accuracies"]) for r in records)
        return (sum(map(_machine_seconds, records)) / n if n else 0.0), n

    def seconds(self, runs: Iterable[tuple[AnyRun, int]]) -> tuple[float, float | None]:
        """What is recorded of these runs, and a forecast of what is not; None without any speed."""
        measured = forecast = 0.0
        for run, n in runs:
            one, done = self.recorded(run)
            measured += one * min(n, done)
            if done < n and (work := flop(run)):
                if not self.speeds:
                    return measured, None
                speed = next(self.speeds[which] for which in (kind(run), kind(run)[:1], ()) if which in self.speeds)
                forecast += (n - done) * work / speed
        return measured, forecast

    def unknown(self, runs: Iterable[tuple[AnyRun, int]]) -> float:
        """Of the recorded seconds, those of runs whose share of the machine is not known."""
        return self.seconds((run, min(n, self.recorded(run)[1])) for run, n in runs if any(map(_unknown, self._records(run))))[0]

    def memory(self, runs: Iterable[tuple[AnyRun, int]]) -> int | None:
        """The largest peak: of recorded runs that of their processes, of others the usual one."""
        recorded = [r["peak_memory_mb"] for run, _ in runs for r in self._records(run)]
        usual = [self.peaks[kind(run)] for run, _ in runs if kind(run) in self.peaks and not self._records(run)]
        return max([*recorded, *usual], default=None)


def _cost(name: str, preset: str, runs: Runs, cpu: Speeds, gpu: Speeds) -> Cost:
    (measured, forecast), (on_gpu, rest) = (speeds.seconds(runs.values()) for speeds in (cpu, gpu))
    disk = sum(_bytes(run) for run, _ in runs.values() if isinstance(run, MakeSet) and run.learned)
    on_gpu = None if rest is None else on_gpu + rest
    return Cost(name, preset, measured, forecast, on_gpu, disk, cpu.memory(runs.values()), cpu.unknown(runs.values()))


def _unknown(record: dict[str, Any]) -> bool:
    """Whether a record does not say what share of the machine its run had."""
    return record["device"] == "cpu" and "share" not in record


def _unsure(record: dict[str, Any]) -> int:
    """How sure a speed is: 0 of a run that had the machine for itself, 1 of one with a known share, 2 of any other."""
    return 2 if _unknown(record) else int(record.get("share", 1.0) < 1)


def _machine_seconds(record: dict[str, Any]) -> float:
    """For how long the whole machine would have been at work; where the share is not known, at most so long."""
    return record["seconds"] * record.get("share", 1.0)


def _bytes(run: MakeSet) -> int:
    """Of a set's pixels, in float32."""
    channels, side, classes = shape_of(run.dataset, run.image_size, run.channels)
    return 4 * prod((channels, side, side, classes, run.hyper.ipc))


def cost_table(found: Sequence[Cost]) -> str:
    """A line for each experiment and preset, in Markdown."""
    head = ["experiment", "preset", "hours", "recorded", "GPU hours", "sets, MB", "memory, GB"]
    ordered = sorted(found, key=lambda cost: [*DECLARED, TOTAL].index(cost.name))
    rows = [[cost.name, cost.preset, *_texts(cost)] for cost in ordered]
    return pipe_table(head, rows, left=2)


def _texts(cost: Cost) -> list[str]:
    about = "≈ " if cost.forecast else ""
    most = about or ("≤ " if cost.unknown else "")
    hours = DASH if cost.seconds is None else most + _rounded(cost.seconds / 3600)
    share = DASH if not cost.seconds else f"{100 * cost.measured / cost.seconds:.0f} %"
    gpu = "not measured" if cost.gpu is None else f"≈ {_rounded(cost.gpu / 3600)}"
    memory = DASH if cost.memory is None else f"{about}{cost.memory / 1000:.1f}"
    return [hours, share, gpu, _rounded(cost.disk / 1e6), memory]


def _rounded(x: float) -> str:
    """Two digits are what a forecast is worth."""
    if x < 0.0095:
        return f"{x:.3f}"
    last = 1 - floor(log10(x))
    return f"{round(x, last):,.{max(0, last)}f}"


def sentence() -> str:
    """On which machines the hours are, and what a GPU's rest on."""
    records = [r for records in Store().records.values() for r in records]
    where = sorted({r["machine"] for r in records if r["device"] == "cpu"})
    gpus = sorted({r["device"] for r in records if r["device"] != "cpu"})
    if not records:
        return "Nothing is recorded yet, so that nothing can be forecast."
    gpu = f"GPU hours are forecast from records on {' and '.join(gpus)}" if gpus else "No run is recorded on a GPU"
    unknown = sum(map(_unknown, records))
    said = f"{unknown} of {len(records)} records do not say what share of the machine their run had. They count as the whole: "
    said += "where runs went side by side, fewer hours passed than are counted (≤), and forecasts from them are too high. "
    return f"Hours are of {' and '.join(where) or 'no CPU yet'}, all cores at work. {said if unknown else ''}{gpu}."
