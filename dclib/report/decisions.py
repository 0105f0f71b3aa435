"""How the paper's claims are decided on our records: what each reads, in which cases, and by which difference.

A claim has one or more cases, such as a data set or a baseline. Its function takes what is recorded, so that the tests can give it
the paper's own numbers, or the same numbers under each other's names. `scoreboard` lists the claims and their verdicts.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from statistics import fmean, median
from typing import Any

from .. import experiments
from ..experiments import CPU, RANDOM, dd
from ..results import Store
from ..results.claims import Claim, Estimate, Interval, between, compared, interval
from ..results.outcomes import labels, table
from ..results.studied import TOP, Learned, Search, learned, searched
from .application_report import gains

Rows = Mapping[Any, Any]  # rows of `results.table` by their place
Cases = dict[Any, Claim]
Decide = Callable[[Any], Claim]
OURS = "ConvNet"
C, T = 0, 1  # sides of a matrix: the network that condensed, the network that was trained
CLOSE = 1.0  # points to the paper's number
COMPARABLE = 2.0  # points between two choices said to be alike
WIDER = 2.0  # times the deviation over networks on condensed sets that that on DD's is said to be; in the paper 13 times
ONE_AGAINST_TEN = "one against ten"
TIMES = 5.0  # times condensation's growth in memory that DD's is said to be; set after MNIST's first measurement


# --- differences


def others(matrix: Rows, side: int, *values: str) -> list[str]:
    """The other values of a side."""
    return [value for value in dict.fromkeys(key[side] for key in matrix) if value not in values]


def made_with(matrix: Rows, value: str) -> Estimate:
    """The mean over what is trained, set by set as far as all were trained on them, of those condensed in one way."""
    sets = [o.accuracies for key, o in matrix.items() if key[C] == value]
    return Estimate.over([fmean(map(fmean, same)) for same in zip(*sets, strict=False)])


def apart(matrix: Rows, side: int, one: str, other: str) -> Interval:
    """By how much one value of a side lies above another in the mean over the other side.

    Networks that are trained are trained on the same sets, so that their differences are paired, one for each way to condense.
    """
    if side == C:
        return between(made_with(matrix, one), made_with(matrix, other))
    return interval([matrix[c, one].ours - matrix[c, other].ours for c in others(matrix, C)])


def ahead(side: int, better: str, *worse: str) -> Decide:
    """`better` leads each of `worse`."""
    return lambda matrix: Claim(tuple(apart(matrix, side, better, other) for other in worse))


def not_behind(side: int, better: str, other: str) -> Decide:
    """`better` is not behind by a point."""
    return lambda matrix: Claim((apart(matrix, side, better, other),), least=-1.0)


def worst(side: int, *values: str) -> Decide:
    """Every other value of that side leads each of these."""
    return lambda matrix: Claim(tuple(apart(matrix, side, o, value) for o in others(matrix, side, *values) for value in values))


def narrow(matrix: Rows) -> Claim:
    """The means of the rows are equal, within two standard deviations of one network's accuracy."""
    rows = combinations(others(matrix, C), 2)
    return Claim(tuple(apart(matrix, C, *two) for two in rows), margin=2 * fmean(o.std for o in matrix.values()))


def wins_on(network: str, better: str, *worse: str) -> Decide:
    """One way to condense leads the others on one network."""
    return lambda matrix: compared(matrix[better, network], *(matrix[w, network] for w in worse))


def cases(decided: Mapping[str, Decide]) -> Callable[[Any], Cases]:
    """Cases by name, each decided on the same records."""
    return lambda found: {name: decide(found) for name, decide in decided.items()}


def near(one: Any, margin: float) -> Claim:
    """Ours is the paper's number within a margin."""
    return Claim((between(Estimate.of(one), Estimate.papers(one)),), margin=margin)


def alike(one: Any, other: Any) -> Claim:
    """Two choices are apart by no more than two points."""
    return Claim((between(Estimate.of(one), Estimate.of(other)),), margin=COMPARABLE)


def leads(*rivals: str) -> Callable[[Rows], Cases]:
    """Condensed images lie above a rival's, for each rival on each data set at each number of images."""
    return lambda rows: {(*p, rival): compared(rows[*p, OURS], rows[*p, rival]) for p in _places(rows) for rival in rivals}


def _places(rows: Rows) -> list[tuple]:
    return list(dict.fromkeys(place[:-1] for place in rows))


def ten_beat_one(rows: Rows) -> Cases:
    """Ten condensed images per class lie above one, on each data set."""
    return {name: compared(rows[name, 10, OURS], rows[name, 1, OURS]) for name in dict.fromkeys(dataset for dataset, *_ in rows)}


def near_the_paper(rows: Rows) -> Cases:
    """Ours is the paper's number, within a point."""
    return {place: near(o, CLOSE) for place, o in rows.items()}


def suit_others(matrix: Rows) -> Cases:
    """The ConvNet's images train each other network not worse by a point than that network's own images."""
    return {
        trained: Claim((between(Estimate.of(matrix[OURS, trained]), Estimate.of(matrix[trained, trained])),), least=-1.0)
        for trained in others(matrix, T, OURS)
    }


def suit_less(matrix: Rows) -> Cases:
    """The MLP's images train each convolutional network worse than that network's own images."""
    return {trained: compared(matrix[trained, trained], matrix["MLP", trained]) for trained in others(matrix, T, "MLP")}


def beats_distillation(rows: Rows) -> Cases:
    """Ten condensed images per class lie above ten of DD's by its steps and rates, on each network, and on MNIST one above ten."""
    places = [place for *place, way in rows if way == "distill" and place[1] == 10]
    pairs = {tuple(place): (rows[*place, dd.CONDENSED], rows[*place, "distill"]) for place in places}
    pairs[ONE_AGAINST_TEN] = rows["mnist", 1, "LeNet", dd.CONDENSED], rows["mnist", 10, "LeNet", "distill"]
    return {place: compared(*two) for place, two in pairs.items()}


def varies(one: Any, other: Any) -> Claim:
    """Networks on one lie `WIDER` times as far from the mean of all as those on the other."""
    far, close = ([fmean(abs(x - o.ours) for x in found) for found in o.accuracies] for o in (one, other))
    return Claim((between(Estimate.over(far), Estimate.over([WIDER * x for x in close])),))


def varies_more(rows: Rows) -> Cases:
    """DD's networks vary more than those on condensed images."""
    return {"mnist": varies(*(rows["mnist", 10, "LeNet", way] for way in ("distill", dd.CONDENSED)))}


# --- the records


def by(name: str, *axes: str, **narrowed: Any) -> Callable[[Store], Rows]:
    """The rows of an experiment by some of its axes."""
    return lambda store: {tuple(getattr(o, axis) for axis in axes): o for o in table(name, store=store, **narrowed).itertuples()}


def columns(name: str, *networks: str, ipc: Sequence[int] = (1, 10)) -> Callable[[Store], Rows]:
    """The rows of a table whose columns are what the images are made or chosen by."""
    return by(name, "dataset", "ipc", "network", ipc=ipc, network=(OURS, *networks), test_network=(OURS,))


def ablation(name: str) -> Callable[[Store], Rows]:
    """Our matrix at the best preset, of the cells that `cpu` declares."""

    def read(store: Store) -> Rows:
        asked = {(c.network, c.test_network, c.variant) for c in experiments.find(name).cells(CPU)}
        found = table(name, store=store)
        found = found[[place in asked for place in zip(found.network, found.test_network, found.variant, strict=True)]]
        rows = "variant" if name == "ablation_distance" else "network"
        down, across = labels(found, rows), labels(found, "test_network")
        down = {value: text.removeprefix("distance=").replace("default", "layerwise") for value, text in down.items()}
        return {(down[getattr(o, rows)], across[o.test_network]): o for o in found.itertuples()}

    return read


def distillation(store: Store) -> Rows:
    """The rows of Tables 3 and T10: data set, images per class, network that is trained, and method."""
    cells = table("distillation", store=store)
    rows = [*dd.table_10(cells).itertuples(), *dd.table_3(cells).itertuples()]
    return {(o.dataset, o.ipc, o.test_network, o.network): o for o in rows}


def memory(store: Store) -> Rows:
    """What each measurement of memory and time found, the last one last, by data set and device."""
    path, found = store.root / "memory.jsonl", {}
    for line in map(json.loads, path.read_text().splitlines() if path.exists() else ()):
        found.setdefault((line["case"]["dataset"], line["device"]), []).append(line["contestants"])
    return found


def growth(contestants: Mapping[str, Any], way: str) -> float:
    """MB that a method's tensors take more for each step of the network."""
    curve = {int(name.split("/")[1]): entry["allocated_mb"] for name, entry in contestants.items() if name.split("/")[0] == way}
    return (curve[max(curve)] - curve[min(curve)]) / (max(curve) - min(curve))


DD_ITERATIONS = {"mnist": 400 * 59, "cifar10": 400 * 49}  # epochs × batches of 1024
INNER_STEPS, OUTER_STEPS = 10, 1000  # of the paper at ten images per class


def iterations(contestants: Mapping[str, Any], dataset: str) -> dict[str, tuple[float, int]]:
    """Seconds of an outer step of condensing and of an iteration of DD, NaN without times, and how many the paper's runs take.

    An outer step has T updates of the images and T - 1 trainings of the network; `condense/50` is two updates and one training.
    """
    seconds = (contestants[name]["seconds"] or [math.nan] for name in ("condense/0", "condense/50", "unrolled/30"))
    update, both, iteration = map(median, seconds)
    outer = INNER_STEPS * update + (INNER_STEPS - 1) * max(0.0, both - 2 * update)
    return {"ours": (outer, OUTER_STEPS), "DD": (iteration, DD_ITERATIONS[dataset])}


def minutes(contestants: Mapping[str, Any], dataset: str) -> list[float]:
    """Minutes that condensing and DD take in all, extrapolated."""
    return [seconds * count / 60 for seconds, count in iterations(contestants, dataset).values()]


def takes_less(what: str) -> Callable[[Rows], Cases]:
    """Condensing takes less time where it was timed ("time"); DD's memory grows with the steps, condensation's does not ("memory").

    Counted bytes have no spread.
    """

    def decide(measured: Rows) -> Cases:
        found = {}
        for (dataset, device), every in measured.items():
            if what == "time":
                timed = [minutes(contestants, dataset) for contestants in every]
                difference = interval([theirs - ours for ours, theirs in timed if not math.isnan(ours)])
            else:
                more = growth(every[-1], "unrolled") - TIMES * abs(growth(every[-1], "condense"))
                difference = Interval(more, more, more)
            found[dataset, device] = Claim((difference,))
        return found

    return decide


# --- applications


def continual(store: Store) -> list[Learned]:
    """Fig. 4."""
    return learned(store=store)


def search(store: Store) -> Search:
    """Table 4."""
    return searched(store=store)


def more_without(found: Sequence[Learned]) -> Interval:
    """By how much the gain over herding is larger where nothing holds the network to its old outputs."""
    without, held = gains(found, False), gains(found, True)
    return interval([a - b for a, b in zip(without, held, strict=True)])


def keeps_more(found: Sequence[Learned]) -> Cases:
    """A memory of condensed images ends above herding's, in both settings, by more where nothing holds the network."""
    differences = {f"{held} distillation": interval(gains(found, held == "with")) for held in ("without", "with")}
    return {name: Claim((difference,)) for name, difference in (differences | {"more without": more_without(found)}).items()}


def finds_better(found: Search) -> Cases:
    """The best architecture by condensed images is better than the best by a rival; trainings are independent."""
    rivals = {rival: Estimate.over(found.performance(rival)) for rival in (RANDOM, "herding")}
    return {name: Claim((between(Estimate.over(found.performance("condense")), theirs),)) for name, theirs in rivals.items()}


def ranks_better(found: Search) -> Cases:
    """ρ of condensed images is positive over the ten best and, over all architectures, above that of each other proxy."""
    top = Interval(*found.correlation("condense", TOP)[:3])
    differences = {"the ten best": top} | {rival: found.advantage(rival) for rival in (RANDOM, "herding", "early")}
    return {name: Claim((difference,)) for name, difference in differences.items()}
