"""The library in functions that do what the commands of the same names do: `condense`, `train`, `test` and `select`.

Each checks what it was asked before it loads what computes.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import SpecError
from .spec import Condensation, MakeSet, derive, variants
from .spec.checks import require
from .support.progress import Progress

if TYPE_CHECKING:
    from torch import nn

    from .data.dataset import Dataset
    from .results import CondensedSet
    from .run.trained import Tested


def condense(
    dataset: "str | Path | Dataset",
    hyper: Condensation | None = None,
    *,
    recipe: str = "paper",
    seed: int = 0,
    image_size: int = 0,
    storage: str = "float32",
    device: str = "auto",
    engine: str = "auto",
    start: "str | Path | CondensedSet | None" = None,
    **given: Any,
) -> "CondensedSet":
    """Learn a small set of images by matching gradients (Algorithm 1), under a progress bar.

    Args:
        dataset: a data set's name, the path of your own, or a `Dataset`.
        hyper: all hyper-parameters, in place of a recipe's.
        recipe: "paper"; "fast", minutes on two cores; or "beyond", what came after the paper. The latter two are for a ConvNet
            at one image per class.
        seed: another seed gives another set.
        image_size: images are resized to this square size first; 0 leaves them; not for a `Dataset`.
        storage: "float16" rounds the images, so that a file is half as large.
        device: "auto", "cpu", "cuda" or "cuda:1".
        engine: "auto", "eager", "compiled" or "captured": how it is computed, not what.
        start: a set, or its file, whose images the learned ones start from; if `ipc` is more than it has, the other images of
            each class start as `init` says. The set that is made knows the hash of this one.
        given: hyper-parameters of `Condensation` by name, in place of the recipe's; `network` is text such as
            "ConvNet:width=64", an object such as `LeNet()`, or a class of your own.

    Raises:
        DclibError: a hyper-parameter out of its range, data that cannot be loaded, or images that diverge.
    """
    if hyper and given:
        raise SpecError(f"hyper-parameters are given twice, as hyper and as {', '.join(given)}: choose one way")
    name, data = _named(dataset, image_size)
    hyper = hyper.resolve() if hyper else variants.recipe(recipe, **given)
    from .results import CondensedSet

    first = start if start is None or isinstance(start, CondensedSet) else CondensedSet.load(start)
    run = MakeSet(name, "condense", seed, hyper, image_size, storage=storage, start=first.hash if first else "")
    from .run.sets import make_set

    return make_set(run, dataset=data, device=device, engine=engine, start=first)


def train(
    made: "str | Path | CondensedSet",
    network: Any = "ConvNet",
    networks: int = 1,
    *,
    dataset: "str | Dataset" = "",
    other_data: bool = False,
    seed: int = 0,
    device: str = "auto",
    engine: str = "auto",
    on_network: Callable[[float], None] = lambda accuracy: None,
    should_stop: Callable[[], bool] = lambda: False,
    look: "Callable[[nn.Module, Dataset], None]" = lambda network, tested: None,
    save: "str | Path | None" = None,
    **given: Any,
) -> list[float]:
    """Train networks on a set and return their accuracies on test images in percent (stage T), under a progress bar.

    Args:
        made: the set, or its file.
        network: text such as "ConvNet:width=64", an object such as `LeNet()`, or a class of your own.
        networks: how many are trained, each from its own initial weights.
        dataset: whose test images are classified: a name, a path, or a `Dataset`; by default the set's own.
        other_data: allow data that the set was not made from; it must have the same classes.
        seed: the number of the first network; from 0 on they are those that a declared run trains.
        device, engine: as for `condense`.
        on_network: called with each accuracy.
        should_stop: asked before each epoch; True raises `Interrupted`.
        look: called with each trained network and the data that it is tested on, for example to count what it takes for what
            (`core.train.confusion`).
        save: a file to keep the network in, where one is trained; `dclib.test` tests it on other images.
        given: hyper-parameters of `Training` by name, in place of the paper's.

    Raises:
        DclibError: a hyper-parameter out of its range, or data that cannot be loaded or do not fit the set.
    """
    variants.stage_t("", network=network, **given)  # refuses what is out of range before anything is loaded
    check_networks(networks)
    require(save is None or networks == 1, f"save keeps one network and {networks} are trained: train one, or leave save out")
    from .results import CondensedSet

    small = made if isinstance(made, CondensedSet) else CondensedSet.load(made)
    from .core import engine as engines
    from .core.train import evaluate
    from .run import trained as trained_networks
    from .run.sets import load_for

    engines.tune_allocator()
    hyper = variants.stage_t(small.source, network=network, **given)
    tested = load_for(small, dataset, other_data)
    with Progress(f"training {hyper.network} on {small.ipc}/class of {small.dataset}", networks) as progress:

        def trained(seed: int, accuracy: float, seconds: float) -> None:
            progress.step(f"accuracy {accuracy:.1f} %")
            on_network(accuracy)

        def trained_network(module: "nn.Module") -> None:
            look(module, tested)
            if save is not None:
                trained_networks.save(module, save, hyper.resolve(), tested, small)

        images, labels = small.as_dataset().tensors
        how = dict(device=device, engine=engine, on_network=trained, should_stop=should_stop, look=trained_network)
        return evaluate(images, labels, tested, hyper, seeds=[derive(j, small.key) for j in range(seed, seed + networks)], **how)


def test(network: "str | Path", dataset: "str | Path | Dataset" = "", *, device: str = "auto") -> "Tested":
    """Test a network that `train` has saved on the test images of a data set.

    Args:
        network: its file.
        dataset: a name, a path or a `Dataset`, with the same classes; by default the data of the set that it was trained on.
        device: "auto", "cpu", "cuda" or "cuda:1".

    Raises:
        DclibError: the file holds no network, or the data cannot be loaded or do not fit it.
    """
    from .run.trained import test

    return test(network, dataset, device)


def check_networks(networks: int) -> None:
    """Refuse to train none."""
    require(networks >= 1, f"networks must be a whole number of at least 1, not {networks}")


def select(
    dataset: "str | Path | Dataset",
    method: str = "herding",
    ipc: int = 1,
    *,
    network: Any = None,
    epochs: int = 0,
    seed: int = 0,
    image_size: int = 0,
    device: str = "auto",
    engine: str = "auto",
) -> "CondensedSet":
    """Choose real images instead of learning some (the coresets of Sec. 3.1).

    Args:
        dataset, image_size, device, engine: as for `condense`.
        method: "random", "herding", "k-center" or "forgetting"; all but the first need a network trained on the full set.
        ipc: images per class.
        network: the network of that training; by default the ConvNet.
        epochs: of that training; 0: ten.
        seed: of that training, of random draws and of ties.

    Raises:
        DclibError: an unknown method, a number out of its range, or data that cannot be loaded.
    """
    name, data = _named(dataset, image_size)
    run = variants.selection(name, method, ipc, network, epochs, seed, image_size)
    from .run.sets import make_set

    return make_set(run, dataset=data, device=device, engine=engine)


def _named(dataset: "str | Path | Dataset", image_size: int) -> "tuple[str, Dataset | None]":
    """The data set's name or full path, and its images where they are given."""
    from .data.sources import spelled

    if isinstance(dataset, str | Path):
        return spelled(dataset), None
    if image_size:
        raise SpecError(f"image_size={image_size} resizes data that are given by name: give a Dataset of that size")
    return dataset.name, dataset
