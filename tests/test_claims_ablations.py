"""What the paper concludes from its ablations (Tables T2 to T7), and what it says of its choices, as tests on our records.

Each test says what the paper's own numbers and what our records say of a claim: it holds, is refuted, or is not decided. What
compares networks trained on the same sets is paired, set by set; what compares sets of which there is one each is not decided.
"""

from collections.abc import Callable
from functools import cache
from itertools import combinations, pairwise
from statistics import fmean
from typing import Any

import pytest
from cells import cell

from dclib import experiments
from dclib.experiments import paper
from dclib.experiments.ablations import OWN_RATE
from dclib.experiments.presets import PAPER
from dclib.results.claims import HOLDS, OPEN, REFUTED, Claim, Estimate, Interval, between, compared, interval
from dclib.results.outcomes import labels, table

Matrix = dict[tuple[str, str], Any]  # (C, T), or (distance, network)
Decide = Callable[[Matrix], Claim]
C, T = 0, 1


def others(matrix: Matrix, side: int, *values: str) -> list[str]:
    """The other values of a side."""
    return [value for value in dict.fromkeys(key[side] for key in matrix) if value not in values]


def made_with(matrix: Matrix, value: str) -> Estimate:
    """The mean over what is trained, set by set as far as all were trained on them, of those condensed in one way."""
    sets = [o.accuracies for key, o in matrix.items() if key[C] == value]
    return Estimate.over([fmean(map(fmean, same)) for same in zip(*sets, strict=False)])


def apart(matrix: Matrix, side: int, one: str, other: str) -> Interval:
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


def narrow(matrix: Matrix) -> Claim:
    """The means of the rows are equal, within two standard deviations of one network's accuracy."""
    rows = combinations(others(matrix, C), 2)
    return Claim(tuple(apart(matrix, C, *two) for two in rows), margin=2 * fmean(o.std for o in matrix.values()))


def wins_on(network: str, better: str, *worse: str) -> Decide:
    """One distance leads the others on one network."""
    return lambda matrix: compared(matrix[better, network], *(matrix[w, network] for w in worse))


def sigmoid_likes_its_own(matrix: Matrix) -> Claim:
    """In training, sigmoid is worst on images condensed with the others, and best on those condensed with it."""
    rest = {key: o for key, o in matrix.items() if key[C] != "sigmoid"}
    own = compared(matrix["sigmoid", "sigmoid"], *(matrix["sigmoid", t] for t in others(matrix, T, "sigmoid")))
    return Claim(worst(T, "sigmoid")(rest).differences + own.differences)


def wider_is_better(matrix: Matrix) -> Claim:
    """The wider the network that condenses, the better its images."""
    return Claim(tuple(apart(matrix, C, wide, slim) for slim, wide in pairwise(("32", "64", "128", "256"))))


# experiment, claim, how it is decided, two names whose exchange on a side refutes it, verdict on the paper's numbers and on ours
CLAIMS = [
    ("ablation_normalization", "in training, instance norm is best", ahead(T, "instance", "none", "batch", "layer", "group"),
     (T, "instance", "batch"), HOLDS, HOLDS),
    ("ablation_normalization", "in training, no norm and batch norm are worst", worst(T, "none", "batch"),
     (T, "none", "layer"), OPEN, HOLDS),
    ("ablation_pooling", "in training, average pooling is not behind max pooling", not_behind(T, "avg", "max"),
     (T, "avg", "none"), OPEN, OPEN),
    ("ablation_pooling", "in training, no pooling is worst", worst(T, "none"), (T, "none", "max"), OPEN, OPEN),
    ("ablation_activation", "in training, sigmoid is worst", worst(T, "sigmoid"), (T, "sigmoid", "relu"), HOLDS, OPEN),
    ("ablation_activation", "in training, sigmoid is best on its own images alone", sigmoid_likes_its_own,
     (T, "sigmoid", "relu"), REFUTED, OPEN),
    ("ablation_depth", "in training, one block is worst", worst(T, "1"), (T, "1", "3"), HOLDS, HOLDS),
    ("ablation_depth", "while condensing, one block is worst", worst(C, "1"), (C, "1", "3"), HOLDS, OPEN),
    ("ablation_width", "while condensing, width hardly matters", narrow, None, OPEN, OPEN),
    ("ablation_width", "while condensing, the wider the better", wider_is_better, (C, "32", "256"), OPEN, OPEN),
    ("ablation_distance", "on LeNet, the paper's distance wins", wins_on("LeNet", "layerwise", "euclidean", "cosine"),
     (C, "layerwise", "euclidean"), HOLDS, OPEN),
]  # fmt: skip
each = pytest.mark.parametrize(("name", "claim", "decide", "swap", "theirs", "ours"), CLAIMS, ids=[c[1] for c in CLAIMS])


def exchanged(matrix: Matrix, side: int, a: str, b: str) -> Matrix:
    """The same numbers under two names exchanged."""
    other = {a: b, b: a}
    return {tuple(other.get(v, v) if i == side else v for i, v in enumerate(key)): o for key, o in matrix.items()}


def printed(name: str) -> Matrix:
    """The paper's matrix: five sets for each number, all of whose spread is between sets."""
    spread = (-(2**0.5), -(0.5**0.5), 0.0, 0.5**0.5, 2**0.5)
    return {key: cell(*([mean + std * x] for x in spread)) for key, (mean, std) in paper.ABLATIONS[name][1].items()}


@cache
def recorded(name: str) -> Matrix:
    """Our matrix at the best preset, of the cells that `cpu` declares."""
    asked = {(c.network, c.test_network, c.variant) for c in experiments.find(name).cells(experiments.CPU)}
    found = table(name)
    found = found[[place in asked for place in zip(found.network, found.test_network, found.variant, strict=True)]]
    rows = "variant" if name == "ablation_distance" else "network"
    down, across = labels(found, rows), labels(found, "test_network")
    down = {value: text.removeprefix("distance=").replace("default", "layerwise") for value, text in down.items()}
    return {(down[getattr(o, rows)], across[o.test_network]): o for o in found.itertuples()}


def checked(matrix: Matrix, decide: Decide, swap: tuple | None, verdict: str) -> None:
    """The verdict is as told, and where a directional claim holds, it is refuted under two names exchanged."""
    assert decide(matrix).verdict == verdict
    if swap and verdict == HOLDS:
        assert decide(exchanged(matrix, *swap)).verdict == REFUTED


@each
def test_the_claim_on_the_papers_numbers(name, claim, decide, swap, theirs, ours):
    checked(printed(name), decide, swap, theirs)


@each
def test_the_claim_on_our_records(name, claim, decide, swap, theirs, ours):
    checked(recorded(name), decide, swap, ours)


def test_a_row_that_lies_far_off_refutes_that_width_hardly_matters():
    close = {(c, t): cell([90.0, 92.0], [90.2, 92.2]) for c in ("32", "64") for t in ("32", "64")}
    assert narrow(close).verdict == HOLDS
    far = {key: o if key[C] == "64" else cell([70.0, 72.0], [70.2, 72.2]) for key, o in close.items()}
    assert narrow(far).verdict == REFUTED


# rows that lag at the rate of all others, and the rate at which they do not: they were slow, their images need not be poor
SLOW = [
    ("ablation_width", dict(network="ConvNet:width=32", test_network="ConvNet"), "", "image_lr=0.4", OPEN),
    ("ablation_distance", dict(network="MLP", test_network="MLP"), "distance=cosine", OWN_RATE, HOLDS),
    ("ablation_distance", dict(network="LeNet", test_network="LeNet"), "distance=cosine", OWN_RATE, HOLDS),
]


@pytest.mark.parametrize(("name", "place", "common", "own", "verdict"), SLOW, ids=["32 filters", "cosine, MLP", "cosine, LeNet"])
def test_what_lags_at_the_common_rate_does_not_at_a_higher_one(name, place, common, own, verdict):
    slow, fast = table(name, variant=[common, own], **place).itertuples()
    assert compared(fast, slow).verdict == verdict
    assert compared(slow, fast).verdict == (REFUTED if verdict == HOLDS else OPEN)


# --- the choices


COMPARABLE = 2.0  # points


@cache
def choices() -> Any:
    return table("choices")


def choice(ipc: int = 1, network: str = "ConvNet", variant: str = "") -> Any:
    found = choices()
    (row,) = found[(found.ipc == ipc) & (found.network == network) & (found.variant == variant)].itertuples()
    return row


def alike(one: Any, other: Any) -> str:
    """What becomes of the claim that two choices are apart by no more than two points."""
    return Claim((between(Estimate.of(one), Estimate.of(other)),), margin=COMPARABLE).verdict


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [({"variant": "init=real"}, {}, OPEN), ({"variant": "real_batch=256"}, {"variant": "real_batch=64"}, OPEN)],
    ids=["noise and real images", "64 and 256 real images"],
)
def test_choices_said_to_be_comparable(one, other, verdict):
    assert alike(choice(**one), choice(**other)) == verdict


def test_bfloat16_costs_no_accuracy():
    """By the same measure; a set made in bfloat16 has rounding in its real gradients and network steps."""
    full, half, *_ = table("precision").itertuples()
    assert (full.variant, half.variant) == ("", "precision=bfloat16")
    assert alike(half, full) == OPEN


@pytest.mark.parametrize(
    ("better", "worse", "verdict"),
    [
        ({}, {"variant": "batches=mixed"}, OPEN),
        ({"network": "ResNet18"}, {"network": "ResNet18:downsampling=stride"}, OPEN),
    ],
    ids=["classes apart learn faster", "average pooling makes better images than strides"],
)
def test_one_choice_is_better(better, worse, verdict):
    one, other = choice(**better), choice(**worse)
    assert compared(one, other).verdict == verdict
    assert compared(other, one).verdict == (REFUTED if verdict == HOLDS else OPEN)


def test_the_matrix_of_each_claim_is_the_papers():
    for name in paper.ABLATIONS:
        cells = experiments.find(name).cells(PAPER)
        assert len(printed(name)) == len([c for c in cells if c.variant != OWN_RATE])
