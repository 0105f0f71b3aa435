"""One small set at a time: made from a data set, described, and tested.

`dclib condense`, `dclib train`, a user's own script and the runs of declared experiments all call these functions.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ..core import condense as algorithm
from ..core import engine as engines
from ..core import train
from ..core.ranks import ALONE
from ..data.dataset import Dataset, hold_out
from ..data.formats import normal
from ..data.sources import spelled
from ..errors import DataError
from ..methods import coresets
from ..methods import full_training as whole
from ..methods.full_training import Whole
from ..results import CondensedSet
from ..spec import MakeSet, Training, WholeTraining, derive, full
from ..support.progress import Progress
from .loading import load, load_of


def condense_set(
    run: MakeSet,
    *,
    dataset: Dataset | None = None,
    looks: Sequence[Callable[[algorithm.Condenser], None]] = (),
    about: dict[str, Any] | None = None,
    **how: Any,
) -> CondensedSet:
    """Condense one set under a progress bar.

    Args:
        run: which data, which hyper-parameters, which seed.
        dataset: the images, where they are loaded already; by default those that the run names.
        looks: called with the state after each outer step (see `callbacks`).
        about: what the set's file says of itself beside the run and the work.
        how: as for `condense.condense`: `device`, `engine`, `checkpoint`, `should_stop`, `ranks`, `longest`.

    Raises:
        DclibError: as `data.load` and `condense.condense` raise it.
    """
    engines.tune_allocator()
    dataset, h, ranks = dataset or load_of(run), run.hyper, how.get("ranks", ALONE)
    what = f"condensing {dataset.name}, {h.ipc}/class, {h.network}, seed {run.seed}"
    with Progress(what, h.outer_steps, hidden=ranks.rank > 0) as progress:
        callbacks = progress.follow(lambda state: f"loss {state.losses[-1]:.1f}", *looks)
        state = algorithm.condense(dataset, h, seed=run.seed, **callbacks, **how)
    work = {"seconds": round(state.seconds, 2), "losses": [round(x, 3) for x in state.losses], "engine": state.engine}
    work |= {"world_size": ranks.count} if ranks.count > 1 else {}
    return as_set(state.images, dataset, run, (about or {}) | work)


def train_whole(run: WholeTraining, dataset: Dataset, **how: Any) -> Whole:
    """Train a network on the whole set under a progress bar, or take it as its checkpoint has it; `how` is as for `whole.train`."""
    with Progress(f"training {run.network} on the whole of {run.dataset}", whole.steps(run, len(dataset.y_train))) as progress:
        return whole.train(dataset, run, **progress.follow(whole.note), **how)


def train_on_set(
    made: CondensedSet,
    hyper: Training,
    *,
    networks: int = 1,
    seed: int = 0,
    dataset: str | Dataset = "",
    other_data: bool = False,
    device: str = "auto",
    engine: str = "auto",
    on_network: Callable[[float], None] = lambda accuracy: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[float]:
    """Train networks on a set under a progress bar and return their test accuracies in percent; nothing is recorded.

    Args:
        made: the set.
        hyper: the hyper-parameters of stage T.
        networks: how many; with seed 0 they are those that a declared run trains.
        seed: the number of the first.
        dataset: whose test images are classified: a name, a path, or the data; by default the set's own.
        other_data: that it is meant if this is not the data that the set was made from; it must have the same classes.
        device, engine, should_stop: as for `train.evaluate`.
        on_network: called with each accuracy.

    Raises:
        DclibError: as `data.load` and `train.evaluate` raise it.
    """
    engines.tune_allocator()
    tested = load_for(made, dataset, other_data)
    with Progress(f"training {hyper.network} on {made.ipc}/class of {made.dataset}", networks) as progress:

        def trained(seed: int, accuracy: float, seconds: float) -> None:
            progress.step(f"accuracy {accuracy:.1f} %")
            on_network(accuracy)

        return train.evaluate(
            torch.from_numpy(made.images),
            torch.from_numpy(made.labels),
            tested,
            hyper,
            seeds=[derive(j, made.key) for j in range(seed, seed + networks)],
            device=device,
            engine=engine,
            on_network=trained,
            should_stop=should_stop,
        )


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


def choose(run: MakeSet, dataset: Dataset, trained: Whole | None = None) -> torch.Tensor:
    """Choose real images by the run's method, as indices (classes, ipc) into the training images.

    Args:
        run: its `method`, `seed` and `hyper.ipc` count.
        dataset: where the network is.
        trained: on the whole training set; for herding, k-center and forgetting.
    """
    guide = {name: getattr(trained, name) for name in ("network", "events", "learned")} if trained else {}
    with engines.arithmetic("float32", dataset.x_train.device):
        return coresets.select(run.method, dataset, run.hyper.ipc, seed=run.seed, **guide)


def pick(dataset: Dataset, indices: torch.Tensor) -> torch.Tensor:
    """The training images of these indices (classes, ipc), normalised, as (classes, ipc, c, h, w)."""
    images = dataset.normalise(dataset.x_train[indices.flatten().to(dataset.x_train.device)])
    return images.unflatten(0, tuple(indices.shape))


def choose_at_random(run: MakeSet, dataset: Dataset) -> torch.Tensor:
    """Real images chosen at random, as (classes, ipc, c, h, w): the same draw as the initial images of `init="real"`."""
    return pick(dataset, choose(run, dataset))


def as_set(
    images: torch.Tensor, dataset: Dataset, run: MakeSet, about: dict[str, Any] | None = None, **steps: Any
) -> CondensedSet:
    """Wrap images of shape (classes, ipc, c, h, w), rounded as the run says, as a set that knows its data.

    Args:
        images: normalised.
        dataset: whose classes they have.
        run: made them.
        about: what else the set's file says of it.
        steps: `order` and `rates` of a distilled set.
    """
    labels = np.arange(dataset.classes).repeat(images.shape[1])
    flat = images.flatten(0, 1).to(getattr(torch, run.storage)).float()
    about = full(run) | {"data_hash": dataset.hash, "source": dataset.source} | (about or {})
    return CondensedSet(flat, labels, dataset.name, dataset.class_names, dataset.mean, dataset.std, run.key, about, **steps)
