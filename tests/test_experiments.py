"""The declarations: keys that never move, grids that can be narrowed, presets that spell everything out."""

import dataclasses

import pytest

from dclib import experiments
from dclib.errors import SpecError
from dclib.experiments import ALL, CPU, CROSS_ARCH, METHOD, PAPER, PRESETS, RANDOM, SMOKE
from dclib.spec import TrainNetworks


def cell(preset, network="ConvNet", test_network="ConvNet"):
    return CROSS_ARCH.cells(preset, network=network, test_network=test_network)[0]


def test_keys_of_recorded_runs_do_not_move():
    run = cell(CPU).runs()[0]
    assert (run.set.key, run.key) == ("745b2efea8a07895", "70eab2b589d00b4e")


def test_the_key_knows_neither_the_preset_nor_the_number_of_networks():
    run = cell(CPU).runs()[0]
    assert dataclasses.replace(run, networks=20).key == run.key
    renamed = dataclasses.replace(CPU, name="other")
    assert cell(renamed).runs()[0].key == run.key
    assert cell(PAPER).runs()[0].key != run.key


def test_one_condensed_set_serves_every_table():
    assert METHOD.cells(CPU, dataset="mnist")[0].make_set(0).key == cell(CPU, test_network="LeNet").make_set(0).key


def test_the_papers_hyper_parameters():
    h = cell(PAPER).make_set(0).hyper
    assert (h.outer_steps, h.inner_steps, h.real_batch, h.image_lr, h.network_lr) == (1000, 1, 256, 0.1, 0.01)
    assert cell(PAPER, network="MLP").make_set(0).hyper.image_lr == 0.01
    assert str(cell(PAPER, network="VGG11").make_set(0).hyper.network) == "VGG11:norm=batch"
    training = cell(PAPER, test_network="ResNet18").runs()[0].hyper
    assert str(training.network) == "ResNet18:norm=instance,downsampling=stride"
    assert (training.epochs, training.augment) == (1000, "crop+scale+rotate")
    assert METHOD.cells(PAPER, dataset="fashionmnist")[0].runs()[0].hyper.augment == "none"
    assert (PAPER.sets, PAPER.networks) == (5, 20)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
@pytest.mark.parametrize("experiment", ALL.values(), ids=ALL)
def test_every_cell_spells_out(experiment, preset):
    cells = experiment.cells(preset)
    assert cells
    for c in cells:
        runs = c.runs()
        assert all(isinstance(run, TrainNetworks) and run.networks >= 1 for run in runs)
        assert all(run.set.method == "random" or run.set.hyper.inner_steps >= 1 for run in runs)


def test_table_2_is_six_by_six_and_smoke_has_the_row_to_beat():
    assert len(CROSS_ARCH.cells(PAPER)) == 36
    rows = {c.network: c for c in CROSS_ARCH.cells(SMOKE)}
    assert set(rows) == {"MLP", "ConvNet", "LeNet", RANDOM}
    assert len(rows[RANDOM].runs()) == 5
    assert {run.set.dataset for c in rows.values() for run in c.runs()} == {"digits"}


@pytest.mark.parametrize(
    ("narrow", "sentence"),
    [
        ({"colour": ["red"]}, "unknown axis of cross_arch 'colour'"),
        ({"network": []}, "the list for network is empty"),
        ({"network": ["Convnet"]}, "did you mean 'ConvNet'"),
        ({"ipc": [0]}, "ipc must be a whole number of at least 1, not 0"),
        ({"test_network": [RANDOM]}, "unknown network 'random'"),
    ],
)
def test_a_wrong_grid_is_refused(narrow, sentence):
    with pytest.raises(SpecError, match=sentence):
        CROSS_ARCH.cells(CPU, **narrow)


def test_unknown_names_are_refused():
    with pytest.raises(SpecError, match="did you mean 'cross_arch'"):
        experiments.find("cross_arc")
    with pytest.raises(SpecError, match="unknown preset 'best'"):
        experiments.find_preset("best")
