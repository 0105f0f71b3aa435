"""Tries a user's own network once, on a few random images, before hours are spent on it.

Algorithm 1 asks more of a network than training does: its gradient is differentiated again, for several classes at once
(`vmap`), images must not see each other while gradients are matched, and a run that is resumed must meet the same numbers.
Whatever does not hold is refused in a sentence. `book/own_networks` says what works.
"""

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import matching
from ..spec import Network, OwnNetwork
from .factories import build, by, explained, require

COUNT = 3  # images of each class in the trial
NEAR = 1e-6  # of the largest number: rounding in float64, and no more
Shape = tuple[int, int, tuple[int, int]]  # channels, classes, (height, width)


def check(network: Network, *, channels: int, classes: int, size: tuple[int, int]) -> None:
    """Refuse a user's network that gradient matching cannot use, trying each once for each shape; ours need no trial.

    Args:
        network: ours or a user's.
        channels, classes, size: as for `networks.build`.

    Raises:
        SpecError: the sentence says what does not hold.
    """
    if isinstance(network, OwnNetwork):
        _try(network, id(network.factory), (channels, classes, size))


@lru_cache(maxsize=64)
def _try(network: OwnNetwork, factory: int, shape: Shape) -> None:
    channels, classes, size = shape
    model = build(network, channels=channels, classes=classes, size=size, seed=0)
    same = _same(model.state_dict(), build(network, channels=channels, classes=classes, size=size, seed=0).state_dict())
    require(same, network, "has other weights each time it is built from one seed: draw them with torch's own generator")
    model = model.double()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        images = torch.randn(min(2, classes), COUNT, channels, *size, dtype=torch.float64)
        real = torch.randn(min(2, classes), COUNT, channels, *size, dtype=torch.float64)
        _check_output(network, model, images.flatten(0, 1), classes)
        _check_parameters(network, model, images[0])
        _check_matching(network, model.eval(), real, images)


def _check_output(network: OwnNetwork, model: nn.Module, x: Tensor, classes: int) -> None:
    """Logits of the right shape, no draws at random, and no image that sees another but through a batch norm of torch's."""
    with torch.no_grad(), explained(network, f"cannot take images of {by(x.shape[1:])} pixels in float64"):
        first, again = model(x), model(x)
    right = isinstance(first, Tensor) and first.shape == (len(x), classes) and first.is_floating_point()
    shape = tuple(first.shape) if isinstance(first, Tensor) else type(first).__name__
    require(right, network, f"gives {shape} for {len(x)} images and {classes} classes: return a logit for each class")
    require(bool(torch.isfinite(first).all()), network, "gives NaN or infinite logits for random images: look into it")
    random = "draws at random in training (dropout?), which no seed of a run governs: leave that out, or set its p to 0"
    require(_near(first, again), network, random)
    for mode in (True, False):
        if mode and any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules()):
            continue
        model.train(mode)
        with torch.no_grad():
            together, alone = model(x), torch.cat([model(one[None]) for one in x])
        when = "training" if mode else "evaluation"
        instead = "use nn.BatchNorm2d with its running statistics, or another norm"
        require(_near(together, alone), network, f"lets the images of a batch see each other in {when}: {instead}")
    model.train()


def _check_parameters(network: OwnNetwork, model: nn.Module, x: Tensor) -> None:
    named = dict(model.named_parameters())
    require(any(p.ndim > 1 for p in named.values()), network, "has no weights of two axes or more, whose gradients are matched")
    frozen = [name for name, p in named.items() if not p.requires_grad]
    require(not frozen, network, f"has parameters that are not trained, as {(frozen or [''])[0]!r}: register them as buffers")
    with explained(network, "cannot be differentiated"):
        found = torch.autograd.grad(model.eval()(x).sum(), list(named.values()), allow_unused=True)
    idle = [name for name, gradient in zip(named, found, strict=True) if gradient is None]
    require(not idle, network, f"has parameters that its output does not depend on, as {(idle or [''])[0]!r}: leave them out")


def _check_matching(network: OwnNetwork, model: nn.Module, real: Tensor, images: Tensor) -> None:
    """The derivative of the matching loss by the images, for several classes at once and for each alone, must be one."""
    parameters, labels = list(model.parameters()), torch.arange(len(images))
    with explained(network, "cannot be differentiated twice"):
        targets = [matching.real_gradients(model, parameters, x, c, len(x)) for c, x in enumerate(real)]
        alone = torch.stack([_alone(model, parameters, targets[c], images[c], c) for c in range(len(images))])
    require(bool(torch.isfinite(alone).all()), network, "has second derivatives that are NaN or infinite: look into it")
    S = images.clone().requires_grad_()
    with explained(network, "cannot be mapped over classes by torch.func.vmap"):
        stacked = [torch.stack(g) for g in zip(*targets, strict=True)]
        together = torch.autograd.grad(matching.matching_loss(model, "layerwise", stacked, S, labels).sum(), S)[0]
    wrong = "has other second derivatives under torch.func.vmap than without it"
    require(_near(alone, together), network, f"{wrong} (nn.LayerNorm's are wrong there: use dclib.networks.LayerNorm)")


def _alone(model: nn.Module, parameters: list[Tensor], target: list[Tensor], x: Tensor, label: int) -> Tensor:
    x = x.clone().requires_grad_()
    loss = F.cross_entropy(model(x), torch.full((len(x),), label))
    return torch.autograd.grad(matching.layerwise(target, torch.autograd.grad(loss, parameters, create_graph=True)), x)[0]


def _near(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).abs().max() <= NEAR * max(1e-3, float(a.abs().max())))


def _same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(value, b[name]) for name, value in a.items())
