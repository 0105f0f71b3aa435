"""Architecture search: the space, the short training by hand, side by side as alone, and images held out of it."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from helpers import assert_close, refused, stop_after

from dclib.core.networks import build
from dclib.core.train import accuracy
from dclib.data import dataset as data
from dclib.data.dataset import generator
from dclib.errors import DataError, Interrupted, SpecError
from dclib.methods import nas
from dclib.spec import ConvNet, MakeSet
from dclib.spec.applications import ShortTraining, Space, TrainCandidate
from dclib.spec.architectures import ACTIVATIONS, NORMS, POOLINGS

CPU = {"device": "cpu"}
SHAPE = dict(channels=1, classes=3, size=(8, 8))
NETWORK = ConvNet(width=4, depth=1)


def short(**changes):
    return ShortTraining(**{"steps": 5, "batch": 7, **changes})


def drawn(seed, network=NETWORK):
    return build(network, **SHAPE, seed=generator(seed, "weights").initial_seed()).double()


# --- the space


def test_the_papers_space_has_720_architectures_and_is_narrowed_by_its_options():
    found = Space().networks()
    assert len(found) == len(set(found)) == 720
    options = dict(width=(32, 64, 128, 256), depth=(1, 2, 3, 4), norm=NORMS, activation=ACTIVATIONS, pooling=POOLINGS)
    for option, values in options.items():
        assert [sum(network[option] == v for network in found) for v in values] == [720 // len(values)] * len(values)
    found = Space().networks(["width=32,64", "norm=instance"])
    assert len(found) == 2 * 4 * 3 * 3
    assert {(n["width"], n["norm"]) for n in found} == {(32, "instance"), (64, "instance")}
    for narrow in ("width=48", "width=32,48", "width=32,depth=1", "width=32 width=64", "norm=", "norm=none,", "colour=red"):
        refused("search space", narrow.partition("=")[0], call=Space((32, 64)).networks, error=SpecError, narrow=narrow.split(" "))
    for wrong in ({"depth": ()}, {"every": 0}):
        refused(*wrong, call=Space, error=SpecError, **wrong)


def test_runs_that_make_no_sense_are_refused():
    made = MakeSet("digits", "random", held_out=100)
    for given, part in (
        (dict(set=made, held_out=200), "as many images held out"),
        (dict(set=dataclasses.replace(made, dataset="mnist"), held_out=100), "one of digits"),
        (dict(set=made, held_out=100, images=50), "images at 0"),
        (dict(held_out=0), "held_out"),
    ):
        refused(part, call=TrainCandidate, error=SpecError, dataset="digits", network=NETWORK, **given)


# --- the training


def test_the_rate_falls_to_a_tenth_after_the_step_behind_the_middle():
    assert short(steps=100).rates == pytest.approx([0.01] * 51 + [0.001] * 49)
    assert short(steps=1).rates == [0.01]


def test_batches_are_epochs_in_random_order():
    parts = list(nas.batches(22, short(steps=7), 0))
    assert [len(part) for part in parts] == [7] * 7
    for epoch in (parts[:3], parts[3:6]):
        assert len(torch.cat(epoch).unique()) == 21
    assert not torch.equal(torch.cat(parts[:3]), torch.cat(parts[3:6]))
    assert [part.tolist() for part in nas.batches(6, short(steps=2), 0)] == [list(range(6))] * 2
    seen = torch.cat(list(nas.batches(45_000, ShortTraining(), 0)))  # the paper's 100 steps of 100 images
    assert len(seen) == len(seen.unique()) == 10_000


def test_alone_by_hand(made):
    """Five steps of SGD with momentum, which starts afresh at the lower rate, and weight decay, written out."""
    x, y = made.normalise(made.x_train).double(), made.y_train
    hyper = short(steps=5, momentum=0.5, weight_decay=0.1, lr=0.2)
    trained, ours = drawn(0), drawn(0)
    nas.train_alone(trained, x, y, hyper, 0)
    velocity = [torch.zeros_like(p) for p in ours.parameters()]
    for step, part in enumerate(nas.batches(len(x), hyper, 0)):
        rate = 0.2 if step < 3 else 0.02
        if step == 3:
            velocity = [torch.zeros_like(p) for p in ours.parameters()]
        gradients = torch.autograd.grad(F.cross_entropy(ours(x[part]), y[part]), list(ours.parameters()))
        with torch.no_grad():
            for p, v, g in zip(ours.parameters(), velocity, gradients, strict=True):
                v.mul_(0.5).add_(g + 0.1 * p)
                p.sub_(rate * v)
    assert_close(trained, ours, 1e-9, 1e-12)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("pooling", ["max", "none"])
def test_together_as_alone(made, norm, pooling):
    network = ConvNet(width=4, depth=2, norm=norm, activation="leakyrelu", pooling=pooling)
    x, y, seeds = made.normalise(made.x_train).double(), made.y_train, [3, 1, 4]
    stack = nas.train_together([drawn(s, network) for s in seeds], x, y, short(), seeds)
    for j, seed in enumerate(seeds):
        alone = drawn(seed, network)
        nas.train_alone(alone, x, y, short(), seed)
        for name, value in alone.state_dict().items():
            torch.testing.assert_close(stack.unstack(j)[name], value, rtol=1e-8, atol=1e-10)


def test_evaluate_tests_each_network_on_every_set(made, monkeypatch):
    other = dataclasses.replace(made, x_test=made.x_test[:7], y_test=made.y_test[:7])
    x, seen, given = made.normalise(made.x_train), [], dict(seeds=[5, 6, 7], **CPU)
    told = dict(on_network=lambda *a: seen.append(a), **given)
    found = nas.evaluate(NETWORK, x, made.y_train, [made, other], short(lr=0.1), **told)
    for seed, accuracies in zip([5, 6, 7], found, strict=True):
        alone = drawn(seed).float()
        nas.train_alone(alone, x, made.y_train, short(lr=0.1), seed)
        assert accuracies == (accuracy(alone, made), accuracy(alone, other))
    assert [told[:2] for told in seen] == list(zip([5, 6, 7], found, strict=True))
    assert all(seconds > 0 for _, _, seconds in seen)
    assert len(set(found)) > 1
    monkeypatch.setattr(nas, "TOGETHER", 2)
    monkeypatch.setattr(nas.engines, "choose", lambda *_: "captured")  # as on a GPU
    assert nas.evaluate(NETWORK, x, made.y_train, [made, other], short(lr=0.1), **given) == found


def test_it_stops_between_steps_and_keeps_what_is_done(made):
    x, done = made.normalise(made.x_train), []
    how = dict(seeds=[0, 1, 2], on_network=lambda seed, *_: done.append(seed), should_stop=stop_after(7), **CPU)
    with pytest.raises(Interrupted):
        nas.evaluate(NETWORK, x, made.y_train, [made], short(), **how)
    assert done == [0]
    found = nas.evaluate(NETWORK, x, made.y_train, [made], short(lr=1e30), seeds=[0], **CPU)
    assert found == [(pytest.approx(100 * float((made.y_test == 0).float().mean())),)], "NaN ranks low"


# --- images held out


def test_no_training_sees_an_image_held_out_or_a_test_image(make_dataset):
    whole = make_dataset(30, 40, 35)
    whole = dataclasses.replace(whole, x_test=255 - whole.x_test)
    rest, validation = data.hold_out(whole, 25)
    rows = lambda x: {image.numpy().tobytes() for image in x}  # noqa: E731
    forbidden = rows(rest.normalise(validation.x_test)) | rows(rest.normalise(rest.x_test))
    for count in (0, 60):
        images, labels = nas.pool(rest, count)
        assert len(images) == len(labels) == (count or 80)
        seen = torch.cat([images[part] for part in nas.batches(len(images), short(steps=20), 0)])
        assert not rows(seen) & forbidden
    assert rows(nas.pool(whole)[0]) & forbidden, "images that are not held out would be found"


def test_a_pool_is_always_the_same_and_keeps_its_labels(make_dataset):
    whole = make_dataset(30, 40)
    images, labels = nas.pool(whole, 33)
    assert torch.equal(images, nas.pool(whole, 33)[0])
    every = whole.normalise(whole.x_train)
    for image, label in zip(images, labels, strict=True):
        assert whole.y_train[(every == image).all((1, 2, 3))].tolist() == [int(label)]
    refused("70 images", "the 71", call=lambda: nas.pool(whole, 71), error=DataError)
