"""From a folder of images to a condensed set, for the notebook `own_data`: a folder to try it on, and what is in it."""

import dataclasses
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import SpecError, first_line
from ..reproduce import Given, check, check_names
from ..results import CondensedSet
from ..results.export import class_folder, png
from ..spec import Condensation, ConvNet, MakeSet, Network, Training
from ..support.files import write_atomic
from .tables import pipe_table

if TYPE_CHECKING:
    from ..data.dataset import Dataset

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
STEPS = {"best": 30, "smoke": 30, "cpu": 150, "paper": 1000}  # K
LIVE = ConvNet(width=32)  # what learns and is tested where seconds count; above, the paper's


@dataclass(frozen=True)
class Learned:
    """What the page shows.

    Args:
        dataset: the images found.
        sets: real images chosen at random and those learned, by name.
        accuracies: in percent, of a network trained on each.
    """

    dataset: "Dataset"
    sets: Mapping[str, CondensedSet]
    accuracies: Mapping[str, float]


def example(folder: Path, per_class: int = 12) -> None:
    """Write scikit-learn's digits as a folder of PNG files with all that makes folders of one's own hard.

    The classes are uneven (each has some more images than the one before), and images have three sizes and two shapes.

    Args:
        folder: train/<class>/ and test/<class>/ are made in it.
        per_class: training images of the first class, and test images of every class.
    """
    from ..data.formats import read_digits

    digits = read_digits()
    for split, images, labels in (("train", digits.x_train, digits.y_train), ("test", digits.x_test, digits.y_test)):
        for c in range(10):
            count = per_class + 4 * c if split == "train" else per_class
            for i, image in enumerate(images[labels == c][:count]):
                times = 2 + i % 3
                large = np.kron(image, np.ones((times, times), np.uint8))
                large = np.pad(large, ((0, 0), (0, 0) if i % 2 else (times, times)))  # wider than high
                write_atomic(folder / split / class_folder(NAMES, c) / f"{i:03d}.png", png(large))


def learn(
    *,
    preset: Given = "best",
    recompute: Given = False,
    device: Given = "auto",
    folder: Given = None,
    image_size: Given = 28,
    ipc: Given = 1,
    **unknown: Any,
) -> Learned:
    """Condense a folder of images, and train a network on what came of it and one on as many real images; nothing is recorded.

    Args:
        preset: best and smoke take seconds; cpu and paper give the ConvNet of the paper 150 and 1000 outer steps.
        recompute: there are no records.
        device: "auto", "cpu", "cuda" …
        folder: with train/<class>/ and test/<class>/; by default that of `example`.
        image_size: all images are resized to this square size; 0 leaves them.
        ipc: images per class.
        unknown: none is allowed.

    Raises:
        DclibError: an unknown parameter or value, or images that cannot be used.
    """
    check_names(unknown, learn)
    check(preset, recompute, device, ())
    sizes = [_whole(name, value) for name, value in (("image_size", image_size), ("ipc", ipc))]
    from ..data import dataset as data

    if folder is not None:
        found = data.load(Path(str(folder)), image_size=sizes[0])
    else:
        with tempfile.TemporaryDirectory() as place:
            example(Path(place))
            found = data.load(Path(place), image_size=sizes[0])
        found = dataclasses.replace(found, name="a folder of digits")
    return _learned(found, str(preset), str(device), sizes[1])


def _learned(found: "Dataset", preset: str, device: str, ipc: int) -> Learned:
    from ..run import sets

    network = Network() if preset in ("cpu", "paper") else LIVE
    steps = dict(image_lr=0.5, real_batch=32) if network is LIVE else dict(real_batch=64)  # of few steps each must go further
    hyper = Condensation(ipc=ipc, network=network, outer_steps=STEPS[preset], **steps)
    chosen = MakeSet(found.name, "random", hyper=Condensation(ipc=ipc))
    made = {
        "chosen at random": sets.as_set(sets.choose_at_random(chosen, found), found, chosen),
        "learned": sets.condense_set(MakeSet(found.name, hyper=hyper), dataset=found, device=device),
    }
    training = Training(network=network, epochs=100 if network is LIVE else 300)
    accuracies = {name: sets.train_on_set(one, training, dataset=found, device=device)[0] for name, one in made.items()}
    return Learned(found, made, accuracies)


def _whole(name: str, value: Given) -> int:
    try:
        return int(str(value))
    except ValueError as error:
        raise SpecError(f"{name} must be a whole number, not {value!r} ({first_line(error)})") from None


def folder_table(learned: Learned) -> str:
    """The folder's classes with their training and test images."""
    d = learned.dataset
    rows = []
    for c, name in enumerate(d.class_names):
        counts = (int((y == c).sum()) for y in (d.y_train, d.y_test))
        rows.append((name, *(f"{n:,}" for n in counts)))
    return pipe_table(("class", "training images", "test images"), rows)


def sentence(learned: Learned) -> str:
    """How well networks do that were trained on each set."""
    d, (real, condensed) = learned.dataset, learned.accuracies.values()
    ipc = next(iter(learned.sets.values())).ipc
    images = f"{ipc} image{'' if ipc == 1 else 's'} per class"
    return (
        f"On {len(d.y_test):,} test images, a network trained on {images} chosen at random reaches {real:.0f} %, "
        f"and one trained on {images} learned from all {len(d.y_train):,} reaches {condensed:.0f} %."
    )
