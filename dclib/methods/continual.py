"""Continual learning (the paper's Sec. 3.2 and appendix A, Fig. 4): tasks in a row, a small memory, and what is kept of them.

One network with one output per class learns data sets that share their classes but not their looks. After each task some images
per class go into a memory: drawn at random, chosen by herding on the network's own features, or condensed beforehand. The next
task's images are mixed with the memory, and the network is held to what it said before the task (distillation); then it is tuned
on the memory alone, in which all tasks are equal (balanced fine-tuning), and held to what it said before that. All is one
`loop.Work`, from the first step of the first task to the last of the last, with test images that no step sees.
"""

import copy
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from ..core import engine as engines
from ..core import networks
from ..core import resume as loop
from ..core.train import accuracy
from ..data.dataset import Dataset, generator
from ..errors import Diverged, SpecError
from ..spec import key
from ..spec.applications import Rehearsal
from ..support.files import array_checksum
from . import coresets
from .tasks import Phase, check_tasks, distillation, few_tests, phases

Sets = Sequence[Float[Tensor, "classes ipc c h w"]]


class Continual(loop.Work):
    """A network that learns tasks one after the other.

    Args:
        tasks: on one device, with equally many classes and images of one shape.
        hyper: the hyper-parameters.
        seed: of weights, batches, the test images and random memories.
        sets: for a memory of condensed images those of each task, normalised as its data set; else None.
        engine: "eager" or "compiled".

    Attributes:
        memory: normalised images for each task; zeros where nothing is remembered yet.
        found: test accuracy in percent after each stage (down) on each task (across); NaN on tasks not learnt yet.

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
        weights = generator(seed, "weights").initial_seed()
        self.network = networks.build(hyper.network, **first.shape, seed=weights).to(self.device)
        self.forward = engines.prepare(self.network, engine)
        self.before = copy.deepcopy(self.network).eval()
        self.parameters = list(self.network.parameters())
        self.velocity = [torch.zeros_like(p) for p in self.parameters]
        self.found = torch.full((n, n), math.nan, dtype=torch.float64)
        self.order: tuple[tuple, Sequence[Tensor]] = ((), ())

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
        """How many there are in all."""
        return sum(phase.steps for phase in self.plan)

    def place(self, k: int) -> tuple[Phase, int]:
        """The phase of step k, and the step's number in it."""
        for phase in self.plan:
            if k < phase.steps:
                return phase, k
            k -= phase.steps
        raise IndexError(k)

    def step(self) -> float:
        """Do one step of SGD; before the first of a phase start afresh, after the last fill the memory or test the network."""
        phase, i = self.place(self.k)
        if i == 0:
            self._begin(phase)
        x, y = self.batch(phase, i)
        loss = self.loss(phase, x, y)
        gradients = torch.autograd.grad(loss, self.parameters)
        h = self.hyper
        rate = h.finetuning_lr if phase.balanced else h.lr
        engines.descend(self.parameters, self.velocity, gradients, rate, h.momentum, h.weight_decay)
        if not math.isfinite(value := loss.item()):
            raise Diverged(f"the loss became NaN or infinite in step {self.k + 1}: lower lr or finetuning_lr")
        if i == phase.steps - 1:
            self._end(phase)
        return value

    def _begin(self, phase: Phase) -> None:
        torch._foreach_zero_(self.velocity)
        self.network.train()
        self.before.load_state_dict(self.network.state_dict())

    def loss(self, phase: Phase, x: Float[Tensor, "n c h w"], y: Int[Tensor, " n"]) -> Float[Tensor, ""]:
        """Cross-entropy, and from the second task on the distillation of what the network said before the phase."""
        logits = self.forward(x)
        loss = F.cross_entropy(logits, y)
        if phase.task == 0 or not self.hyper.distillation:
            return loss
        with torch.no_grad():
            before = self.before(x)
        return loss + self.hyper.distillation * distillation(logits, before, self.hyper.temperature)

    def batch(self, phase: Phase, i: int) -> tuple[Float[Tensor, "n c h w"], Int[Tensor, " n"]]:
        """Images and labels of a phase's step i: of the task and the memory alike, or in balanced fine-tuning of the memory."""
        task = self.tasks[phase.task]
        new = 0 if phase.balanced else len(task.y_train)
        held = (phase.task + phase.balanced) * self.per_task
        part = self._part(phase, i, new + held)
        real, kept = part[part < new], part[part >= new] - new
        x = torch.cat([task.normalise(task.x_train[real]), self.memory.flatten(0, 1)[kept]])
        return x, torch.cat([task.y_train[real], self.labels[kept % self.per_task]])

    def _part(self, phase: Phase, i: int, count: int) -> Int[Tensor, " n"]:
        """The i-th batch of a phase, as indices below `count`: epoch after epoch, each in its own order, its rest left out."""
        epoch, j = divmod(i, max(1, count // self.hyper.batch))
        name = (phase.task, phase.balanced, epoch)
        if self.order[0] != name:
            drawn = torch.randperm(count, generator=generator(self.seed, "shuffle", *name))
            self.order = name, drawn.split(self.hyper.batch)
        return self.order[1][j].to(self.device)

    def _end(self, phase: Phase) -> None:
        if not phase.balanced:
            self.memory[phase.task] = self.remember(phase.task)
        if phase.balanced or phase.task == 0 or not self.hyper.finetuning:
            for j in range(phase.task + 1):
                self.found[phase.task, j] = accuracy(self.network, self.tasks[j])
        self.network.train()

    def remember(self, j: int) -> Float[Tensor, "per_task c h w"]:
        """The images of a task that go into the memory."""
        if self.sets is not None:
            return self.sets[j]
        task, how = self.tasks[j], dict(seed=self.seed, network=self.network)  # random ones are those that condensing starts from
        chosen = coresets.select(self.hyper.memory, task, self.hyper.ipc, **how).flatten()
        return task.normalise(task.x_train[chosen.to(self.device)])

    def tensors(self) -> dict[str, Tensor]:
        """The network, as it is and as it was before the phase, the optimiser's velocity, the memory and what was tested."""
        kept = {f"{name}.{n}": t for name in ("network", "before") for n, t in getattr(self, name).state_dict().items()}
        return kept | {f"velocity.{i}": v for i, v in enumerate(self.velocity)} | {"memory": self.memory, "found": self.found}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `tensors` returned."""
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])
        self.network.train()


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
    on_step: Callable[[Continual], None] = lambda work: None,
    on_resume: Callable[[Continual], None] = lambda work: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Continual:
    """Learn tasks one after the other and return the network with what it scored after each; see its `found`.

    Args:
        tasks: from `data.load`, at one image_size and number of channels.
        hyper: the hyper-parameters.
        seed: of all random draws.
        sets: as for `Continual`.
        device: "auto", "cpu", "cuda" or "cuda:1".
        engine: "auto", "eager", "compiled" or "captured", which here is eager.
        checkpoint: a file that keeps the state between steps; found there, the work goes on from it.
        first: a file that keeps the state after the first task, from where runs with other memories begin; its seconds count in
            the run that learnt it.
        on_step: called after each step.
        on_resume: called with the state that a checkpoint held.
        should_stop: asked before each step; True saves the state and raises.

    Raises:
        DataError: the tasks do not go together.
        SpecError: sets are missing, not wanted, or not of the memory's shape.
        Diverged: the loss became NaN or infinite.
        Interrupted: `should_stop` said so; the same call goes on from the checkpoint.
        FileError: the checkpoint is damaged, belongs to another run or cannot be written.
    """
    where = engines.resolve_device(device)
    passes = len(tasks) * (hyper.iterations + hyper.finetuning) * hyper.batch // 10
    chosen = engines.choose(engine, where, passes)
    with engines.arithmetic("float32", where):
        work = Continual([task.to(where) for task in tasks], hyper, seed, sets, "eager" if chosen == "captured" else chosen)
        identity = {"run": key(hyper), "data": [task.hash for task in tasks], "seed": seed, "sets": _digest(work.sets)}
        identity["engine"] = work.engine
        hooks = dict(what="steps of learning", on_step=on_step, should_stop=should_stop)

        def begin(work: Continual) -> None:
            if work.k == hyper.iterations:
                work.seconds, work.memory[0] = 0.0, work.remember(0)
            on_resume(work)

        if first is not None and not (checkpoint and Path(checkpoint).exists()):
            shared = {**identity, "run": key(hyper.unremembered), "sets": ""}
            loop.run(work, hyper.iterations, shared, checkpoint=first, on_resume=begin, keep=True, **hooks)
        loop.run(work, work.steps, identity, checkpoint=checkpoint, on_resume=on_resume, **hooks)
    return work


def _digest(sets: Tensor | None) -> str:
    return "" if sets is None else array_checksum("", sets.cpu().contiguous().numpy())
