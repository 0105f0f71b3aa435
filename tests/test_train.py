"""Stage T step for step against the literal loop, and how accuracy is counted."""

import pytest
import torch
import torch.nn.functional as F
from helpers import assert_close, refused, stop_after

from dclib.core import networks, reference, train
from dclib.core.augment import augment
from dclib.data.dataset import Dataset, generator
from dclib.errors import DataError, Interrupted
from dclib.spec import MLP, ConvNet, Training

THIN = ConvNet(width=4, depth=2, activation="sigmoid")


@pytest.fixture(scope="module")
def made(make_dataset):
    return make_dataset(10, 10, 10)


def thin(network=THIN):
    return networks.build(network, channels=1, classes=3, size=(8, 8), seed=0).double()


# --- the schedule


CASES = [
    ({"epochs": 6}, slice(None, None, 5)),
    ({"epochs": 7}, slice(None, None, 5)),
    ({"epochs": 1}, slice(None, None, 5)),
    ({"epochs": 6, "lr": 0.5, "momentum": 0.5, "weight_decay": 0.1}, slice(None)),
    ({"epochs": 4, "batch": 12, "lr": 0.1}, slice(None)),
]


@pytest.mark.parametrize(("changes", "part"), CASES, ids=str)
def test_training_equals_the_literal_loop(made, changes, part):
    x, y = made.normalise(made.x_train).double()[part], made.y_train[part]
    ours, theirs, hyper = thin().eval(), thin(), Training(THIN, **changes)
    first = F.cross_entropy(theirs(x), y).item()
    losses = train.train(ours, x, y, hyper, seed=3)
    reference.train(theirs, x, y, hyper, seed=3)
    assert len(losses) == hyper.epochs + 1
    assert losses[0] == pytest.approx(first, rel=1e-12 if len(x) <= hyper.batch else 0.1)
    assert ours.training
    assert_close(ours, theirs, 1e-12, 1e-12)


@pytest.mark.parametrize(("augment", "epochs"), [("none", 301), ("crop+scale+rotate", 1001), ("noise", 1001)])
def test_schedule(augment, epochs):
    rates = train.schedule(Training(augment=augment).resolve())
    assert len(rates) == epochs
    assert rates.count(0.01) == epochs // 2 + 2
    assert rates[epochs // 2 + 1] == 0.01
    assert rates[epochs // 2 + 2 :] == pytest.approx([0.001] * (epochs // 2 - 1))


# --- batches and augmentation


def batches_of(made, hyper, *, seed=0, count=30):
    """What the network sees, batch by batch."""
    x, y = made.normalise(made.x_train)[:count], made.y_train[:count]
    network, seen = networks.build(MLP(width=2), channels=1, classes=3, size=(8, 8), seed=0), []
    train.train(network, x, y, hyper, seed=seed, forward=lambda v: seen.append(v) or network(v))
    return x, seen


def test_larger_sets_are_shuffled_in_batches_of_256(make_dataset):
    x, seen = batches_of(make_dataset(100, 100, 100), Training(epochs=1), count=300)
    assert [len(batch) for batch in seen] == [256, 44, 256, 44]
    order = generator(0, "shuffle")
    for epoch in (seen[:2], seen[2:]):
        assert torch.equal(torch.cat(epoch), x[torch.randperm(300, generator=order)])
    _, other = batches_of(make_dataset(100, 100, 100), Training(epochs=1), count=300, seed=1)
    assert not torch.equal(seen[0], other[0])


def test_images_are_augmented_only_where_asked_and_anew_at_each_step(made):
    x, seen = batches_of(made, Training(epochs=2, augment="none"))
    assert all(torch.equal(batch, x) for batch in seen)
    x, seen = batches_of(made, Training(epochs=2, augment="crop+scale+rotate"), seed=5)
    draws = generator(5, "augment")
    for batch in seen:
        assert torch.equal(batch, augment(x, ("crop", "scale", "rotate"), draws))
        assert not torch.equal(batch, x)
    assert not torch.equal(seen[0], seen[1])


# --- accuracy


class Brightest(torch.nn.Module):
    """Tells the class by the first pixel, normalised: -1, 0 or 1; and refuses to be asked while training."""

    def forward(self, x):
        assert not self.training
        pixel = x[:, 0, 0, 0]
        return torch.stack((-pixel, 0.5 - pixel.abs(), pixel), 1)


def test_accuracy_counts_exactly():
    """503 test images, in two full batches and a third of three; the last ones are classified wrongly."""
    y, pixels = torch.arange(503) % 3, torch.zeros(503, 1, 2, 2, dtype=torch.uint8)
    for right in (0, 1, 250, 349, 503):
        shown = torch.where(torch.arange(503) < right, y, (y + 1) % 3)
        pixels[:, 0, 0, 0] = torch.tensor([0, 127, 255], dtype=torch.uint8)[shown]
        dataset = Dataset("told", pixels[:3], y[:3], pixels, y, (0.5,), (0.5,), ("a", "b", "c"))
        assert train.accuracy(Brightest().train(), dataset) == 100 * right / 503


# --- stage T as a whole


def evaluate(made, hyper, seeds, part=slice(None, None, 5), **options):
    x, y = made.normalise(made.x_train)[part], made.y_train[part]
    return train.evaluate(x, y, made, hyper, seeds=seeds, **{"device": "cpu", "engine": "eager", **options})


@pytest.mark.parametrize("network", [THIN, ConvNet(width=4, depth=2, norm="batch")], ids=str)
def test_networks_trained_together_or_one_by_one_are_the_same(make_dataset, network):
    """Nothing of the network before is left, running statistics included."""
    dataset, hyper = make_dataset(40, 40, 40), Training(network, epochs=8, lr=0.1)
    together = evaluate(dataset, hyper, [4, 5, 4])
    assert together == [evaluate(dataset, hyper, [s], several=True)[0] for s in (4, 5, 4)]
    assert together[0] != together[1]


def test_evaluate_trains_the_network_of_each_seed(made):
    """Weights, shuffling and augmentation are drawn from the seed; accuracies are told as they come."""
    hyper, told = Training(THIN, epochs=3, augment="noise", precision="float64"), []
    found = evaluate(made, hyper, [7, 8], on_network=lambda seed, accuracy, seconds: told.append((seed, accuracy)))
    assert told == list(zip([7, 8], found, strict=True))
    x, y = made.normalise(made.x_train).double()[::5], made.y_train[::5]
    for seed, accuracy in told:
        weights = generator(seed, "weights").initial_seed()
        network = networks.build(THIN, channels=1, classes=3, size=(8, 8), seed=weights).double()
        train.train(network, x, y, hyper, seed=seed)
        assert train.accuracy(network, made, torch.float64) == accuracy


def test_images_of_another_shape_are_refused(made):
    for shape in ((1, 4, 4), (3, 8, 8), (1, 8, 4)):
        given = dict(images=torch.zeros(1, *shape), labels=torch.zeros(1, dtype=torch.long), dataset=made, hyper=Training(THIN))
        refused(shape, (1, 8, 8), call=train.evaluate, error=DataError, seeds=[0], device="cpu", **given)


def test_told_to_stop_it_stops_before_the_next_epoch(one_lane, made):
    told = []
    with pytest.raises(Interrupted, match="finished networks are recorded"):  # six epochs of the first network, two of the second
        evaluate(made, Training(THIN, epochs=5), [0, 1], should_stop=stop_after(8), on_network=lambda seed, *_: told.append(seed))
    assert told == [0]


# --- soft labels


def test_soft_labels_give_the_gradient_of_their_cross_entropy(made):
    """Against the sum written out; those of one class alone are that class."""
    x = made.normalise(made.x_train).double()[::3]
    soft = torch.softmax(torch.randn(len(x), 3, generator=generator(0), dtype=torch.float64), 1)
    hyper, ours, theirs = Training(THIN, epochs=0, weight_decay=0.0, momentum=0.0, lr=0.5), thin(), thin()
    (loss,) = train.train(ours, x, soft, hyper, seed=0)
    expected = -(soft * theirs(x).log_softmax(1)).sum(1).mean()
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-12)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other - 0.5 * other.grad)


@pytest.mark.parametrize("engine", ["eager", "captured"])
def test_soft_labels_of_one_class_are_that_class(made, engine, monkeypatch):
    monkeypatch.setattr(train.engines, "choose", lambda engine, *rest: engine)
    x, y = made.normalise(made.x_train)[::2], made.y_train[::2]
    hyper = Training(MLP(width=8), epochs=4, batch=7, lr=0.1, augment="crop", precision="float64")
    how = dict(seeds=[1, 2], device="cpu", engine=engine)
    assert train.evaluate(x, F.one_hot(y, 3).float(), made, hyper, **how) == train.evaluate(x, y, made, hyper, **how)
