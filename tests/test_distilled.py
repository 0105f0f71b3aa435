"""Distilled sets as declared runs: made, kept with their steps and rates, tested by them, and what the tables take from it."""

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cells import cell, frame
from helpers import stop_after

from dclib import experiments
from dclib.core import networks, train
from dclib.data.dataset import generator
from dclib.errors import Interrupted, SpecError
from dclib.experiments import CPU, DISTILLATION, PAPER, SMOKE, dd
from dclib.methods import distill
from dclib.results import CondensedSet, Store
from dclib.run.compute import compute
from dclib.spec import MLP, Condensation, ConvNet, MakeSet, Training, TrainNetworks, derive, full
from dclib.spec.baselines import CIFAR10, Distillation

TINY = MLP(width=6, init="xavier")
HYPER = Distillation(network=TINY, ipc=2, steps=2, passes=2, epochs=2, batch=10, rate=0.1)
SET = MakeSet("made", "distill", 0, Condensation(ipc=2), distillation=HYPER)
REPLAY = TrainNetworks(SET, Training(network=TINY).resolve(), 2, "rates")
OTHER = Training(network=ConvNet(width=4, depth=2), epochs=3).resolve()
HERE = dict(device="cpu", engine="eager")


# --- the set and its test


def test_a_set_keeps_its_steps_and_rates(runner, own):
    made = runner.do(SET)
    found = CondensedSet.load(runner.store.find_set(SET.key))
    assert (found.images.shape, found.labels.tolist(), found.ipc) == ((6, 1, 8, 8), [0, 0, 1, 1, 2, 2], 2)
    assert found.order.tolist() == [[0, 2, 4], [1, 3, 5], [0, 2, 4], [1, 3, 5]], "a batch of one image per class, twice over"
    assert (found.rates.shape, (found.rates > 0).all()) == ((4,), True)
    assert not np.allclose(found.rates, 0.1, atol=1e-4), "they are learned"
    assert found.about.items() >= full(SET).items()
    assert (found.hash, found.key) == (made.hash, SET.key)
    assert dataclasses.replace(found, rates=found.rates * 2).hash != found.hash
    (record,) = Store(runner.store.root).records[SET.key]
    assert (record["set_hash"], record["data_hash"], record["run"]) == (found.hash, own.hash, full(SET))
    assert (len(record["losses"]), record["engine"]) == (6, "eager")
    assert not list(runner.store.root.rglob("checkpoints/*.safetensors"))
    assert runner.do(SET).hash == made.hash


def test_stopped_it_goes_on_to_the_identical_set_and_its_networks(runner, new_runner, tmp_path):
    whole = new_runner(tmp_path / "whole")
    runner.should_stop = stop_after(3)
    with pytest.raises(Interrupted, match="stopped after 3 of 6 iterations; the same command goes on from there"):
        runner.do(SET)
    assert runner.store.checkpoint_path("smoke", SET.key).exists()
    assert SET.key not in Store(runner.store.root).records
    runner.should_stop = lambda: False
    assert runner.do(SET).hash == whole.do(SET).hash
    assert not runner.store.checkpoint_path("smoke", SET.key).exists()
    runner.should_stop = stop_after(1)
    with pytest.raises(Interrupted):
        runner.do(REPLAY)
    assert list(Store(runner.store.root).accuracies(REPLAY.key)) == [0]
    runner.should_stop = lambda: False
    assert runner.do(REPLAY) == whole.do(REPLAY)


def test_networks_are_trained_by_the_ordered_steps_of_the_file(runner, own):
    """Written out from the file alone: each step sees the images that its order names, at its rate."""
    found = runner.do(REPLAY)
    made = CondensedSet.load(runner.store.find_set(SET.key))
    images, labels = torch.from_numpy(made.images), torch.from_numpy(made.labels)
    for j, accuracy in found.items():
        weights = generator(derive(j, SET.key), "weights").initial_seed()
        network = networks.build(TINY, channels=1, classes=3, size=(8, 8), seed=weights)
        for step, rate in zip(torch.from_numpy(made.order), made.rates, strict=True):
            loss = F.cross_entropy(network(images[step]), labels[step])
            for p, g in zip(network.parameters(), torch.autograd.grad(loss, list(network.parameters())), strict=True):
                p.data -= float(rate) * g
        assert accuracy == round(train.accuracy(network, own), 4)


def test_another_network_is_trained_at_the_rates_or_by_stage_t_as_runs_of_their_own(runner, new_runner, own):
    """At the rates with its own first weights; without them on all images as one set."""
    rated, plain = (dataclasses.replace(REPLAY, way=way, hyper=OTHER) for way in ("rates", "plain"))
    assert len({REPLAY.key, rated.key, plain.key}) == 3
    made, found = runner.do(SET), runner.do(rated)
    images, rates = torch.from_numpy(made.images), torch.from_numpy(made.rates)
    for j, accuracy in found.items():
        network = distill.replay(images.unflatten(0, (3, 2)), rates, HYPER, network=OTHER.network, seed=derive(j, SET.key))
        assert accuracy == round(train.accuracy(network, own), 4)
    found, seeds = runner.do(plain), [derive(j, SET.key) for j in range(2)]
    trained = train.evaluate(images, torch.from_numpy(made.labels), own, OTHER, seeds=seeds, **HERE)
    assert list(found.values()) == [round(a, 4) for a in trained]
    fresh = new_runner(runner.store.root)
    more = fresh.do(dataclasses.replace(plain, networks=3))
    assert {j: more[j] for j in found} == found
    assert [len(fresh.store.records[key]) for key in (SET.key, rated.key, plain.key)] == [1, 2, 3]
    assert fresh.store.records[rated.key][0]["run"]["way"] == "rates"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: MakeSet("mnist", "distill"), "^method 'distill' needs a `distillation` of as many images per class$"),
        (lambda: dataclasses.replace(SET, hyper=Condensation(ipc=1)), "^method 'distill' needs a `distillation` of as many"),
        (lambda: dataclasses.replace(SET, method="condense"), "^method 'condense' takes no `distillation`: leave it out$"),
        (lambda: dataclasses.replace(REPLAY, way="rate"), "^unknown way 'rate': did you mean 'rates'"),
        (lambda: TrainNetworks(MakeSet("mnist"), way="rates"), "^only a distilled set has learned rates to train by$"),
        (lambda: DISTILLATION.cells(PAPER, ipc=1, test_network="MLP"), "no cell of distillation has ipc 1, test_network MLP"),
        (lambda: DISTILLATION.cells(PAPER, ipc=3, network="distill")[0].runs(), "ipc=3 images do not fill 10 steps evenly"),
        (lambda: DISTILLATION.cells(PAPER, network="distil"), "did you mean 'distill'"),
    ],
)
def test_what_does_not_go_together_is_refused(make, sentence):
    with pytest.raises(SpecError, match=sentence):
        make()


# --- the tables


def test_table_3_and_table_10_at_the_papers_preset():
    cells = DISTILLATION.cells(PAPER)
    assert len(cells) == len({tuple(c.place.values()) for c in cells})
    three = {(c.dataset, c.ipc, c.network, c.test_network) for c in cells if c.test_network == dd.learner(c.dataset)}
    owns = (("mnist", "LeNet"), ("cifar10", "AlexCifarNet"))
    both = {(dataset, n, made, own) for dataset, own in owns for n in (1, 10) for made in ("random", "distill", own)}
    both |= {("mnist", 1, "whole", "LeNet"), ("cifar10", 1, "whole", "AlexCifarNet"), ("mnist", 10, "distill-plain", "LeNet")}
    assert three == both
    ten = {(c.network, c.test_network) for c in cells if c.dataset == "mnist" and c.ipc == 10}
    assert ten == {(m, n) for m in ("random", "distill", "distill-plain", "LeNet") for n in experiments.SIX}
    assert len(cells) == len(both) + 4 * 5


def first_run(preset, **place):
    return DISTILLATION.cells(preset, **place)[0].runs()[0]


def test_hyper_parameters_are_the_papers_and_the_budget_of_two_cores():
    """What is trained at the rates is the same run at every preset; the learner draws its networks as it was told."""
    ten = dict(ipc=10, network="distill")
    grey = first_run(PAPER, dataset="mnist", test_network="LeNet", **ten)
    coloured = first_run(PAPER, dataset="cifar10", test_network="AlexCifarNet", **ten)
    assert (grey.set.distillation, coloured.set.distillation) == (Distillation(), CIFAR10)
    assert (grey.way, grey.hyper.network) == ("rates", Distillation().network)
    assert first_run(PAPER, ipc=1, network="distill").set.distillation == Distillation(ipc=1)
    plain = first_run(PAPER, network="distill-plain", test_network="LeNet", ipc=10, dataset="mnist")
    assert (plain.set, plain.way, plain.hyper.augment) == (grey.set, "plain", "crop+scale+rotate")
    assert str(plain.hyper.network) == "LeNet"
    condensed = first_run(PAPER, dataset="cifar10", ipc=10, network="AlexCifarNet")
    assert (condensed.hyper.augment, condensed.hyper.epochs) == ("crop+scale+rotate", 1000)
    drawn = [dd.at_rates(n, Distillation()).network for n in ("MLP", "VGG11:norm=batch", "AlexNet:init=kaiming", "LeNet")]
    assert [network["init"] for network in drawn] == ["xavier", "xavier", "kaiming", "xavier"]
    assert (drawn[1]["norm"], drawn[3]) == ("batch", Distillation().network)
    assert dd.of_cpu("mnist", 10) == dataclasses.replace(Distillation(), epochs=20, decay_epochs=8, batch=256)
    assert dd.of_cpu("cifar10", 1) == dataclasses.replace(CIFAR10, ipc=1, epochs=5, decay_epochs=2, batch=256)
    few, all_ = (first_run(preset, dataset="mnist", ipc=10, network="distill", test_network="MLP") for preset in (CPU, PAPER))
    assert few.hyper == all_.hyper
    assert few.set != all_.set


def test_cells_are_sorted_into_the_tables():
    rows = [
        ("mnist", 1, "distill", "LeNet", 55.0),
        ("mnist", 10, "distill", "LeNet", 80.0),
        ("mnist", 10, "distill", "MLP", 40.0),
        ("mnist", 10, "distill-plain", "LeNet", 50.0),
        ("mnist", 10, "LeNet", "LeNet", 94.0),
        ("mnist", 10, "LeNet", "MLP", 83.0),
        ("mnist", 1, "whole", "LeNet", 99.0),
        ("cifar10", 10, "AlexCifarNet", "AlexCifarNet", 39.0),
    ]
    found = frame(*(cell([a], dataset=d, ipc=ipc, network=n, test_network=t) for d, ipc, n, t, a in rows))
    three, ten = (part(found)[["network", "ours"]].values.tolist() for part in (dd.table_3, dd.table_10))
    assert three == [["distill", 55.0], ["distill", 80.0], ["condensed", 94.0], ["whole", 99.0], ["condensed", 39.0]]
    assert ten == [["distill", 80.0], ["distill", 40.0], ["distill-plain", 50.0], ["condensed", 94.0], ["condensed", 83.0]]


@pytest.mark.slow
def test_a_preset_computes_all_cells_and_then_nothing(tmp_path):
    short = dataclasses.replace(
        SMOKE,
        condensation=lambda cell: dataclasses.replace(SMOKE.condensation(cell), outer_steps=1, real_batch=4, network_epochs=1),
        training=lambda cell: dataclasses.replace(SMOKE.training(cell), epochs=1),
        distillation=lambda dataset, ipc: dataclasses.replace(dd.of_smoke(dataset, ipc), epochs=1, batch=500),
    )
    cells = DISTILLATION.cells(short, ipc=(2,), network=(*dd.DD, "LeNet"), test_network=("LeNet", "MLP"))
    assert len(cells) == 6
    assert compute(cells, Store(tmp_path), "smoke", **HERE) == []
    before = {p: p.read_bytes() for p in tmp_path.rglob("*.jsonl")}
    assert compute(cells, Store(tmp_path), "smoke", seconds=0.0, **HERE) == []
    assert before == {p: p.read_bytes() for p in tmp_path.rglob("*.jsonl")}
    assert len(Store(tmp_path).records) == 2 + 6
