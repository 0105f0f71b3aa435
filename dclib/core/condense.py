"""Dataset condensation with gradient matching (the paper's Algorithm 1), with checkpoints.

`reference.py` is the same algorithm to the letter. Here the classes' synthetic gradients are taken together, the real ones
pass in pieces that fit the cache, and the state is saved between outer steps, so that an interrupted run goes on to the
identical result: every random draw has a generator of its own, derived from the seed, its purpose and the step.
"""

import time
from collections.abc import Callable
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from ..data.dataset import Dataset, generator
from ..errors import Diverged, FileError, Interrupted
from ..spec import Condensation, key
from . import engine as engines
from . import trial
from .checkpoint import State, load_checkpoint, save_checkpoint
from .inner import InnerStep
from .ranks import ALONE, Ranks

CHECKPOINT_SECONDS = 20.0


def initial_images(dataset: Dataset, hyper: Condensation, seed: int, dtype: torch.dtype) -> Float[Tensor, "classes ipc c h w"]:
    """Draw S: N(0, 1) noise in normalised space, or randomly chosen real images.

    Raises:
        DataError: real images are asked for and a class has fewer than `ipc`.
    """
    draw = generator(seed, "init")
    if hyper.init == "noise":
        return torch.randn(dataset.classes, hyper.ipc, dataset.channels, *dataset.size, generator=draw).to(dtype)
    dataset.require(hyper.ipc, "lower ipc or start from noise")
    chosen = [dataset.draw(c, hyper.ipc, draw) for c in range(dataset.classes)]
    return torch.stack([dataset.normalise(dataset.x_train[i]).to(dtype) for i in chosen])


class Condenser:
    """Algorithm 1 for one data set, one seed and one set of hyper-parameters; `step` does one outer step.

    Args:
        dataset: on the device where the work is to run.
        hyper: resolved hyper-parameters.
        seed: of all random draws.
        engine: "eager", "compiled" or "captured" (see `engine.choose`).
        ranks: the processes that share the classes.
    """

    def __init__(self, dataset: Dataset, hyper: Condensation, seed: int, engine: str = "eager", ranks: Ranks = ALONE):
        self.hyper, self.ranks = hyper, ranks
        images = initial_images(dataset, hyper, seed, engines.dtype(hyper.precision)).to(dataset.x_train.device)
        self.inner = InnerStep(dataset, hyper, seed, images, engine, ranks)
        self.state = State(images, torch.zeros_like(images))

    def step(self, should_stop: Callable[[], bool] = lambda: False) -> bool:
        """Do one outer step and return True, or leave the state as it was and return False when told to stop inside it."""
        start, inner, state = time.perf_counter(), self.inner, self.state
        inner.images.copy_(state.images)
        inner.velocity.copy_(state.velocity)
        inner.begin(state.k)
        losses, rate = [], self.hyper.image_rate(state.k)
        for t in range(self.hyper.inner_steps):
            if self.ranks.any(bool(should_stop())):
                return False
            inner.draw(state.k, t)
            losses.append(inner.update_images(rate))
            if t < self.hyper.inner_steps - 1:
                inner.train_network(state.k, t)
        state.images, state.velocity, state.k = inner.images.clone(), inner.velocity.clone(), state.k + 1
        state.losses.append(float(torch.stack(losses).mean()))
        state.seconds += time.perf_counter() - start
        return True


def condense(
    dataset: Dataset,
    hyper: Condensation,
    *,
    seed: int = 0,
    device: str = "auto",
    engine: str = "auto",
    checkpoint: Path | str | None = None,
    on_step: Callable[[State], None] = lambda state: None,
    on_resume: Callable[[State], None] = lambda state: None,
    should_stop: Callable[[], bool] = lambda: False,
    ranks: Ranks = ALONE,
    on_course: bool = False,
) -> State:
    """Run Algorithm 1 and return its final state; `state.images` is S, normalised.

    Args:
        dataset: from `data.load`.
        hyper: the hyper-parameters.
        seed: of all random draws.
        device: "auto", "cpu", "cuda" or "cuda:1".
        engine: "auto", "eager", "compiled" or "captured".
        checkpoint: a file that keeps the state between outer steps; found there, the run goes on from it, also from that of the
            same run with another K, to the same images as without it, unless η_S decays.
        on_step: called after each outer step.
        on_resume: called with the state that a checkpoint held.
        should_stop: asked before each inner step; True saves the state and raises.
        ranks: the processes that share the classes, from `ranks.joined`; the first of them reads and writes the checkpoint.
        on_course: the checkpoint serves all runs that differ in K alone (see `trajectory`): it keeps the final state, too, and one
            that is farther than K is not used, where otherwise it is refused.

    Raises:
        Diverged: an image became NaN or infinite.
        Interrupted: `should_stop` said so; the same call goes on from the checkpoint.
        FileError: the checkpoint is damaged, belongs to another run or cannot be written.
        DataError: a class has too few images to start from.
        SpecError: a network of the user's own cannot be used (see `trial`).
    """
    h, where = hyper.resolve(), engines.resolve_device(device)
    trial.check(h.network, dataset, h.precision)
    chosen = engines.choose(engine, where, work(h, dataset.classes))
    identity = {"run": h.trajectory, "data": dataset.hash, "seed": seed, "engine": chosen}
    identity["decay"] = h.outer_steps if h.image_lr_end else None  # no draw depends on K, but a decaying η_S does
    with engines.arithmetic(h.precision, where):
        condenser = Condenser(dataset.to(where), h, seed, chosen, ranks)
        if _resume(condenser, checkpoint, identity, on_course):
            on_resume(condenser.state)
        state = _to_the_end(condenser, checkpoint, identity, on_step, should_stop)
    if on_course and checkpoint is not None and ranks.rank == 0:
        save_checkpoint(checkpoint, state, identity)
    return state


def _to_the_end(
    condenser: Condenser,
    checkpoint: Path | str | None,
    identity: dict,
    on_step: Callable[[State], None],
    should_stop: Callable[[], bool],
) -> State:
    h, state, saved = condenser.hyper, condenser.state, time.monotonic()
    keeps = checkpoint is not None and condenser.ranks.rank == 0
    while not finished(state, h):
        if not condenser.step(should_stop):
            if keeps:
                save_checkpoint(checkpoint, state, identity)
            done = f"{state.k} of {h.outer_steps} outer steps"
            raise Interrupted(f"stopped after {done}; the same command goes on from there")
        _check_finite(state)
        on_step(state)
        if keeps and time.monotonic() - saved > CHECKPOINT_SECONDS:
            save_checkpoint(checkpoint, state, identity)
            saved = time.monotonic()
    return state


def _resume(condenser: Condenser, checkpoint: Path | str | None, identity: dict, on_course: bool) -> bool:
    """Take the state from the checkpoint that the first rank finds, if any; it may be that of the same run with another K."""
    ranks, state = condenser.ranks, condenser.state
    if ranks.rank == 0 and checkpoint is not None and Path(checkpoint).exists():
        also = {"run": key(condenser.hyper)}  # as checkpoints were written before
        kept, K = load_checkpoint(checkpoint, identity, state.images.device, also), condenser.hyper.outer_steps
        if kept.k > K and not on_course:
            done = f"is of this run and has {kept.k} outer steps behind it, more than K = {K}"
            raise FileError(f"the checkpoint {checkpoint} {done}: go on with -K {kept.k} or more (outer_steps), or remove it")
        state = condenser.state = kept if kept.k <= K else state
    found = ranks.share((state.k, state.losses, state.seconds))
    state.k, state.losses, state.seconds = found
    ranks.copy([state.images, state.velocity])
    return state.k > 0


def _check_finite(state: State) -> None:
    if not torch.isfinite(state.images).all():
        raise Diverged(f"the images became NaN or infinite in outer step {state.k}: lower image_lr or network_lr")


def work(hyper: Condensation, classes: int) -> int:
    """How many first-order passes of some ten images each the run takes: what compiling saves time on."""
    h = hyper.resolve()
    return h.outer_steps * h.inner_steps * (classes * h.real_batch // 10 + h.network_epochs)


def finished(state: State, hyper: Condensation) -> bool:
    """Whether K outer steps are done, or the loss has stopped falling for `patience` of them."""
    p = hyper.patience
    if p and state.k >= 2 * p and min(state.losses[-p:]) >= min(state.losses[:-p]):
        return True
    return state.k >= hyper.outer_steps
