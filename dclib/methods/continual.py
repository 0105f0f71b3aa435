"""Continual learning with a memory (the paper's Sec. 3.2 and appendix A, Fig. 4), after Castro et al. (2018).

One network with one output per class learns tasks in a row: data sets with the same classes and other images. After each task,
`ipc` of its images per class go into a memory: drawn at random, chosen by herding on the network's features, or condensed
beforehand. The next task's images are mixed with the memory; then the network is tuned on the memory alone, in which all tasks
have equal shares (balanced fine-tuning). In both phases a distillation loss holds the network to its outputs before the phase.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ..core import engine as engines
from ..core import resume as loop
from ..core.train import accuracy, draw
from ..data.dataset import Dataset, generator
from ..errors import DataError, Diverged, SpecError
from ..spec import key
from ..spec.applications import Rehearsal
from ..support.files import array_checksum
from . import coresets, epochs

Sets = Sequence[Float[Tensor, "classes ipc c h w"]]


class Phase(NamedTuple):
    """Steps on the same images: a task with the memory, or the memory alone."""

    task: int  # from 0
    balanced: bool  # whether it is the balanced fine-tuning after the task
    steps: int


def phases(hyper: Rehearsal, tasks: int) -> list[Phase]:
    """Return the phases in order: each task, and after each but the first the balanced fine-tuning, if there is any."""
    plan = [Phase(0, False, hyper.iterations)]
    for task in range(1, tasks):
        plan += [Phase(task, False, hyper.iterations), Phase(task, True, hyper.finetuning)]
    return [phase for phase in plan if phase.steps]


def distillation(logits: Float[Tensor, "n c"], before: Float[Tensor, "n c"], temperature: float) -> Float[Tensor, ""]:
    """Return the cross-entropy of softmax(logits / T) against softmax(before / T), averaged over images (Hinton et al., 2015)."""
    return F.cross_entropy(logits / temperature, (before / temperature).softmax(1))


class Continual(loop.Work):
    """A network that learns tasks one after the other; a step is one of SGD, and no step sees a test image.

    Args:
        tasks: on one device, with equally many classes and images of one shape.
        hyper: the hyper-parameters.
        seed: of weights, batches, the test images and random memories.
        sets: the condensed images of each task, normalised as its data set, if they fill the memory; else None.
        engine: "eager" or "compiled".

    Attributes:
        memory: normalised images for each task; zeros before the task is learnt.
        found: test accuracy in percent after each task (rows) on each task (columns); NaN on tasks not learnt yet.

    Raises:
        DataError: the tasks do not go together.
        SpecError: sets are missing, not wanted, or not of the memory's shape.
    """

    def __init__(self, tasks: Sequence[Dataset], hyper: Rehearsal, seed: int, sets: Sets | None = None, engine: str = "eager"):
        super().__init__()
        check_tasks(tasks, hyper)
        self.hyper, self.seed, self.engine, self.plan = hyper, seed, engine, phases(hyper, len(tasks))
        self.tasks = [few_tests(task, hyper.test_images, generator(seed, "test", j)) for j, task in enumerate(tasks)]
        n, first = len(tasks), tasks[0]
        self.device = first.x_train.device
        self.per_task = first.classes * hyper.ipc
        self.labels = torch.arange(first.classes, device=self.device).repeat_interleave(hyper.ipc)
        self.memory = torch.zeros(n, self.per_task, *first.x_train.shape[1:], device=self.device)
        self.sets = self._checked(sets)
        self.network = draw(hyper.network, first, seed, self.memory)
        self.forward = engines.prepare(self.network, engine)
        self.before = copy.deepcopy(self.network).eval()
        self.parameters = list(self.network.parameters())
        self.velocity = [torch.zeros_like(p) for p in self.parameters]
        self.found = torch.full((n, n), math.nan, dtype=torch.float64)

    def _checked(self, sets: Sets | None) -> Float[Tensor, "tasks per_task c h w"] | None:
        wanted = self.hyper.memory == "condense"
        if wanted != (sets is not None):
            raise SpecError(f"a memory filled by {self.hyper.memory!r} {'needs the' if wanted else 'takes no'} condensed sets")
        if sets is None:
            return None
        shapes = {tuple(images.flatten(0, 1).shape) for images in sets}
        if len(sets) != len(self.tasks) or shapes != {tuple(self.memory.shape[1:])}:
            raise SpecError(f"the memory needs {len(self.tasks)} sets of {self.hyper.ipc} images per class in the tasks' shape")
        return torch.stack([images.flatten(0, 1) for images in sets]).to(self.memory)

    @property
    def steps(self) -> int:
        """The number of steps of all phases."""
        return sum(phase.steps for phase in self.plan)

    def place(self, k: int) -> tuple[Phase, int]:
        """Return the phase of step k, and the step's number in it."""
        for phase in self.plan:
            if k < phase.steps:
                return phase, k
            k -= phase.steps
        raise IndexError(k)

    def step(self) -> float:
        """Do one step of SGD; the first of a phase starts its momentum at zero, the last fills the memory or tests the network."""
        (phase, i), h = self.place(self.k), self.hyper
        if i == 0:
            torch._foreach_zero_(self.velocity)
            self.network.train()
            self.before.load_state_dict(self.network.state_dict())
        x, y = self.batch(phase, i)
        loss = self.loss(phase, x, y)
        gradients = torch.autograd.grad(loss, self.parameters)
        rate = h.finetuning_lr if phase.balanced else h.lr
        engines.descend(self.parameters, self.velocity, gradients, rate, h.momentum, h.weight_decay)
        if not math.isfinite(value := loss.item()):
            raise Diverged(f"the loss became NaN or infinite in step {self.k + 1}: lower lr or finetuning_lr")
        if i == phase.steps - 1:
            self._end(phase)
        return value

    def loss(self, phase: Phase, x: Float[Tensor, "n c h w"], y: Int[Tensor, " n"]) -> Float[Tensor, ""]:
        """Return the cross-entropy, and from the second task on, the distillation loss with it."""
        logits = self.forward(x)
        loss = F.cross_entropy(logits, y)
        if phase.task == 0 or not self.hyper.distillation:
            return loss
        with torch.no_grad():
            before = self.before(x)
        return loss + self.hyper.distillation * distillation(logits, before, self.hyper.temperature)

    def batch(self, phase: Phase, i: int) -> tuple[Float[Tensor, "n c h w"], Int[Tensor, " n"]]:
        """Return images and labels of a phase's step i, drawn from the task and the memory alike, or from the memory alone."""
        task = self.tasks[phase.task]
        new = 0 if phase.balanced else len(task.y_train)
        held = (phase.task + phase.balanced) * self.per_task
        purpose = "shuffle", phase.task, phase.balanced
        part = epochs.batch(i, new + held, self.hyper.batch, self.seed, *purpose, rest=False).to(self.device)
        real, kept = part[part < new], part[part >= new] - new
        x = torch.cat([task.normalise(task.x_train[real]), self.memory.flatten(0, 1)[kept]])
        return x, torch.cat([task.y_train[real], self.labels[kept % self.per_task]])

    def _end(self, phase: Phase) -> None:
        if not phase.balanced:
            self.memory[phase.task] = self.remember(phase.task)
        if phase.balanced or phase.task == 0 or not self.hyper.finetuning:
            for j in range(phase.task + 1):
                self.found[phase.task, j] = accuracy(self.network, self.tasks[j])
        self.network.train()

    def remember(self, j: int) -> Float[Tensor, "per_task c h w"]:
        """Return the images of a task that go into the memory; random ones are those that condensing starts from."""
        if self.sets is not None:
            return self.sets[j]
        task = self.tasks[j]
        chosen = coresets.select(self.hyper.memory, task, self.hyper.ipc, seed=self.seed, network=self.network).flatten()
        return task.normalise(task.x_train[chosen.to(self.device)])

    def tensors(self) -> dict[str, Tensor]:
        """The network now and before the phase, the optimiser's velocity, the memory and the accuracies."""
        kept = {f"{name}.{n}": t for name in ("network", "before") for n, t in getattr(self, name).state_dict().items()}
        return kept | {f"velocity.{i}": v for i, v in enumerate(self.velocity)} | {"memory": self.memory, "found": self.found}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `tensors` returned."""
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])


def learn(
    tasks: Sequence[Dataset],
    hyper: Rehearsal,
    *,
    seed: int = 0,
    sets: Sets | None = None,
    device: str = "auto",
    engine: str = "auto",
    checkpoint: Path | str | None = None,
    first: Path | str | None = None,
    on_resume: Callable[[Continual], None] = lambda work: None,
    **how: Any,
) -> Continual:
    """Learn tasks one after the other; the result's `found` has the accuracies after each.

    Args:
        tasks: from `data.load`, at one image_size and number of channels.
        hyper: the hyper-parameters.
        seed: of all random draws.
        sets: as for `Continual`.
        device: "auto", "cpu", "cuda" or "cuda:1".
        engine: "auto", "eager", "compiled" or "captured", which here is eager.
        checkpoint: a file that keeps the state between steps; found there, the learning continues from it.
        first: a file that keeps the state after the first task, which runs with other memories share; the seconds of that task
            count in the run that learnt it.
        on_resume: called with the state that a checkpoint held.
        how: `on_step` and `should_stop`, as for `resume.run`.

    Raises:
        DataError: the tasks do not go together.
        SpecError: sets are missing, not wanted, or not of the memory's shape.
        Diverged: the loss became NaN or infinite.
        Interrupted, FileError: as `resume.run` raises them.
    """
    where = engines.resolve_device(device)
    passes = len(tasks) * (hyper.iterations + hyper.finetuning) * hyper.batch // 10
    chosen = engines.choose(engine, where, passes)
    with engines.arithmetic("float32", where):
        work = Continual([task.to(where) for task in tasks], hyper, seed, sets, "eager" if chosen == "captured" else chosen)
        digest = "" if work.sets is None else array_checksum("", work.sets.cpu().contiguous().numpy())
        identity = {"run": key(hyper), "data": [task.hash for task in tasks], "seed": seed, "sets": digest, "engine": work.engine}
        how["what"] = "steps of learning"

        def begin(work: Continual) -> None:
            if work.k == hyper.iterations:
                work.seconds, work.memory[0] = 0.0, work.remember(0)
            on_resume(work)

        if first is not None and not (checkpoint and Path(checkpoint).exists()):
            shared = identity | {"run": key(hyper.unremembered), "sets": ""}
            loop.run(work, hyper.iterations, shared, checkpoint=first, on_resume=begin, keep=True, **how)
        loop.run(work, work.steps, identity, checkpoint=checkpoint, on_resume=on_resume, **how)
    return work


def check_tasks(tasks: Sequence[Dataset], hyper: Rehearsal) -> None:
    """Refuse tasks that do not go together.

    Raises:
        DataError: fewer than 2, two with the same images, different numbers of classes or shapes, or too few images to remember or
            to test on.
    """
    if len(tasks) < 2:
        raise DataError(f"continual learning needs at least 2 tasks, not {len(tasks)}: name more data sets")
    first, hashes = tasks[0], [task.hash for task in tasks]
    if len(set(hashes)) < len(tasks):
        same = " and ".join(task.name for task in tasks if hashes.count(task.hash) > 1)
        raise DataError(f"tasks must differ, but {same} have the same images: name each data set once")
    for task in tasks:
        task.require(hyper.ipc, "choose a larger data set or lower ipc")
        if task.classes != first.classes:
            counts = f"{first.name} has {first.classes} classes and {task.name} has {task.classes}"
            raise DataError(f"tasks must have equally many classes, but {counts}: choose other data sets")
        if task.x_train.shape[1:] != first.x_train.shape[1:]:
            shapes = " and ".join(f"{'x'.join(map(str, t.x_train.shape[1:]))} of {t.name}" for t in (first, task))
            raise DataError(f"tasks must have images of one shape, not {shapes}: load them with one image_size and channels")
        if len(task.y_test) < hyper.test_images:
            counts = f"{len(task.y_test)} test images, fewer than test_images={hyper.test_images}"
            raise DataError(f"{task.name} has {counts}: choose a larger data set or lower test_images")


def few_tests(task: Dataset, count: int, draw: Generator) -> Dataset:
    """Return the task with only `count` of its test images, drawn at random."""
    some = torch.randperm(len(task.y_test), generator=draw)[:count].sort().values.to(task.y_test.device)
    return replace(task, x_test=task.x_test[some], y_test=task.y_test[some])
