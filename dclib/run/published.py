"""Reads small sets that others publish, as a `CondensedSet`; no code of a file is run.

The forms: `torch.save`'s files of the authors' code, of DSA and DM ({"data": [[images, labels], …]}, an entry for each
experiment), of IDC ([images, labels]), and of MTT and DC-BENCH (a file of images and one of labels); an .npz; a folder of
pictures by class.
"""

import pickle
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ..data.arrays import stack
from ..data.dataset import load
from ..data.formats import UNREADABLE, normal, read_picture, words
from ..data.sources import KNOWN, spelled
from ..errors import DataError, FileError, SpecError, one_of
from ..results import CondensedSet
from ..results.export import class_folder
from ..support.kinds import NPZ, SET, TORCH, kind_of

PIXELS = ("auto", "standardised", "unit", "bytes")
UNIT, STANDARD = (0.0, 1.0), (-0.5, 1.5)  # pixels within the first are in [0, 1]; those that leave the second are standardised
CORE = np.core if int(np.__version__.split(".")[0]) < 2 else np._core
# what the accuracies beside the images are made of: NumPy's numbers, under the names of its versions 1 and 2
NUMBERS = [np.dtype, *(type(np.dtype(kind)) for kind in ("f4", "f8", "i4", "i8"))]
NUMBERS += [(CORE.multiarray.scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")]
PAIRS = ("images", "labels"), ("x_train", "y_train")  # the arrays of an .npz


class Found(NamedTuple):
    """What a file holds: images (n, channels, height, width) or (n, height, width), labels (n,) or (n, classes)."""

    images: Any
    labels: Any
    form: str  # in words
    exact: tuple[Any, Any] | None = None  # mean and std, where the file says them


def read(
    file: Path | str,
    dataset: str,
    *,
    labels: Path | str | None = None,
    index: int = 0,
    pixels: str = "auto",
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    logits: bool = False,
    factor: int = 1,
) -> CondensedSet:
    """Read a small set that others made; the arguments are those of `dclib.import_set`."""
    one_of("kind of pixels", pixels, PIXELS)
    if (mean is None) != (std is None):
        raise SpecError(f"pixels are standardised by a mean and a std, not by {mean} and {std}: give both, or neither")
    file, source = Path(file), spelled(dataset)
    names, known = _about(source)
    found = _folder(file, names, len(known[0])) if file.is_dir() else _file(file, labels, index)
    if labels and "labels from" not in found.form:
        raise DataError(f"{file} has labels of its own: leave out --labels (labels=…)")
    if index and "experiment" not in found.form:
        raise DataError(f"{file} holds one set, not several experiments: leave out --index (index=…)")
    images, (mean, std), said = _standardised(found, pixels, known if mean is None else (mean, std), mean is not None)
    if images.ndim == 4 and images.shape[1] != len(known[0]):
        raise DataError(f"{file} has images of {images.shape[1]} channels and {dataset} of {len(known[0])}: name its own data set")
    classes, soft = _labels(found.labels, logits)
    about = {"dataset": source, "source": source, "imported": {"from": file.name, "form": found.form, "pixels": said}}
    about["imported"]["labels"] = "classes" if soft is None else "soft, the softmax of logits" if logits else "soft"
    return CondensedSet(images, classes, dataset, names, mean, std, "", about, factor=factor, soft=soft)


def _about(source: str) -> tuple[tuple[str, ...], tuple[Sequence[float], Sequence[float]]]:
    """The names of a data set's classes, and its mean and std; images are loaded only where these are not known."""
    about = KNOWN.get(source)
    if about and about.mean:
        return about.classes, (about.mean, about.std)
    found = load(source)
    return found.class_names, (found.mean, found.std)


def _standardised(found: Found, pixels: str, by: tuple, given: bool) -> tuple[np.ndarray, tuple, str]:
    """The images standardised, by which mean and std, and how their pixels were understood."""
    images = np.asarray(found.images)
    if images.ndim == 3:
        images = images[:, None]
    elif images.ndim == 4 and images.shape[1] not in (1, 3) and images.shape[3] in (1, 3):
        images = images.transpose(0, 3, 1, 2)
    if found.exact and not given:
        by = found.exact
    kind = "standardised" if (given or found.exact) and pixels == "auto" else _kind(images) if pixels == "auto" else pixels
    mean, std = (tuple(map(float, values)) for values in by)
    numbers = "mean {} and std {}".format(*(", ".join(f"{x:.4g}" for x in values) for values in (mean, std)))
    if kind == "standardised":
        return images.astype(np.float32), (mean, std), f"standardised by {numbers}"
    if images.ndim == 4 and images.shape[1] == len(mean) == len(std):
        shift, scale = (np.reshape(values, (1, -1, 1, 1)) for values in (mean, std))
        images = (images / (255 if kind == "bytes" else 1) - shift) / scale
    were = "0 to 255" if kind == "bytes" else "in [0, 1]"
    return images.astype(np.float32), (mean, std), f"{were}, now standardised by {numbers}"


def _kind(images: np.ndarray) -> str:
    """How pixels are scaled, by their range.

    Raises:
        DataError: the range does not tell.
    """
    if images.dtype == np.uint8:
        return "bytes"
    low, high = (float(end) for end in (images.min(), images.max())) if images.size else UNIT
    if UNIT[0] <= low and high <= UNIT[1]:
        return "unit"
    if (low < STANDARD[0] or high > STANDARD[1]) and not (low >= 0 and high > 20):
        return "standardised"
    raise DataError(f"pixels from {low:.3g} to {high:.3g} may be scaled in several ways: say which with --pixels (pixels=…)")


def _labels(labels: Any, logits: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """Classes, and soft labels where there are any."""
    labels = np.asarray(labels)
    if labels.ndim == 2 and labels.shape[1] > 1:
        soft = labels.astype(np.float64)
        if logits:
            soft = np.exp(soft - soft.max(1, keepdims=True))
            soft /= soft.sum(1, keepdims=True)
        elif not (np.isfinite(soft).all() and soft.min() >= 0 and np.allclose(soft.sum(1), 1, atol=1e-3)):
            raise DataError("the labels are no probabilities of the classes: if they are logits, say so: --logits (logits=True)")
        return soft.argmax(1), soft
    if logits:
        raise DataError("the labels are classes, not logits: leave out --logits (logits=True)")
    labels = labels.reshape(-1)
    return (labels.astype(np.int64) if labels.dtype.kind == "f" and (labels % 1 == 0).all() else labels), None


def _file(file: Path, labels: Path | str | None, index: int) -> Found:
    if not file.is_file():
        raise FileError(f"there is no file or folder {file}: name what was published")
    kind = kind_of(file)
    if kind == NPZ:
        return _npz(file)
    if kind == SET:
        raise FileError(f"{file} is a condensed set already: use it as it is")
    if kind != TORCH:
        raise DataError(f"{file} is {kind or 'of no known kind'}: give what torch.save wrote, an .npz, or a folder of pictures")
    content = _load(file)
    if isinstance(content, torch.Tensor):
        return _pair(file, content, labels)
    data = content.get("data") if isinstance(content, dict) else content
    if _is_pair(data):
        return Found(*map(_plain, data[:2]), "images and labels")
    if isinstance(data, list | tuple) and data and all(map(_is_pair, data)):
        if not 0 <= index < len(data):
            raise DataError(f"{file} has the experiments 0 to {len(data) - 1}, not {index}: choose one with --index (index=…)")
        return Found(*map(_plain, data[index][:2]), f"experiment {index} of {len(data)}")
    raise DataError(f"{file} holds no images with labels in a known form: save [images, labels] as two tensors with torch.save")


def _load(file: Path) -> Any:
    """What torch.save wrote: tensors, numbers, text, and lists and dictionaries of these.

    Raises:
        DataError: it would take code of the file's to read it, or it is damaged.
    """
    try:
        with torch.serialization.safe_globals(NUMBERS), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a pickle that torch did not write
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "Unsupported" in str(error) or "GLOBAL" in str(error):
            raise DataError(
                f"{file} holds objects that only code makes, and no code of a file is run: save its images and labels as tensors"
            ) from error
        raise DataError(f"cannot read {file}, which is damaged: fetch it again") from error
    except (*UNREADABLE, KeyError, IndexError, AttributeError, TypeError) as error:
        raise DataError(f"cannot read {file} ({words(error)}): fetch it again") from error


def _is_pair(data: Any) -> bool:
    """Whether these are images and labels, perhaps with more behind them."""
    tensors = isinstance(data, list | tuple) and len(data) > 1 and all(isinstance(part, torch.Tensor) for part in data[:2])
    return tensors and data[0].ndim >= 3 and data[1].ndim in (1, 2)


def _plain(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach()
    return (tensor.float() if tensor.is_floating_point() else tensor).numpy()


def _pair(file: Path, images: torch.Tensor, labels: Path | str | None) -> Found:
    """A file of images with the file of their labels, by default that of the same name with `labels` in place of `images`."""
    beside = file.with_name(file.name.replace("images", "labels"))
    other = Path(labels) if labels else beside
    if other == file or not other.is_file():
        raise DataError(f"{file} holds images alone: name the file of their labels with --labels (labels=…)")
    found = _load(other)
    if not isinstance(found, torch.Tensor):
        raise DataError(f"{other} holds no tensor of labels: name the file of the labels with --labels (labels=…)")
    return Found(_plain(images), _plain(found), f"images, and labels from {other.name}")


def _npz(file: Path) -> Found:
    """The arrays of an .npz; one that dclib exported has the exact images with their mean and std."""
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except UNREADABLE as error:
        raise DataError(f"cannot read {file} ({words(error)}): fetch it again") from error
    if {"images", "mean", "std", "y_train"} <= arrays.keys():
        labels = arrays.get("soft", arrays["y_train"])
        return Found(arrays["images"], labels, "an .npz that dclib exported", (arrays["mean"], arrays["std"]))
    for images, labels in PAIRS:
        if {images, labels} <= arrays.keys():
            return Found(arrays[images], arrays[labels], f"the arrays {images} and {labels}")
    has = ", ".join(sorted(arrays)) or "nothing"
    raise DataError(f"{file} has {has}: it needs {' or '.join(map(' and '.join, PAIRS))}")


def _folder(folder: Path, names: Sequence[str], channels: int) -> Found:
    """The pictures of a folder, or of `train` in it, by class; a class's folder has its name, or that which `export` gives it."""
    root = folder / "train" if (folder / "train").is_dir() else folder
    files, labels = [], []
    for entry in sorted(entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith(".")):
        own = [c for c, name in enumerate(names) if normal(entry.name) in (normal(name), class_folder(names, c))]
        if not own:
            raise DataError(f"{entry} is no class of the data set: name its folder as one of {', '.join(names)}")
        pictures = sorted(file for file in entry.iterdir() if not file.name.startswith("."))
        files, labels = files + pictures, labels + own * len(pictures)
    if not files:
        raise DataError(f"{root} has no folder of pictures: put them into {root}/<class>/")
    read = ((str(file), np.asarray(read_picture(file, "white", channels))) for file in files)
    return Found(stack(read, 0, channels), np.array(labels), "a folder of pictures")
