"""The loop of everything that is computed step by step: stopped or killed at any moment, it continues from a file to the same bits.

Condensation and the methods that learn something are each a `Work`, which says what one step does and which tensors later steps
need. `run` counts the steps, times them, saves the work and stops it.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from ..errors import FileError, Interrupted
from .checkpoint import load_tensors, save_tensors
from .ranks import ALONE, Ranks

CHECKPOINT_SECONDS = 20.0  # between two checkpoints


class Stopped(Exception):
    """Raised by a step that is told to stop before its end; the work is then as it was before the step."""


class Work(ABC):
    """A computation in steps. Whatever is random in step k comes from generators derived from the seed and k.

    Attributes:
        k: steps done.
        losses: what `step` returned, one entry for each step done.
        seconds: time spent in steps, over all processes that worked on it.
        kept: the names of the lists that a checkpoint holds beside these numbers.
    """

    kept: tuple[str, ...] = ("losses",)

    def __init__(self) -> None:
        self.k, self.losses, self.seconds = 0, [], 0.0

    @abstractmethod
    def step(self) -> Any:
        """Do step `self.k` and return its loss, a number or a list of numbers; or raise `Stopped` and change nothing."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Return by name all tensors that later steps depend on."""

    @abstractmethod
    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over the tensors that `tensors` returned in another process."""

    def finished(self) -> bool:
        """Whether the work is over before all its steps are done."""
        return False


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
    also: Mapping[str, Any] = MappingProxyType({}),
    ranks: Ranks = ALONE,
) -> None:
    """Do all steps that are missing.

    Args:
        work: just constructed.
        steps: the number of steps in all.
        identity: names and values that tell this computation from every other.
        what: the steps' name in the plural, for messages.
        checkpoint: a file that keeps the state every 20 seconds; if it exists, the work continues from it.
        on_step: called with `work` after each step.
        on_resume: called with `work` once it has the state that the checkpoint held.
        should_stop: asked before each step; True saves the state and raises `Interrupted`.
        keep: save the state after the last step, too; a checkpoint with more than `steps` steps is then not used, where
            otherwise it is refused.
        also: values that older checkpoints have in place of those in `identity`, by name.
        ranks: the processes that share the work; the first of them reads and writes the checkpoint.

    Raises:
        Interrupted: the work was stopped; the same call continues from the checkpoint.
        FileError: the checkpoint is damaged, belongs to another run, has too many steps or cannot be written.
    """
    path = Path(checkpoint) if checkpoint is not None and ranks.rank == 0 else None
    names = ("k", *work.kept, "seconds")

    def save() -> None:
        if path is not None:
            save_tensors(path, work.tensors(), {name: getattr(work, name) for name in names}, identity)

    begun = -1
    if _resume(work, path, steps, identity, what, keep, also, ranks):
        begun = work.k
        on_resume(work)
    saved = time.monotonic()
    while work.k < steps and not work.finished():
        start = time.perf_counter()
        try:
            if should_stop():
                raise Stopped
            loss = work.step()
        except Stopped:
            save()
            raise Interrupted(f"stopped after {work.k} of {steps} {what}; the same command goes on from there") from None
        work.losses.append(loss)
        work.k += 1
        work.seconds += time.perf_counter() - start
        on_step(work)
        if time.monotonic() - saved > CHECKPOINT_SECONDS:
            save()
            saved = time.monotonic()
    if keep and work.k > begun:
        save()


def _resume(
    work: Work, path: Path | None, steps: int, identity: dict, what: str, keep: bool, also: Mapping[str, Any], ranks: Ranks
) -> bool:
    """Give all ranks the state that the first one finds in its checkpoint; False if there is none to use."""
    found, names = None, ("k", *work.kept, "seconds")
    if path is not None and path.exists():
        tensors, about = load_tensors(path, identity, set(work.tensors()), names, also)
        if about["k"] <= steps:
            work.restore(tensors)
            found = {name: about[name] for name in names}
        elif not keep:
            done = f"is of this run and has {about['k']} {what} behind it, more than the {steps} asked for"
            raise FileError(f"the checkpoint {path} {done}: ask for {about['k']} or more, or remove it")
    found = ranks.share(found)
    if found is None:
        return False
    vars(work).update(found)
    ranks.copy(work.tensors().values())
    return True


def optimiser_tensors(prefix: str, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return an optimiser's state (Adam's moments and counts) as tensors by name; before its first step there is none."""
    state = optimiser.state_dict()["state"]
    return {f"{prefix}.{i}.{name}": tensor for i, values in state.items() for name, tensor in values.items()}


def restore_optimiser(prefix: str, optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Take over the state that `optimiser_tensors` returned under the same prefix."""
    state: dict[int, dict[str, Tensor]] = {}
    for full, tensor in tensors.items():
        if full.startswith(f"{prefix}."):
            i, name = full.removeprefix(f"{prefix}.").split(".")
            state.setdefault(int(i), {})[name] = tensor
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
