"""Choosing real images of any data set, outside of any experiment: the coreset baselines (Sec. 3.1) as a tool.

Herding, k-center and forgetting look at a network that is trained on the whole set first; stopped in any way, the same call
goes on with that training.
"""

from typing import Any

from ..core import engine as engines
from ..data.dataset import Dataset
from ..errors import SpecError, one_of
from ..methods.coresets import METHODS
from ..results import CondensedSet
from ..spec import GUIDED, Condensation, MakeSet, Network, OwnNetwork, WholeTraining
from . import sets
from .loading import load_of


def selection(
    dataset: str,
    method: str = "herding",
    ipc: int = 1,
    network: Network | None = None,
    epochs: int = 0,
    seed: int = 0,
    image_size: int = 0,
) -> MakeSet:
    """The run that chooses images.

    Args:
        dataset: a data set's name, or the path of the user's own.
        method: "random", "herding", "k-center" or "forgetting".
        ipc: images per class.
        network: is trained on the whole set to choose by; by default the ConvNet.
        epochs: of that training; 0: ten.
        seed: of that training, of random draws and of ties.
        image_size: images are resized to this square size first; 0 leaves them.

    Raises:
        SpecError: an unknown method, or a number out of its range; a network of the user's own.
    """
    one_of("method", method, METHODS)
    hyper, guide = Condensation(ipc=ipc), network or Network()
    if method not in GUIDED:
        if network is not None or epochs:
            raise SpecError(f"method {method!r} trains no network: leave out network and epochs")
        return MakeSet(dataset, method, seed, hyper, image_size)
    if isinstance(guide, OwnNetwork):
        raise SpecError(f"{method} looks at the penultimate features of one of dclib's networks, not {guide.family}'s: name one")
    epochs = epochs or WholeTraining.epochs
    training = WholeTraining(dataset, guide.resolve("train"), epochs=epochs, seed=seed, image_size=image_size)
    return MakeSet(dataset, method, seed, hyper, image_size, whole=training)


def select_set(
    run: MakeSet, *, dataset: Dataset | None = None, device: str = "auto", engine: str = "auto", **how: Any
) -> CondensedSet:
    """Choose real images, under a progress bar where a network is trained first.

    Args:
        run: from `selection`.
        dataset: the images, where they are loaded already; by default those that the run names.
        device, engine, how: as for `whole.train`: `checkpoint`, `should_stop`.

    Returns:
        The set; `about["indices"]` are the places of its images among the training images, class by class.

    Raises:
        DclibError: as `data.load`, `whole.train` and `coresets.select` raise it.
    """
    engines.tune_allocator()
    found, where = dataset or load_of(run), engines.resolve_device(device)
    found.require(run.hyper.ipc, "lower ipc")  # before a network is trained
    trained = run.whole and sets.train_whole(run.whole, found, device=str(where), engine=engine, **how)
    indices = sets.choose(run, found.to(where), trained)
    return sets.as_set(sets.pick(found, indices), found, run, {"indices": indices.tolist()})
