"""Gradient matching (the paper's Sec. 2.3, Eqs. 9-10): the distance between two gradients, and the gradients themselves.

A gradient is a list of tensors, one for each parameter of the network. The paper's distance compares weight tensors row by row,
where a row holds all weights that lead to one output; its two rivals (Table T7) compare all parameters as one long vector.
"""

import copy
from collections.abc import Callable, Iterable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from ..errors import one_of
from ..spec import DISTANCES

EPSILON = 1e-6

Gradients = Sequence[Tensor]


def rows(gradient: Tensor) -> Tensor:
    """View the gradient of a weight tensor as (outputs, inputs): everything after the first axis is one row."""
    return gradient.flatten(1)


def layerwise(real: Gradients, synthetic: Gradients) -> Float[Tensor, ""]:
    """The paper's distance (Eqs. 9-10): 1 - cos of each pair of rows, summed over rows and weight tensors.

    Tensors with one axis (biases, affine parameters of batch, group and instance norm) take no part; the weight and bias of a
    layer norm over (C, h, w) do, as C rows each.
    """
    total = real[0].new_zeros(())
    for A, B in zip(real, synthetic, strict=True):
        if A.ndim > 1:
            A, B = rows(A), rows(B)
            total = total + (1 - (A * B).sum(1) / (A.norm(dim=1) * B.norm(dim=1) + EPSILON)).sum()
    return total


def euclidean(real: Gradients, synthetic: Gradients) -> Float[Tensor, ""]:
    """The squared distance of all parameters' gradients, biases included (Table T7, "Euclidean")."""
    return sum(((A - B) ** 2).sum() for A, B in zip(real, synthetic, strict=True))


def cosine(real: Gradients, synthetic: Gradients) -> Float[Tensor, ""]:
    """1 - cos of all parameters' gradients as one vector, biases included (Table T7, "Cosine")."""
    a, b = (torch.cat([g.flatten() for g in gradient]) for gradient in (real, synthetic))
    return 1 - (a * b).sum() / (a.norm() * b.norm() + EPSILON)


def distance(kind: str) -> Callable[[Gradients, Gradients], Float[Tensor, ""]]:
    """Return the distance named `kind`.

    Raises:
        SpecError: no such distance.
    """
    one_of("distance", kind, DISTANCES)
    return {"layerwise": layerwise, "euclidean": euclidean, "cosine": cosine}[kind]


def real_gradients(
    network: Callable[[Tensor], Tensor], parameters: Sequence[Tensor], x: Float[Tensor, "n c h w"], label: int, chunk: int
) -> list[Tensor]:
    """The gradient of the mean loss over real images of one class, ∇_θ L^T_c, without a graph.

    Args:
        network: the network, or a compiled form of it.
        parameters: its parameters.
        x: normalised images of one class.
        label: the class.
        chunk: how many images pass the network at a time, which bounds memory and keeps activations in the cache. It changes
            the result only by rounding, since no network couples the images of a batch during condensation.

    Returns:
        The gradient, a tensor for each parameter.
    """
    found: list[Tensor] = []
    for part in x.split(chunk):
        y = torch.full((len(part),), label, device=x.device)
        gradients = torch.autograd.grad(F.cross_entropy(network(part), y, reduction="sum") / len(x), parameters)
        if found:
            torch._foreach_add_(found, gradients)
        else:
            found = list(gradients)
    return found


def mean_features(embed: Callable[[Tensor], Tensor], x: Float[Tensor, "n c h w"], chunk: int) -> Float[Tensor, " features"]:
    """The mean of the features of real images of one class, without a graph.

    Args:
        embed: the network without its last layer.
        x: normalised images of one class.
        chunk: how many images pass at a time.
    """
    with torch.no_grad():
        return sum(embed(part).flatten(1).sum(0) for part in x.split(chunk)) / len(x)


def features_loss(
    embed: Callable[[Tensor], Tensor], real: Float[Tensor, "classes features"], images: Float[Tensor, "classes n c h w"]
) -> Float[Tensor, " classes"]:
    """The squared distance of the mean features of real and learned images of each class (Zhao and Bilen, WACV 2023, Eq. 4)."""
    synthetic = embed(images.flatten(0, 1)).flatten(1).unflatten(0, images.shape[:2]).mean(1)
    return ((real - synthetic) ** 2).sum(1)


def total(parts: Iterable[Gradients]) -> list[Tensor]:
    """Add up gradients one by one, in the tensors of the first."""
    parts = iter(parts)
    found = list(next(parts))
    for part in parts:
        torch._foreach_add_(found, list(part))
    return found


def matching_loss(
    network: nn.Module,
    kind: str,
    real: Sequence[Tensor],
    images: Float[Tensor, "classes ipc c h w"],
    labels: Int[Tensor, "classes ..."],
) -> Float[Tensor, " classes"]:
    """D(∇_θ L^S_c, ∇_θ L^T_c) for several classes at once, differentiable with respect to the images.

    Args:
        network: φ, whose parameters are held fixed.
        kind: one of the three distances.
        real: for each parameter, the real gradients of these classes stacked along the first axis.
        images: the synthetic images, class by class.
        labels: one for each class, or one for each image.

    Returns:
        The distance for each class.
    """
    parameters = {name: p.detach() for name, p in network.named_parameters()}
    buffers = dict(network.named_buffers())
    # A copy that shares the tensors, since `functional_call` replaces them while another thread may be using the network.
    body = copy.deepcopy(network, {id(t): t for t in (*network.parameters(), *network.buffers())})
    measure = distance(kind)

    def loss(parameters: dict[str, Tensor], x: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(body, (parameters, buffers), (x,)), label.expand(len(x)))

    def one_class(x: Tensor, label: Tensor, real: list[Tensor]) -> Tensor:
        return measure(real, list(grad(loss)(parameters, x, label).values()))

    return vmap(one_class)(images, labels, list(real))
