"""Training on the whole training set: the upper bound of Table 1, and what the coresets of Sec. 3.1 are chosen with.

One training gives the accuracy, the features behind herding and k-center, and the counts behind forgetting (Toneva et al., 2019).
`train` runs it; its checkpoint, once it is finished, is what coresets are chosen with later.
"""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from ..core import engine as engines
from ..core import lanes
from ..core import resume as loop
from ..core.augment import augment
from ..core.checkpoint import load_tensors
from ..core.inner import has_batch_norm
from ..core.matching import total
from ..core.train import accuracy, draw
from ..data.dataset import Dataset, generator
from ..errors import Diverged
from ..spec import WholeTraining, key
from ..support.progress import Progress
from . import epochs

RISE = 0.2  # the share of the steps in which the learning rate rises


class Whole(loop.Work):
    """A network in training on the whole set, or trained, and what the training saw of each image; a step is one of SGD.

    Args:
        dataset: on the device where the work is to run.
        run: the recipe.
        engine: "eager" or "compiled".

    Attributes:
        network: the network.
        right: whether each training image was classified rightly when it was last presented.
        learned: whether it ever was.
        events: how often it was right and, presented again, wrong.
        epoch_accuracies: on the test images in percent, after each epoch.
        train_accuracies: on the training images in percent, each when it was presented, in each epoch.
    """

    kept = ("epoch_accuracies", "train_accuracies")

    def __init__(self, dataset: Dataset, run: WholeTraining, engine: str):
        super().__init__()
        self.dataset, self.run, self.device, self.engine = dataset, run, dataset.x_train.device, engine
        self.total = steps(run, len(dataset.y_train))
        self.network = draw(run.network, dataset, run.seed, torch.zeros((), device=self.device))
        self.forward = engines.prepare(self.network, engine)
        self.lanes = 1 if has_batch_norm(self.network) else lanes.count(self.device)
        self.parameters = list(self.network.parameters())
        self.velocity = [torch.zeros_like(p) for p in self.parameters]
        self.right, self.learned = (torch.zeros_like(dataset.y_train, dtype=torch.bool) for _ in range(2))
        self.events = torch.zeros_like(dataset.y_train, dtype=torch.int32)
        self.epoch_accuracies: list[float] = []
        self.train_accuracies: list[float] = []

    def step(self) -> float:
        """Do one step of SGD, count what it forgot, and test the network after the last step of an epoch."""
        d, run, k = self.dataset, self.run, self.k
        self.network.train()
        part = epochs.batch(k, len(d.y_train), run.batch, run.seed, "shuffle").to(self.device)
        x, y = d.normalise(d.x_train[part]), d.y_train[part]
        if run.operations:
            x = augment(x, run.operations, generator(run.seed, "augment", k))
        pieces = zip(lanes.parts(x, self.lanes), lanes.parts(y, self.lanes), strict=True)
        found = lanes.each(lambda piece: self._differentiate(*piece, len(part)), pieces, self.lanes)
        losses, right, gradients = zip(*found, strict=True)
        self.count(part, torch.cat(right))
        lr = rate(run, k, self.total)
        engines.descend(self.parameters, self.velocity, total(gradients), lr, run.momentum, run.weight_decay)
        if (k + 1) % (self.total // run.epochs) == 0:
            self._test()
        return float(sum(losses))

    def _differentiate(self, x: Tensor, y: Tensor, size: int) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """The share of a part in its batch's mean loss, which of its images are right, and its share in the gradient."""
        logits = self.forward(x)
        loss = F.cross_entropy(logits, y, reduction="sum") / size
        return loss.detach(), logits.detach().argmax(1) == y, torch.autograd.grad(loss, self.parameters)

    def count(self, part: Int[Tensor, " b"], right: Bool[Tensor, " b"]) -> None:
        """Note which of these images are classified rightly now, and count those that were and are no longer."""
        self.events[part] += (self.right[part] & ~right).int()
        self.right[part] = right
        self.learned[part] |= right

    def _test(self) -> None:
        if not all(torch.isfinite(p).all() for p in self.parameters):
            raise Diverged(f"the network's weights became NaN or infinite after {self.k + 1} steps: lower lr")
        self.epoch_accuracies.append(accuracy(self.network, self.dataset))
        self.train_accuracies.append(100.0 * float(self.right.float().mean()))

    def tensors(self) -> dict[str, Tensor]:
        """The network, the optimiser's velocity, and the counts."""
        found = {f"network.{name}": t for name, t in self.network.state_dict().items()}
        found |= {f"velocity.{i}": v for i, v in enumerate(self.velocity)}
        return found | {name: getattr(self, name) for name in ("right", "learned", "events")}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `tensors` returned."""
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])

    def result(self) -> dict[str, Any]:
        """What a record says of the training."""
        epochs = {name: [round(x, 4) for x in getattr(self, name)] for name in self.kept}
        return {"accuracies": {"0": epochs["epoch_accuracies"][-1]}, **epochs}


def steps(run: WholeTraining, count: int) -> int:
    """Return how many steps of SGD a training on `count` images takes."""
    return run.epochs * epochs.steps_of_epoch(count, run.batch)


def choose(engine: str, device: torch.device, run: WholeTraining, count: int) -> str:
    """Return "eager" or "compiled", as `engine.choose` does for a training on `count` images: its steps are not captured."""
    chosen = engines.choose(engine, device, run.epochs * count // 10)
    return "eager" if chosen == "captured" else chosen


def rate(run: WholeTraining, step: int, total: int) -> float:
    """Return the learning rate of one of `total` steps: a straight rise to `lr`, then a straight fall to zero."""
    top = max(1, round(RISE * total))
    return run.lr * ((step + 1) / top if step < top else (total - step) / (total - top + 1))


def train(
    dataset: Dataset,
    run: WholeTraining,
    *,
    device: str = "auto",
    engine: str = "auto",
    checkpoint: Path | str | None = None,
    **how: Any,
) -> Whole:
    """Train a network on the whole training set and test it after each epoch.

    Args:
        dataset: from `data.load`.
        run: the recipe.
        device: "auto", "cpu", "cuda" or "cuda:1".
        engine: "auto", "eager", "compiled" or "captured", which here is eager.
        checkpoint: a file that keeps the state, to the end; found there, the training continues from it, or is done.
        how: `on_step`, `on_resume` and `should_stop`, as for `resume.run`.

    Raises:
        Diverged: a weight became NaN or infinite.
        Interrupted, FileError: as `resume.run` raises them.
    """
    where = engines.resolve_device(device)
    chosen = choose(engine, where, run, len(dataset.y_train))
    identity = {"run": key(run), "data": dataset.hash, "engine": chosen}
    work = Whole(dataset.to(where), run, chosen)
    if checkpoint is not None and Path(checkpoint).exists():
        about = load_tensors(checkpoint, {}, set(), ("k",))[1]
        if about["k"] == work.total:  # finished, it serves whatever the engine
            identity["engine"] = about.get("engine")
    with engines.arithmetic("float32", where):
        loop.run(work, work.total, identity, what="steps", checkpoint=checkpoint, keep=True, **how)
    return work


def train_run(run: WholeTraining, dataset: Dataset, **how: Any) -> Whole:
    """Train the network of a run under a progress bar, or take it as its checkpoint has it; `how` is as for `train`."""
    with Progress(f"training {run.network} on the whole of {run.dataset}", steps(run, len(dataset.y_train))) as progress:
        callbacks = progress.follow(lambda work: f"accuracy {work.epoch_accuracies[-1]:.1f} %" if work.epoch_accuracies else "")
        return train(dataset, run, **callbacks, **how)
