"""From a source's arrays to a data set's: checks, channels, size, order, and the mean and standard deviation of pixels.

Every source returns a `Raw`. `check` refuses what cannot be used: a condensed set made from data that were quietly wrong
costs hours before anyone notices. The rest is exact arithmetic on uint8, or rounds with a margin, so that a data set has
the same hash on every machine.
"""

from collections.abc import Iterable
from typing import NamedTuple
from unicodedata import normalize

import numpy as np
from jaxtyping import Float, Int64, UInt8

from ..errors import DataError
from . import meaning

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
NEAR_HALF = 1e-6  # a value this close below a half rounds up as the half does, so that the last bits do not decide


class Raw(NamedTuple):
    """Images (N, H, W) or (N, H, W, C), labels, the place they came from, and the classes' names where the source has them.

    Without test images `x_test` and `y_test` are None. `understood` says what was not in dclib's own form, and how it was read.
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray | None
    y_test: np.ndarray | None
    where: str
    classes: tuple[str, ...] = ()
    understood: tuple[str, ...] = ()


def check(raw: Raw, classes: int = 0, channels: int = 0) -> Raw:
    """Refuse what cannot be used; return images as uint8 (N, H, W, C) and labels as int64 (N,) that count from 0.

    Args:
        raw: what a source returned.
        classes: how many classes there must be; 0 counts the names, or else the labels.
        channels: how many channels there must be; 0 takes any of 1 to 4.

    Raises:
        DataError: names the array, the value and the place.
    """
    x_train, x_test = (_checked_images(raw, key) for key in ("x_train", "x_test"))
    if x_train.shape[1:] != x_test.shape[1:]:
        shapes = " and ".join(_times(x.shape[1:]) for x in (x_train, x_test))
        raise DataError(f"x_train and x_test in {raw.where} hold images of different shapes, {shapes}: make them equal")
    if channels and x_train.shape[3] != channels:
        raise DataError(f"x_train in {raw.where} has {x_train.shape[3]} channels, not {channels}: replace or rename the file")
    texts = not classes  # known data have numbers
    y_train, y_test = _checked_labels(raw, "y_train", len(x_train), texts), _checked_labels(raw, "y_test", len(x_test), texts)
    if not classes and len(set(raw.classes)) < len(raw.classes):
        raise DataError(f"two of the class names in {raw.where} are equal ({', '.join(raw.classes)}): give each class its own")
    plain = meaning.Classes(y_train, y_test, raw.classes, ())  # of known data
    found = plain if classes else meaning.classes_of(y_train, y_test, raw.classes, raw.where)
    _check_classes(found.y_train, found.y_test, classes or len(found.names), raw.where)
    labels = dict(y_train=found.y_train, y_test=found.y_test, understood=raw.understood + found.understood)
    return raw._replace(x_train=x_train, x_test=x_test, classes=found.names, **labels)


def _times(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))


def _checked_images(raw: Raw, key: str) -> np.ndarray:
    given: np.ndarray = getattr(raw, key)
    if given.dtype != np.uint8:
        raise DataError(f"{key} in {raw.where} is {given.dtype}: store pixels as uint8, 0 to 255")
    images = given[..., None] if given.ndim == 3 else given
    if images.ndim != 4 or not 1 <= images.shape[3] <= 4 or 0 in images.shape:
        advice = "store images as (N, H, W) or (N, H, W, C) with C from 1 to 4"
        raise DataError(f"{key} in {raw.where} has the shape {given.shape}: {advice}")
    return images


def _checked_labels(raw: Raw, key: str, count: int, texts: bool) -> np.ndarray:
    labels: np.ndarray = getattr(raw, key)
    if labels.ndim == 2 and labels.shape[1] == 1:  # as Keras stores CIFAR's
        labels = labels[:, 0]
    if labels.shape != (count,):
        raise DataError(f"{key} in {raw.where} has the shape {labels.shape} for {count} images: store one label for each image")
    if texts and labels.dtype.kind in "SU":  # é is one letter however a system writes it
        decoded = [label.decode("utf-8", "replace") if isinstance(label, bytes) else label for label in labels.tolist()]
        return np.array([normalize("NFC", label) for label in decoded])
    if (odd := no_labels(labels)).size:
        raise DataError(f"{key} in {raw.where} has the label {odd[0]}: labels must be whole numbers from 0 upwards")
    return labels.astype(np.int64)


def no_labels(values: np.ndarray) -> np.ndarray:
    """Return the values that cannot be labels: whole numbers from 0 to 2⁶³ can, as 1, 1.0 and True."""
    if values.dtype.kind not in "biuf":
        return values
    numbers = values.astype(np.float64)
    return values[~((numbers == np.trunc(numbers)) & (numbers >= 0) & (numbers < 2**63))]


def _check_classes(y_train: np.ndarray, y_test: np.ndarray, classes: int, where: str) -> None:
    present = np.unique(y_train)
    classes = classes or int(present[-1]) + 1
    for key, labels in (("y_train", y_train), ("y_test", y_test)):
        if (largest := labels.max()) >= classes:
            raise DataError(f"{key} in {where} has the label {largest}: labels must be whole numbers from 0 to {classes - 1}")
    if len(present) < classes:
        gap = next((c for c, label in enumerate(present) if c != label), len(present))
        raise DataError(f"class {gap} has no training image in {where}: add images, or number the classes without a gap")
    if classes < 2:
        raise DataError(f"{where} has one class only: condensing needs at least two")


def stack(images: Iterable[tuple[str, np.ndarray]], side: int, channels: int) -> UInt8[np.ndarray, "n h w c"]:
    """Stack images (H, W) or (H, W, C), each with its name, after `convert` of each; grey ones among RGB ones become RGB.

    Raises:
        DataError: names the first image that has not the size of those before it, or other channels.
    """
    found: list[np.ndarray] = []
    for name, image in images:
        found.append(convert(image.reshape(1, *image.shape[:2], -1), side, channels, name)[0].transpose(1, 2, 0))
        (*size, have), (*first, had) = found[-1].shape, found[0].shape
        if size != first or (have != had and {have, had} != {1, 3}):
            shapes = f"{_times(found[-1].shape)}, and the first one {_times(found[0].shape)}"
            raise DataError(f"{name} has the shape {shapes}: give an image size to which all are resized, or channels")
    most = max(image.shape[2] for image in found)
    return np.stack([np.broadcast_to(image, (*image.shape[:2], most)) for image in found])


def convert(images: UInt8[np.ndarray, "n h w c"], side: int, channels: int, where: str) -> UInt8[np.ndarray, "n k s t"]:
    """Bring the channels to the front and change their number and the size where wanted.

    Args:
        images: uint8 (N, H, W, C).
        side: the square size in pixels; 0 leaves it.
        channels: 1 for grey, 3 for RGB; 0 leaves them.
        where: the place they came from.

    Raises:
        DataError: 2 or 4 channels cannot be made grey or RGB.
    """
    images, have = np.ascontiguousarray(images.transpose(0, 3, 1, 2)), images.shape[3]
    if channels and have not in (1, 3):
        raise DataError(f"the images in {where} have {have} channels, which cannot be turned into {channels}: leave channels at 0")
    if channels == 3 and have == 1:
        images = np.repeat(images, 3, axis=1)
    elif channels == 1 and have == 3:
        images = grey(images)
    return resize(images, side) if side else images


def grey(images: UInt8[np.ndarray, "n 3 h w"]) -> UInt8[np.ndarray, "n 1 h w"]:
    """Return the luma of RGB images (ITU-R 601-2), rounded as Pillow rounds it."""
    red, green, blue = (images[:, c : c + 1].astype(np.int32) for c in range(3))
    return ((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16).astype(np.uint8)


def resize(images: UInt8[np.ndarray, "n c h w"], side: int) -> UInt8[np.ndarray, "n c s t"]:
    """Resize to `side` × `side` pixels, bilinear with antialiasing (the filter of Pillow and torchvision)."""
    if images.shape[2:] == (side, side):
        return images
    rows, columns = _filter(images.shape[2], side), _filter(images.shape[3], side)
    out = np.empty((*images.shape[:2], side, side), np.uint8)
    for start in range(0, len(images), 1024):  # in float64, so in parts
        part = rows @ images[start : start + 1024].astype(np.float64) @ columns.T
        out[start : start + 1024] = np.floor(part + (0.5 + NEAR_HALF)).clip(0, 255)
    return out


def _filter(length: int, side: int) -> Float[np.ndarray, "{side} {length}"]:
    """Return the weights of the triangle filter that makes `side` samples of `length`."""
    scale = length / side
    centres = (np.arange(side)[:, None] + 0.5) * scale
    weights = np.maximum(1 - np.abs(np.arange(length) + 0.5 - centres) / max(scale, 1), 0)
    return weights / weights.sum(1, keepdims=True)


# A view is another domain with the same labels.
VIEWS = {"inverted": np.invert, "turned": lambda images: np.rot90(images, axes=(2, 3))}


def canonical(
    images: UInt8[np.ndarray, "n c h w"], labels: Int64[np.ndarray, " n"]
) -> tuple[UInt8[np.ndarray, "n c h w"], Int64[np.ndarray, " n"]]:
    """Order images and labels by label, then by the image's bytes, whatever order they came in."""
    rows = np.ascontiguousarray(images).reshape(len(images), -1)
    order = np.lexsort((rows.view(f"S{rows.shape[1]}")[:, 0], labels))
    return rows[order].reshape(images.shape), labels[order]


def measure(images: UInt8[np.ndarray, "n c h w"], where: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of all pixels in [0, 1], per channel, from exact counts.

    Raises:
        DataError: all pixels of a channel are equal, so that nothing can be divided by their deviation.
    """
    mean, std = [], []
    for c in range(images.shape[1]):
        counts = np.bincount(images[:, c].ravel(), minlength=256)
        n, first, second = (int(counts @ np.arange(256) ** power) for power in (0, 1, 2))
        if n * second == first**2:
            raise DataError(f"every pixel of channel {c} of the training images in {where} is {first // n}: nothing can be learnt")
        mean.append(first / n / 255)
        std.append((n * second - first**2) ** 0.5 / n / 255)
    return tuple(mean), tuple(std)
