"""The declarations: keys that never move, grids that can be narrowed, presets that spell everything out."""

import dataclasses
import json

import pytest

from dclib import experiments
from dclib.experiments import (
    AXES,
    CORESETS,
    CPU,
    CROSS_ARCH,
    IMAGES_PER_CLASS,
    INSTEAD,
    METHOD,
    MORE_BASELINES,
    ORS,
    PAPER,
    PRESETS,
    RANDOM,
    SMOKE,
    WHOLE,
    Table,
)
from dclib.experiments.ablations import ABLATIONS
from dclib.experiments.dd import DD
from dclib.spec import GUIDED, ConvNet, TrainNetworks, full, spell

TABLES = (*experiments.tables.TABLES, *ABLATIONS)


def cell(preset, network="ConvNet", test_network="ConvNet", **more):
    (found,) = CROSS_ARCH.cells(preset, network=network, test_network=test_network, **more)
    return found


# --- keys


SHARED = [  # experiments whose ConvNet on MNIST, at a preset and so many images per class, is one run
    (CPU, 1, ["method", "coresets"]),
    (CPU, 10, ["coresets", "images_per_class"]),
    (CPU, 1, [f"ablation_{name}" for name in ("activation", "pooling", "normalization", "depth", "width")]),
    (PAPER, 1, ["method", "cross_arch", "ablation_width"]),
]


def test_one_run_serves_every_table():
    for preset, ipc, names in SHARED:
        place = dict(dataset="mnist", ipc=ipc, network="ConvNet", test_network="ConvNet")
        cells = [experiments.find(name).cells(preset, **place)[0] for name in names]
        assert len({cell.runs([0])[0].key for cell in cells}) == 1, names
    assert cell(CPU, RANDOM).make_set(0).key == cell(PAPER, RANDOM).make_set(0).key, "random images are those of any preset"


def test_one_training_on_the_whole_set_serves_all_who_need_it():
    cells = CORESETS.cells(CPU, dataset="mnist")
    (whole,) = [run for c in cells if c.network == WHOLE for run in c.runs()]
    guides = {run.set.whole for c in cells if c.network in GUIDED for run in c.runs()}
    assert guides == {whole}
    assert {whole} == {run for c in IMAGES_PER_CLASS.cells(CPU, dataset="mnist", network=WHOLE) for run in c.runs()}
    assert all(run.set.whole is None for c in cells if c.network in (RANDOM, "ConvNet") for run in c.runs())


def test_the_whole_set_has_one_cell_whatever_the_images_per_class():
    assert [c.ipc for c in CORESETS.cells(PAPER, dataset="mnist", network=WHOLE)] == [1]
    assert [c.ipc for c in CORESETS.cells(PAPER, dataset="mnist", network=WHOLE, ipc=(10, 50))] == [10]


def test_table_1_at_each_preset():
    assert len(CORESETS.cells(PAPER)) == 4 * (3 * 5 + 1)
    assert {c.dataset for c in CORESETS.cells(CPU)} == {"mnist", "fashionmnist", "cifar10", "svhn10k"}
    assert {(c.dataset, c.ipc) for c in CORESETS.cells(SMOKE)} == {("digits", 1)}
    repeats = {(c.network, c.ipc): (c.sets, c.networks) for c in CORESETS.cells(CPU, dataset="mnist")}
    assert [repeats["ConvNet", ipc] for ipc in (1, 10, 50)] == [(2, 3), (1, 3), (1, 3)]
    assert (repeats["herding", 1], repeats[RANDOM, 10], repeats[WHOLE, 1][0]) == ((1, 3), (2, 3), 1)


def test_optimal_random_selection_takes_many_draws_with_one_network_each():
    """Its draws are the random row's, and more."""
    cells = {c.network: c for c in MORE_BASELINES.cells(CPU)}
    assert [(cells[name].sets, cells[name].networks) for name in ORS] == [(100, 1)] * 3
    first = CORESETS.cells(CPU, dataset="mnist", ipc=1, network=RANDOM)[0].runs()
    assert [run.key for run in cells["ors"].runs(range(2))] == [run.key for run in first]
    assert MORE_BASELINES.cells(PAPER, dataset="mnist", ipc=1, network="ors")[0].sets == 1000


# --- what the presets spell out


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
@pytest.mark.parametrize("experiment", TABLES, ids=lambda e: e.name)
def test_every_cell_spells_out(experiment, preset):
    cells = experiment.cells(preset)
    assert len({tuple(c.place.items()) for c in cells}) == len(cells) > 0
    for c in cells:
        seeds = range(min(c.sets, 2))
        runs = c.runs(seeds)
        assert [run.seed if c.network == WHOLE else run.set.seed for run in runs] == list(seeds)
        assert len({run.key for run in runs}) == len(runs)
        for run in runs:
            assert "auto" not in json.dumps(full(run))
            assert json.loads(json.dumps(spell(run))).keys() <= full(run).keys()
            if c.network == WHOLE:
                assert (run.dataset, str(run.network), run.networks) == (c.dataset, c.test_network, 1)
                continue
            assert isinstance(run, TrainNetworks)
            assert run.networks >= 1
            assert run.hyper == run.hyper.resolve()
            assert run.set.method != "condense" or run.set.hyper == run.set.hyper.resolve()
            assert run.set.hyper.ipc == c.ipc
            method = "random" if c.network in ORS else "distill" if c.network in DD else c.network
            assert run.set.method == (method if c.network in INSTEAD else "condense")


def test_the_papers_hyper_parameters():
    h = cell(PAPER).make_set(0).hyper
    assert (h.outer_steps, h.inner_steps, h.image_steps, h.real_batch, h.network_batch) == (1000, 1, 1, 256, 256)
    assert (h.image_lr, h.image_momentum, h.network_lr, h.network_momentum) == (0.1, 0.5, 0.01, 0.5)
    assert (h.distance, h.init, h.bn, h.patience) == ("layerwise", "noise", "code", 0)
    assert cell(PAPER, network="MLP").make_set(0).hyper.image_lr == 0.01
    assert str(cell(PAPER, network="VGG11").make_set(0).hyper.network) == "VGG11:norm=batch"
    assert str(cell(PAPER, network="ResNet18").make_set(0).hyper.network) == "ResNet18:norm=batch,downsampling=average"
    ten = cell(PAPER, ipc=10).make_set(0).hyper
    assert (ten.inner_steps, ten.network_epochs) == (10, 50)
    assert (PAPER.sets, PAPER.networks) == (5, 20)


def test_the_papers_stage_t():
    training = cell(PAPER, test_network="ResNet18").runs()[0].hyper
    assert str(training.network) == "ResNet18:norm=instance,downsampling=stride"
    assert (training.epochs, training.augment) == (1000, "crop+scale+rotate")
    assert (training.lr, training.momentum, training.weight_decay, training.batch) == (0.01, 0.9, 5e-4, 256)
    plain = METHOD.cells(PAPER, dataset="fashionmnist")[0].runs()[0].hyper
    assert (plain.epochs, plain.augment) == (300, "none")


def test_smaller_presets_differ_from_the_paper_only_in_budget():
    for network in experiments.SIX:
        paper, cpu = (cell(p, network, network).runs()[0] for p in (PAPER, CPU))
        reduced = dict(outer_steps=cpu.set.hyper.outer_steps, real_batch=cpu.set.hyper.real_batch)
        assert dataclasses.replace(paper.set.hyper, **reduced) == cpu.set.hyper
        assert dataclasses.replace(paper.hyper, epochs=300) == cpu.hyper
        assert reduced["outer_steps"] * reduced["real_batch"] <= 1000 * 64


def test_table_2_is_six_by_six_and_smoke_has_the_row_to_beat():
    assert len(CROSS_ARCH.cells(PAPER)) == 36
    rows = {c.network: c for c in CROSS_ARCH.cells(SMOKE)}
    assert set(rows) == {"MLP", "ConvNet", "LeNet", RANDOM}
    assert len(rows[RANDOM].runs()) == 5
    assert {run.set.dataset for c in rows.values() for run in c.runs()} == {"digits"}


def test_how_often_a_cell_is_repeated():
    assert (cell(CPU).sets, cell(CPU).networks) == (1, 2)  # Table 2 at `cpu`
    assert (METHOD.cells(CPU)[0].sets, METHOD.cells(CPU)[0].networks) == (2, 5)
    assert (cell(PAPER).sets, cell(PAPER).networks) == (5, 20)
    assert cell(CPU, RANDOM).sets == CPU.random_sets


def test_the_cheapest_cells_come_first():
    networks = sorted((RANDOM, *experiments.SIX), key=lambda name: cell(CPU, name).cost)
    assert networks == [RANDOM, "MLP", "LeNet", "ConvNet", "AlexNet", "VGG11", "ResNet18"]


# --- the ablations


def test_an_ablation_has_its_budget_in_the_run():
    (cell,) = experiments.find("ablation_width").cells(CPU, network="ConvNet", test_network="ConvNet:width=32")
    (run,) = cell.runs()
    assert (run.set.hyper.outer_steps, run.set.hyper.real_batch, run.hyper.epochs, run.networks) == (60, 32, 300, 3)


@pytest.mark.parametrize(
    ("narrow", "points"),
    [
        ({}, [(1, "MLP", ""), (10, "MLP", ""), (1, "LeNet", ""), (1, "LeNet", "init=real")]),
        ({"ipc": 1}, [(1, "MLP", ""), (1, "LeNet", ""), (1, "LeNet", "init=real")]),
        ({"network": "LeNet"}, [(1, "LeNet", ""), (10, "LeNet", ""), (1, "LeNet", "init=real")]),
        ({"variant": "default"}, [(1, "MLP", ""), (10, "MLP", ""), (1, "LeNet", "")]),
        ({"ipc": 20, "network": "ConvNet"}, [(20, "ConvNet", "")]),
    ],
)
def test_further_grids_hold_what_is_not_narrowed_away(narrow, points):
    more = dict(ipc=(10,)), dict(network=("LeNet",), variant=("", "init=real"))
    grid = dict(dataset=("mnist",), ipc=(1,), network=("MLP",), test_network=("MLP",))
    cells = Table("x", "Table X", "?", grid, more=more).cells(CPU, **narrow)
    assert [(c.ipc, c.network, c.variant) for c in cells] == points


# --- narrowing


def test_a_grid_is_narrowed_to_what_is_given():
    cells = CROSS_ARCH.cells(CPU, network=["MLP", RANDOM], test_network="ConvNet:width=64, depth=2", dataset=None, ipc=10)
    narrowed = [["mnist", 10, name, "ConvNet:width=64,depth=2", ""] for name in ("MLP", RANDOM)]
    assert [list(c.place.values()) for c in cells] == narrowed
    assert tuple(cells[0].place) == AXES
    assert CROSS_ARCH.cells(CPU, network=[ConvNet(norm="batch")])[0].network == "ConvNet:norm=batch"


def test_on_the_diagonal_a_set_is_tested_with_its_own_network():
    grid = dict(dataset=("mnist",), ipc=(1,), network=("MLP", "LeNet", RANDOM), test_network=("MLP", "LeNet"))
    cells = Table("x", "Table X", "?", grid, diagonal=True).cells(CPU)
    pairs = [(c.network, c.test_network) for c in cells]
    assert pairs == [("MLP", "MLP"), ("LeNet", "LeNet"), (RANDOM, "MLP"), (RANDOM, "LeNet")]
