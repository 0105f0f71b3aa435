"""dclib.methods.full_training: the training and its counts written out, its checkpoints, and the sets that are chosen with it."""

import dataclasses
import itertools
import signal
import subprocess
import sys
import time

import pytest
import torch
import torch.nn.functional as F
from helpers import assert_close, refused, same, stop_after

from dclib.core import checkpoint, engine, networks
from dclib.data.dataset import generator, load
from dclib.errors import DataError, Diverged, FileError, Interrupted
from dclib.methods import full_training
from dclib.results import Store
from dclib.run import compute
from dclib.spec import Condensation, ConvNet, MakeSet, WholeTraining, full

THIN = ConvNet(width=4, depth=2)
RECIPE = WholeTraining("made", THIN, epochs=5, batch=8, lr=0.1)
HERD = MakeSet("made", "herding", 0, Condensation(ipc=2), whole=RECIPE)
here = dict(device="cpu", engine="eager")


def train(dataset, recipe=RECIPE, **how):
    return full_training.train(dataset, recipe, **here | how)


# --- training


def test_it_is_sgd_with_momentum_and_decay_written_out_and_counts_what_is_forgotten(made):
    state = train(made)
    network = networks.build(THIN, **made.shape, seed=generator(0, "weights").initial_seed())
    optimiser = torch.optim.SGD(network.parameters(), lr=1.0, momentum=0.9, weight_decay=5e-4)
    x, history, step = made.normalise(made.x_train), [[] for _ in range(23)], 0
    for epoch in range(5):
        for part in torch.randperm(23, generator=generator(0, "shuffle", epoch)).split(8):
            optimiser.param_groups[0]["lr"] = full_training.rate(RECIPE, step, 15)
            logits = network(x[part])
            for i, right in zip(part.tolist(), (logits.argmax(1) == made.y_train[part]).tolist(), strict=True):
                history[i].append(right)
            optimiser.zero_grad()
            F.cross_entropy(logits, made.y_train[part]).backward()
            optimiser.step()
            step += 1
    assert_close(state.network, network, 1.3e-6, 1e-5)
    assert state.k == step == full_training.steps(RECIPE, 23)
    assert state.events.tolist() == [sum(a and not b for a, b in itertools.pairwise(h)) for h in history]
    assert state.events.sum() > 0
    assert state.learned.tolist() == [any(h) for h in history]
    assert state.train_accuracies == [pytest.approx(100 * sum(h[e] for h in history) / 23) for e in range(5)]
    assert len(state.epoch_accuracies) == 5


def test_the_rate_rises_to_its_top_and_falls_to_zero():
    rates = [full_training.rate(RECIPE, step, 100) for step in range(100)]
    assert max(rates) == rates[19] == pytest.approx(0.1)
    assert rates[:20] == sorted(rates[:20])
    assert rates[19:] == sorted(rates[19:], reverse=True)
    assert 0 < rates[-1] < 0.002
    assert full_training.rate(RECIPE, 0, 1) == 0.1


def test_it_tells_dark_images_from_bright_ones_unless_the_rate_is_too_high(make_dataset):
    base = make_dataset(40, 40)
    x = (base.x_train // 2) + (base.y_train.to(torch.uint8) * 120)[:, None, None, None]
    told = dataclasses.replace(base, x_train=x, x_test=x[::2])
    assert train(told, dataclasses.replace(RECIPE, epochs=8)).epoch_accuracies[-1] == 100
    refused("lower lr", call=lambda: train(told, dataclasses.replace(RECIPE, lr=1e30)), error=Diverged)


# --- checkpoints (and in test_loop.py)


@pytest.mark.slow
@pytest.mark.skipif(not engine.has_compiler(), reason="torch.compile needs g++ or clang++ on the CPU")
def test_another_engine_does_not_continue_a_training_but_reads_a_finished_one(made, tmp_path):
    file = tmp_path / "state"
    with pytest.raises(Interrupted):
        train(made, checkpoint=file, should_stop=stop_after(2))
    with pytest.raises(FileError, match=r"its engine differ.*--engine eager"):
        train(made, engine="compiled", checkpoint=file)
    done = train(made, checkpoint=file)
    assert same(train(made, engine="compiled", checkpoint=file), done)


@pytest.mark.slow
def test_killed_it_goes_on_to_the_same_end(tmp_path):
    code = """if True:
        import sys
        from dclib.core import resume
        from dclib.data.dataset import load
        from dclib.methods import full_training
        from dclib.spec import ConvNet, WholeTraining
        resume.CHECKPOINT_SECONDS = 0.0
        recipe = WholeTraining("digits", ConvNet(width=4, depth=2), epochs=2, batch=50)
        full_training.train(load("digits"), recipe, device="cpu", engine="eager", checkpoint=sys.argv[1])
    """
    file, recipe, resumed = tmp_path / "killed", WholeTraining("digits", THIN, epochs=2, batch=50), []
    process = subprocess.Popen([sys.executable, "-c", code, str(file)])
    while not file.exists() and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    digits = load("digits")
    state = train(digits, recipe, checkpoint=file, on_resume=lambda state: resumed.append(state.k))
    assert 0 < resumed[0] < 2 * 36
    assert same(state, train(digits, recipe))


# --- runs


def again(runner):
    """Another process's runner on these records, which may not begin a step."""

    def never():
        raise AssertionError("a step was begun")

    later = compute.Runner(Store(runner.store.root), "cpu", **here)
    later.should_stop = never
    return later


def test_the_upper_bound_is_recorded_once(runner):
    runner.do(RECIPE)
    again(runner).do(RECIPE)
    (record,) = Store(runner.store.root).records[RECIPE.key]
    assert record["kind"] == "WholeTraining"
    assert record["run"] == full(RECIPE)
    assert runner.store.accuracies(RECIPE.key) == {0: record["epoch_accuracies"][-1]}
    assert len(record["epoch_accuracies"]) == 5


def test_one_training_serves_every_choice_and_is_repeated_if_its_file_is_gone(runner, own, save_own, tmp_path):
    runner.should_stop = stop_after(3)
    with pytest.raises(Interrupted, match="3 of 20 steps"):
        runner.do(HERD)
    assert Store(runner.store.root).records == {}
    runner.should_stop = lambda: False
    made = runner.do(HERD)
    (record,) = Store(runner.store.root).records[HERD.key]
    indices = torch.tensor(record["indices"])
    assert indices.shape == (3, 2)
    assert torch.equal(torch.from_numpy(made.images), own.normalise(own.x_train[indices.flatten()]))
    assert made.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert record["set_hash"] == made.hash
    assert list(runner.store.root.rglob("sets/*")) == [], "the indices are kept, and no images"

    file, later = runner.store.whole_path("smoke", RECIPE.key), again(runner)
    for method in ("herding", "k-center", "forgetting"):
        later.do(dataclasses.replace(HERD, method=method))
    first, _ = checkpoint.load_tensors(file, {}, set(), ())
    file.unlink()
    assert (later.do(HERD).images == made.images).all(), "recorded indices need no network"
    assert not file.exists()
    later.should_stop = lambda: False
    assert later.do(dataclasses.replace(HERD, hyper=Condensation(ipc=3))).labels.tolist() == [0] * 3 + [1] * 3 + [2] * 3
    repeated, _ = checkpoint.load_tensors(runner.store.whole_path("cpu", RECIPE.key), {}, set(), ())
    assert all(torch.equal(t, repeated[name]) for name, t in first.items())
    assert len(Store(runner.store.root).records[RECIPE.key]) == 1

    save_own(tmp_path / "data" / "made.npz", seed=1)
    refused("has changed since", call=lambda: compute.Runner(Store(runner.store.root), "cpu", **here).do(HERD), error=DataError)
