"""Dataset Distillation (Wang et al., 2018), the paper's Eq. 3: its rival in Tables 3, T10 and T11 and Fig. F4.

Learned are images and a rate for each of the N steps in which a network drawn at random is trained on them, so that it ends with
a low loss on real images; `unroll` has the gradient. `distill` learns them, `replay` trains a network by the same ordered steps,
which is how the method is tested.
"""

import math
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..core import engine as engines
from ..core import networks
from ..core import resume as loop
from ..data.dataset import Dataset, generator
from ..errors import DataError, Diverged
from ..spec import Network, key
from ..spec.baselines import Distillation
from .unroll import Images, Rates, descend, outer_gradients, seen

PAD = 4  # of the real images' crops, in pixels
TENTH = 10  # of the iterations, at most, may be skipped


class Distiller(loop.Work):
    """Dataset Distillation of one data set; its step is one iteration: one network, its N steps, one update of images and rates.

    Attributes:
        images: S, normalised (classes, ipc, c, h, w).
        raw: softplus⁻¹ of the rates (N,).
        losses: L before each update; infinite where there was none, because L or its gradient was not finite.

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
        self.per_epoch = math.ceil(len(dataset.y_train) / hyper.batch)
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

        Now and then a network drawn at random leaves the finite numbers at the learned rates. It says nothing about images or
        rates: the iteration is skipped and its L infinite.
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
        if skipped * TENTH > done:
            raise Diverged(f"the loss or its gradient was NaN or infinite in {skipped} of {done} iterations: lower lr or rate")
        return math.inf

    @property
    def skipped(self) -> int:
        """How many iterations changed nothing."""
        return self.losses.count(math.inf)

    def real_batch(self, k: int) -> tuple[Float[Tensor, "n c h w"], Int[Tensor, " n"]]:
        """Return iteration k's real images, normalised, and their labels: the next part of its epoch's permutation."""
        d, h = self.dataset, self.hyper
        epoch, i = divmod(k, self.per_epoch)
        order = torch.randperm(len(d.y_train), generator=generator(self.seed, "real", epoch))
        chosen = order[i * h.batch : (i + 1) * h.batch].to(self.device)
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
    """Pad each image by 4 reflected pixels, cut it out again at an offset of its own and mirror every other one at random."""
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


def distill(
    dataset: Dataset,
    hyper: Distillation,
    *,
    seed: int = 0,
    device: str = "auto",
    checkpoint: Path | str | None = None,
    on_step: Callable[[Distiller], None] = lambda work: None,
    on_resume: Callable[[Distiller], None] = lambda work: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Distiller:
    """Learn images and rates; the result's `images` and `rates` are what `replay` takes.

    Args:
        dataset: from `data.load`.
        hyper: the hyper-parameters.
        seed: of all random draws.
        device: "auto", "cpu", "cuda" or "cuda:1".
        checkpoint: a file that keeps the state between iterations; found there, the run goes on from it.
        on_step: called after each iteration.
        on_resume: called with the state that a checkpoint held.
        should_stop: asked before each iteration; True saves the state and raises.

    Raises:
        Diverged: the loss or its gradient was NaN or infinite in more than a tenth of the iterations so far.
        Interrupted: `should_stop` said so; the same call goes on from the checkpoint.
        FileError: the checkpoint is damaged, belongs to another run or cannot be written.
        DataError: the images are too small to be cropped.
        SpecError: the network cannot take the images.
    """
    where = engines.resolve_device(device)
    work = Distiller(dataset.to(where), hyper, seed)
    identity = {"run": key(hyper), "data": dataset.hash, "seed": seed, "mode": hyper.mode}
    hooks = dict(on_step=on_step, on_resume=on_resume, should_stop=should_stop)
    with engines.arithmetic(hyper.precision, where):
        loop.run(work, hyper.epochs * work.per_epoch, identity, what="iterations", checkpoint=checkpoint, **hooks)
    return work


def order(hyper: Distillation, classes: int) -> Int[Tensor, "steps n"]:
    """Return which images each of the N steps sees, as indices into S flattened over classes and images."""
    flat = torch.arange(classes * hyper.ipc).view(classes, hyper.ipc)
    return torch.stack([flat[:, seen(hyper, i)].flatten() for i in range(hyper.unrolled_steps)])


def replay(images: Images, rates: Rates, hyper: Distillation, *, network: Network | None = None, seed: int = 0) -> nn.Module:
    """Train a fresh network by the N ordered steps at the learned rates and return it (Table 3's test).

    Args:
        images: S, normalised; the network is trained on their device and in their precision.
        rates: η̃ of each step.
        hyper: with which they were learned.
        network: another than the one that they were learned with, its weights drawn as its own `init` says.
        seed: of the weights. Where images were learned for one fixed θ_0, it is that θ_0 (unless `network` is another) and `seed`
            that of `distill`.
    """
    fixed = hyper.start == "fixed" and network is None
    weights = _first_weights(hyper, seed, 0) if fixed else generator(seed, "weights").initial_seed()
    trained = _build(network or hyper.network, images, weights)
    theta = list(trained.parameters())
    for i in range(hyper.unrolled_steps):
        after = descend(trained, theta, images[:, seen(hyper, i)], rates[i])
        with torch.no_grad():
            for p, new in zip(theta, after, strict=True):
                p.copy_(new)
    return trained
