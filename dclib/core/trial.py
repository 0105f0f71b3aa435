"""The trial of a user's network, on a few images of the data set and on noise, before a run spends hours on it.

Algorithm 1 asks more of a network than training does. Its gradient is differentiated again, for several classes at once (`vmap`);
the images of a batch must not affect each other while gradients are matched; a resumed run must compute the same numbers. A
network that does not meet this is refused in one sentence. `book/own_networks` lists what works.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data.dataset import Dataset
from ..spec import Network, OwnNetwork
from . import engine as engines
from . import matching
from .networks import build, by, explained, features, require

COUNT = 3  # images of each class in the trial
NEAR = 1e-6  # tolerance, relative to the largest number: float64 rounds far below it


def check(network: Network, dataset: Dataset, precision: str = "float32", objective: str = "gradient") -> None:
    """Refuse a user's network that gradient matching cannot use. Each is tried once for each data set; ours need no trial.

    Args:
        network: ours or a user's.
        dataset: whose images the network is for.
        precision: "bfloat16" stores images channels last, which not every network takes.
        objective: "features" asks for less: a part named `features`, and no second derivative.

    Raises:
        SpecError: the network does not meet a condition, which the sentence names.
    """
    tried = network, id(getattr(network, "factory", None)), dataset.hash, precision, objective
    if isinstance(network, OwnNetwork) and tried not in _tried:
        _try(network, dataset, precision, objective)
        _tried.add(tried)


_tried: set[tuple] = set()


def _try(network: OwnNetwork, dataset: Dataset, precision: str, objective: str) -> None:
    shape = dataset.shape
    model, twin = (build(network, **shape, seed=0) for _ in range(2))
    state, other = model.state_dict(), twin.state_dict()
    same = state.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in state.items())
    require(same, network, "has other weights each time it is built from one seed: draw them with torch's own generator")
    model = model.double()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        real = torch.stack([_some(dataset, c) for c in range(min(2, dataset.classes))])
        images = torch.randn(real.shape, dtype=torch.float64)
        for x in (real, images):
            _check_output(network, model, x.flatten(0, 1), dataset.classes)
        _check_parameters(network, model, images[0])
        if objective == "features":
            features(model)
        else:
            _check_matching(network, model.eval(), real, images)
        if precision == "bfloat16":
            with explained(network, "cannot compute in bfloat16, where images lie channels last in memory"):
                engines.prepare(model.float(), "eager", precision)(real.flatten(0, 1).float())


def _some(dataset: Dataset, c: int) -> Tensor:
    """Return `COUNT` normalised images of a class on the CPU; a class with fewer images repeats them."""
    members = dataset.class_indices(c)
    pixels = dataset.x_train[members[torch.arange(COUNT, device=members.device) % len(members)]]
    return dataset.normalise(pixels).double().cpu()


def _check_output(network: OwnNetwork, model: nn.Module, x: Tensor, classes: int) -> None:
    """Require logits of the right shape, no random draws, and images that affect each other only through torch's batch norm."""
    with torch.no_grad(), explained(network, f"cannot take images of {by(x.shape[1:])} pixels in float64"):
        first, again = model(x), model(x)
    right = isinstance(first, Tensor) and first.shape == (len(x), classes) and first.is_floating_point()
    shape = tuple(first.shape) if isinstance(first, Tensor) else type(first).__name__
    require(right, network, f"gives {shape} for {len(x)} images and {classes} classes: return a logit for each class")
    require(bool(torch.isfinite(first).all()), network, "gives NaN or infinite logits: look into it")
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
    """Require one derivative of the matching loss by the images, for several classes at once and for each alone."""
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
    require(_near(alone, together), network, f"{wrong} (nn.LayerNorm's are wrong there: use dclib.core.networks.LayerNorm)")


def _alone(model: nn.Module, parameters: list[Tensor], target: list[Tensor], x: Tensor, label: int) -> Tensor:
    x = x.clone().requires_grad_()
    loss = F.cross_entropy(model(x), torch.full((len(x),), label))
    return torch.autograd.grad(matching.layerwise(target, torch.autograd.grad(loss, parameters, create_graph=True)), x)[0]


def _near(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).abs().max() <= NEAR * max(1e-3, float(a.abs().max())))
