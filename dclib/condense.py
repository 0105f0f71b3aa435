"""Dataset condensation with gradient matching (the paper's Algorithm 1), with checkpoints.

`reference.py` is the same algorithm to the letter. Here the classes' synthetic gradients are taken together, the real ones
pass in pieces that fit the cache, and the state is saved between outer steps, so that an interrupted run goes on to the
identical result: every random draw has a generator of its own, derived from the seed, its purpose and the step.
"""

import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from . import engine as engines
from . import matching, networks
from .checkpoint import State, load_checkpoint, save_checkpoint
from .data import Dataset, generator
from .errors import DataError, Diverged, Interrupted
from .reference import network_seed
from .spec import Condensation, key

CHECKPOINT_SECONDS = 20.0
WORKING_NUMBERS = 400_000_000  # most numbers that the real gradients of the classes held at once may have


def initial_images(dataset: Dataset, hyper: Condensation, seed: int, dtype: torch.dtype) -> Float[Tensor, "classes ipc c h w"]:
    """Draw S: N(0, 1) noise in normalised space, or randomly chosen real images.

    Raises:
        DataError: real images are asked for and a class has fewer than `ipc`.
    """
    draw = generator(seed, "init")
    if hyper.init == "noise":
        return torch.randn(dataset.classes, hyper.ipc, dataset.channels, *dataset.size, generator=draw).to(dtype)
    chosen = [dataset.draw(c, hyper.ipc, draw) for c in range(dataset.classes)]
    for c, indices in enumerate(chosen):
        if len(indices) < hyper.ipc:
            raise DataError(
                f"class {dataset.class_names[c]!r} of {dataset.name} has {len(indices)} images, fewer than the {hyper.ipc} asked "
                "for: lower ipc or start from noise"
            )
    return torch.stack([dataset.normalise(dataset.x_train[i]).to(dtype) for i in chosen])


class Condenser:
    """Algorithm 1 for one data set, one seed and one set of hyper-parameters; `step` does one outer step.

    Args:
        dataset: on the device where the work is to run.
        hyper: resolved hyper-parameters.
        seed: of all random draws.
        engine: "eager" or "compiled" (see `engine.choose`).
    """

    def __init__(self, dataset: Dataset, hyper: Condensation, seed: int, engine: str = "eager"):
        self.dataset, self.hyper, self.seed, self.engine = dataset, hyper, seed, engine
        self.device = dataset.x_train.device
        self.dtype = getattr(torch, hyper.precision)
        self.network = self._draw_network(0)
        self.parameters = list(self.network.parameters())
        self.first_order = engines.prepare(self.network, engine)
        self.labels = torch.arange(dataset.classes, device=self.device)
        images = initial_images(dataset, hyper, seed, self.dtype).to(self.device)
        self.state = State(images, torch.zeros_like(images))

    def _draw_network(self, k: int) -> nn.Module:
        d = self.dataset
        shape = dict(channels=d.channels, classes=d.classes, size=d.size)
        network = networks.build(self.hyper.network, **shape, seed=network_seed(self.seed, k), stage="condense")
        return network.to(self.device, self.dtype)

    def step(self, should_stop: Callable[[], bool] = lambda: False) -> bool:
        """Do one outer step and return True, or leave the state as it was and return False when told to stop inside it."""
        start, h, state = time.perf_counter(), self.hyper, self.state
        images, velocity = state.images.clone(), state.velocity.clone()
        self.network.load_state_dict(self._draw_network(state.k).state_dict())
        optimiser = torch.optim.SGD(self.parameters, lr=h.network_lr, momentum=h.network_momentum)  # η_θ
        losses = []
        for t in range(h.inner_steps):
            if should_stop():
                return False
            batches = self.real_batches(state.k, t)
            self.network.train()
            set_statistics(self.network, batches, h.bn)
            self.network.eval()
            losses.append(self.update_images(batches, images, velocity))
            if t < h.inner_steps - 1:
                self.train_network(optimiser, images, t)
        state.images, state.velocity, state.k = images, velocity, state.k + 1
        state.losses.append(float(torch.stack(losses).mean()))
        state.seconds += time.perf_counter() - start
        return True

    def real_batches(self, k: int, t: int) -> list[Float[Tensor, "n c h w"]]:
        """B^T_c for each class, normalised."""
        d = self.dataset
        draws = [d.draw(c, self.hyper.real_batch, generator(self.seed, "real", k, t, c)) for c in range(d.classes)]
        return [d.normalise(d.x_train[i.to(self.device)]).to(self.dtype) for i in draws]

    def update_images(self, batches: list[Tensor], images: Tensor, velocity: Tensor) -> Float[Tensor, ""]:
        """Lines 6-8: match the gradients of every class and move S by ς_S steps, in place; returns the loss before the last."""
        for _ in range(self.hyper.image_steps):
            loss, gradient = self.match(batches, images)
            velocity.mul_(self.hyper.image_momentum).add_(gradient)
            images.add_(velocity, alpha=-self.hyper.image_lr)  # η_S
        return loss

    def match(self, batches: list[Tensor], images: Tensor) -> tuple[Float[Tensor, ""], Tensor]:
        """The matching loss summed over the classes, and its gradient with respect to the images."""
        held = max(1, WORKING_NUMBERS // sum(p.numel() for p in self.parameters))
        loss, gradients = images.new_zeros(()), []
        for classes in self.labels.split(held):
            real = [
                matching.real_gradients(self.first_order, self.parameters, batches[c], c, engines.CHUNK) for c in classes.tolist()
            ]
            S = images[classes].requires_grad_()
            stacked = [torch.stack(g) for g in zip(*real, strict=True)]
            part = matching.matching_loss(self.network, self.hyper.distance, stacked, S, classes).sum()
            gradients.append(torch.autograd.grad(part, S)[0])
            loss = loss + part.detach()
        return loss, torch.cat(gradients)

    def train_network(self, optimiser: torch.optim.Optimizer, images: Tensor, t: int) -> None:
        """Line 9: ς_θ epochs over the whole of S, in shuffled batches."""
        h, x = self.hyper, images.flatten(0, 1)
        y = self.labels.repeat_interleave(h.ipc)
        shuffle = generator(self.seed, "shuffle", self.state.k, t)
        self.network.train()
        for _ in range(h.network_epochs):
            for batch in torch.randperm(len(x), generator=shuffle).to(self.device).split(h.network_batch):
                loss = F.cross_entropy(self.first_order(x[batch]), y[batch])
                for p, g in zip(self.parameters, torch.autograd.grad(loss, self.parameters), strict=True):
                    p.grad = g
                optimiser.step()


@torch.no_grad()
def set_statistics(network: nn.Module, batches: list[Tensor], mode: str) -> None:
    """Estimate batch norm's mean and variance from real images (appendix A); the caller freezes them by `eval()`.

    Args:
        network: in training mode; without batch norm nothing is done.
        batches: real images of each class.
        mode: "true": the statistics of up to 64 real images of each class; "code": as the authors' code does it, one update
            at momentum 0.1 from 16 images of each class, so that most of the initial mean 0 and variance 1 remains.
    """
    norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    momenta = [m.momentum for m in norms]
    count = 64 if mode == "true" else 16
    for m in norms:
        m.momentum = 1.0 if mode == "true" else m.momentum
    network(torch.cat([b[:count] for b in batches]))
    for m, momentum in zip(norms, momenta, strict=True):
        m.momentum = momentum


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
) -> State:
    """Run Algorithm 1 and return its final state; `state.images` is S, normalised.

    Args:
        dataset: from `data.load`.
        hyper: the hyper-parameters.
        seed: of all random draws.
        device: "auto", "cpu", "cuda" or "cuda:1".
        engine: "auto", "eager" or "compiled".
        checkpoint: a file that keeps the state between outer steps; found there, the run goes on from it.
        on_step: called after each outer step.
        on_resume: called with the state that a checkpoint held.
        should_stop: asked before each inner step; True saves the state and raises.

    Raises:
        Diverged: an image became NaN or infinite.
        Interrupted: `should_stop` said so; the same call goes on from the checkpoint.
        FileError: the checkpoint is damaged, belongs to another run or cannot be written.
        DataError: a class has too few images to start from.
    """
    h, where = hyper.resolve(), engines.resolve_device(device)
    chosen = engines.choose(engine, where, work(h, dataset.classes))
    condenser = Condenser(dataset.to(where), h, seed, chosen)
    identity = {"run": key(h), "data": dataset.hash, "seed": seed, "engine": chosen}
    if checkpoint is not None and Path(checkpoint).exists():
        condenser.state = load_checkpoint(checkpoint, identity, where)
        on_resume(condenser.state)
    saved = time.monotonic()
    while not finished(condenser.state, h):
        if not condenser.step(should_stop):
            if checkpoint is not None:
                save_checkpoint(checkpoint, condenser.state, identity)
            done = f"{condenser.state.k} of {h.outer_steps} outer steps"
            raise Interrupted(f"stopped after {done}; the same command goes on from there")
        _check_finite(condenser.state)
        on_step(condenser.state)
        if checkpoint is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
            save_checkpoint(checkpoint, condenser.state, identity)
            saved = time.monotonic()
    return condenser.state


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
