"""Tasks learnt one after the other (the paper's Sec. 3.2, Fig. 4): their plan, the loss that holds on to the old ones, checks.

What `continual` stands on and needs no network for.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor

from ..data.dataset import Dataset
from ..errors import DataError
from ..spec.applications import Rehearsal


class Phase(NamedTuple):
    """A stretch of steps on the same images."""

    task: int
    balanced: bool  # on the memory alone
    steps: int


def phases(hyper: Rehearsal, tasks: int) -> list[Phase]:
    """What the network goes through: each task, and after each but the first the balanced fine-tuning, if there is any."""
    plan = [Phase(0, False, hyper.iterations)]
    for task in range(1, tasks):
        plan += [Phase(task, False, hyper.iterations), Phase(task, True, hyper.finetuning)]
    return [phase for phase in plan if phase.steps]


def distillation(logits: Float[Tensor, "n c"], before: Float[Tensor, "n c"], temperature: float) -> Float[Tensor, ""]:
    """Return the cross-entropy of softmax(logits / T) against softmax(before / T), averaged over images (Hinton et al., 2015)."""
    return F.cross_entropy(logits / temperature, (before / temperature).softmax(1))


def check_tasks(tasks: Sequence[Dataset], hyper: Rehearsal) -> None:
    """Refuse tasks that no network can learn one after the other.

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
    """The task with `count` of its test images, drawn at random, in place of all."""
    some = torch.randperm(len(task.y_test), generator=draw)[:count].sort().values.to(task.y_test.device)
    return replace(task, x_test=task.x_test[some], y_test=task.y_test[some])
