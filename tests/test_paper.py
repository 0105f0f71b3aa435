"""The printed numbers. The sums were formed from the paper's source, so that a slip of the finger shows."""

import pytest

from dclib import experiments
from dclib.data import sources
from dclib.experiments import ablations, paper


def place(**other):
    return dict(dataset="mnist", ipc=1, network="ConvNet", test_network="ConvNet", variant="") | other


def test_tables_are_complete():
    assert set(paper.TABLE_2) == {(a, b) for a in experiments.SIX for b in experiments.SIX}
    sets, sizes, methods = paper.WHOLE, ("1", "10", "50"), ("random", "herding", "k-center", "forgetting", "ours")
    assert set(paper.TABLE_1) == {(d, n, m) for d in sets for n in sizes for m in methods}
    more = ("top-1000", "top-100", "top-10", "cGAN", "ours")
    assert set(paper.TABLE_T8) == {(d, n, m) for d in sets for n in ("1", "10") for m in more}
    assert set(paper.TABLE_T9) == {("cifar100", n, m) for n in ("1", "10") for m in (*methods, "LD")} - {("cifar100", "10", "LD")}


@pytest.mark.parametrize(
    ("table", "means", "deviations", "ordered"),
    [
        (paper.TABLE_1, 3274.5, 81.9, 79564.6),
        (paper.TABLE_2, 2926.8, 89.3, 55639.0),
        (paper.TABLE_T2, 808.3, 5.6, 4058.8),
        (paper.TABLE_T3, 773.3, 16.2, 3943.6),
        (paper.TABLE_T4, 2084.9, 55.0, 27144.0),
        (paper.TABLE_T5, 1349.1, 24.9, 11917.4),
        (paper.TABLE_T6, 1461.5, 9.7, 12430.1),
        (paper.TABLE_T7, 1276.9, 65.3, 12638.1),
        (paper.TABLE_3, 358.5, 13.6, 1041.1),
        (paper.TABLE_T8, 2117.7, 49.5, 33990.5),
        (paper.TABLE_T9, 122.7, 3.5, 873.9),
        (paper.TABLE_T10, 903.9, 55.4, 6341.4),
    ],
    ids=["Table 1", "Table 2", "T2", "T3", "T4", "T5", "T6", "T7", "Table 3", "Table T8", "Table T9", "Table T10"],
)
def test_sums(table, means, deviations, ordered):
    assert sum(m for m, _ in table.values()) == pytest.approx(means)
    assert sum(s for _, s in table.values()) == pytest.approx(deviations)
    assert sum(i * m for i, (m, _) in enumerate(table.values(), 1)) == pytest.approx(ordered)  # in the paper's order


@pytest.mark.parametrize(
    ("name", "table"), [(name, table) for name, (_, table) in paper.ABLATIONS.items()], ids=list(paper.ABLATIONS)
)
def test_every_cell_of_an_ablation_has_its_number(name, table):
    cells = [cell for cell in experiments.find(name).cells(experiments.PAPER) if cell.variant != ablations.OWN_RATE]
    assert sorted(paper.find(name, cell.place) for cell in cells) == sorted(table.values())


def test_the_paper_has_no_distance_at_a_rate_of_its_own():
    cells = experiments.find("ablation_distance").cells(experiments.PAPER, variant=[ablations.OWN_RATE])
    assert {paper.find("ablation_distance", cell.place) for cell in cells} == {None}


def test_cost_is_as_printed():
    assert paper.TABLE_T11[("DD", "cifar10")] == (3211, 214)
    memory, minutes = map(sum, zip(*paper.TABLE_T11.values(), strict=True))
    assert (memory, minutes) == (6094, 525)


def test_statistics_are_those_of_the_data_sets_we_load():
    assert {name: sources.KNOWN[name].counts for name in paper.TABLE_T1} == paper.TABLE_T1


def test_find_gives_the_cell_of_the_experiment():
    """A number or two of each table, with which axis it goes by where there are two."""
    sigmoid, none, lenet = "ConvNet:activation=sigmoid", "ConvNet:norm=none", dict(network="LeNet", test_network="LeNet")
    alex = dict(dataset="cifar10", test_network="AlexCifarNet")
    for experiment, other, number in (
        ("cross_arch", dict(network="MLP", test_network="ResNet18"), (80.9, 3.6)),
        ("cross_arch", dict(network="ResNet18", test_network="MLP"), (73.6, 1.2)),
        ("method", dict(dataset="cifar10", ipc=50), (53.9, 0.5)),
        ("coresets", dict(dataset="svhn", ipc=10, network="k-center"), (14.0, 1.3)),
        ("coresets", dict(network="whole"), (99.6, 0.0)),
        ("images_per_class", dict(dataset="cifar10", ipc=50, network="herding"), (40.4, 0.6)),
        ("condensed_images", dict(ipc=10), (97.4, 0.2)),
        ("more_baselines", dict(dataset="fashionmnist", ipc=10, network="ors-hundredth"), (77.6, 0.2)),
        ("more_baselines", dict(network="gan"), (64.0, 3.2)),
        ("ablation_activation", dict(network=sigmoid), (91.2, 0.6)),
        ("ablation_activation", dict(test_network=sigmoid), (86.1, 0.9)),
        ("ablation_normalization", dict(network=none, test_network="ConvNet:norm=batch"), (80.8, 2.0)),
        ("ablation_depth", dict(network="ConvNet:depth=1", test_network="ConvNet:depth=4"), (76.4, 3.5)),
        ("ablation_distance", {}, (91.7, 0.5)),
        ("ablation_distance", dict(variant="distance=euclidean", **lenet), (65.0, 5.1)),
        ("cifar100", dict(dataset="cifar100", ipc=10, network="forgetting"), (9.8, 0.2)),
        ("distillation", dict(ipc=10, **lenet), (93.9, 0.6)),
        ("distillation", dict(ipc=10, network="distill", test_network="LeNet"), (79.5, 8.1)),
        ("distillation", dict(ipc=10, network="distill", test_network="VGG11"), (11.4, 2.6)),
        ("distillation", dict(ipc=10, network="distill", **alex), (36.8, 1.2)),
        ("distillation", dict(network="whole", **alex), (83.1, 0.2)),
    ):
        assert paper.find(experiment, place(**other)) == number, (experiment, other)


NOTHING = {
    "cross_arch": [{"dataset": "digits"}, {"ipc": 10}, {"network": "random"}, {"network": "ConvNet:width=64"}],
    "method": [{"dataset": "svhn10k"}, {"network": "LeNet"}, {"test_network": "LeNet"}, {"ipc": 2}],
    "coresets": [{"dataset": "svhn10k", "network": "whole"}, {"test_network": "LeNet", "network": "whole"}],
    "images_per_class": [{"ipc": 20}],
    "ablation_width": [{"network": "random"}, {"dataset": "fashionmnist"}, {"variant": "init=real"}],
    "ablation_distance": [{"test_network": "LeNet"}, {"variant": "init=real"}],
    "ablation_loops": [{"variant": "outer_steps=5,inner_steps=1"}],
    "choices": [{}],
    "cifar100": [{"dataset": "cifar100", "network": "LD", "ipc": 10}],
    "distillation": [
        {"network": "distill", "test_network": "LeNet"},
        {"network": "distill-plain", "test_network": "LeNet", "ipc": 10},
        {"network": "LeNet", "test_network": "MLP"},
        {"network": "whole", "test_network": "MLP"},
        {"dataset": "cifar10", "network": "LeNet", "test_network": "MLP", "ipc": 10},
    ],
}


def test_find_gives_nothing_where_the_paper_has_nothing():
    asked = [(name, other) for name, others in NOTHING.items() for other in others]
    assert [(name, other) for name, other in asked if paper.find(name, place(**other))] == []
