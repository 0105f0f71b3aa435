"""What the paper concludes from its ablations (Tables T2 to T7), and what it says of its choices, as tests on our records.

Each claim is a comparison with a tolerance from the spread, fixed before the runs that decide it. It must hold on the paper's own
numbers and fail where two names are swapped; on our records it is skipped, aloud, until its cells are recorded.
"""

import dataclasses
from collections.abc import Callable
from itertools import pairwise
from statistics import fmean, stdev

import pytest

from dclib import experiments, paper
from dclib.declared.ablations import OWN_RATE
from dclib.declared.presets import PAPER
from dclib.recorded.outcomes import Outcome, labels, look_up

LOST = 2.0  # standard errors


@dataclasses.dataclass(frozen=True)
class Number:
    """A cell: mean, standard deviation over networks, how many there are, and the mean of each set."""

    mean: float
    std: float
    count: int
    sets: tuple[float, ...]

    @property
    def variance(self) -> float:
        """Of the mean, by the spread of networks or by that of the sets' means, whichever is more."""
        sets = stdev(self.sets) ** 2 / len(self.sets) if len(self.sets) > 1 else 0.0
        return max(self.std**2 / self.count, sets)


Matrix = dict[tuple[str, str], Number]  # (C, T), or (distance, network)


def apart(matrix: Matrix, side: int, better: str, worse: str) -> float:
    """How far one value of a side is ahead of another, in standard errors: in the mean over the other side, pair by pair."""
    others = sorted({key[1 - side] for key in matrix})
    keys = [((better, o), (worse, o)) if side == 0 else ((o, better), (o, worse)) for o in others]
    differences = [matrix[a].mean - matrix[b].mean for a, b in keys]
    noise = sum(matrix[a].variance + matrix[b].variance for a, b in keys) / len(keys) ** 2
    error = max(stdev(differences) ** 2 / len(keys), noise) ** 0.5
    return fmean(differences) / error


def ahead(side: int, better: str, *worse: str) -> Callable[[Matrix], bool]:
    """`better` leads each of `worse` by more than two standard errors."""
    return lambda matrix: all(apart(matrix, side, better, other) > LOST for other in worse)


def not_behind(side: int, better: str, other: str) -> Callable[[Matrix], bool]:
    """`better` is not more than two standard errors behind, and not behind in the mean by as much as a point."""

    def holds(matrix: Matrix) -> bool:
        keys = [key for key in matrix if key[side] == better]
        gap = fmean(matrix[k].mean - matrix[(other, k[1]) if side == 0 else (k[0], other)].mean for k in keys)
        return apart(matrix, side, better, other) > -LOST and gap > -1.0

    return holds


def worst(side: int, *values: str) -> Callable[[Matrix], bool]:
    """Every other value of that side leads each of these by more than two standard errors."""

    def holds(matrix: Matrix) -> bool:
        others = {key[side] for key in matrix} - set(values)
        return all(apart(matrix, side, other, value) > LOST for other in others for value in values)

    return holds


def narrow(matrix: Matrix) -> bool:
    """The means of the rows lie within two standard deviations of one network's accuracy."""
    rows = {c for c, _ in matrix}
    means = [fmean(n.mean for key, n in matrix.items() if key[0] == c) for c in rows]
    return max(means) - min(means) < 2 * fmean(n.std for n in matrix.values())


def wins_on(network: str, better: str, *worse: str) -> Callable[[Matrix], bool]:
    """One distance leads the others on one network by more than two standard errors of the difference."""

    def holds(matrix: Matrix) -> bool:
        ours, others = matrix[better, network], [matrix[w, network] for w in worse]
        return all(ours.mean - o.mean > LOST * (ours.variance + o.variance) ** 0.5 for o in others)

    return holds


C, T = 0, 1
# experiment, claim, how it is decided, two names whose exchange on a side must undo it
CLAIMS = [
    ("ablation_normalization", "in training, instance norm is best", ahead(T, "instance", "none", "batch", "layer", "group"),
     (T, "instance", "group")),
    ("ablation_normalization", "in training, no norm and batch norm are worst", worst(T, "none", "batch"), (T, "none", "layer")),
    ("ablation_pooling", "in training, average pooling is not behind max pooling", not_behind(T, "avg", "max"), (T, "avg", "none")),
    ("ablation_pooling", "in training, no pooling is worst", worst(T, "none"), (T, "none", "max")),
    ("ablation_activation", "in training, sigmoid is worst", worst(T, "sigmoid"), (T, "sigmoid", "relu")),
    ("ablation_depth", "in training, one block is worst", worst(T, "1"), (T, "1", "3")),
    ("ablation_depth", "while condensing, one block is worst", worst(C, "1"), (C, "1", "3")),
    ("ablation_width", "while condensing, width hardly matters", narrow, None),
    ("ablation_distance", "on LeNet, the paper's distance wins", wins_on("LeNet", "layerwise", "euclidean", "cosine"),
     (C, "layerwise", "euclidean")),
]  # fmt: skip
# what our records at 60 outer steps show in place of a claim: in words, and how it is decided
FOUND = {
    "in training, sigmoid is worst": (
        "so it is on images condensed with the others; on those condensed with sigmoid, which come on slowly, it is best",
        lambda matrix: worst(T, "sigmoid")(without(matrix, C, "sigmoid")) and leads_on(matrix, C, "sigmoid", "sigmoid"),
    ),
    "while condensing, width hardly matters": (
        "the wider the network that condenses, the better its images, at one rate for all",
        lambda matrix: all(apart(matrix, C, wide, slim) > LOST for slim, wide in pairwise(("32", "64", "128", "256"))),
    ),
}
each = pytest.mark.parametrize(("name", "claim", "holds", "swap"), CLAIMS, ids=[f"{name}: {claim}" for name, claim, *_ in CLAIMS])


def without(matrix: Matrix, side: int, value: str) -> Matrix:
    """The matrix but for one row or column."""
    return {key: n for key, n in matrix.items() if key[side] != value}


def leads_on(matrix: Matrix, side: int, value: str, best: str) -> bool:
    """In one row or column, one cell leads every other by more than two standard errors of the difference."""
    line = {key[1 - side]: n for key, n in matrix.items() if key[side] == value}
    gaps = [(line[best].mean - n.mean, (line[best].variance + n.variance) ** 0.5) for name, n in line.items() if name != best]
    return all(gap > LOST * error for gap, error in gaps)


def exchanged(matrix: Matrix, side: int, a: str, b: str) -> Matrix:
    """The same numbers under two names exchanged."""
    other = {a: b, b: a}
    return {tuple(other.get(v, v) if i == side else v for i, v in enumerate(key)): n for key, n in matrix.items()}


def printed(name: str) -> Matrix:
    table = paper.ABLATIONS[name][1]
    return {key: Number(mean, std, paper.NETWORKS, ()) for key, (mean, std) in table.items()}


def number(o: Outcome) -> Number:
    return Number(o.mean, o.std, len(o.accuracies), tuple(map(fmean, o.sets)))


def recorded(name: str) -> Matrix:
    """Our matrix at the best preset; skips the test where a cell that `cpu` declares is not recorded."""
    asked = {tuple(cell.place.values()) for cell in experiments.find(name).cells(experiments.CPU)}
    outcomes = [o for o in look_up(name) if tuple(o.place.values()) in asked]
    if absent := sum(not o.shown for o in outcomes):
        pytest.skip(f"{absent} of {len(outcomes)} cells are not recorded: `dclib run {name} --preset cpu` computes them")
    rows = "variant" if name == "ablation_distance" else "network"
    down, across = labels(outcomes, rows), labels(outcomes, "test_network")
    down = {value: text.removeprefix("distance=").replace("default", "layerwise") for value, text in down.items()}
    return {(down[o.place[rows]], across[o.place["test_network"]]): number(o) for o in outcomes}


@each
def test_the_claim_holds_on_the_papers_numbers(name, claim, holds, swap):
    assert holds(printed(name))


@each
def test_the_claim_fails_under_names_exchanged(name, claim, holds, swap):
    if swap is None:  # no order is claimed, so one row is moved away in its place
        moved = {key: dataclasses.replace(n, mean=n.mean - 3 * (key[0] == "32")) for key, n in printed(name).items()}
        assert not holds(moved)
    else:
        assert not holds(exchanged(printed(name), *swap))


@each
def test_the_claim_on_our_records(name, claim, holds, swap):
    matrix = recorded(name)
    if claim in FOUND:
        words, found = FOUND[claim]
        assert not holds(matrix), f"{claim}: our records bear it out now"
        assert found(matrix), words
    else:
        assert holds(matrix), claim


# rows that lag at the rate of all others, and the rate at which they do not: they were slow, their images need not be poor
SLOW = [
    ("ablation_width", dict(network="ConvNet:width=32", test_network="ConvNet"), "", "image_lr=0.4"),
    ("ablation_distance", dict(network="MLP", test_network="MLP"), "distance=cosine", OWN_RATE),
    ("ablation_distance", dict(network="LeNet", test_network="LeNet"), "distance=cosine", OWN_RATE),
]


@pytest.mark.parametrize(("name", "place", "common", "own"), SLOW, ids=["32 filters", "cosine, MLP", "cosine, LeNet"])
def test_what_lags_at_the_common_rate_does_not_at_a_higher_one(name, place, common, own):
    slow, fast = (o.shown and number(o) for o in look_up(name, variant=[common, own], **place))
    if not (slow and fast):
        pytest.skip(f"not recorded: `dclib run {name} --preset cpu` with `--variants {own}` computes it")
    assert fast.mean - slow.mean > LOST * (slow.variance + fast.variance) ** 0.5


# --- the choices: comparable is not more apart than the spread allows


def choice(**place: object) -> Number:
    at = dict(dataset="mnist", ipc=1, network="ConvNet", test_network="ConvNet", variant="") | place
    (outcome,) = [o for o in look_up("choices") if o.place == at]
    if not outcome.shown:
        pytest.skip(f"{place or 'the default'} is not recorded: `dclib run choices --preset cpu` computes it")
    return number(outcome)


def comparable(a: Number, b: Number) -> bool:
    """Apart by no more than two standard errors, or one point if that is more, and by no more than two points whatever they are."""
    gap = abs(a.mean - b.mean)
    return gap < 2.0 and gap < max(LOST * (a.variance + b.variance) ** 0.5, 1.0)


COMPARABLE = [({"variant": "init=real"}, {}), ({"variant": "real_batch=256"}, {"variant": "real_batch=64"})]


@pytest.mark.parametrize(("one", "other"), COMPARABLE, ids=["noise and real images", "64 and 256 real images"])
def test_choices_said_to_be_comparable(one, other):
    assert comparable(choice(**one), choice(**other))


def test_bfloat16_costs_no_accuracy():
    """By the same measure; a set made in bfloat16 has rounding in its real gradients and network steps."""
    full, half, *_ = look_up("precision")
    assert (full.place["variant"], half.place["variant"]) == ("", "precision=bfloat16")
    if not (full.shown and half.shown):
        pytest.skip("not recorded: `dclib run precision --preset cpu` computes it")
    assert comparable(number(full), number(half))


def test_comparable_is_a_claim_that_can_fail():
    a = Number(90.0, 0.7, 6, (89.8, 90.2))
    assert comparable(a, dataclasses.replace(a, mean=90.9))
    assert not comparable(a, dataclasses.replace(a, mean=91.1))


def test_mixed_classes_learn_more_slowly():
    separate, mixed = choice(), choice(variant="batches=mixed")
    assert separate.mean - mixed.mean > LOST * (separate.variance + mixed.variance) ** 0.5


def test_strides_make_worse_images_than_average_pooling():
    average, strides = choice(network="ResNet18"), choice(network="ResNet18:downsampling=stride")
    assert average.mean - strides.mean > LOST * (average.variance + strides.variance) ** 0.5


def test_the_matrix_of_each_claim_is_the_papers():
    for name in paper.ABLATIONS:
        cells = experiments.find(name).cells(PAPER)
        assert len(printed(name)) == len([cell for cell in cells if cell.variant != OWN_RATE])
