"""What arrays mean that other programs have written: their names, the channels' axis, the range of pixels, classes by label.

Each has one meaning, or is refused. A meaning that is not dclib's own form is put into words for `Dataset.understood`.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64, UInt8

from ..errors import DataError

KINDS = {"x": "x", "images": "x", "data": "x", "y": "y", "labels": "y", "targets": "y"}
SPLITS = {"train": "train", "training": "train", "test": "test"} | dict.fromkeys(("val", "valid", "validation"), "val")
VALIDATION = ("val", "valid", "validation")  # folders that are tested on where there is no folder test
DEEP, DEEP_LEAST = 65535, 4096  # the largest value of 16 bits; where none is as large as this, the data have 12 bits or fewer
WHOLE_RANGE = 100  # fractions that exceed 1 count as 0 to 255 if one is as large as this
SHOWN = 6  # so many labels are listed


class Classes(NamedTuple):
    """Labels that count from 0, the classes' names where there are any, and what was understood."""

    y_train: Int64[np.ndarray, " n"]
    y_test: Int64[np.ndarray, " m"]
    names: tuple[str, ...]
    understood: tuple[str, ...]


def roles(names: Iterable[str], where: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Tell which arrays of an .npz are the training and the test images and their labels.

    A name is x, images or data, or y, labels or targets, and train, test or val, in any order and in small letters or capitals:
    x_train, train_images, X_test. Without train, test or val, all images are for training. Other arrays are not looked at.

    Returns:
        The arrays' names by x_train, y_train, x_test and y_test, as far as they are there, and what was understood.

    Raises:
        DataError: two names mean the same.
    """
    found: dict[str, str] = {}
    for name in names:
        if role := _role(name):
            if role in found:
                raise DataError(f"{where} has the arrays {found[role]!r} and {name!r}, which mean the same: leave one of them out")
            found[role] = name
    test = "test" if {"x_test", "y_test"} & found.keys() else "val"
    train = "train" if {"x_train", "y_train"} & found.keys() else ""
    places = {"x_train": f"x_{train}", "y_train": f"y_{train}", "x_test": f"x_{test}", "y_test": f"y_{test}"}
    chosen = {key: found[role] for key, role in places.items() if role in found}
    lines = [f"{name} is taken as {key}" for key, name in chosen.items() if name != key]
    if test == "test" and "x_val" in found:
        lines.append(f"{found['x_val']} is left out, for there are test images")
    return chosen, tuple(lines)


def _role(name: str) -> str:
    """x_train, y_test, … for the name of an array; x_ and y_ without a split; "" for any other array."""
    parts = name.lower().split("_")
    kinds, splits = ([table[part] for part in parts if part in table] for table in (KINDS, SPLITS))
    plain = len(kinds) == 1 and len(splits) <= 1 and len(kinds) + len(splits) == len(parts)
    return f"{kinds[0]}_{splits[0] if splits else ''}" if plain else ""


def as_pixels(x_train: np.ndarray, x_test: np.ndarray | None, where: str) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """Return images as uint8 (N, H, W, C), whatever their range, type and order of axes; both arrays are understood alike.

    Returns:
        The images, of the test if there are any, and what was understood.

    Raises:
        DataError: the values or the shape can mean nothing, or more than one thing.
    """
    given = [("x_train", x_train)] + ([("x_test", x_test)] if x_test is not None else [])
    if x_test is not None and x_train.dtype != x_test.dtype:
        raise DataError(f"x_train in {where} is {x_train.dtype} and x_test is {x_test.dtype}: store both in the same type")
    for key, x in given:
        if x.dtype.kind not in "buif":
            raise DataError(f"{key} in {where} is {x.dtype}: store pixels as uint8, 0 to 255")
        if x.ndim not in (3, 4) or not x.size:
            raise _shape(key, x, where)
    layouts = [_channels_last(key, x, where) for key, x in given]
    pixels, line = _bytes([x for x, _ in layouts], where)
    return pixels, tuple(filter(None, (layouts[0][1], line)))


def _shape(key: str, x: np.ndarray, where: str) -> DataError:
    return DataError(f"{key} in {where} has the shape {x.shape}: store images as (N, H, W) or (N, H, W, C) with C from 1 to 4")


def _channels_last(key: str, x: np.ndarray, where: str) -> tuple[np.ndarray, str]:
    if x.ndim == 3:
        return x[..., None], ""
    first, last = (1 <= x.shape[axis] <= 4 for axis in (1, 3))
    if first and last:
        raise DataError(f"{key} in {where} has the shape {x.shape}, with channels at either end: store images as (N, H, W, C)")
    if last:
        return x, ""
    if first:
        return x.transpose(0, 2, 3, 1), f"the {x.shape[1]} channels come before the sides"
    raise _shape(key, x, where)


def _bytes(images: list[np.ndarray], where: str) -> tuple[list[UInt8[np.ndarray, "n h w c"]], str]:
    """Bring pixels to uint8 by the range of all of them, and say how."""
    kind, low, high = images[0].dtype, min(x.min() for x in images), max(x.max() for x in images)
    if kind == np.uint8:
        return images, ""
    if kind.kind == "b":
        return [x.astype(np.uint8) * np.uint8(255) for x in images], "pixels are False and True: black and white"
    told = f"x_train and x_test in {where} hold {kind} from {low:g} to {high:g}"
    plain = "store pixels as uint8, 0 to 255, and leave out what normalises them, which dclib does itself"
    if not (np.isfinite(low) and np.isfinite(high)) or low < 0:
        raise DataError(f"{told}: {plain}")
    if kind.kind == "f":
        if high <= 1:
            return [_rounded(x, 255) for x in images], f"pixels are {kind} from {low:g} to {high:g}: 1 is white"
        if high > 255 or (high < WHOLE_RANGE and not all((np.trunc(x) == x).all() for x in images)):
            raise DataError(f"{told}, neither up to 1 nor up to 255: {plain}")
    if high <= 255:
        return [_rounded(x, 1) for x in images], f"pixels are {kind} from {low:g} to {high:g}: 255 is white"
    if not DEEP_LEAST <= high <= DEEP:
        raise DataError(f"{told}, neither 8 bits nor 16: {plain}")
    return [from_16_bits(x) for x in images], f"pixels are {kind} from {low} to {high}: {DEEP} is white, and 8 bits are kept"


def _rounded(x: np.ndarray, times: int) -> UInt8[np.ndarray, "n h w c"]:
    out = np.empty(x.shape, np.uint8)
    for start in range(0, len(x), 1024):  # in parts, for the memory
        out[start : start + 1024] = np.rint(x[start : start + 1024].astype(np.float64) * times)
    return out


def from_16_bits(x: np.ndarray) -> np.ndarray:
    """Round values of 0 to 65535 to 0 to 255."""
    return ((x.astype(np.uint32) + 128) // 257).astype(np.uint8)


def classes_of(y_train: np.ndarray, y_test: np.ndarray, names: tuple[str, ...], where: str) -> Classes:
    """Number the classes from 0, whatever their labels are: texts, truth values, or whole numbers from 1 or with gaps.

    Labels that count from 0 without a gap stay as they are. Any others are numbered in their order, and name their classes unless
    `names` does.

    Args:
        y_train, y_test: (N,) texts or whole numbers from 0 upwards.
        names: the classes' names where the source has them; empty where it has none.
        where: the place they came from.

    Raises:
        DataError: a test image has a label that no training image has.
    """
    y_train, y_test = (y if y.dtype.kind == "U" else y.astype(np.int64) for y in (y_train, y_test))
    if y_train.dtype.kind != y_test.dtype.kind:
        texts = (y_train if y_train.dtype.kind == "U" else y_test)[0]
        raise DataError(f"y_train and y_test in {where} are texts, as {str(texts)!r}, and numbers: give both the same labels")
    present, texts = np.unique(y_train), y_train.dtype.kind == "U"
    if texts and names:
        values, odd = np.array(names), sorted({*present.tolist()} - {*names})
        if odd:
            raise DataError(f"y_train in {where} has the label {odd[0]!r}, which class_names lack: give each class its name")
    elif not texts and (names or len(present) == present[-1] + 1):
        if not (names and present.tolist() == [*range(1, len(names) + 1)]):
            return Classes(y_train, y_test, names, ())
        values = present
    else:
        values = present
    if (odd := y_test[~np.isin(y_test, values)]).size:
        raise DataError(f"y_test in {where} has the label {odd[0]}, which no training image has: add images, or leave those out")
    order = np.argsort(values, kind="stable")
    numbered = [order[np.searchsorted(values[order], y)].astype(np.int64) for y in (y_train, y_test)]
    listed = ", ".join(map(str, values[:SHOWN])) + (", …" if len(values) > SHOWN else "")
    line = f"the labels {listed} are the classes 0 to {len(values) - 1} in this order"
    return Classes(*numbered, names or tuple(map(str, values.tolist())), (line,))
