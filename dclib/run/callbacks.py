"""Looks at a set while it is learned: pictures of it, and how well a network trained on it does so far."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..core import train
from ..core.condense import Condenser
from ..data.dataset import Dataset
from ..errors import Interrupted
from ..report.figures import save_grid
from ..results.sets import check_drawable
from ..spec import MakeSet, Network, derive
from ..spec.variants import stage_t
from .sets import as_set

Look = Callable[[Condenser], None]


def snapshots(run: MakeSet, dataset: Dataset, folder: Path, every: int) -> Look:
    """Write a picture of the set after each so many outer steps, named by their number; a resumed run writes the same ones.

    Raises:
        FileError: the folder cannot be written.
        DataError: the images are neither grey nor coloured.
    """
    check_drawable(dataset.x_train.shape[1])
    digits = len(str(run.hyper.outer_steps))

    def look(state: Condenser) -> None:
        if state.k % every == 0:
            save_grid(as_set(state.images, dataset, run), folder / f"{state.k:0{digits}d}.png")

    return look


def early_accuracy(run: MakeSet, network: Network, dataset: Dataset, every: int, tell: Callable[[str], None], **how: Any) -> Look:
    """Train one network on the set as it is, as `dclib train` does with that network, and tell its accuracy on the test images.

    It draws from generators of its own, and so changes nothing of the run.

    Args:
        run: whose set it is.
        network: as it was named for condensing, so that it takes the form of stage T here.
        dataset: the data.
        every: after each so many outer steps.
        tell: called with a sentence.
        how: `device`, `engine` and `should_stop`, as for `train.evaluate`; a stopped look tells nothing.
    """
    hyper = stage_t(dataset.source, network=network)

    def look(state: Condenser) -> None:
        if state.k % every == 0:
            images, labels = as_set(state.images, dataset, run).as_dataset().tensors
            try:
                (accuracy,) = train.evaluate(images, labels, dataset, hyper, seeds=[derive(0, run.key)], **how)
            except Interrupted:  # whoever stops it stops the run, too, which saves its state
                return
            tell(f"after {state.k} of {run.hyper.outer_steps} outer steps: {accuracy:.1f} %")

    return look
