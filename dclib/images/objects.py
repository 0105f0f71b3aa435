"""A data set from objects in Python: torchvision's, or anything of pairs (image, label) that has a length."""

from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np

from ..data import Dataset, assemble
from ..errors import DataError, first_line, one_of
from .folders import BACKGROUNDS, COLOUR, GREY, flat
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
            pairs there may be mappings, {"image": …, "label": …}, as the package datasets gives them. Classes are
            named by `train.classes` where it has them.
        name: what the data set is called.
        image_size: each image is resized to this square size; with 0 all must have one size.
        channels: 1 makes the images grey, 3 makes them RGB, 0 leaves them.
        background: white or black, on which transparent pictures are laid.

    Raises:
        DataError: an object is none of these, images have different shapes, or the data cannot be used.
        SpecError: an unknown background.
    """
    one_of("background", background, BACKGROUNDS)
    whole = [_with_own_loader(part, background) for part in (train, test)]
    pairs = [
        _arrays(part, split, image_size, channels, background) for part, split in zip(whole, ("training", "test"), strict=True)
    ]
    classes = tuple(map(str, getattr(train, "classes", ())))
    used = max(int(y.max()) for _, y in pairs) + 1
    raw = Raw(*pairs[0], *pairs[1], where=name, classes=classes if len(classes) == used else ())
    return assemble(name, raw, image_size, channels, None)


def _with_own_loader(data: Any, background: str) -> Any:
    """An `ImageFolder`, or a `Subset` of one, whose files are read in colour as torchvision's loader does, but as `flat` says."""
    if type(data).__name__ == "Subset":
        data = copy(data)
        data.dataset = _with_own_loader(data.dataset, background)
    elif getattr(getattr(data, "loader", None), "__module__", "") == "torchvision.datasets.folder":
        data = copy(data)
        data.loader = lambda file: _read(file, background)
    return data


def _read(file: str, background: str) -> Any:
    from PIL import Image

    with Image.open(file) as image:
        return flat(image, 3, background) if image.mode in (*GREY, *COLOUR) else image.convert("RGB")


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
