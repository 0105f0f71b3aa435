"""Distilled sets as declared runs: made, kept with their steps and rates, tested by them, and what the tables take from it."""

import dataclasses
import math
import warnings

import numpy as np
import pytest
import safetensors.numpy
import torch
import torch.nn.functional as F
from cells import cell, frame
from safetensors import safe_open

from dclib import experiments
from dclib.core import networks, train
from dclib.data.dataset import generator
from dclib.errors import DataError, FileError, Interrupted, SpecError
from dclib.experiments import CPU, DISTILLATION, PAPER, SMOKE, dd
from dclib.methods import distill
from dclib.results import CondensedSet, Store
from dclib.run import compute as run
from dclib.run import loading, making
from dclib.run import runner as doing
from dclib.spec import MLP, Condensation, ConvNet, MakeSet, Training, TrainNetworks, derive, full
from dclib.spec.baselines import CIFAR10, Distillation

TINY = MLP(width=6, init="xavier")
HYPER = Distillation(network=TINY, ipc=2, steps=2, passes=2, epochs=2, batch=10, rate=0.1)
SET = MakeSet("made", "distill", 0, Condensation(ipc=2), distillation=HYPER)
REPLAY = TrainNetworks(SET, Training(network=TINY).resolve(), 2, "rates")


# --- the set and its file


def test_a_set_keeps_its_steps_and_rates(runner, dataset):
    made = runner.do(SET)
    path = runner.store.find_set(SET.key)
    found = CondensedSet.load(path)
    assert (found.images.shape, found.labels.tolist(), found.ipc) == ((6, 1, 8, 8), [0, 0, 1, 1, 2, 2], 2)
    assert found.order.tolist() == [[0, 2, 4], [1, 3, 5], [0, 2, 4], [1, 3, 5]], "a batch of one image per class, twice over"
    assert found.rates.shape == (4,)
    assert (found.rates > 0).all()
    assert not np.allclose(found.rates, 0.1, atol=1e-4), "they are learned"
    assert found.about.items() >= full(SET).items()
    assert (found.hash, found.key) == (made.hash, SET.key)
    assert dataclasses.replace(found, rates=found.rates * 2).hash != found.hash
    (record,) = Store(runner.store.root).records[SET.key]
    assert (record["set_hash"], record["data_hash"], record["run"]) == (found.hash, dataset.hash, full(SET))
    assert (len(record["losses"]), record["engine"]) == (6, "eager")
    assert not list(runner.store.root.rglob("checkpoints/*.safetensors"))
    assert runner.do(SET).hash == made.hash


BAD = {
    "without a rate": dict(rates=None),
    "a rate for each": dict(rates=np.ones(3, np.float32)),
    "other than its 6": dict(order=np.full((4, 3), 6)),
    "no positive numbers": dict(rates=np.array([1, 1, 1, np.nan], np.float32)),
}


@pytest.mark.parametrize("sentence", BAD)
def test_steps_that_cannot_be_are_refused(runner, tmp_path, sentence):
    made, bad = runner.do(SET), BAD[sentence]
    with pytest.raises(DataError, match=sentence):
        dataclasses.replace(made, **bad)
    made.save(tmp_path / "bad")
    tensors = safetensors.numpy.load_file(tmp_path / "bad") | bad
    with safe_open(tmp_path / "bad", "np") as file:
        about = {"dclib": file.metadata()["dclib"]}
    (tmp_path / "bad").write_bytes(safetensors.numpy.save({n: a for n, a in tensors.items() if a is not None}, about))
    with pytest.raises(FileError, match=sentence):
        CondensedSet.load(tmp_path / "bad")


def test_a_changed_rate_is_noticed(runner, tmp_path):
    path = runner.store.set_path("smoke", runner.do(SET).key)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    (tmp_path / "changed").write_bytes(content)
    with pytest.raises(FileError, match="checksum"):
        CondensedSet.load(tmp_path / "changed")


def test_stopped_it_goes_on_from_its_checkpoint_to_the_identical_set(runner, tmp_path):
    whole = doing.Runner(Store(tmp_path / "whole"), "smoke", device="cpu").do(SET)
    calls = iter([False] * 3)
    runner.should_stop = lambda: next(calls, True)
    with pytest.raises(Interrupted, match="stopped after 3 of 6 iterations; the same command goes on from there"):
        runner.do(SET)
    assert runner.store.checkpoint_path("smoke", SET.key).exists()
    assert SET.key not in Store(runner.store.root).records
    runner.should_stop = lambda: False
    assert runner.do(SET).hash == whole.hash
    assert not runner.store.checkpoint_path("smoke", SET.key).exists()


def test_losses_are_thinned_to_a_thousand():
    assert making.thinned([1.0, 2.0, math.inf]) == [1.0, 2.0, None]
    thin = making.thinned([float(i) for i in range(2500)])
    assert (len(thin), thin[0], thin[-1]) == (834, 1.0, 2499.0)


# --- its test


def test_networks_are_trained_by_the_ordered_steps_of_the_file(runner, dataset):
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
        assert accuracy == round(train.accuracy(network, dataset), 4)


def test_both_ways_are_runs_of_their_own_and_add_up(runner):
    plain = dataclasses.replace(REPLAY, way="plain", hyper=dataclasses.replace(REPLAY.hyper, epochs=3))
    first = [runner.do(r) for r in (REPLAY, plain)]
    assert REPLAY.key != plain.key
    fresh = doing.Runner(Store(runner.store.root), "smoke", device="cpu")
    more = fresh.do(dataclasses.replace(REPLAY, networks=3))
    assert {j: more[j] for j in first[0]} == first[0]
    assert [len(fresh.store.records[key]) for key in (SET.key, REPLAY.key, plain.key)] == [1, 3, 2]
    assert fresh.store.records[REPLAY.key][0]["run"]["way"] == "rates"


def test_another_network_is_trained_at_the_rates_with_its_own_first_weights(runner, dataset):
    other = dataclasses.replace(REPLAY, hyper=Training(network=ConvNet(width=4, depth=2)).resolve())
    found, made = runner.do(other), runner.do(SET)
    images, rates = torch.from_numpy(made.images).unflatten(0, (3, 2)), torch.from_numpy(made.rates)
    for j, accuracy in found.items():
        network = distill.replay(images, rates, HYPER, network=other.hyper.network, seed=derive(j, SET.key))
        assert accuracy == round(train.accuracy(network, dataset), 4)
    assert other.key != REPLAY.key


def test_without_the_rates_it_is_trained_by_stage_t_on_all_images_as_one_set(runner, dataset):
    plain = dataclasses.replace(REPLAY, way="plain", hyper=Training(network=ConvNet(width=4, depth=2), epochs=3).resolve())
    found, made = runner.do(plain), runner.do(SET)
    images, labels = torch.from_numpy(made.images), torch.tensor([0, 0, 1, 1, 2, 2])
    how = dict(seeds=[derive(j, SET.key) for j in found], device="cpu", engine="eager")
    assert list(found.values()) == [round(a, 4) for a in train.evaluate(images, labels, dataset, plain.hyper, **how)]


def test_stopped_between_networks_it_goes_on(runner):
    runner.do(SET)
    calls = iter([False])
    runner.should_stop = lambda: next(calls, True)
    with pytest.raises(Interrupted):
        runner.do(REPLAY)
    assert list(Store(runner.store.root).accuracies(REPLAY.key)) == [0]
    runner.should_stop = lambda: False
    assert set(runner.do(REPLAY)) == {0, 1}


# --- specs and words


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: MakeSet("mnist", "distill"), "^method 'distill' needs a `distillation` of as many images per class$"),
        (lambda: dataclasses.replace(SET, hyper=Condensation(ipc=1)), "^method 'distill' needs a `distillation` of as many"),
        (lambda: dataclasses.replace(SET, method="condense"), "^method 'condense' takes no `distillation`$"),
        (lambda: dataclasses.replace(REPLAY, way="rate"), "^unknown way 'rate': did you mean 'rates'"),
        (lambda: TrainNetworks(MakeSet("mnist"), way="rates"), "^only a distilled set has learned rates to train by$"),
    ],
)
def test_what_does_not_go_together_is_refused(make, sentence):
    with pytest.raises(SpecError, match=sentence):
        make()


def test_runs_in_words():
    assert SET.words == "made, 2/class, distilled with MLP:width=6,init=xavier, seed 0"
    assert REPLAY.words.endswith("seed 0") and "at its learned rates" in REPLAY.words  # noqa: PT018


# --- the tables


def test_table_3_and_table_10_at_the_papers_preset():
    cells = DISTILLATION.cells(PAPER)
    assert len(cells) == len({tuple(c.place.values()) for c in cells})
    three = {(c.dataset, c.ipc, c.network, c.test_network) for c in cells if c.test_network in (dd.learner(c.dataset),)}
    owns = (("mnist", "LeNet"), ("cifar10", "AlexCifarNet"))
    both = {(dataset, n, made, own) for dataset, own in owns for n in (1, 10) for made in ("random", "distill", own)}
    both |= {("mnist", 1, "whole", "LeNet"), ("cifar10", 1, "whole", "AlexCifarNet"), ("mnist", 10, "distill-plain", "LeNet")}
    assert three == both
    ten = {(c.network, c.test_network) for c in cells if c.dataset == "mnist" and c.ipc == 10}
    assert ten == {(m, n) for m in ("random", "distill", "distill-plain", "LeNet") for n in experiments.SIX}
    assert len(cells) == len(both) + 4 * 5


def test_hyper_parameters_are_the_papers():
    grey, coloured = (DISTILLATION.cells(PAPER, dataset=d, ipc=10, network="distill", test_network=n)[0].runs()[0]
                      for d, n in (("mnist", "LeNet"), ("cifar10", "AlexCifarNet")))  # fmt: skip
    assert (grey.set.distillation, coloured.set.distillation) == (Distillation(), CIFAR10)
    assert (grey.way, grey.hyper.network) == ("rates", Distillation().network)
    assert DISTILLATION.cells(PAPER, ipc=1, network="distill")[0].make_set(0).distillation == Distillation(ipc=1)
    plain = DISTILLATION.cells(PAPER, network="distill-plain", test_network="LeNet", ipc=10, dataset="mnist")[0].runs()[0]
    assert (plain.set, plain.way, plain.hyper.augment) == (grey.set, "plain", "crop+scale+rotate")
    assert str(plain.hyper.network) == "LeNet"
    condensed = DISTILLATION.cells(PAPER, dataset="cifar10", ipc=10, network="AlexCifarNet")[0].runs()[0]
    assert (condensed.hyper.augment, condensed.hyper.epochs) == ("crop+scale+rotate", 1000)


def test_networks_are_drawn_as_the_learner_was_at_its_rates():
    names = "MLP", "VGG11:norm=batch", "AlexNet:init=kaiming", "LeNet"
    drawn = [dd.at_rates(name, Distillation()).network for name in names]
    assert [network["init"] for network in drawn] == ["xavier", "xavier", "kaiming", "xavier"]
    assert (drawn[1]["norm"], drawn[3]) == ("batch", Distillation().network)


def test_the_budget_of_two_cores():
    assert dd.CPU == {"LeNet": (20, 8, 256), "AlexCifarNet": (5, 2, 256)}
    assert dd.of_cpu("mnist", 10) == dataclasses.replace(Distillation(), epochs=20, decay_epochs=8, batch=256)
    assert dd.of_cpu("cifar10", 1) == dataclasses.replace(CIFAR10, ipc=1, epochs=5, decay_epochs=2, batch=256)


def test_what_is_trained_at_the_rates_is_the_same_run_at_every_preset():
    place = dict(dataset="mnist", ipc=10, network="distill", test_network="MLP")
    runs = [DISTILLATION.cells(preset, **place)[0].runs()[0] for preset in (CPU, PAPER)]
    assert runs[0].hyper == runs[1].hyper
    assert runs[0].set != runs[1].set


def test_several_sets_show_the_spread():
    counts = {(c.dataset, c.ipc, c.network): c.sets for c in DISTILLATION.cells(CPU)}
    assert [counts["mnist", n, "distill"] for n in (1, 10)] == [3, 3]
    assert counts["cifar10", 10, "distill"] == 1
    assert {c.sets for c in DISTILLATION.cells(PAPER)} == {5}
    cell = next(c for c in DISTILLATION.cells(CPU) if c.network == "distill")
    assert len(cell.runs()) == 3
    assert len({r.key for r in cell.runs()}) == 3


def test_values_that_no_cell_has_together_are_refused():
    sentence = "^no cell of distillation has ipc 1, test_network MLP together: give fewer of them, or others$"
    with pytest.raises(SpecError, match=sentence):
        DISTILLATION.cells(PAPER, ipc=1, network=None, test_network="MLP")
    with pytest.raises(SpecError, match=r"^ipc=3 images do not fill 10 steps evenly"):
        DISTILLATION.cells(PAPER, ipc=3, network="distill")[0].runs()
    with pytest.raises(SpecError, match="did you mean 'distill'"):
        DISTILLATION.cells(PAPER, network="distil")


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
    three, ten = (part(found)[["ipc", "network", "ours"]].values.tolist() for part in (dd.table_3, dd.table_10))
    assert three == [
        [1, "distill", 55.0], [10, "distill", 80.0], [10, "condensed", 94.0], [1, "whole", 99.0], [10, "condensed", 39.0],
    ]  # fmt: skip
    assert [row[1:] for row in ten] == [
        ["distill", 80.0], ["distill", 40.0], ["distill-plain", 50.0], ["condensed", 94.0], ["condensed", 83.0],
    ]  # fmt: skip


@pytest.mark.slow
def test_a_preset_computes_all_cells_and_then_nothing(make_dataset, monkeypatch, tmp_path):
    """The declared experiment on made data through the same call as `dclib run`, with two iterations for each set."""
    data = make_dataset(20, 20, 20, size=28)
    for module in (run, loading):
        monkeypatch.setattr(module, "load", lambda name, *shape: data)
    short = dataclasses.replace(
        SMOKE,
        condensation=lambda cell: dataclasses.replace(SMOKE.condensation(cell), outer_steps=1, real_batch=4, network_epochs=1),
        training=lambda cell: dataclasses.replace(SMOKE.training(cell), epochs=1),
        distillation=lambda dataset, ipc: dataclasses.replace(dd.of_smoke(dataset, ipc), epochs=2, batch=60),
    )
    cells = DISTILLATION.cells(short, ipc=(2,), network=(*dd.DD, "LeNet"), test_network=("LeNet", "MLP"))
    assert len(cells) == 6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run.compute(cells, Store(tmp_path), "smoke", device="cpu", engine="eager") == []
    before = {p: p.read_bytes() for p in tmp_path.rglob("*.jsonl")}
    assert run.compute(cells, Store(tmp_path), "smoke", device="cpu", engine="eager") == []
    assert before == {p: p.read_bytes() for p in tmp_path.rglob("*.jsonl")}
    assert len(Store(tmp_path).records) == 2 + 6
