"""Reading whole data sets as numpy arrays: .npz files, idx files and scikit-learn's digits (image folders: see `folders`).

Whatever a reader returns goes through `check`, which refuses by name what cannot be used: a condensed set made from data
that were quietly wrong costs hours before anyone notices.
"""

import gzip
import hashlib
import re
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import DataError
from ..support.kinds import CHECKPOINT, GZIP, NPZ, SET, TORCH, ZIP, kind_of

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
UNREADABLE = (OSError, ValueError, EOFError, RuntimeError, NotImplementedError, MemoryError, zipfile.BadZipFile, zlib.error)
READ = f"give an .npz with {', '.join(ARRAYS)}, or a folder with train/<class>/ and test/<class>/"
UNPACK, MADE_FROM = "unpack it and name the .npz or the folder that is in it", "name the data that it was made from"
USES = {NPZ: "let its name end in .npz", ZIP: UNPACK, GZIP: UNPACK, CHECKPOINT: MADE_FROM}
USES |= {SET: f"{MADE_FROM}, or make an .npz of it with dclib export", TORCH: f"read it with torch.load, then {READ}"}


class Raw(NamedTuple):
    """Images, labels, the place they came from, and the names of the classes where the source states them."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    where: str
    classes: tuple[str, ...] = ()


def words(error: BaseException) -> str:
    """The first sentence of an error's text, in order to quote it within one of ours."""
    text = getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error) or type(error).__name__
    return re.split(r"[.!] |\n", str(text).strip())[0].rstrip(".:; ")


def is_npz(path: Path) -> bool:
    """Whether a file's name says that it is an .npz, in small letters or in capitals."""
    return path.suffix.lower() == ".npz"


def no_data(path: Path) -> DataError:
    """What is said of a file that is no data set: what it is, if that can be told, and what can be done with it."""
    kind = kind_of(path)
    return DataError(f"{path} is {kind or 'neither an .npz nor a folder'}, not a data set: {USES.get(kind, READ)}")


def read_npz(path: Path) -> Raw:
    """Read x_train, y_train, x_test and y_test, and class_names if it has them, from an .npz file (never pickled objects).

    Raises:
        DataError: no such file, not a whole .npz, or an array is missing.
    """
    if not path.is_file():
        raise DataError(f"there is no file {path}: give the path of an .npz with {', '.join(ARRAYS)}")
    try:
        with open(path, "rb") as file:  # np.load leaves a path that it cannot read open
            archive = np.load(file, allow_pickle=False)
            arrays = {key: archive[key] for key in (*ARRAYS, "class_names") if key in archive.files}
    except (*UNREADABLE, AttributeError) as error:
        if kind_of(path) not in ("", NPZ):
            raise no_data(path) from error
        raise DataError(f"cannot read {path} ({words(error)}): make or fetch the .npz file again") from error
    for key in ARRAYS:
        if not isinstance(arrays.get(key), np.ndarray):
            if kind_of(path) not in ("", NPZ):
                raise no_data(path)
            raise DataError(f"{path} has no array {key!r}: an .npz must hold {', '.join(ARRAYS)}")
    return Raw(**{key: arrays[key] for key in ARRAYS}, where=str(path), classes=_names(arrays))


def _names(arrays: dict[str, np.ndarray]) -> tuple[str, ...]:
    """The classes' names, where an .npz has one for each, as those that `dclib export` writes do."""
    names = np.asarray(arrays.get("class_names", ()))
    fit = names.dtype.kind == "U" and names.ndim == 1 and np.size(arrays["y_train"]) and not not_whole(arrays["y_train"]).size
    if not fit:
        return ()
    count, classes = int(arrays["y_train"].max()) + 1, tuple(map(str, names))
    if len(names) != count or len(set(classes)) != count:
        said = f"{len(names)}, {len(set(classes))} of them different,"
        raise DataError(f"class_names has {said} for labels from 0 to {count - 1}: give each class one name of its own")
    return classes


def npz_counts(path: Path) -> tuple[int, int]:
    """Return how many training and test images an .npz holds, from its headers alone; (0, 0) if it cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _rows(archive, "x_train.npy"), _rows(archive, "x_test.npy")
    except (*UNREADABLE, KeyError, IndexError):
        return 0, 0


def _rows(archive: zipfile.ZipFile, member: str) -> int:
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        return read(file)[0][0]


def read_idx(folder: Path) -> Raw:
    """Read the four gzipped idx files of MNIST's kind from a folder.

    Raises:
        DataError: a file cannot be read or is not of the size that it states.
    """
    return Raw(*(_read_idx_file(folder / f"{part}.gz") for part in IDX), where=str(folder))


def _read_idx_file(path: Path) -> np.ndarray:
    try:
        content = gzip.decompress(path.read_bytes())
        shape = np.frombuffer(content, ">i4", content[3], offset=4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)
    except (*UNREADABLE, IndexError) as error:
        raise DataError(f"cannot read {path} ({words(error)}): install or fetch the file again") from error


def read_digits() -> Raw:
    """Return scikit-learn's 1,797 digits, 8×8, split once and for all into 1,000 for training and 797 for testing.

    Within each class the images are ordered by a hash of their index (they come in runs of one writer's); every
    1797/1000-th image in this order trains, which gives each class its share to within one image.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise DataError("digits needs scikit-learn, which cannot be imported: pip install scikit-learn") from error
    data = load_digits()
    images, labels = np.rint(data.images * (255 / 16)).astype(np.uint8), data.target.astype(np.int64)
    hashed = [hashlib.sha256(str(i).encode()).digest() for i in range(len(labels))]
    order = np.array(sorted(range(len(labels)), key=lambda i: (labels[i], hashed[i])))
    trains = np.diff(np.arange(len(order) + 1) * 1000 // len(order)) == 1
    first, second = order[trains], order[~trains]
    return Raw(images[first], labels[first], images[second], labels[second], "scikit-learn")


def check(raw: Raw, classes: int = 0, channels: int = 0) -> Raw:
    """Refuse what cannot be used; return images as uint8 (N, H, W, C) and labels as int64 (N,).

    Args:
        raw: what a reader returned.
        classes: how many classes there must be; 0 counts them.
        channels: how many channels there must be; 0 takes any of 1 to 4.

    Raises:
        DataError: names the array, the value and the place.
    """
    x_train, x_test = (_checked_images(raw, key) for key in ("x_train", "x_test"))
    if x_train.shape[1:] != x_test.shape[1:]:
        shapes = " and ".join("×".join(map(str, x.shape[1:])) for x in (x_train, x_test))
        raise DataError(f"x_train and x_test in {raw.where} hold images of different shapes, {shapes}: make them equal")
    if channels and x_train.shape[3] != channels:
        raise DataError(f"x_train in {raw.where} has {x_train.shape[3]} channels, not {channels}: replace or rename the file")
    y_train, y_test = _checked_labels(raw, "y_train", len(x_train)), _checked_labels(raw, "y_test", len(x_test))
    _check_classes(y_train, y_test, classes or len(raw.classes), raw.where)
    return raw._replace(x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)


def _refuse_nan(values: np.ndarray, key: str, where: str) -> None:
    if values.dtype.kind in "fc" and (bad := np.argwhere(~np.isfinite(values))).size:
        place = ", ".join(map(str, bad[0]))
        raise DataError(f"{key} in {where} holds {values[tuple(bad[0])]} at [{place}]: replace it and store whole numbers")


def _checked_images(raw: Raw, key: str) -> np.ndarray:
    images: np.ndarray = getattr(raw, key)
    _refuse_nan(images, key, raw.where)
    if images.dtype != np.uint8:
        raise DataError(f"{key} in {raw.where} is {images.dtype}: store pixels as uint8, 0 to 255")
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or not 1 <= images.shape[3] <= 4 or 0 in images.shape:
        shape = getattr(raw, key).shape
        raise DataError(f"{key} in {raw.where} has the shape {shape}: store images as (N, H, W) or (N, H, W, C) with C from 1 to 4")
    return images


def _checked_labels(raw: Raw, key: str, count: int) -> np.ndarray:
    labels: np.ndarray = getattr(raw, key)
    _refuse_nan(labels, key, raw.where)
    if labels.dtype.kind not in "biuf":
        raise DataError(f"{key} in {raw.where} is {labels.dtype}: store labels as whole numbers from 0 upwards")
    if labels.ndim == 2 and labels.shape[1] == 1:  # as Keras stores CIFAR's
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise DataError(f"{key} in {raw.where} has the shape {labels.shape}: store one label for each image")
    if len(labels) != count:
        raise DataError(
            f"{raw.where} has {count} images in {key.replace('y', 'x', 1)} but {len(labels)} labels in {key}: make them match"
        )
    if (odd := not_whole(labels)).size:
        raise DataError(f"{key} in {raw.where} has the label {odd[0]}: labels must be whole numbers from 0 upwards")
    return labels.astype(np.int64)


def not_whole(labels: np.ndarray) -> np.ndarray:
    """Those of the labels that are no whole number, as 0.7 is none, 1.0 and True are one; or too large for 64 bits."""
    if labels.dtype.kind not in "biuf":
        return labels
    values = labels.astype(np.float64)
    return labels[(values != np.trunc(values)) | ~(np.abs(values) < 2**63)]


def _check_classes(y_train: np.ndarray, y_test: np.ndarray, classes: int, where: str) -> None:
    present = np.unique(y_train)
    limit = classes or max(int(present[-1]) + 1, 0)
    for key, labels in (("y_train", y_train), ("y_test", y_test)):
        if (outside := labels[(labels < 0) | (labels >= limit)]).size:
            last = f" to {limit - 1}" if limit else " upwards"
            raise DataError(f"{key} in {where} has the label {outside[0]}: labels must be whole numbers from 0{last}")
    if len(present) < limit:
        gap = int(np.argmax(np.append(present, -1) != np.arange(len(present) + 1)))
        raise DataError(
            f"class {gap} has no training image in {where}: add images, or number the {len(present)} classes without a gap"
        )
    if limit < 2:
        raise DataError(f"{where} has one class only: condensing needs at least two")
