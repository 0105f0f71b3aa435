"""The claims of the page on Dataset Distillation, on whatever is recorded; each test says what the records say of it now.

DD on CIFAR10 at `cpu` is truncated and of one set, which decides nothing; on MNIST it has a fifth of its iterations there, and
condensation an eighth of its outer steps at ten images per class, from real images: what is decided holds for that, and a lead
over DD is the method's only where there is one over random real images, too.
"""

import json
from functools import cache
from statistics import fmean
from typing import Any

import pytest
from cells import cell

from dclib.experiments import dd
from dclib.results import Store
from dclib.results.claims import HOLDS, OPEN, REFUTED, Claim, Estimate, between, compared
from dclib.results.outcomes import table

WIDER = 2.0  # times the deviation over all networks trained on condensed sets that DD's is; in the paper 13 times
TIMES = 5.0  # DD's growth in memory over condensation's, from the fewest steps to the most; set after MNIST's first measurement


@cache
def recorded(part):
    """The rows of a table by their place: data set, images per class, network that is trained, and method."""
    return {(o.dataset, o.ipc, o.test_network, o.network): o for o in part(table("distillation")).itertuples()}


# --- on the records: the cell, what DD or random images are compared in, and what is decided

LEADS = [
    (dd.table_3, "mnist", 1, "LeNet", "distill", HOLDS),
    (dd.table_3, "mnist", 10, "LeNet", "distill", HOLDS),
    (dd.table_10, "mnist", 10, "LeNet", "distill-plain", HOLDS),
    (dd.table_10, "mnist", 10, "ConvNet", "distill", HOLDS),
    (dd.table_10, "mnist", 10, "ConvNet", "distill-plain", HOLDS),
    (dd.table_10, "mnist", 10, "MLP", "distill", OPEN),
    (dd.table_10, "mnist", 10, "MLP", "distill-plain", OPEN),
    # after an eighth of the outer steps ten images per class are hardly ahead of the real ones that they start from
    (dd.table_10, "mnist", 10, "LeNet", "random", OPEN),
    (dd.table_10, "mnist", 10, "ConvNet", "random", OPEN),
    (dd.table_10, "mnist", 10, "MLP", "random", OPEN),
    (dd.table_3, "mnist", 1, "LeNet", "random", OPEN),
    (dd.table_3, "cifar10", 1, "AlexCifarNet", "random", HOLDS),
    (dd.table_3, "cifar10", 10, "AlexCifarNet", "distill", OPEN),
]


@pytest.mark.parametrize(("part", "dataset", "ipc", "network", "way", "verdict"), LEADS)
def test_condensed_images_train_networks_better(part, dataset, ipc, network, way, verdict):
    found = recorded(part)
    ours, theirs = (found[dataset, ipc, network, name] for name in ("condensed", way))
    assert compared(ours, theirs).verdict == verdict
    assert compared(theirs, ours).verdict == (REFUTED if verdict == HOLDS else OPEN)


def test_whether_one_condensed_image_beats_ten_distilled_ones_is_not_decided():
    """The paper's words on MNIST (Sec. 3.1): one condensed image for each class against ten of DD's; at `cpu` truncated."""
    found = recorded(dd.table_3)
    ours, theirs = found["mnist", 1, "LeNet", "condensed"], found["mnist", 10, "LeNet", "distill"]
    assert compared(ours, theirs).verdict == OPEN


def varies(one: Any, other: Any) -> str:
    """What becomes of the claim that networks on one lie `WIDER` times as far from the mean of all as those on the other."""
    far, near = ([fmean(abs(x - o.ours) for x in found) for found in o.accuracies] for o in (one, other))
    return Claim((between(Estimate.over(far), Estimate.over([WIDER * x for x in near])),)).verdict


def test_whether_networks_on_distilled_images_vary_more_is_not_decided():
    """The paper's 8.1 against 0.6 is over all networks trained."""
    found = recorded(dd.table_3)
    ours, theirs = found["mnist", 10, "LeNet", "condensed"], found["mnist", 10, "LeNet", "distill"]
    assert varies(theirs, ours) == OPEN
    assert varies(ours, theirs) == REFUTED


def test_memory_grows_with_the_steps_of_distillation_and_not_with_those_of_condensation():
    lines = [json.loads(line) for line in (Store().root / "memory.jsonl").read_text().splitlines()]
    last = {(line["case"]["dataset"], line["device"]): line["contestants"] for line in lines}
    assert last
    for contestants in last.values():
        curves = {"unrolled": {}, "condense": {}}
        for name, entry in contestants.items():
            way, steps = name.split("/")
            curves.get(way, {})[int(steps)] = entry["allocated_mb"]
        curve = [curves["unrolled"][steps] for steps in sorted(curves["unrolled"])]
        assert curve == sorted(curve)
        theirs, ours = ((c[max(c)] - c[min(c)]) / (max(c) - min(c)) for c in curves.values())
        assert theirs > TIMES * abs(ours)


# --- the tests can fail


def test_swapping_the_methods_is_noticed():
    ours = cell((93.0, 94.0, 94.5), (93.5, 94.0, 93.0), (93.0, 93.5, 94.0))
    theirs = cell((75.0, 76.0, 83.0), (83.0, 84.0, 75.0), (75.0, 76.0, 83.0))
    assert [compared(*two).verdict for two in ((ours, theirs), (theirs, ours), (ours, ours))] == [HOLDS, REFUTED, OPEN]
    assert (varies(theirs, ours), varies(ours, theirs)) == (HOLDS, REFUTED)


def test_a_single_set_decides_nothing():
    assert compared(cell((93.0, 94.0), (93.5, 94.0)), cell((75.0, 76.0, 77.0))).verdict == OPEN
