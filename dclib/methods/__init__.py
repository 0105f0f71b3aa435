"""A file for each method that makes small sets, and for each application of them; `epochs` is shared by several.

A method that `spec.methods.METHODS` names has a function `make(run, dataset, context)`, which returns a `Made`. If it learns in
steps, it is a `core.resume.Work`, so that it can be stopped at any moment.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from ..core.ranks import ALONE, Ranks


@dataclass(frozen=True)
class Context:
    """What a method is given beside its run and the data.

    Args:
        device: as torch names it.
        engine: "auto", "eager", "compiled" or "captured".
        checkpoint: a file from which a stopped method continues; None: it starts again.
        should_stop: asked between steps; True saves the state and raises `Interrupted`.
        trained: the training on the whole set that the run rests on (`MakeSet.base`), if it rests on one.
        looks: called with the state of the work after each step.
        ranks: processes that share the work of Algorithm 1.
        longest, start: as for `core.condense.condense`.
    """

    device: str = "cpu"
    engine: str = "auto"
    checkpoint: Path | None = None
    should_stop: Callable[[], bool] = lambda: False
    trained: Any = None
    looks: Sequence[Callable[[Any], None]] = ()
    ranks: Ranks = ALONE
    longest: int = 0
    start: Tensor | None = None

    @property
    def how(self) -> dict[str, Any]:
        """What every resumable work takes."""
        return {"device": self.device, "checkpoint": self.checkpoint, "should_stop": self.should_stop}


@dataclass(frozen=True)
class Made:
    """The images of a set, and what is said of them.

    Args:
        images: normalised.
        about: what the set's file and its record say beside the run, such as `seconds` and `losses`.
        steps: `order` and `rates` of a set that is learned for given steps.
    """

    images: Float[Tensor, "classes ipc c h w"]
    about: dict[str, Any]
    steps: dict[str, Any] = field(default_factory=dict)
