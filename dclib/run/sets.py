"""One small set at a time, outside of any experiment: made from a data set, described, and tested.

What `dclib condense`, `dclib train` and a user's own script call; `run` makes the sets of declared experiments from the same parts.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..core import condense as algorithm
from ..core import engine as engines
from ..core import train
from ..core.ranks import ALONE, Ranks
from ..data import dataset as data
from ..data.formats import normal
from ..data.sources import spelled, stamp
from ..errors import DataError
from ..methods import coresets
from ..methods import full_training as whole
from ..methods.full_training import Whole
from ..results import CondensedSet
from ..spec import MakeSet, TrainGan, Training, TrainNetworks, WholeTraining, derive, full
from ..support.progress import Progress


def load(name: str, image_size: int = 0, channels: int = 0) -> data.Dataset:
    """Load a data set once for all runs of this process, and the user's own again when it has changed."""
    source = spelled(name)
    return _load(source, image_size, channels, stamp(source))


@lru_cache(maxsize=8)
def _load(source: str, image_size: int, channels: int, state: str) -> data.Dataset:
    return data.load(source, image_size=image_size, channels=channels)


load.cache_clear = _load.cache_clear  # type: ignore[attr-defined]
_hold_out = lru_cache(maxsize=2)(data.hold_out)


def load_parts(name: str, held_out: int, image_size: int = 0, channels: int = 0) -> tuple[data.Dataset, data.Dataset]:
    """Load a data set without the training images held out of it, and it with these in place of its test images."""
    return _hold_out(load(name, image_size, channels), held_out)


def load_rest(name: str, held_out: int = 0, image_size: int = 0, channels: int = 0) -> data.Dataset:
    """Load a data set without the training images held out of it, of which there may be none."""
    shape = image_size, channels
    return load_parts(name, held_out, *shape)[0] if held_out else load(name, *shape)


def load_of(run: MakeSet | WholeTraining | TrainGan) -> data.Dataset:
    """Load the images that a run stands on."""
    return load_rest(run.dataset, run.held_out, run.image_size, run.channels)


def load_tested(run: TrainNetworks) -> data.Dataset:
    """Load the images that networks trained on a set are tested on, as the test images of what is returned."""
    made = run.set
    return load_of(made) if run.tested_on == "test" else load_parts(made.dataset, made.held_out, made.image_size, made.channels)[1]


def placed(run: MakeSet) -> MakeSet:
    """The run with its data's path in full, so that its set can be tested from any folder."""
    source = spelled(run.dataset)
    bases = {name: dataclasses.replace(base, dataset=source) for name in ("whole", "gan") if (base := getattr(run, name))}
    return dataclasses.replace(run, dataset=source, **bases)


def condense_images(
    run: MakeSet,
    dataset: data.Dataset,
    where: torch.device,
    engine: str,
    checkpoint: Path | str | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    ranks: Ranks = ALONE,
    longest: int = 0,
    looks: Sequence[Callable[[algorithm.Condenser], None]] = (),
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Condense under a progress bar; returns the images (classes, ipc, c, h, w) and what a record says of the work.

    `longest` is as for `condense.condense`. Each of `looks` is called with the state after each outer step (see `callbacks`).
    """

    def on_step(state: algorithm.Condenser) -> None:
        progress.step(f"loss {state.losses[-1]:.1f}")
        for look in looks:
            look(state)

    h, what = run.hyper, f"condensing {dataset.name}, {run.hyper.ipc}/class, {run.hyper.network}, seed {run.seed}"
    with Progress(what, h.outer_steps, hidden=ranks.rank > 0) as progress:
        state = algorithm.condense(
            dataset,
            h,
            seed=run.seed,
            device=str(where),
            engine=engine,
            checkpoint=checkpoint,
            on_step=on_step,
            on_resume=lambda state: progress.skip(state.k),
            should_stop=should_stop,
            ranks=ranks,
            longest=longest,
        )
    about = {"seconds": round(state.seconds, 2), "losses": [round(x, 3) for x in state.losses], "engine": state.engine}
    return state.images, about | ({"world_size": ranks.count} if ranks.count > 1 else {})


def train_whole(
    run: WholeTraining,
    dataset: data.Dataset,
    where: torch.device,
    engine: str,
    checkpoint: Path | str | None,
    should_stop: Callable[[], bool],
) -> Whole:
    """Train a network on the whole set under a progress bar, or take it as its checkpoint has it."""
    with Progress(f"training {run.network} on the whole of {run.dataset}", whole.steps(run, len(dataset.y_train))) as progress:
        return whole.train(
            dataset,
            run,
            device=str(where),
            engine=engine,
            checkpoint=checkpoint,
            on_step=lambda state: progress.step(whole.note(state)),
            on_resume=lambda state: progress.skip(state.k),
            should_stop=should_stop,
        )


def condense_set(
    run: MakeSet,
    *,
    dataset: data.Dataset | None = None,
    device: str = "auto",
    engine: str = "auto",
    looks: Sequence[Callable[[algorithm.Condenser], None]] = (),
    **how: Any,
) -> CondensedSet:
    """Condense one set outside of any experiment, under a progress bar.

    Args:
        run: which data, which hyper-parameters, which seed.
        dataset: the images, where they are loaded already; by default those that the run names.
        looks: called with the state after each outer step (see `callbacks`).
        device, engine, how: as for `condense.condense`: `checkpoint`, `should_stop`, `ranks`.

    Raises:
        DclibError: as `data.load` and `condense.condense` raise it.
    """
    engines.tune_allocator()
    run = dataclasses.replace(run if dataset else placed(run), hyper=run.hyper.resolve())
    dataset = dataset or load_of(run)
    images, about = condense_images(run, dataset, engines.resolve_device(device), engine, looks=looks, **how)
    return as_set(images, dataset, run, about)


def train_on_set(
    made: CondensedSet,
    hyper: Training,
    *,
    networks: int = 1,
    seed: int = 0,
    dataset: str | data.Dataset = "",
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


def load_for(made: CondensedSet, name: str | data.Dataset = "", other_data: bool = False) -> data.Dataset:
    """Load the data that a set is tested on, or take them, in the size and the normalisation of the set's images.

    Raises:
        DataError: it cannot be loaded, has images of another shape, or is refused by `check_data`.
    """
    height, width = made.images.shape[2:]
    shape = height if height == width else 0, made.about.get("channels", 0)
    if not (name := name or made.source):
        raise DataError(f"the set was made from data given in Python, {made.dataset}: give that data, or name its path, to test on")
    found = name if isinstance(name, data.Dataset) else load(name, *shape)
    check_data(made, found, other_data)
    return dataclasses.replace(found, mean=made.mean, std=made.std)


def check_data(made: CondensedSet, found: data.Dataset, other_data: bool = False) -> None:
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


def _other(made: CondensedSet, found: data.Dataset) -> str:
    """How it is told that a set was made from other data, or "": by its hash; sets of the first versions have only its name."""
    if not made.data_hash:
        known = made.about.get("dataset") and found.source
        return f"that was {made.source}" if known and spelled(made.source) != found.source else ""
    held = made.about.get("held_out", 0)
    rest = [data.hold_out(found, held)[0]] if 0 < held < len(found.y_train) else []
    return "" if made.data_hash in [one.hash for one in (found, *rest)] else f"its hash is {found.hash}, not {made.data_hash}"


def choose(run: MakeSet, dataset: data.Dataset, trained: Whole | None = None) -> torch.Tensor:
    """Choose real images by the run's method, as indices (classes, ipc) into the training images.

    Args:
        run: its `method`, `seed` and `hyper.ipc` count.
        dataset: where the network is.
        trained: on the whole training set; for herding, k-center and forgetting.
    """
    guide = {name: getattr(trained, name) for name in ("network", "events", "learned")} if trained else {}
    with engines.arithmetic("float32", dataset.x_train.device):
        return coresets.select(run.method, dataset, run.hyper.ipc, seed=run.seed, **guide)


def pick(dataset: data.Dataset, indices: torch.Tensor) -> torch.Tensor:
    """The training images of these indices (classes, ipc), normalised, as (classes, ipc, c, h, w)."""
    images = dataset.normalise(dataset.x_train[indices.flatten().to(dataset.x_train.device)])
    return images.unflatten(0, tuple(indices.shape))


def choose_at_random(run: MakeSet, dataset: data.Dataset) -> torch.Tensor:
    """Real images chosen at random, as (classes, ipc, c, h, w): the same draw as the initial images of `init="real"`."""
    return pick(dataset, choose(run, dataset))


def as_set(
    images: torch.Tensor, dataset: data.Dataset, run: MakeSet, about: dict[str, Any] | None = None, **steps: Any
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
