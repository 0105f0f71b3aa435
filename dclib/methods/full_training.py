"""Training on the whole training set: the upper bound of Table 1, the features behind herding and k-center, and forgetting counts.

One training gives all three. Its state is a file: written now and then, it is the checkpoint from which a stopped training
goes on to the identical result; written at the end, it is what coresets are chosen with. Each epoch's order
and each step's augmentation have a generator of their own.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from ..core import engine as engines
from ..core import lanes, networks
from ..core.augment import augment
from ..core.checkpoint import load_tensors, save_tensors
from ..core.inner import has_batch_norm
from ..core.matching import total
from ..core.networks import Classifier
from ..core.train import accuracy
from ..data.dataset import Dataset, generator
from ..errors import Diverged, FileError, Interrupted
from ..spec import WholeTraining, key

CHECKPOINT_SECONDS = 30.0
PROGRESS = ("epoch_accuracies", "train_accuracies", "seconds")  # beside `step`, what is no tensor of the state
RISE = 0.2  # the share of the steps in which the learning rate rises


@dataclass
class Whole:
    """A network in training on the whole set, or trained, and what the training saw of each image.

    Args:
        network: its weights are the state's.
        velocity: the optimiser's, one for each parameter.
        right: whether each training image was classified rightly when it was last presented.
        learned: whether it ever was.
        events: how often it was right and, presented again, wrong.
        step: SGD steps done.
        epoch_accuracies: on the test images in percent, after each epoch.
        train_accuracies: on the training images in percent, each when it was presented, in each epoch.
        seconds: spent.
    """

    network: Classifier
    velocity: list[Tensor]
    right: Bool[Tensor, " n"]
    learned: Bool[Tensor, " n"]
    events: Int[Tensor, " n"]
    step: int = 0
    epoch_accuracies: list[float] = field(default_factory=list)
    train_accuracies: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def save(self, path: Path | str, identity: dict) -> None:
        """Write the state atomically."""
        tensors = {f"network.{name}": t for name, t in self.network.state_dict().items()}
        tensors |= {f"velocity.{i}": t for i, t in enumerate(self.velocity)}
        tensors |= {name: getattr(self, name) for name in ("right", "learned", "events")}
        save_tensors(path, tensors, {"k": self.step, **{name: getattr(self, name) for name in PROGRESS}}, identity)

    def restore(self, path: Path | str, identity: dict, engine: str) -> None:
        """Take over what `save` wrote; a training that is not done says by which engine.

        Raises:
            FileError: the file is damaged, or belongs to another run or engine.
        """
        names = {"right", "learned", "events", *(f"velocity.{i}" for i in range(len(self.velocity)))}
        names |= {f"network.{name}" for name in self.network.state_dict()}
        tensors, about = load_tensors(path, identity, names, ("k", *PROGRESS))
        if (begun := about.get("engine", engine)) != engine:
            raise FileError(f"the checkpoint {path} was begun by engine {begun}: go on with that, or delete it")
        self.network.load_state_dict({n.removeprefix("network."): t for n, t in tensors.items() if n.startswith("network.")})
        for i, velocity in enumerate(self.velocity):
            velocity.copy_(tensors[f"velocity.{i}"])
        for name in ("right", "learned", "events"):
            getattr(self, name).copy_(tensors[name])
        self.step = about["k"]
        for name in PROGRESS:
            setattr(self, name, about[name])


def steps(run: WholeTraining, count: int) -> int:
    """How many steps of SGD a training on `count` images takes."""
    return run.epochs * -(-count // run.batch)


def choose(engine: str, device: torch.device, run: WholeTraining, count: int) -> str:
    """Return "eager" or "compiled", as `engine.choose` does for a training on `count` images: its steps are not captured."""
    chosen = engines.choose(engine, device, run.epochs * count // 10)
    return "eager" if chosen == "captured" else chosen


def rate(run: WholeTraining, step: int, total: int) -> float:
    """The learning rate of one of `total` steps: a straight rise to `lr`, then a straight fall to zero."""
    top = max(1, round(RISE * total))
    return run.lr * ((step + 1) / top if step < top else (total - step) / (total - top + 1))


def note(state: Whole) -> str:
    """How it goes, in a few words."""
    return f"accuracy {state.epoch_accuracies[-1]:.1f} %" if state.epoch_accuracies else ""


def batches(run: WholeTraining, epoch: int, count: int) -> tuple[Int[Tensor, " b"], ...]:
    """The order in which an epoch presents the images."""
    return torch.randperm(count, generator=generator(run.seed, "shuffle", epoch)).split(run.batch)


def train(
    dataset: Dataset,
    run: WholeTraining,
    *,
    device: str = "auto",
    engine: str = "auto",
    checkpoint: Path | str | None = None,
    on_step: Callable[[Whole], None] = lambda state: None,
    on_resume: Callable[[Whole], None] = lambda state: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Whole:
    """Train a network on the whole training set and test it after each epoch.

    Args:
        dataset: from `data.load`.
        run: the recipe.
        device: "auto", "cpu", "cuda" or "cuda:1".
        engine: "auto", "eager", "compiled" or "captured", which here is eager.
        checkpoint: a file that keeps the state; found there, the training goes on from it, or is done.
        on_step: called after each step.
        on_resume: called with the state that a checkpoint held.
        should_stop: asked before each step; True saves the state and raises.

    Raises:
        Diverged: a weight became NaN or infinite.
        Interrupted: `should_stop` said so; the same call goes on from the checkpoint.
        FileError: the checkpoint is damaged, belongs to another run or cannot be written.
    """
    where, n = engines.resolve_device(device), len(dataset.y_train)
    chosen = choose(engine, where, run, n)
    total, identity = steps(run, n), {"run": key(run), "data": dataset.hash}
    trainer = _Trainer(dataset.to(where), run, chosen)
    state = trainer.state
    if checkpoint is not None and Path(checkpoint).exists():
        state.restore(checkpoint, identity, chosen)
        on_resume(state)
    done, saved = state.step == total, time.monotonic()
    while state.step < total:
        stop = should_stop()
        if checkpoint is not None and (stop or time.monotonic() - saved > CHECKPOINT_SECONDS):
            state.save(checkpoint, {**identity, "engine": chosen})
            saved = time.monotonic()
        if stop:
            raise Interrupted(f"stopped after {state.step} of {total} steps; the same command goes on from there")
        with engines.arithmetic("float32", where):
            trainer.step()
        on_step(state)
    if checkpoint is not None and not done:
        state.save(checkpoint, identity)
    return state


class _Trainer:
    """What it takes to do a step; all that changes is in `state`."""

    def __init__(self, dataset: Dataset, run: WholeTraining, engine: str):
        self.dataset, self.run, self.total = dataset, run, steps(run, len(dataset.y_train))
        network = networks.build(run.network, **dataset.shape, seed=generator(run.seed, "weights").initial_seed())
        network = network.to(dataset.x_train.device)
        self.forward = engines.prepare(network, engine)
        self.lanes = 1 if has_batch_norm(network) else lanes.count(dataset.x_train.device)
        self.parameters = list(network.parameters())
        no, zero = (torch.zeros_like(dataset.y_train, dtype=kind) for kind in (torch.bool, torch.int32))
        velocity = [torch.zeros_like(p) for p in self.parameters]
        self.state = Whole(network, velocity, no, no.clone(), zero)
        self.order: tuple[int, tuple[Tensor, ...]] = (-1, ())

    def step(self) -> None:
        """Do one step, and test the network after the last of an epoch."""
        start, state, run = time.perf_counter(), self.state, self.run
        per_epoch = self.total // run.epochs
        epoch, i = divmod(state.step, per_epoch)
        if self.order[0] != epoch:
            self.order = epoch, batches(run, epoch, len(state.right))
        state.network.train()
        self.descend(self.order[1][i].to(state.right.device), rate(run, state.step, self.total))
        state.step += 1
        if i == per_epoch - 1:
            self.test()
        state.seconds += time.perf_counter() - start

    def descend(self, part: Int[Tensor, " b"], lr: float) -> None:
        """One step of SGD; what is forgotten is counted before it."""
        x, y = self.dataset.normalise(self.dataset.x_train[part]), self.dataset.y_train[part]
        if self.run.operations:
            x = augment(x, self.run.operations, generator(self.run.seed, "augment", self.state.step))
        pieces = zip(lanes.parts(x, self.lanes), lanes.parts(y, self.lanes), strict=True)
        right, gradients = zip(*lanes.each(lambda piece: self.differentiate(*piece, len(part)), pieces, self.lanes), strict=True)
        self.count(part, torch.cat(right))
        found = total(gradients)
        engines.descend(self.parameters, self.state.velocity, found, lr, self.run.momentum, self.run.weight_decay)

    def differentiate(self, x: Tensor, y: Tensor, size: int) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Which images of a part of a batch are right, and the part's share in the gradient of the batch's mean loss."""
        logits = self.forward(x)
        loss = F.cross_entropy(logits, y, reduction="sum") / size
        return logits.detach().argmax(1) == y, torch.autograd.grad(loss, self.parameters)

    def count(self, part: Int[Tensor, " b"], right: Bool[Tensor, " b"]) -> None:
        """Take note of which images are right now and which are no longer."""
        state = self.state
        state.events[part] += (state.right[part] & ~right).int()
        state.right[part] = right
        state.learned[part] |= right

    def test(self) -> None:
        """Test the network on the test images."""
        if not all(torch.isfinite(p).all() for p in self.parameters):
            raise Diverged(f"the network's weights became NaN or infinite after {self.state.step} steps: lower lr")
        self.state.epoch_accuracies.append(accuracy(self.state.network, self.dataset))
        self.state.train_accuracies.append(100.0 * float(self.state.right.float().mean()))
