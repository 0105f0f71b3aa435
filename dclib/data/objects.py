"""A data set from objects in Python: torchvision's, or anything of pairs (image, label) that has a length."""

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any

import numpy as np
from PIL import Image

from ..errors import DataError, first_line, one_of
from .arrays import Raw, no_labels, stack
from .dataset import Dataset, assemble
from .formats import BACKGROUNDS, flat, normal, read_picture

Rows = list[tuple[Any, int]]  # for each image the data set that gives it, and its index there


def from_torchvision(
    train: Any, test: Any, *, name: str = "own", image_size: int = 0, channels: int = 0, background: str = "white"
) -> Dataset:
    """Read two data sets of (image, label) pairs, as torchvision's are, into one of dclib's.

    A picture of Pillow's is turned upright, as its EXIF says, and is laid on the background where it is transparent. Those of
    `ImageFolder` are read from their files by dclib, since torchvision's own loader drops the transparency.

    Args:
        train, test: have a length and give pairs; an image is Pillow's, an array (H, W) or (H, W, C) of uint8, or a tensor
            (C, H, W) as `ToTensor` makes it (floats in [0, 1]). A label is a text or a whole number, as 3, 3.0, True or [3];
            classes without an image, as in a `Subset`, are left out. In place of pairs there may be mappings,
            {"image": …, "label": …}, as the package datasets gives them. Classes are named by `classes`, where the data have
            them; those of an `ImageFolder` are in the order of a folder's classes in dclib.
        name: what the data set is called.
        image_size: each image is resized to this square size; with 0 all must have one size.
        channels: 1 makes the images grey, 3 makes them RGB, 0 leaves them; grey images among RGB ones become RGB.
        background: white or black, on which transparent pictures are laid.

    Raises:
        DataError: an object is none of these, images have different sizes, the classes of both are not the same, or the data
            cannot be used.
        SpecError: an unknown background.
    """
    one_of("background", background, BACKGROUNDS)
    rows = {"training": _rows(train, background), "test": _rows(test, background)}
    labels: dict[str, list[int | str]] = {split: [] for split in rows}
    images = stack(_images(rows, labels, background), image_size, channels)
    classes, (y_train, y_test), said = _named(*rows.values(), *map(np.array, labels.values()))
    count = len(y_train)
    return assemble(name, Raw(images[:count], y_train, images[count:], y_test, name, classes, said), image_size, channels)


def _rows(data: Any, background: str) -> Rows:
    """List the images of data, by the data set that a `Subset` is taken from or a `ConcatDataset` is made of.

    An `ImageFolder` reads its files as dclib does, unless it has a loader of the user's.
    """
    from torchvision.datasets.folder import default_loader

    kind = type(data).__name__
    if kind == "Subset":
        rows = _rows(data.dataset, background)
        return [rows[i] for i in data.indices]
    if kind == "ConcatDataset":
        return [row for part in data.datasets for row in _rows(part, background)]
    if getattr(data, "loader", None) is default_loader:
        data = copy(data)
        data.loader = lambda file: read_picture(file, background)
    return [(data, i) for i in range(len(data) if hasattr(data, "__len__") else 1)]


def _images(rows: Mapping[str, Rows], labels: Mapping[str, list[int | str]], background: str) -> Iterator[tuple[str, np.ndarray]]:
    """Give the name and the pixels of each image, and append its label to those of its split."""
    for split, some in rows.items():
        if not some:
            raise DataError(f"the {split} data are empty: give images of each class")
        try:
            for n, (data, i) in enumerate(some):
                row, name = data[i], f"{split} image {n}"
                image, label = (row["image"], row["label"]) if isinstance(row, Mapping) else row
                labels[split].append(_label(label, name))
                if type(labels[split][-1]) is not type(labels["training"][0]):
                    raise DataError(f"{name} has the label {label!r} among texts and numbers: give all images labels of one kind")
                yield name, _pixels(image, name, background)
        except DataError:
            raise
        except Exception as error:  # whatever the user's object raises
            said = f"{type(error).__name__}: {first_line(error)}"
            advice = "give pairs as torchvision's data sets do, or mappings with 'image' and 'label'"
            raise DataError(f"the {split} data are no pairs (image, label) ({said}): {advice}") from error


def _label(label: Any, name: str) -> int | str:
    array = np.asarray(label)
    if array.size == 1 and array.dtype.kind == "U":
        return str(array.item())
    if array.size != 1 or no_labels(array.reshape(1)).size:
        said = " ".join(repr(label).split())
        raise DataError(f"{name} has the label {said}: give each image one text, or whole number from 0 upwards")
    return int(array.item())


def _pixels(image: Any, name: str, background: str) -> np.ndarray:
    """Return one image as uint8 (H, W) or (H, W, C)."""
    array = np.asarray(flat(image, background, name) if isinstance(image, Image.Image) else image)
    if hasattr(image, "dim") and array.ndim == 3:  # a tensor: channels first
        array = array.transpose(1, 2, 0)
    if np.issubdtype(array.dtype, np.floating):
        if not (np.isfinite(array).all() and array.min() >= 0 and array.max() <= 1):
            raise DataError(f"{name} holds floats outside of [0, 1]: leave out what normalises it, dclib does that itself")
        array = np.rint(array * 255).astype(np.uint8)
    if array.dtype != np.uint8 or array.ndim not in (2, 3):
        raise DataError(f"{name} is an array of {array.dtype} with shape {array.shape}: give uint8 (H, W, C) or floats in [0, 1]")
    return array


Named = tuple[tuple[str, ...], tuple[np.ndarray, ...], tuple[str, ...]]


def _named(train: Rows, test: Rows, *labels: np.ndarray) -> Named:
    """Return the classes' names, the labels of both data by these names, and which classes have images, where not all have any.

    é is one letter however a system writes it.
    """
    from torchvision.datasets import DatasetFolder

    if any(y.dtype.kind == "U" for y in labels):
        return (), labels, ()
    names = [_names(rows) for rows in (train, test)]
    ours, theirs = map(set, names)
    if ours and theirs and (odd := sorted(ours ^ theirs)):
        has, lacks = ("training", "test") if odd[0] in ours else ("test", "training")
        raise DataError(f"the {has} data have the class {odd[0]!r} and the {lacks} data do not: give both the same classes")
    classes = names[0]
    if all(y.max() < len(some) for some, y in zip(names, labels, strict=True)):
        in_folders = all(isinstance(data, DatasetFolder) for data, _ in train)
        classes = tuple(sorted(ours) if in_folders else dict.fromkeys(classes))
        labels = tuple(np.array([classes.index(name) for name in some])[y] for some, y in zip(names, labels, strict=True))
    used = np.unique(np.concatenate(labels))
    if used[-1] >= len(classes):
        return (), labels, ()
    if len(used) == len(classes):
        return classes, labels, ()
    kept = tuple(classes[c] for c in used)
    said = f"{len(kept)} of {len(classes)} classes have images: {', '.join(kept)}"
    return kept, tuple(np.searchsorted(used, y) for y in labels), (said,)


def _names(rows: Rows) -> tuple[str, ...]:
    """Return the names of the classes of data, in the order of their labels; none where the data have none.

    Raises:
        DataError: the parts of a `ConcatDataset` have different ones, so that their labels mean different things.
    """
    every = {tuple(normal(str(name)) for name in getattr(data, "classes", ())) for data, _ in rows}
    if len(every) > 1:
        listed = " and ".join(", ".join(names) or "none" for names in sorted(every))
        raise DataError(f"the parts of the data have different classes, {listed}: give parts with the same ones")
    return every.pop()
