"""Dataset condensation with gradient matching (the paper's Algorithm 1), with checkpoints.

`reference.py` is the same algorithm to the letter. Here the synthetic gradients of several classes are computed together, the
real ones in pieces that fit the cache. Every random draw has a generator of its own, derived from the seed, its purpose and the
step, so that an interrupted run continues to the identical result.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from ..data.dataset import Dataset, generator
from ..errors import Diverged
from ..spec import Condensation, key
from . import engine as engines
from . import formation, resume, trial
from .checkpoint import read_tensors
from .inner import InnerStep
from .ranks import ALONE, Ranks

Start = Float[Tensor, "classes some c h w"] | None


def initial_images(dataset: Dataset, hyper: Condensation, seed: int, dtype: torch.dtype) -> Float[Tensor, "classes ipc c h w"]:
    """Draw the images that condensation starts from.

    Args:
        dataset: its classes and its images' shape count, and for `init="real"` its training images.
        hyper: `ipc` and `init` count.
        seed: of the draw.
        dtype: of the images.

    Returns:
        N(0, 1) noise in normalised space, or randomly chosen real images, normalised, `factor` × `factor` of them in each.

    Raises:
        DataError: `init="real"` and a class has too few images.
        SpecError: `factor` does not divide the images' sides.
    """
    formation.check(hyper.factor, dataset.size)
    draw = generator(seed, "init")
    if hyper.init == "noise":
        return torch.randn(dataset.classes, hyper.ipc, dataset.channels, *dataset.size, generator=draw).to(dtype)
    needed = hyper.ipc * hyper.factor**2
    dataset.require(needed, "lower ipc or start from noise")
    chosen = [dataset.normalise(dataset.x_train[dataset.draw(c, needed, draw)]) for c in range(dataset.classes)]
    return torch.stack([formation.join(x.to(dtype), hyper.factor) for x in chosen])


class Condenser(resume.Work):
    """Algorithm 1 for one data set, one seed and one set of hyper-parameters; a step is an outer step.

    Args:
        dataset: on the device that does the work.
        hyper: resolved hyper-parameters.
        seed: of all random draws.
        engine: "eager", "compiled" or "captured" (see `engine.choose`).
        ranks: the processes that share the classes.
        start: as for `condense`.
        should_stop: asked before each inner step; by a single rank also before each class and each batch of the network.

    Attributes:
        images: S (classes, ipc, c, h, w), normalised.
        velocity: of the images' optimiser, of the same shape.
        losses: for each outer step, the mean over its inner steps of the loss summed over classes.
    """

    def __init__(
        self,
        dataset: Dataset,
        hyper: Condensation,
        seed: int,
        engine: str = "eager",
        ranks: Ranks = ALONE,
        should_stop: Callable[[], bool] = lambda: False,
        start: Start = None,
    ):
        super().__init__()
        self.hyper, self.engine, self.ranks, self.should_stop = hyper, engine, ranks, should_stop
        self.images = initial_images(dataset, hyper, seed, engines.dtype(hyper.precision)).to(dataset.x_train.device)
        if start is not None:
            self.images[:, : start.shape[1]] = start.to(self.images)
        self.velocity = torch.zeros_like(self.images)
        check = self._check if ranks.count == 1 else lambda: None  # ranks stop together
        self.inner = InnerStep(dataset, hyper, seed, self.images, engine, ranks, check)

    def step(self) -> float:
        """Do outer step k and return its loss.

        Raises:
            Stopped: a rank was told to stop; S and its velocity are as they were before the step.
            Diverged: an image became NaN or infinite.
        """
        inner, rate, losses = self.inner, self.hyper.image_rate(self.k), []
        inner.images.copy_(self.images)
        inner.velocity.copy_(self.velocity)
        inner.begin(self.k)
        for t in range(self.hyper.inner_steps):  # T
            if self.ranks.any(bool(self.should_stop())):
                raise resume.Stopped
            inner.draw(self.k, t)
            losses.append(inner.update_images(rate))
            if t < self.hyper.inner_steps - 1:
                inner.train_network(self.k, t)
        self.images, self.velocity = inner.images.clone(), inner.velocity.clone()
        if not torch.isfinite(self.images).all():
            raise Diverged(f"the images became NaN or infinite in outer step {self.k + 1}: lower image_lr or network_lr")
        return float(torch.stack(losses).mean())

    def _check(self) -> None:
        if self.should_stop():
            raise resume.Stopped

    def tensors(self) -> dict[str, Tensor]:
        """S and its velocity; every outer step draws a new network."""
        return {"images": self.images, "velocity": self.velocity}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over S and its velocity."""
        self.images.copy_(tensors["images"])
        self.velocity.copy_(tensors["velocity"])

    def finished(self) -> bool:
        """Whether the loss has not fallen for `patience` outer steps."""
        p = self.hyper.patience
        return p > 0 and self.k >= 2 * p and min(self.losses[-p:]) >= min(self.losses[:-p])


def condense(
    dataset: Dataset,
    hyper: Condensation,
    *,
    seed: int = 0,
    device: str = "auto",
    engine: str = "auto",
    checkpoint: Path | str | None = None,
    on_step: Callable[[Condenser], None] = lambda state: None,
    on_resume: Callable[[Condenser], None] = lambda state: None,
    should_stop: Callable[[], bool] = lambda: False,
    ranks: Ranks = ALONE,
    longest: int = 0,
    start: Start = None,
) -> Condenser:
    """Run Algorithm 1 and return its final state; `images` is S, normalised, of shape (classes, ipc, c, h, w).

    Args:
        dataset: from `data.load`.
        hyper: the hyper-parameters.
        seed: of all random draws.
        device: "auto", "cpu", "cuda" or "cuda:1".
        engine: "auto", "eager", "compiled" or "captured". "auto" takes the engine of the checkpoint, if there is one.
        checkpoint: a file that keeps the state every 20 seconds. If it exists, the run continues from it to the same images as
            without it. A constant η_S gives runs that differ only in K one trajectory, so that a longer run continues from a
            shorter one.
        on_step: called with the state after each outer step.
        on_resume: called with the state that the checkpoint held.
        should_stop: asked before each inner step and, unless there are several ranks, before each class and each batch of the
            network; True saves the state after the last outer step and raises.
        ranks: the processes that share the classes, from `ranks.joined`; the first of them reads and writes the checkpoint.
        longest: the largest K of the runs that share this checkpoint and differ only in K, or 0 if it belongs to this run alone.
            A shared checkpoint also keeps the final state, and is not used if it has more than K outer steps; one that belongs
            to this run alone is then refused.
        start: images, normalised, that the first of each class start from; those that it lacks start as `hyper.init` says, as
            they would without it.

    Returns:
        The state: `images`, `velocity`, `k`, the outer steps done, `losses`, one for each, `seconds` and `engine`.

    Raises:
        Diverged: an image became NaN or infinite.
        Interrupted: `should_stop` returned True; the same call continues from the checkpoint.
        FileError: the checkpoint is damaged, belongs to another run or cannot be written.
        DataError: a class has too few images to start from.
        SpecError: a user's network cannot be used (see `trial`).
    """
    h, where = hyper.resolve(), engines.resolve_device(device)
    trial.check(h.network, dataset, h.precision, h.objective)
    if engine == "auto" and checkpoint is not None and ranks.rank == 0 and Path(checkpoint).exists():
        begun = read_tensors(checkpoint)[1].get("engine", engine)
        engine = begun if (begun == "captured") == (where.type == "cuda") else engine
    passes = h.inner_steps * (dataset.classes * h.real_batch // 10 + h.network_epochs)  # of an outer step, of ten images each
    chosen = engines.choose(ranks.share(engine), where, max(longest, h.outer_steps) * passes)
    identity = {"run": h.trajectory, "data": dataset.hash, "seed": seed, "engine": chosen}
    identity["decay"] = h.outer_steps if h.image_lr_end else None  # no draw depends on K, but a decaying η_S does
    identity["start"] = None if start is None else hashlib.sha256(start.cpu().float().contiguous().numpy()).hexdigest()[:16]
    with engines.arithmetic(h.precision, where):
        work = Condenser(dataset.to(where), h, seed, chosen, ranks, should_stop, start)
        resume.run(
            work,
            h.outer_steps,
            identity,
            what="outer steps",
            checkpoint=checkpoint,
            on_step=on_step,
            on_resume=on_resume,
            keep=longest > 0,
            also={"run": key(h)},  # as the first checkpoints were written
            ranks=ranks,
        )
    return work
