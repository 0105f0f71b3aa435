"""Dataset Distillation (Wang et al., 2018), the paper's Eq. 3: the rival in Tables 3, T10 and T11 and Fig. F4.

A network θ_0, drawn at random, takes N steps of gradient descent, θ_{i+1} = θ_i - η̃_i ∇ℓ(θ_i, S_i), and ends, as θ_N, with a
loss L on real images. The images S and one rate η̃_i for each step are learned by descending on L (`distill`). `replay` trains a
network by the same ordered steps, which is how the method is tested.

`outer_gradients` differentiates L through all steps (Maclaurin et al., 2015) in one of two ways. "unrolled" keeps the graph of
all N steps, as the original does, and its memory grows with N. "reverse" keeps only θ_0 … θ_N and goes back step by step with
each step's vector-Jacobian product: it holds one step's graph at a time, for one more forward and backward pass of each step.
"""

import math
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..core import engine as engines
from ..core import networks
from ..core import resume as loop
from ..data.dataset import Dataset, generator
from ..errors import DataError, Diverged
from ..spec import MakeSet, Network, key
from ..spec.baselines import Distillation
from ..support.progress import Progress
from . import Context, Made, epochs

Images = Float[Tensor, "classes ipc c h w"]
Rates = Float[Tensor, " steps"]
PAD = 4  # of the real images' crops, in pixels
SKIPPED = 0.1  # the largest share of the iterations that may be skipped
LOSSES = 1000  # that a record holds at most


class Distiller(loop.Work):
    """Images and rates in learning; a step is one iteration: one network, its N steps, one update of images and rates.

    Attributes:
        images: S, normalised (classes, ipc, c, h, w).
        raw: softplus⁻¹ of the rates (N,).
        losses: L before each update; infinite for an iteration that was skipped, because L or its gradient was not finite.

    Args:
        dataset: on the device where the work is to run.
        hyper: the hyper-parameters.
        seed: of all random draws.

    Raises:
        DataError: the images are too small to be cropped.
    """

    def __init__(self, dataset: Dataset, hyper: Distillation, seed: int) -> None:
        super().__init__()
        if hyper.crops and min(dataset.size) <= PAD:
            raise DataError(f"the images of {dataset.name} are too small to be padded by {PAD} reflected pixels: turn crops off")
        self.dataset, self.hyper, self.seed = dataset, hyper, seed
        self.device, self.dtype = dataset.x_train.device, getattr(torch, hyper.precision)
        self.per_epoch = epochs.steps_of_epoch(len(dataset.y_train), hyper.batch)
        shape = dataset.classes, hyper.ipc, dataset.channels, *dataset.size
        self.images = torch.randn(shape, generator=generator(seed, "init")).to(self.device, self.dtype)
        start = hyper.rate + math.log(-math.expm1(-hyper.rate))  # softplus of it is η̃_0
        self.raw = torch.full((hyper.unrolled_steps,), start, dtype=torch.float64).to(self.device, self.dtype)
        self.optimiser = torch.optim.Adam([self.images, self.raw], lr=hyper.lr, betas=(hyper.beta1, hyper.beta2))

    @property
    def rates(self) -> Rates:
        """η̃ of each of the N steps, in order."""
        return F.softplus(self.raw)

    def step(self) -> float:
        """Do one iteration and return L before its update.

        At the learned rates, now and then a network drawn at random ends with a loss or gradient that is not finite. It says
        nothing about images or rates: the iteration is skipped, and L is infinite.
        """
        h = self.hyper
        network = _build(h.network, self.images, _first_weights(h, self.seed, self.k))
        x, y = self.real_batch(self.k)
        loss, self.images.grad, self.raw.grad = outer_gradients(network, self.images, self.raw, x, y, h)
        if not all(torch.isfinite(t.square()).all() for t in (loss, self.images.grad, self.raw.grad)):  # Adam squares them
            return self._skip()
        for group in self.optimiser.param_groups:
            group["lr"] = h.lr * h.decay ** (self.k // self.per_epoch // h.decay_epochs)
        self.optimiser.step()
        return loss.item()

    def _skip(self) -> float:
        skipped, done = 1 + self.skipped, self.k + 1
        if skipped > SKIPPED * done:
            raise Diverged(f"the loss or its gradient was NaN or infinite in {skipped} of {done} iterations: lower lr or rate")
        return math.inf

    @property
    def skipped(self) -> int:
        """How many iterations were skipped."""
        return self.losses.count(math.inf)

    def real_batch(self, k: int) -> tuple[Float[Tensor, "n c h w"], Int[Tensor, " n"]]:
        """Return iteration k's real images, normalised, and their labels."""
        d, h = self.dataset, self.hyper
        chosen = epochs.batch(k, len(d.y_train), h.batch, self.seed, "real").to(self.device)
        x = d.normalise(d.x_train[chosen]).to(self.dtype)
        return crop(x, generator(self.seed, "crop", k)) if h.crops else x, d.y_train[chosen]

    def tensors(self) -> dict[str, Tensor]:
        """S, the raw rates and Adam's moments."""
        return {"images": self.images, "raw": self.raw, **loop.optimiser_tensors("adam", self.optimiser)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `tensors` returned."""
        self.images.copy_(tensors["images"])
        self.raw.copy_(tensors["raw"])
        loop.restore_optimiser("adam", self.optimiser, tensors)


def crop(images: Float[Tensor, "n c h w"], draw: torch.Generator) -> Float[Tensor, "n c h w"]:
    """Pad each image by 4 reflected pixels, cut it out again at a random offset and mirror it with probability 1/2."""
    n, _, height, width = images.shape
    down, right = torch.randint(2 * PAD + 1, (2, n, 1), generator=draw).to(images.device)
    mirrored = torch.randint(2, (n, 1), generator=draw).bool().to(images.device)
    rows, columns = (torch.arange(side, device=images.device) for side in (height, width))
    columns = torch.where(mirrored, columns.flip(0), columns) + right
    padded = F.pad(images, (PAD,) * 4, mode="reflect").movedim(1, -1)
    which = torch.arange(n, device=images.device)[:, None, None]
    return padded[which, (rows + down)[:, :, None], columns[:, None, :]].movedim(-1, 1)


def _build(network: Network, images: Images, seed: int) -> nn.Module:
    shape = dict(classes=len(images), channels=images.shape[2], size=tuple(images.shape[3:]))
    return networks.build(network, **shape, seed=seed).to(images.device, images.dtype)


def _first_weights(hyper: Distillation, seed: int, k: int) -> int:
    """Return the seed of θ_0 at iteration k."""
    return generator(seed, "network", k if hyper.start == "random" else 0).initial_seed()


def distill(dataset: Dataset, hyper: Distillation, *, seed: int = 0, device: str = "auto", **how: Any) -> Distiller:
    """Learn images and rates; the result's `images` and `rates` are what `replay` takes.

    Args:
        dataset: from `data.load`.
        hyper: the hyper-parameters.
        seed: of all random draws.
        device: "auto", "cpu", "cuda" or "cuda:1".
        how: `checkpoint`, `on_step`, `on_resume` and `should_stop`, as for `resume.run`.

    Raises:
        Diverged: the loss or its gradient was NaN or infinite in more than a tenth of the iterations so far.
        Interrupted, FileError: as `resume.run` raises them.
        DataError: the images are too small to be cropped.
        SpecError: the network cannot take the images.
    """
    where = engines.resolve_device(device)
    work = Distiller(dataset.to(where), hyper, seed)
    identity = {"run": key(hyper), "data": dataset.hash, "seed": seed, "mode": hyper.mode}
    with engines.arithmetic(hyper.precision, where):
        loop.run(work, hyper.epochs * work.per_epoch, identity, what="iterations", **how)
    return work


def make(run: MakeSet, dataset: Dataset, context: Context) -> Made:
    """Learn images and rates under a progress bar; the set keeps which images each step sees and at which rate."""
    h = run.distillation
    with Progress(run.words, h.epochs * epochs.steps_of_epoch(len(dataset.y_train), h.batch)) as progress:
        callbacks = progress.follow(lambda work: f"loss {work.losses[-1]:.2f}", *context.looks)
        work = distill(dataset, h, seed=run.seed, **callbacks, **context.how)
    about = {"seconds": round(work.seconds, 2), "losses": thinned(work.losses), "mode": h.mode}
    about |= {"skipped": work.skipped} if work.skipped else {}
    return Made(work.images, about, {"order": order(h, dataset.classes), "rates": work.rates.detach().float().cpu()})


def thinned(losses: list[float]) -> list[float | None]:
    """At most a thousand losses, each the mean over as many iterations but those skipped; None where all were."""
    each = -(-len(losses) // LOSSES)
    parts = [[x for x in losses[i : i + each] if x < math.inf] for i in range(0, len(losses), each)]
    return [round(fmean(part), 4) if part else None for part in parts]


def order(hyper: Distillation, classes: int) -> Int[Tensor, "steps n"]:
    """Return the images of each of the N steps, as indices into S flattened over classes and images."""
    flat = torch.arange(classes * hyper.ipc).view(classes, hyper.ipc)
    return torch.stack([flat[:, seen(hyper, i)].flatten() for i in range(hyper.unrolled_steps)])


def replay(images: Images, rates: Rates, hyper: Distillation, *, network: Network | None = None, seed: int = 0) -> nn.Module:
    """Train a fresh network by the N ordered steps at the learned rates and return it (Table 3's test).

    Args:
        images: S, normalised; the network is trained on their device and in their precision.
        rates: η̃ of each step.
        hyper: with which they were learned.
        network: another than the one that they were learned with.
        seed: of the weights. Images learned for one fixed θ_0 are replayed from that θ_0 by the `seed` that `distill` had, unless
            `network` is given.
    """
    fixed = hyper.start == "fixed" and network is None
    weights = _first_weights(hyper, seed, 0) if fixed else generator(seed, "weights").initial_seed()
    trained = _build(network or hyper.network, images, weights)
    theta = list(trained.parameters())
    for i in range(hyper.unrolled_steps):
        after = descend(trained, theta, images[:, seen(hyper, i)], rates[i])
        with torch.no_grad():
            torch._foreach_copy_(theta, after)
    return trained


def loss_at(network: nn.Module, theta: list[Tensor], x: Tensor, y: Tensor) -> Float[Tensor, ""]:
    """Return ℓ(θ, x), the cross-entropy of the network with `theta` in place of its parameters."""
    named = dict(zip((n for n, _ in network.named_parameters()), theta, strict=True))
    return F.cross_entropy(torch.func.functional_call(network, named, (x,)), y)


def descend(network: nn.Module, theta: list[Tensor], images: Tensor, rate: Tensor, graph: bool = False) -> list[Tensor]:
    """Return θ - η̃ ∇ℓ(θ, S).

    Args:
        network: its parameters are replaced by `theta`.
        theta: θ, which requires gradients.
        images: S of one step (classes, n, c, h, w), n of each class.
        rate: η̃, a scalar.
        graph: whether the result will be differentiated.
    """
    labels = torch.arange(len(images), device=images.device).repeat_interleave(images.shape[1])
    loss = loss_at(network, theta, images.flatten(0, 1), labels)
    gradients = torch.autograd.grad(loss, theta, create_graph=graph)
    return [p - rate * g for p, g in zip(theta, gradients, strict=True)]


def seen(hyper: Distillation, i: int) -> slice:
    """Return the images of each class that step i sees: one batch after the other, then again from the first."""
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
        network: θ_0; its parameters are not changed.
        images: S, normalised.
        raw: one number for each step, whose rate is η̃ = softplus(raw), always positive.
        x, y: real images, normalised, and their labels.
        hyper: divides the images among the steps; its `mode` is "unrolled" or "reverse".
    """
    images, raw = images.detach().requires_grad_(), raw.detach().requires_grad_()
    theta = [p.detach().requires_grad_() for p in network.parameters()]
    rates = F.softplus(raw)
    if hyper.mode == "reverse":
        loss, d_images, d_rates = reverse(network, theta, images.detach(), rates.detach(), x, y, hyper)
        return loss, d_images, torch.autograd.grad(rates, raw, d_rates)[0]
    for i in range(hyper.unrolled_steps):
        theta = descend(network, theta, images[:, seen(hyper, i)], rates[i], graph=True)
    loss = loss_at(network, theta, x, y)
    return loss.detach(), *torch.autograd.grad(loss, [images, raw])


def reverse(
    network: nn.Module, theta: list[Tensor], images: Images, rates: Rates, x: Tensor, y: Tensor, hyper: Distillation
) -> tuple[Float[Tensor, ""], Images, Rates]:
    """Return L and its gradients with respect to images and rates, with one step's graph at a time.

    From λ_N = ∇L(θ_N) backwards, λ_i = λ_{i+1} ∂θ_{i+1}/∂θ_i; step i adds λ_{i+1} ∂θ_{i+1}/∂S_i and λ_{i+1} ∂θ_{i+1}/∂η̃_i.
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
