"""The library in functions that do what the commands of these names do: condense, train, test, judge, select, import_set.

Each checks what it was asked before it loads what computes.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import SpecError
from .spec import Condensation, MakeSet, Training, derive, variants
from .spec.checks import require
from .spec.runs import DIGITS
from .support.progress import Progress

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    from .data.dataset import Dataset
    from .results import CondensedSet
    from .run.trained import Tested

USUAL = ("none", "auto", "crop", "scale", "rotate", "noise", "flip", "dsa")  # augmentations by which a set is judged


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


def judge(
    made: "str | Path | CondensedSet",
    networks: Any = "ConvNet",
    augment: Sequence[str] | None = None,
    repeats: int = 5,
    *,
    epochs: int = 300,
    guide_epochs: int = 0,
    dataset: "str | Dataset" = "",
    other_data: bool = False,
    seed: int = 0,
    record: "str | Path | None" = None,
    device: str = "auto",
    engine: str = "auto",
    checkpoint: "Path | None" = None,
    on_network: Callable[[tuple[str, str, str], float], None] = lambda place, accuracy: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> "pd.DataFrame":
    """Train networks on a set, and on as many random and herded real images, by one protocol, under a progress bar.

    The protocol is stage T with `epochs` epochs, whatever the augmentation, on real images of the same number by class. It shows
    what a set is worth, and how much of that is the augmentation's.

    Args:
        made: the set, or its file.
        networks: kinds of networks: text with spaces between them, or a list of what `train` takes.
        augment: augmentations as for `Training`, "none" and "auto", which is stage T's own; by default these two and each of the
            others alone, without "flip" for digits.
        repeats: how many networks of each kind are trained on each: all on the set, all on the herded images, and one on each
            of as many random draws.
        epochs: E of stage T; 0: 300, or 1000 with augmentation, as in the paper.
        guide_epochs: of the network by whose features herding chooses; 0: ten. A choice in the records is taken from there.
        dataset, other_data, device, engine: as for `train`; real images are chosen from the training images of this data.
        seed: the number of the first network, and of its random draw.
        record: a file of JSON lines that keeps each accuracy: what it has is not computed again.
        checkpoint: a file from which a stopped choice by herding continues.
        on_network: called with network, augmentation and images ("set", "herding" or "random"), and an accuracy in percent.
        should_stop: asked often; True raises `Interrupted`.

    Returns:
        The columns of `results.judged.frame`: a row for each kind of network, augmentation and kind of images.

    Raises:
        DclibError: an unknown network or augmentation, a number out of its range, or data that do not fit the set.
    """
    trainings(networks, augment, epochs)  # refuses what is out of range before anything is loaded
    require(repeats >= 1, f"repeats must be a whole number of at least 1, not {repeats}")
    require(guide_epochs >= 0, f"guide_epochs must be a whole number of at least 0, not {guide_epochs}")
    from .results import CondensedSet, judged

    small = made if isinstance(made, CondensedSet) else CondensedSet.load(made)
    from .run import judging
    from .run.sets import load_for

    found: judged.Accuracies = {}

    def told(place: tuple[str, str, str], accuracy: float) -> None:
        found.setdefault(place, []).append(accuracy)
        on_network(place, accuracy)

    how = dict(networks=repeats, guide_epochs=guide_epochs, seed=seed, record=record and Path(record), checkpoint=checkpoint)
    how |= dict(device=device, engine=engine, on_network=told, should_stop=should_stop)
    judging.judge(small, load_for(small, dataset, other_data), trainings(networks, augment, epochs, small.source), **how)
    return judged.frame(found)


def trainings(networks: Any, augment: Sequence[str] | None = None, epochs: int = 300, dataset: str = "") -> list[Training]:
    """The hyper-parameters of stage T by which a set is judged: each network with each augmentation, each once.

    Args:
        networks, augment, epochs: as for `judge`.
        dataset: the name or the full path of the data.
    """
    kinds = networks.split() if isinstance(networks, str) else networks if isinstance(networks, list | tuple) else [networks]
    if augment is None:
        augment = [name for name in USUAL if name != "flip" or dataset.partition("+")[0] not in DIGITS]
    for name, values in {"networks": kinds, "augmentations": augment}.items():
        require(bool(values), f"the list of {name} is empty: give at least one")
    every = [variants.stage_t(dataset, network=kind, augment=a, epochs=epochs) for kind in kinds for a in augment]
    return list(dict.fromkeys(every))


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


def import_set(
    file: "str | Path",
    dataset: "str | Path",
    *,
    labels: "str | Path | None" = None,
    index: int = 0,
    pixels: str = "auto",
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    logits: bool = False,
    factor: int = 1,
) -> "CondensedSet":
    """Read a small set that others published; no code of the file is run.

    `about["imported"]` of the set says what was understood of it.

    Args:
        file: what `torch.save` wrote: {"data": [[images, labels], …]}, as the authors' code, DSA and DM do, [images, labels], as
            IDC does, or images alone, as MTT does; an .npz with `images` and `labels`, or `x_train` and `y_train`; or a folder of
            pictures by class.
        dataset: the data set that it stands for: a name, or the path of your own.
        labels: the file of the labels where `file` has images alone; by default its name with `labels` in place of `images`.
        index: of the experiment, where the file has several.
        pixels: "standardised", "unit" (in [0, 1]) or "bytes" (0 to 255); "auto" tells by their range.
        mean, std: by which the pixels were standardised, for each channel; by default those of the data set.
        logits: the labels are logits, whose softmax is the soft labels.
        factor: each image holds factor × factor smaller ones, as IDC's do.

    Raises:
        DclibError: the file cannot be read without running code, or what it holds is no set.
    """
    from .run import published

    how = dict(labels=labels, index=index, pixels=pixels, mean=mean, std=std, logits=logits, factor=factor)
    return published.read(file, str(dataset), **how)


def _named(dataset: "str | Path | Dataset", image_size: int) -> "tuple[str, Dataset | None]":
    """The data set's name or full path, and its images where they are given."""
    from .data.sources import spelled

    if isinstance(dataset, str | Path):
        return spelled(dataset), None
    if image_size:
        raise SpecError(f"image_size={image_size} resizes data that are given by name: give a Dataset of that size")
    return dataset.name, dataset
