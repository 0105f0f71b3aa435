"""dclib.core.tracking: weights along training on a small set and on real images, from the same start."""

import dataclasses

import pytest
import torch

from dclib.core import tracking
from dclib.core.reference import network_seed
from dclib.spec import MLP, Condensation

HYPER = Condensation(network=MLP(width=6), real_batch=4, network_lr=0.1)


def test_the_same_images_leave_no_distance_and_others_lead_elsewhere(make_dataset):
    """Most of which the start hides."""
    made = make_dataset(5, 5, 5)
    everything = torch.stack([made.normalise(made.x_train[made.class_indices(c)]) for c in range(3)])
    noise = torch.randn(3, 1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    found = tracking.side_by_side(made, {"all": everything, "noise": noise}, dataclasses.replace(HYPER, real_batch=5), steps=4)
    assert all(len(distances) == 4 for pair in found.values() for distances in pair)
    assert max(map(max, found["all"])) < 1e-6
    weights, added = found["noise"]
    assert weights == sorted(weights)
    assert all(a > 10 * w for a, w in zip(added, weights, strict=True))
    assert 0 < max(added) < 2


def test_a_trajectory_is_plain_sgd(made):
    images = torch.randn(3, 2, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    start, path = tracking.trajectory(made, images, HYPER, seed=3, steps=2)
    network = tracking.networks.build(HYPER.network, channels=1, classes=3, size=(8, 8), seed=network_seed(3, 0), stage="condense")
    velocity = [torch.zeros_like(p) for p in network.parameters()]
    for p, s in zip(network.parameters(), start, strict=True):
        assert torch.equal(p, s)
    for t in range(2):
        loss = torch.nn.functional.cross_entropy(network(images.flatten(0, 1)), torch.tensor([0, 0, 1, 1, 2, 2]))
        gradients = torch.autograd.grad(loss, list(network.parameters()))
        with torch.no_grad():
            for p, v, g in zip(network.parameters(), velocity, gradients, strict=True):
                v.mul_(0.5).add_(g)
                p.sub_(0.1 * v)
        for p, q in zip(network.parameters(), path[t], strict=True):
            torch.testing.assert_close(p.detach(), q, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("factor", "distance"), [(2.0, 0.0), (-1.0, 2.0)])
def test_the_mean_distance_of_a_row(factor, distance):
    rows = [torch.tensor([[3e-6, 4e-6], [1.0, 2.0], [0.0, 0.0]]), torch.tensor([5.0])]
    assert tracking.mean_distance(rows, [factor * r for r in rows]) == pytest.approx(distance, abs=1e-5)
