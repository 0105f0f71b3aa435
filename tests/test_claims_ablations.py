"""What the paper concludes from its ablations (Tables T2 to T7), and what it says of its choices, as tests on our records.

Each test says what the paper's own numbers and what our records say of a claim: it holds, is refuted, or is not decided. What
compares networks trained on the same sets is paired, set by set; what compares sets of which there is one each is not decided.
"""

from functools import cache
from itertools import pairwise

import pytest
from cells import cell, committed, exchanged, printed

from dclib import experiments
from dclib.experiments import paper
from dclib.experiments.ablations import OWN_RATE
from dclib.experiments.presets import PAPER
from dclib.report import decisions as on
from dclib.report.decisions import C, T
from dclib.report.scoreboard import RESNETS, STATEMENTS
from dclib.results.claims import HOLDS, OPEN, REFUTED, Claim, compared
from dclib.results.outcomes import table


def sigmoid_likes_its_own(matrix: on.Rows) -> Claim:
    """In training, sigmoid is worst on images condensed with the others, and best on those condensed with it."""
    rest = {key: o for key, o in matrix.items() if key[C] != "sigmoid"}
    own = compared(matrix["sigmoid", "sigmoid"], *(matrix["sigmoid", t] for t in on.others(matrix, T, "sigmoid")))
    return Claim(on.worst(T, "sigmoid")(rest).differences + own.differences)


def wider_is_better(matrix: on.Rows) -> Claim:
    """The wider the network that condenses, the better its images."""
    return Claim(tuple(on.apart(matrix, C, wide, slim) for slim, wide in pairwise(("32", "64", "128", "256"))))


# what the pages say beyond the paper
OF_PAGES = {
    "ablation_activation": on.cases({"in training, sigmoid is best on its own images alone": sigmoid_likes_its_own}),
    "ablation_width": on.cases({"while condensing, the wider the better": wider_is_better}),
}
# experiment, claim, two names whose exchange on a side refutes it, verdict on the paper's numbers and on ours
CLAIMS = [
    ("ablation_normalization", "in training, instance norm is best", (T, "instance", "batch"), HOLDS, HOLDS),
    ("ablation_normalization", "in training, no norm and batch norm are worst", (T, "none", "layer"), OPEN, HOLDS),
    ("ablation_pooling", "in training, average pooling is not behind max pooling", (T, "avg", "none"), OPEN, OPEN),
    ("ablation_pooling", "in training, no pooling is worst", (T, "none", "max"), OPEN, OPEN),
    ("ablation_activation", "in training, sigmoid is worst", (T, "sigmoid", "relu"), HOLDS, OPEN),
    ("ablation_activation", "in training, sigmoid is best on its own images alone", (T, "sigmoid", "relu"), REFUTED, OPEN),
    ("ablation_depth", "in training, one block is worst", (T, "1", "3"), HOLDS, HOLDS),
    ("ablation_depth", "while condensing, one block is worst", (C, "1", "3"), HOLDS, OPEN),
    ("ablation_width", "while condensing, width hardly matters", None, OPEN, OPEN),
    ("ablation_width", "while condensing, the wider the better", (C, "32", "256"), OPEN, OPEN),
    ("ablation_distance", "on LeNet, the paper's distance wins", (C, "layerwise", "euclidean"), HOLDS, OPEN),
]
each = pytest.mark.parametrize(("name", "claim", "swap", "theirs", "ours"), CLAIMS, ids=[c[1] for c in CLAIMS])


def decided(name: str, matrix: on.Rows) -> on.Cases:
    """Every claim on an ablation, decided: the paper's and the page's."""
    (statement,) = (s for s in STATEMENTS if s.page == name)
    return statement.decide(matrix) | OF_PAGES.get(name, on.cases({}))(matrix)


@cache
def in_paper(name: str) -> on.Rows:
    """The paper's matrix."""
    return {key: printed(*number) for key, number in paper.ABLATIONS[name][1].items()}


@cache
def recorded(name: str) -> on.Rows:
    """Ours."""
    return on.ablation(name)(committed())


def checked(name: str, claim: str, matrix: on.Rows, swap: tuple | None, verdict: str) -> None:
    """The verdict is as told, and where a directional claim holds, it is refuted under two names exchanged."""
    assert decided(name, matrix)[claim].verdict == verdict
    if swap and verdict == HOLDS:
        side, one, other = swap
        assert decided(name, exchanged(matrix, one, other, side))[claim].verdict == REFUTED


@each
def test_the_claim_on_the_papers_numbers(name, claim, swap, theirs, ours):
    checked(name, claim, in_paper(name), swap, theirs)


@each
def test_the_claim_on_our_records(name, claim, swap, theirs, ours):
    checked(name, claim, recorded(name), swap, ours)


def test_no_claim_is_left_out():
    assert {(name, claim) for name in paper.ABLATIONS for claim in decided(name, in_paper(name))} == {c[:2] for c in CLAIMS}


def test_a_row_that_lies_far_off_refutes_that_width_hardly_matters():
    close = {(c, t): cell([90.0, 92.0], [90.2, 92.2]) for c in ("32", "64") for t in ("32", "64")}
    assert on.narrow(close).verdict == HOLDS
    far = {key: o if key[C] == "64" else cell([70.0, 72.0], [70.2, 72.2]) for key, o in close.items()}
    assert on.narrow(far).verdict == REFUTED


# rows that lag at the rate of all others, and the rate at which they do not: they were slow, their images need not be poor
SLOW = [
    ("ablation_width", dict(network="ConvNet:width=32", test_network="ConvNet"), "", "image_lr=0.4", OPEN),
    ("ablation_distance", dict(network="MLP", test_network="MLP"), "distance=cosine", OWN_RATE, HOLDS),
    ("ablation_distance", dict(network="LeNet", test_network="LeNet"), "distance=cosine", OWN_RATE, HOLDS),
]


@pytest.mark.parametrize(("name", "place", "common", "own", "verdict"), SLOW, ids=["32 filters", "cosine, MLP", "cosine, LeNet"])
def test_what_lags_at_the_common_rate_does_not_at_a_higher_one(name, place, common, own, verdict):
    slow, fast = table(name, store=committed(), variant=[common, own], **place).itertuples()
    assert compared(fast, slow).verdict == verdict
    assert compared(slow, fast).verdict == (REFUTED if verdict == HOLDS else OPEN)


# --- the choices


CHOICES = ["noise and real images", "64 and 256 real images", "classes apart learn faster"]
CHOICES += ["average pooling makes better images than strides"]


def test_the_choices():
    (statement,) = (s for s in STATEMENTS if s.page == "choices")
    found = statement.read(committed())
    assert {name: claim.verdict for name, claim in statement.decide(found).items()} == dict.fromkeys(CHOICES, OPEN)


def test_choices_are_compared_the_right_way_round():
    (statement,) = (s for s in STATEMENTS if s.page == "choices")
    better, worse = cell([90.0], [90.2]), cell([50.0], [50.2])
    names = [(1, "ConvNet", v) for v in ("", "init=real", "real_batch=64", "real_batch=256")] + [(1, "ResNet18", "")]
    found = dict.fromkeys(names, better) | dict.fromkeys([(1, "ConvNet", "batches=mixed"), (1, RESNETS[1], "")], worse)
    assert {claim.verdict for claim in statement.decide(found).values()} == {HOLDS}
    turned = {place: better if row is worse else worse for place, row in found.items()} | {(1, "ConvNet", "init=real"): better}
    assert [claim.verdict for claim in statement.decide(turned).values()] == [REFUTED, HOLDS, REFUTED, REFUTED]


def test_bfloat16_costs_no_accuracy():
    """By the same measure; a set made in bfloat16 has rounding in its real gradients and network steps."""
    full, half, *_ = table("precision", store=committed()).itertuples()
    assert (full.variant, half.variant) == ("", "precision=bfloat16")
    assert on.alike(half, full).verdict == OPEN


def test_the_matrix_of_each_claim_is_the_papers():
    for name in paper.ABLATIONS:
        cells = experiments.find(name).cells(PAPER)
        assert len(in_paper(name)) == len([c for c in cells if c.variant != OWN_RATE])
