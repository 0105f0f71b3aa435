"""dclib.paper: the printed numbers. The sums were formed from the paper's source, so that a slip of the finger shows."""

import pytest

from dclib import experiments, paper, sources


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
        (paper.TABLE_T8, 2117.7, 49.5, 33990.5),
        (paper.TABLE_T9, 122.7, 3.5, 873.9),
    ],
    ids=["Table 1", "Table 2", "Table T8", "Table T9"],
)
def test_sums(table, means, deviations, ordered):
    assert sum(m for m, _ in table.values()) == pytest.approx(means)
    assert sum(s for _, s in table.values()) == pytest.approx(deviations)
    assert sum(i * m for i, (m, _) in enumerate(table.values(), 1)) == pytest.approx(ordered)  # in the paper's order


def test_statistics_are_those_of_the_data_sets_we_load():
    assert {name: sources.KNOWN[name].counts for name in paper.TABLE_T1} == paper.TABLE_T1


def test_find_gives_the_cell_of_the_experiment():
    assert paper.find("cross_arch", place(network="MLP", test_network="ResNet18")) == (80.9, 3.6)
    assert paper.find("cross_arch", place(network="ResNet18", test_network="MLP")) == (73.6, 1.2)
    assert paper.find("method", place()) == (91.7, 0.5)
    assert paper.find("method", place(dataset="fashionmnist")) == (70.5, 0.6)
    assert paper.find("method", place(dataset="cifar10", ipc=50)) == (53.9, 0.5)
    assert paper.find("coresets", place(dataset="svhn", ipc=10, network="k-center")) == (14.0, 1.3)
    assert paper.find("coresets", place(network="whole")) == (99.6, 0.0)
    assert paper.find("images_per_class", place(dataset="cifar10", ipc=50, network="herding")) == (40.4, 0.6)
    assert paper.find("condensed_images", place(ipc=10)) == (97.4, 0.2)
    assert paper.find("more_baselines", place(dataset="fashionmnist", ipc=10, network="ors-hundredth")) == (77.6, 0.2)
    assert paper.find("more_baselines", place(network="ors")) == (64.3, 6.1)
    assert paper.find("more_baselines", place(network="gan")) == (64.0, 3.2)
    assert paper.find("cifar100", place(dataset="cifar100", network="whole")) == (56.2, 0.3)
    assert paper.find("cifar100", place(dataset="cifar100", ipc=10, network="forgetting")) == (9.8, 0.2)


@pytest.mark.parametrize(
    ("experiment", "other"),
    [
        ("cross_arch", {"dataset": "digits"}),
        ("cross_arch", {"ipc": 10}),
        ("cross_arch", {"network": "random"}),
        ("cross_arch", {"network": "ConvNet:width=64"}),
        ("method", {"dataset": "svhn10k"}),
        ("method", {"network": "LeNet"}),
        ("method", {"test_network": "LeNet"}),
        ("method", {"ipc": 2}),
        ("other", {}),
        ("coresets", {"dataset": "svhn10k"}),
        ("coresets", {"dataset": "svhn10k", "network": "whole"}),
        ("coresets", {"test_network": "LeNet", "network": "whole"}),
        ("images_per_class", {"ipc": 20}),
        ("cifar100", {"dataset": "cifar100", "network": "LD", "ipc": 10}),
    ],
)
def test_find_gives_nothing_where_the_paper_has_nothing(experiment, other):
    assert paper.find(experiment, place(**other)) is None
