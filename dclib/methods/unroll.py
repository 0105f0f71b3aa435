"""Differentiating through a training (Maclaurin et al., 2015; Wang et al., 2018): what Dataset Distillation descends on.

A network θ_0 takes N steps of gradient descent, θ_{i+1} = θ_i - η̃_i ∇ℓ(θ_i, S_i), each on images and at a rate that are learned,
and ends, as θ_N, with a loss L on real images. `outer_gradients` differentiates L through all steps, in one of two ways:
"unrolled" keeps the graph of all N steps, as the original does, and its memory grows with N; "reverse" keeps only θ_0 … θ_N and
goes back step by step with the vector-Jacobian product of each (which holds a Hessian-vector product), so that it never has more
than one step's graph, for one more forward and backward pass of each step.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..spec.baselines import Distillation

Images = Float[Tensor, "classes ipc c h w"]
Rates = Float[Tensor, " steps"]


def loss_at(network: nn.Module, theta: list[Tensor], x: Tensor, y: Tensor) -> Float[Tensor, ""]:
    """Return the network's cross-entropy with `theta` in place of its parameters."""
    named = dict(zip((n for n, _ in network.named_parameters()), theta, strict=True))
    return F.cross_entropy(torch.func.functional_call(network, named, (x,)), y)


def descend(network: nn.Module, theta: list[Tensor], images: Tensor, rate: Tensor, graph: bool = False) -> list[Tensor]:
    """Return θ - η̃ ∇ℓ(θ, S).

    Args:
        network: whose parameters `theta` takes the place of.
        theta: requires gradients.
        images: S of one step (classes, n, c, h, w), n of each class.
        rate: η̃, a scalar.
        graph: whether the result is to be differentiated.
    """
    loss = loss_at(network, theta, images.flatten(0, 1), labels(images))
    gradients = torch.autograd.grad(loss, theta, create_graph=graph)
    return [p - rate * g for p, g in zip(theta, gradients, strict=True)]


def labels(images: Images) -> Int[Tensor, " n"]:
    """Return the labels of images flattened over their first two dimensions."""
    return torch.arange(len(images), device=images.device).repeat_interleave(images.shape[1])


def seen(hyper: Distillation, i: int) -> slice:
    """Return which images of each class step i sees: one batch after the other, over and over."""
    size, batch = hyper.ipc // hyper.batches, i % hyper.steps % hyper.batches
    return slice(batch * size, (batch + 1) * size)


def outer_gradients(
    network: nn.Module,
    images: Images,
    raw: Rates,
    x: Float[Tensor, "n c h w"],
    y: Int[Tensor, " n"],
    hyper: Distillation,
) -> tuple[Float[Tensor, ""], Images, Rates]:
    """Return L after all N steps, and its gradients with respect to images and raw rates.

    Args:
        network: θ_0; its parameters are left as they are.
        images: S, normalised.
        raw: one number for each step; its rate is η̃ = softplus(raw), which is always positive.
        x, y: real images, normalised, and their labels.
        hyper: how the images are divided among the steps and, by its `mode`, the way to the gradient.
    """
    images, raw = images.detach().requires_grad_(), raw.detach().requires_grad_()
    theta = [p.detach().requires_grad_() for p in network.parameters()]
    rates = F.softplus(raw)
    if hyper.mode == "unrolled":
        loss = unroll(network, theta, images, rates, x, y, hyper)
        return loss.detach(), *torch.autograd.grad(loss, [images, raw])
    loss, d_images, d_rates = reverse(network, theta, images.detach(), rates.detach(), x, y, hyper)
    return loss, d_images, torch.autograd.grad(rates, raw, d_rates)[0]


def unroll(
    network: nn.Module, theta: list[Tensor], images: Images, rates: Rates, x: Tensor, y: Tensor, hyper: Distillation
) -> Float[Tensor, ""]:
    """Return L with the graph of all steps behind it."""
    for i in range(hyper.unrolled_steps):
        theta = descend(network, theta, images[:, seen(hyper, i)], rates[i], graph=True)
    return loss_at(network, theta, x, y)


def reverse(
    network: nn.Module, theta: list[Tensor], images: Images, rates: Rates, x: Tensor, y: Tensor, hyper: Distillation
) -> tuple[Float[Tensor, ""], Images, Rates]:
    """Return L and its gradients with respect to images and rates, one step's graph at a time.

    With λ_N = ∇L(θ_N), going back, λ_i = λ_{i+1} ∂θ_{i+1}/∂θ_i; step i adds λ_{i+1} ∂θ_{i+1}/∂S_i and λ_{i+1} ∂θ_{i+1}/∂η̃_i.
    """
    path = [theta]
    for i in range(hyper.unrolled_steps):
        after = descend(network, path[-1], images[:, seen(hyper, i)], rates[i])
        path.append([p.detach().requires_grad_() for p in after])
    theta = path.pop()
    loss = loss_at(network, theta, x, y)
    adjoint = torch.autograd.grad(loss, theta)  # λ_N
    d_images, d_rates = torch.zeros_like(images), torch.zeros_like(rates)
    for i in reversed(range(hyper.unrolled_steps)):
        theta, S, rate = path.pop(), images[:, seen(hyper, i)].detach().requires_grad_(), rates[i].detach().requires_grad_()
        after = descend(network, theta, S, rate, graph=True)
        d_S, d_rates[i], *adjoint = torch.autograd.grad(after, [S, rate, *theta], adjoint)
        d_images[:, seen(hyper, i)] += d_S
    return loss.detach(), d_images, d_rates
