"""Do weights trained on S follow those trained on T? A measurement of the paper's approximation (Sec. 2.3).

The paper replaces θ^T_t by θ^S_t in its objective, as it found D(θ^S_t, θ^T_t) close to zero along training. Here two networks
start from the same θ_0; one is trained on S, the other on real images, by the same rule. After each step their weights are
compared, and also what each has added to θ_0, since θ_0 is most of both.
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ..data.dataset import Dataset, generator
from ..spec import Condensation
from . import matching, networks
from .reference import network_seed


def side_by_side(
    dataset: Dataset, sets: Mapping[str, Float[Tensor, "classes ipc c h w"]], hyper: Condensation, *, seed: int = 0, steps: int = 50
) -> dict[str, tuple[list[float], list[float]]]:
    """Train a network on each small set and one on real images, all from the same θ_0, and compare them after each step.

    Args:
        dataset: T.
        sets: normalised images by name; a step takes at most `network_batch` of them.
        hyper: its network, η_θ with its momentum, and `real_batch`, the real images of each class in a step on T, count.
        seed: of θ_0 and of the draws.
        steps: of SGD.

    Returns:
        For each set the lists of D(θ^S, θ^T) and D(θ^S - θ_0, θ^T - θ_0) after each step, both by Eq. 10 as a mean over rows:
        0 if all point the same way, 1 if they are orthogonal.
    """
    hyper = hyper.resolve()
    start, target = trajectory(dataset, None, hyper, seed, steps)
    found = {}
    for name, images in sets.items():
        path = trajectory(dataset, images, hyper, seed, steps)[1]
        weights = [mean_distance(a, b) for a, b in zip(target, path, strict=True)]
        moved = [[torch._foreach_sub(weights, start) for weights in one] for one in (target, path)]
        added = [mean_distance(a, b) for a, b in zip(*moved, strict=True)]
        found[name] = weights, added
    return found


def trajectory(
    dataset: Dataset, images: Float[Tensor, "classes ipc c h w"] | None, hyper: Condensation, seed: int, steps: int
) -> tuple[list[Tensor], list[list[Tensor]]]:
    """Return θ_0 and the weights after each step of SGD on `images`, or on real images if None."""
    network = networks.build(hyper.network, **dataset.shape, seed=network_seed(seed, 0), stage="condense")
    network = network.to(dataset.x_train.device)
    optimiser = torch.optim.SGD(network.parameters(), lr=hyper.network_lr, momentum=hyper.network_momentum)
    path = [[p.detach().clone() for p in network.parameters()]]
    for t in range(steps):
        x, y = _batch(dataset, images, hyper, seed, t)
        optimiser.zero_grad()
        F.cross_entropy(network(x), y).backward()
        optimiser.step()
        path.append([p.detach().clone() for p in network.parameters()])
    return path[0], path[1:]


def _batch(dataset: Dataset, images: Tensor | None, hyper: Condensation, seed: int, t: int) -> tuple[Tensor, Tensor]:
    """Return the images of step t and their labels: shuffled from S, or as many real images of each class."""
    if images is None:
        drawn = [dataset.draw(c, hyper.real_batch, generator(seed, "real", 0, t, c)) for c in range(dataset.classes)]
        which = torch.cat(drawn)
        return dataset.normalise(dataset.x_train[which]), dataset.y_train[which]
    labels = torch.arange(len(images), device=images.device).repeat_interleave(images.shape[1])
    order = torch.randperm(len(labels), generator=generator(seed, "shuffle", 0, t))[: hyper.network_batch]
    return images.flatten(0, 1)[order], labels[order]


def mean_distance(a: matching.Gradients, b: matching.Gradients) -> float:
    """Return the mean over rows of 1 - cos: Eq. 10 without rows of zeros, and without its ε, which would hide small steps."""
    pairs = [(matching.rows(x).double(), matching.rows(y).double()) for x, y in zip(a, b, strict=True) if x.ndim > 1]
    products = torch.cat([x.norm(dim=1) * y.norm(dim=1) for x, y in pairs])
    inner = torch.cat([(x * y).sum(1) for x, y in pairs])
    moved = products > 0
    return float((1 - inner[moved] / products[moved]).mean()) if moved.any() else 0.0
