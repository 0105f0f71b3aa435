"""A data set from objects in Python: torchvision's, or anything of pairs (image, label) that has a length."""

from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError, first_line, one_of
from .dataset import Dataset, assemble
from .folders import BACKGROUNDS, COLOUR, GREY, flat, mode_of, normal
from .formats import Raw, not_whole
from .pixels import convert


def from_torchvision(
    train: Any, test: Any, *, name: str = "own", image_size: int = 0, channels: int = 0, background: str = "white"
) -> Dataset:
    """Read two data sets of (image, label) pairs, as torchvision's are, into one of dclib's.

    A picture of Pillow's is turned upright, as its EXIF says, and is laid on the background where it is transparent; those of
    `ImageFolder` are read from their files for it, since torchvision's own loader drops the transparency.

    Args:
        train, test: have a length and give pairs; an image is Pillow's, an array (H, W) or (H, W, C) of uint8, or a tensor
            (C, H, W) as `ToTensor` makes it (floats in [0, 1]). A label is a whole number, as 3, 3.0, True or [3]. In place of
            pairs there may be mappings, {"image": …, "label": …}, as the package datasets gives them. Classes are named by
            `classes`, where the data have them; those of an `ImageFolder` are in the order of a folder's classes in dclib.
        name: what the data set is called.
        image_size: each image is resized to this square size; with 0 all must have one size.
        channels: 1 makes the images grey, 3 makes them RGB, 0 leaves them.
        background: white or black, on which transparent pictures are laid.

    Raises:
        DataError: an object is none of these, images have different shapes, the classes of both are not the same, or the data
            cannot be used.
        SpecError: an unknown background.
    """
    one_of("background", background, BACKGROUNDS)
    files = [part for data in (train, test) for part in _parts(data) if _is_folder(part)]
    grey = bool(files) and all(mode_of(Path(file)) in GREY for part in files for file, _ in part.samples)
    both = ((train, "training"), (test, "test"))
    whole = [(_with_own_loader(data, 1 if grey else 3, background), split) for data, split in both]
    pairs = [_arrays(data, split, image_size, channels, background) for data, split in whole]
    classes, labels = _named(train, test, [y for _, y in pairs])
    used = max(int(y.max()) for y in labels) + 1
    (x_train, _), (x_test, _) = pairs
    raw = Raw(x_train, labels[0], x_test, labels[1], where=name, classes=classes if len(classes) == used else ())
    return assemble(name, raw, image_size, channels, None)


def _parts(data: Any) -> list[Any]:
    """What a `Subset` is taken from, or a `ConcatDataset` is made of; else the data themselves."""
    kind = type(data).__name__
    inner = [data.dataset] if kind == "Subset" else data.datasets if kind == "ConcatDataset" else []
    return [part for one in inner for part in _parts(one)] or [data]


def _is_folder(data: Any) -> bool:
    """Whether it is an `ImageFolder` that reads its files with torchvision's own loader."""
    return getattr(getattr(data, "loader", None), "__module__", "") == "torchvision.datasets.folder"


def _with_own_loader(data: Any, channels: int, background: str) -> Any:
    """The same data, but where they are of an `ImageFolder`, its files are read as `flat` says: torchvision drops transparency."""
    kind = type(data).__name__
    if kind == "Subset":
        data = copy(data)
        data.dataset = _with_own_loader(data.dataset, channels, background)
    elif kind == "ConcatDataset":
        data = copy(data)
        data.datasets = [_with_own_loader(part, channels, background) for part in data.datasets]
    elif _is_folder(data):
        data = copy(data)
        data.loader = lambda file: _read(file, channels, background)
    return data


def _read(file: str, channels: int, background: str) -> Any:
    from PIL import Image

    with Image.open(file) as image:
        return flat(image, channels, background) if image.mode in (*GREY, *COLOUR) else image.convert("RGB")


def _named(train: Any, test: Any, labels: list[np.ndarray]) -> tuple[tuple[str, ...], list[np.ndarray]]:
    """The classes' names, and the labels of both data by these names; é is one letter however a system writes it."""
    names = [_names(data) for data in (train, test)]
    if not all(names):
        return tuple(map(normal, names[0])), labels
    ours, theirs = (set(map(normal, some)) for some in names)
    if odd := sorted(ours ^ theirs):
        has, lacks = ("training", "test") if odd[0] in ours else ("test", "training")
        raise DataError(f"the {has} data have the class {odd[0]!r} and the {lacks} data do not: give both the same classes")
    classes = sorted(ours) if all(map(_is_folder, _parts(train))) else list(dict.fromkeys(map(normal, names[0])))
    if any(int(y.max(initial=0)) >= len(some) for some, y in zip(names, labels, strict=True)):
        return (), labels
    where = [np.array([classes.index(normal(name)) for name in some]) for some in names]
    return tuple(classes), [places[y] for places, y in zip(where, labels, strict=True)]


def _names(data: Any) -> tuple[str, ...]:
    """The names of the classes of data, in the order of their labels; none where the data have none.

    Raises:
        DataError: the parts of a `ConcatDataset` have different ones, so that their labels mean different things.
    """
    every = {tuple(map(str, getattr(part, "classes", ()))) for part in _parts(data)}
    if len(every) > 1:
        listed = " and ".join(", ".join(names) or "none" for names in sorted(every))
        raise DataError(f"the parts of the data have different classes, {listed}: give parts with the same ones")
    return every.pop()


def _arrays(pairs: Any, split: str, image_size: int, channels: int, background: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, H, W, C) and labels."""
    try:
        found = (_pair(pairs[i], split) for i in range(len(pairs)))
        images, labels = zip(*((_pixels(image, background), _label(label, split)) for image, label in found), strict=True)
    except DataError:
        raise
    except Exception as error:  # whatever the user's object raises
        said = f"{type(error).__name__}: {first_line(error)}"
        raise DataError(f"the {split} data are no pairs (image, label) ({said}): give a data set as torchvision's are") from error
    if image_size:
        images = [_fitted(image, image_size, channels) for image in images]
    if odd := [image.shape for image in images if image.shape != images[0].shape]:
        shapes = " and ".join("×".join(map(str, shape)) for shape in (images[0].shape, odd[0]))
        raise DataError(f"the {split} images have different shapes, {shapes}: give an image_size to which all are resized")
    return np.stack(images), np.array(labels, np.int64)


def _pair(row: Any, split: str) -> Any:
    if not isinstance(row, Mapping):
        return row
    if missing := {"image", "label"} - row.keys():
        has = ", ".join(map(repr, row))
        raise DataError(f"the {split} data have {has} and no {sorted(missing)[0]!r}: name the columns 'image' and 'label'")
    return row["image"], row["label"]


def _label(label: Any, split: str) -> int:
    array = np.asarray(label)
    if array.size != 1 or not_whole(array.reshape(1)).size:
        said = " ".join(repr(label).split())
        raise DataError(f"the {split} data have the label {said}: give each image one whole number from 0 upwards")
    return int(array.item())


def _fitted(image: np.ndarray, side: int, channels: int) -> np.ndarray:
    return convert(image[None], side, channels, "an image")[0].transpose(1, 2, 0)


def _plain(image: Any, background: str) -> Any:
    """A PIL image as grey or RGB, whatever its mode, upright and opaque; anything else as it is."""
    mode = getattr(image, "mode", None)
    return flat(image, 1 if mode in GREY else 3, background) if mode in (*GREY, *COLOUR) else image


def _pixels(image: Any, background: str) -> np.ndarray:
    """One image as uint8 (H, W, C)."""
    array = np.asarray(_plain(image, background))
    if hasattr(image, "dim"):  # a tensor: channels first
        array = array[None] if array.ndim == 2 else array
        array = array.transpose(1, 2, 0)
    if np.issubdtype(array.dtype, np.floating):
        if not (np.isfinite(array).all() and array.min() >= 0 and array.max() <= 1):
            raise DataError("an image holds floats outside of [0, 1]: leave out what normalises it, dclib does that itself")
        array = np.rint(array * 255).astype(np.uint8)
    if array.dtype != np.uint8 or array.ndim not in (2, 3):
        raise DataError(f"an image is an array of {array.dtype} with shape {array.shape}: give uint8 (H, W, C) or floats in [0, 1]")
    return array[..., None] if array.ndim == 2 else array
