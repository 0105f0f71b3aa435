"""Stage T step for step against a loop written out, and how accuracy is counted."""

import pytest
import torch
import torch.nn.functional as F

from dclib import networks, train
from dclib.data import Dataset
from dclib.errors import DataError, Interrupted
from dclib.spec import ConvNet, Training

THIN = ConvNet(width=4, depth=2, activation="sigmoid")


@pytest.fixture(scope="module")
def made():
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randint(256, (30, 1, 8, 8), dtype=torch.uint8, generator=draw), torch.arange(3).repeat_interleave(10)
    return Dataset("made", x, y, x[::2], y[::2], (0.5,), (0.3,), ("a", "b", "c"))


def thin():
    return networks.build(THIN, channels=1, classes=3, size=(8, 8), seed=0).double()


def literal(network, x, y, E):
    """Epochs 0 … E; after epoch E // 2 + 1 a tenth of the rate and a fresh optimiser."""
    lr = 0.01
    optimiser = torch.optim.SGD(network.parameters(), lr=lr, momentum=0.9, weight_decay=5e-4)
    for epoch in range(E + 1):
        optimiser.zero_grad()
        F.cross_entropy(network(x), y).backward()
        optimiser.step()
        if epoch == E // 2 + 1:
            lr *= 0.1
            optimiser = torch.optim.SGD(network.parameters(), lr=lr, momentum=0.9, weight_decay=5e-4)


@pytest.mark.parametrize("E", [6, 7])
def test_training_equals_the_loop_written_out(made, E):
    x, y = made.normalise(made.x_train, torch.float64)[::5], made.y_train[::5]
    ours, theirs = thin(), thin()
    train.train(ours, x, y, Training(THIN, epochs=E), seed=0)
    literal(theirs, x, y, E)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("augment", "epochs"), [("none", 301), ("crop+scale+rotate", 1001)])
def test_schedule(augment, epochs):
    rates = train.schedule(Training(augment=augment))
    assert len(rates) == epochs
    assert rates.count(0.01) == epochs // 2 + 2
    assert rates[epochs // 2 + 1] == 0.01
    assert rates[epochs // 2 + 2] == pytest.approx(0.001)


def test_larger_sets_are_shuffled_in_batches(made, monkeypatch):
    sizes = []
    real = F.cross_entropy
    monkeypatch.setattr(F, "cross_entropy", lambda x, y: sizes.append(len(y)) or real(x, y))
    train.train(thin(), made.normalise(made.x_train, torch.float64), made.y_train, Training(THIN, epochs=1, batch=12), seed=0)
    assert sizes == [12, 12, 6, 12, 12, 6]


def test_only_asked_for_augmentation_changes_the_images(made):
    x, y = made.normalise(made.x_train), made.y_train
    seen = []
    network = networks.build(THIN, channels=1, classes=3, size=(8, 8), seed=0)
    for augment in ("none", "noise"):
        hyper = Training(THIN, epochs=1, augment=augment)
        train.train(network, x, y, hyper, seed=0, forward=lambda v: seen.append(v) or network(v))
    assert torch.equal(seen[0], x)
    assert not torch.equal(seen[-1], x)


def test_accuracy_counts_exactly(made):
    class Constant(torch.nn.Module):
        def forward(self, x):
            return F.one_hot(torch.ones(len(x), dtype=torch.long), 3).float()

    assert train.accuracy(Constant(), made) == pytest.approx(100 * (made.y_test == 1).float().mean().item())


def test_networks_trained_together_or_one_by_one_are_the_same(made):
    x, y, hyper = made.normalise(made.x_train)[::5], made.y_train[::5], Training(THIN, epochs=3)
    options = dict(device="cpu", engine="eager")
    together = train.evaluate(x, y, made, hyper, seeds=[4, 5], **options)
    assert together == [train.evaluate(x, y, made, hyper, seeds=[s], **options)[0] for s in (4, 5)]


def test_wrong_shape_and_stop(made):
    with pytest.raises(DataError, match=r"shape \(1, 4, 4\)"):
        train.evaluate(torch.zeros(1, 1, 4, 4), torch.zeros(1, dtype=torch.long), made, Training(THIN), seeds=[0], device="cpu")
    with pytest.raises(Interrupted):
        train.train(thin(), torch.zeros(3, 1, 8, 8).double(), torch.arange(3), Training(THIN), seed=0, should_stop=lambda: True)
