"""One small set at a time: made from a data set by any method, described, and tested.

`dclib condense`, `dclib train`, a user's own script and the runs of declared experiments all call these functions.
"""

import dataclasses
from importlib import import_module
from typing import Any

import numpy as np
import torch

from ..core import engine as engines
from ..data.dataset import Dataset, hold_out
from ..data.formats import normal
from ..data.sources import spelled
from ..errors import DataError
from ..methods import Context, coresets, full_training, gan
from ..results import CondensedSet
from ..spec import MakeSet, TrainGan, WholeTraining, full
from ..spec.methods import METHODS
from .loading import load, load_of


def make_set(
    run: MakeSet,
    *,
    dataset: Dataset | None = None,
    about: dict[str, Any] | None = None,
    device: str = "auto",
    start: CondensedSet | None = None,
    **how: Any,
) -> CondensedSet:
    """Make the set of a run by its method, under a progress bar where it takes long.

    Args:
        run: which data, which method, which hyper-parameters, which seed.
        dataset: the images, where they are loaded already; by default those that the run names.
        about: what the set's file says of itself beside the run and the work.
        device: "auto", "cpu", "cuda" or "cuda:1".
        start: the set that the run names as its `start`.
        how: as for `methods.Context`. What the run rests on (`MakeSet.base`) is trained here unless it is given as `trained`;
            the checkpoint is then that training's.

    Returns:
        The set; of real images, `about["indices"]` are their places among the training images, class by class.

    Raises:
        DclibError: as `data.load` and the method raise it.
    """
    engines.tune_allocator()
    dataset, context = dataset or load_of(run), Context(str(engines.resolve_device(device)), **how)
    if run.start:
        context = dataclasses.replace(context, start=start_images(run, start, dataset))
    if not run.learned:
        dataset.require(run.hyper.ipc, "lower ipc")  # before a network is trained to choose by
    if run.base and context.trained is None:
        context = dataclasses.replace(context, trained=train_on_whole(run.base, dataset, engine=context.engine, **context.how))
    made = import_module(METHODS[run.method].module).make(run, dataset, context)
    return as_set(made.images, dataset, run, (about or {}) | made.about, **made.steps)


def start_images(run: MakeSet, start: CondensedSet | None, dataset: Dataset) -> torch.Tensor:
    """Return the images of a set as (classes, its ipc, c, h, w), normalised as the data are, for a run to start from.

    Raises:
        DataError: the set is not the one that the run names, or does not fit the run or its data.
    """
    if start is None or start.hash != run.start:
        raise DataError(f"the run starts from the set {run.start}: give that set as start")
    check_data(start, dataset, other_data=True)
    if start.factor != run.hyper.factor:
        parts = f"{start.factor}×{start.factor} smaller ones, and those to learn {run.hyper.factor}×{run.hyper.factor}"
        raise DataError(f"images of the set to start from hold {parts}: give factor={start.factor}")
    counts = np.bincount(start.labels, minlength=dataset.classes)
    if counts.min() != counts.max():
        uneven = f"the set to start from has {counts.min()} to {counts.max()} images per class"
        raise DataError(f"{uneven}: start from one with as many of each")
    if start.ipc > run.hyper.ipc:
        raise DataError(f"the set to start from has {start.ipc} images per class, more than {run.hyper.ipc}: give ipc={start.ipc}")
    images = start.images if (start.mean, start.std) == (dataset.mean, dataset.std) else _normalised(start, dataset)
    return torch.from_numpy(images[np.argsort(start.labels, kind="stable")]).unflatten(0, (dataset.classes, start.ipc))


def _normalised(made: CondensedSet, dataset: Dataset) -> np.ndarray:
    mean, std = (np.reshape(values, (1, -1, 1, 1)) for values in (dataset.mean, dataset.std))
    return ((made.unit() - mean) / std).astype(np.float32)


def train_on_whole(run: WholeTraining | TrainGan, dataset: Dataset, **how: Any) -> Any:
    """Train on the whole set, under a progress bar, what sets rest on; `how` is as for `full_training.train` and `gan.train`."""
    return {WholeTraining: full_training, TrainGan: gan}[type(run)].train_run(run, dataset, **how)


def load_for(made: CondensedSet, name: str | Dataset = "", other_data: bool = False) -> Dataset:
    """Load the data that a set is tested on, or take them, in the size and the normalisation of the set's images.

    Raises:
        DataError: it cannot be loaded, has images of another shape, or is refused by `check_data`.
    """
    height, width = made.images.shape[2:]
    shape = height if height == width else 0, made.about.get("channels", 0)
    if not (name := name or made.source):
        raise DataError(f"the set was made from data given in Python, {made.dataset}: give that data, or name its path, to test on")
    found = name if isinstance(name, Dataset) else load(name, *shape)
    check_data(made, found, other_data)
    return dataclasses.replace(found, mean=made.mean, std=made.std)


def check_data(made: CondensedSet, found: Dataset, other_data: bool = False) -> None:
    """Refuse data on which a set's images and labels mean something else.

    Args:
        made: the set.
        found: the data, seen as the set's images are: in their size and number of channels.
        other_data: whether it may be other data than the set was made from, with the same classes.

    Raises:
        DataError: it has other classes, or the same in another order, images of another shape, or is other data.
    """
    theirs, ours = ([normal(name) for name in names] for names in (found.class_names, made.class_names))
    if len(theirs) != len(ours):
        counts = f"the set has {len(ours)} classes and {found.name} has {len(theirs)}"
        raise DataError(f"{counts}: name the data that the set was made from")
    if made.images.shape[1:] != tuple(found.x_test.shape[1:]):
        shapes = f"the set's images have shape {made.images.shape[1:]} and those of {found.name} {tuple(found.x_test.shape[1:])}"
        raise DataError(f"{shapes}: name the data that the set was made from")
    if theirs != ours:
        c = next(c for c, names in enumerate(zip(ours, theirs, strict=True)) if len(set(names)) > 1)
        names = f"class {c} of the set is {ours[c]!r} and that of {found.name} {theirs[c]!r}"
        raise DataError(f"{names}: test a set on data with the same classes in the same order, or make it again")
    if not other_data and (why := _other(made, found)):
        advice = "name that data, or say with --other-data (other_data=True) that other data is meant"
        raise DataError(f"{found.name} is not the data that the set was made from ({why}): {advice}")


def _other(made: CondensedSet, found: Dataset) -> str:
    """How it is told that a set was made from other data, or "": by its hash; sets of the first versions have only its name."""
    if not made.data_hash:
        known = made.about.get("dataset") and found.source
        return f"that was {made.source}" if known and spelled(made.source) != found.source else ""
    held = made.about.get("held_out", 0)
    rest = [hold_out(found, held)[0]] if 0 < held < len(found.y_train) else []
    return "" if made.data_hash in [one.hash for one in (found, *rest)] else f"its hash is {found.hash}, not {made.data_hash}"


def choose_at_random(run: MakeSet, dataset: Dataset) -> torch.Tensor:
    """Real images chosen at random, as (classes, ipc, c, h, w): the same draw as the initial images of `init="real"`."""
    return coresets.make(run, dataset, Context()).images


def as_set(images: torch.Tensor, dataset: Dataset, run: MakeSet, about: dict[str, Any] | None = None, **steps: Any) -> CondensedSet:
    """Wrap images of shape (classes, ipc, c, h, w), rounded as the run says, as a set that knows its data.

    Args:
        images: normalised.
        dataset: whose classes they have.
        run: made them.
        about: what else the set's file says of it.
        steps: `order` and `rates` of a distilled set; `factor` where it is not that of the run's hyper-parameters.
    """
    labels = np.arange(dataset.classes).repeat(images.shape[1])
    flat = images.flatten(0, 1).to(getattr(torch, run.storage)).float()
    about = full(run) | {"data_hash": dataset.hash, "source": dataset.source} | (about or {})
    more = {"factor": run.hyper.factor} | steps
    return CondensedSet(flat, labels, dataset.name, dataset.class_names, dataset.mean, dataset.std, run.key, about, **more)
