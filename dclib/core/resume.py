"""A long computation in equal steps that can be stopped at any moment and goes on, from a file, to the identical result.

The baselines that learn something (`gan`, `distill`) are `Work`: they say what one step does and which tensors it leaves
behind; `run` counts, times, saves and stops. Algorithm 1 has a loop of its own in `condense`, which can stop inside a step.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import Interrupted
from .checkpoint import load_tensors, save_tensors

CHECKPOINT_SECONDS = 20.0


class Work(ABC):
    """What is computed step by step; everything random in step k must come from generators derived from the seed and k.

    Attributes:
        k: steps done.
        losses: what `step` returned for each of them.
        seconds: spent in them, in all processes that worked on it.
        kept: the names of the lists that a checkpoint holds beside these numbers.
    """

    kept: tuple[str, ...] = ("losses",)

    def __init__(self) -> None:
        self.k, self.losses, self.seconds = 0, [], 0.0

    @abstractmethod
    def step(self) -> Any:
        """Do step `self.k` and return its loss, a number or a list of numbers."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Return by name all that later steps depend on."""

    @abstractmethod
    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `tensors` returned in another process."""


def run(
    work: Work,
    steps: int,
    identity: dict,
    *,
    what: str,
    checkpoint: Path | str | None = None,
    on_step: Callable[[Any], None] = lambda work: None,
    on_resume: Callable[[Any], None] = lambda work: None,
    should_stop: Callable[[], bool] = lambda: False,
    keep: bool = False,
) -> None:
    """Do all steps that are missing.

    Args:
        work: just constructed.
        steps: how many there are in all.
        identity: names and values that tell this run from every other.
        what: the steps' name in the plural, for messages.
        checkpoint: a file that keeps the state every 20 seconds; found there, the run goes on from it.
        on_step: called with `work` after each step.
        on_resume: called with `work` once it is what a checkpoint held.
        should_stop: asked before each step; True saves the state and raises.
        keep: whether the checkpoint is to hold the state after the last step, too.

    Raises:
        Interrupted: `should_stop` said so; the same call goes on from the checkpoint.
        FileError: the checkpoint is damaged, belongs to another run or cannot be written.
    """
    begun = -1
    if checkpoint is not None and Path(checkpoint).exists():
        _resume(work, checkpoint, identity)
        begun = work.k
        on_resume(work)
    saved = time.monotonic()
    while work.k < steps:
        if should_stop():
            _save(work, checkpoint, identity)
            raise Interrupted(f"stopped after {work.k} of {steps} {what}; the same command goes on from there")
        _do_step(work)
        on_step(work)
        if time.monotonic() - saved > CHECKPOINT_SECONDS:
            saved = _save(work, checkpoint, identity)
    if keep and work.k > begun:
        _save(work, checkpoint, identity)


def _do_step(work: Work) -> None:
    start = time.perf_counter()
    work.losses.append(work.step())
    work.k += 1
    work.seconds += time.perf_counter() - start


def _save(work: Work, checkpoint: Path | str | None, identity: dict) -> float:
    if checkpoint is not None:
        about = {name: getattr(work, name) for name in ("k", *work.kept, "seconds")}
        save_tensors(checkpoint, work.tensors(), about, identity)
    return time.monotonic()


def _resume(work: Work, checkpoint: Path | str, identity: dict) -> None:
    names = ("k", *work.kept, "seconds")
    tensors, about = load_tensors(checkpoint, identity, set(work.tensors()), names)
    work.restore(tensors)
    vars(work).update({name: about[name] for name in names})


def optimiser_tensors(prefix: str, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return an optimiser's state (Adam's moments and counts) as tensors by name; before its first step there is none."""
    state = optimiser.state_dict()["state"]
    return {f"{prefix}.{i}.{name}": tensor for i, values in state.items() for name, tensor in values.items()}


def restore_optimiser(prefix: str, optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Take over what `optimiser_tensors` returned under the same prefix."""
    state: dict[int, dict[str, Tensor]] = {}
    for full, tensor in tensors.items():
        if full.startswith(f"{prefix}."):
            i, name = full.removeprefix(f"{prefix}.").split(".")
            state.setdefault(int(i), {})[name] = tensor
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
