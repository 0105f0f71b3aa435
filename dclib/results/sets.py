"""A small learned or chosen set in a file: safetensors with labels, normalisation, class names and the run that made it.

A set of Dataset Distillation also holds the steps that it was learned for: which images each sees, and at which learned rate.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from ..errors import DataError, FileError, first_line, one_of
from ..support.files import array_checksum, write_atomic
from ..support.kinds import CHECKPOINT, NPZ, OTHER, SET, TORCH, kind_of

Given = Any  # what becomes a NumPy array or a tuple when a set is made
TENSORS = {"images": np.float32, "labels": np.int64, "order": np.int64, "rates": np.float32, "soft": np.float32}
OPTIONAL = ("order", "rates", "soft")  # there where a set has steps, or soft labels
BY_HAND = "make a set of its images in Python, with `dclib.CondensedSet(images, labels, …).save(FILE)`"
USES = {
    NPZ: "name the set that it was exported from; as a data set, `dclib condense` takes it where it has test images",
    TORCH: f"read it with torch.load and {BY_HAND}",
    OTHER: BY_HAND,
    CHECKPOINT: "the command that began it goes on from it",
}


def check_drawable(channels: int) -> None:
    """Refuse images that no picture can show.

    Raises:
        DataError: they have neither one channel nor three.
    """
    if channels not in (1, 3):
        raise DataError(f"images of {channels} channels cannot be drawn: grey ones have 1, coloured ones 3")


@dataclass(frozen=True)
class CondensedSet:
    """A small labelled set, normalised, with all that is needed to use it elsewhere.

    The arrays may be given as NumPy's or as torch tensors, images of any type of float and labels of any type of integer.

    Args:
        images: float32 (n, channels, height, width), normalised with `mean` and `std`.
        labels: int64 (n,), which count the classes from 0.
        dataset: the data set it stands for.
        class_names: the classes' names.
        mean: of each channel, for pixels in [0, 1].
        std: likewise.
        key: the key of the run that made it; empty for a set made by hand.
        about: the spelled-out run and anything else worth keeping (JSON).
        order: int64 (steps, images of a step): the images that each step of training is to see; None where any order will do.
        rates: float32 (steps,): the learning rate of each of these steps.
        factor: each image holds factor × factor smaller ones of its class, which are enlarged to train on (see `enlarged`).
        soft: float32 (n, classes), soft labels: the probability of each class, by which networks are trained in place of `labels`.

    Raises:
        DataError: they do not make a set; says which does not fit.
    """

    images: Given
    labels: Given
    dataset: str
    class_names: Given
    mean: Given
    std: Given
    key: str = ""
    about: dict[str, Any] = field(default_factory=dict)
    order: Given = None
    rates: Given = None
    factor: int = 1
    soft: Given = None

    def __post_init__(self) -> None:
        for name, dtype in TENSORS.items():
            object.__setattr__(self, name, _array(name, getattr(self, name), dtype))
        for name in ("mean", "std"):
            object.__setattr__(self, name, _numbers(name, getattr(self, name)))
        self._check_names()
        self._check_arrays()
        self._check_steps()
        self._check_soft()

    @property
    def ipc(self) -> int:
        """Images per class (of the largest class)."""
        return int(np.bincount(self.labels).max())

    @property
    def hash(self) -> str:
        """16 hexadecimal digits of a SHA-256 over images and labels, and over order, rates, soft and factor where there are any."""
        factor = [str(self.factor).encode()] if self.factor > 1 else []
        return hashlib.sha256(b"".join([*(array.tobytes() for array in self._tensors().values()), *factor])).hexdigest()[:16]

    @property
    def data_hash(self) -> str:
        """The hash of the data that it was made from (`Dataset.hash`); empty where that is not known."""
        return self.about.get("data_hash") or ""

    @property
    def source(self) -> str:
        """The name or the full path of the data that it was made from; empty for data made in Python."""
        return self.about.get("source", self.about.get("dataset") or self.dataset)

    def _tensors(self) -> dict[str, np.ndarray]:
        """The arrays as they are written, by name."""
        arrays = {name: getattr(self, name) for name in TENSORS}
        return {name: np.ascontiguousarray(a, TENSORS[name]) for name, a in arrays.items() if a is not None}

    def unit(self) -> np.ndarray:
        """The images before normalisation: (n, channels, height, width), in [0, 1] but for what leaves the data's colours."""
        shape = (1, -1, 1, 1)
        return self.images * np.reshape(self.std, shape) + np.reshape(self.mean, shape)

    def pixels(self) -> np.ndarray:
        """The images in data colours: uint8 (n, height, width) or (n, height, width, 3), clamped to [0, 255]."""
        bytes_ = np.clip(np.rint(self.unit() * 255), 0, 255).astype(np.uint8)
        return bytes_[:, 0] if bytes_.shape[1] == 1 else bytes_.transpose(0, 2, 3, 1)

    def enlarged(self) -> "CondensedSet":
        """The set as networks see it, in which each image is one; a set of factor 1 is that already."""
        if self.factor == 1:
            return self
        import torch

        from ..core.formation import enlarge

        images, many = enlarge(torch.from_numpy(self.images), self.factor), self.factor**2
        soft = None if self.soft is None else self.soft.repeat(many, axis=0)
        return dataclasses.replace(self, images=images, labels=self.labels.repeat(many), factor=1, soft=soft)

    def as_dataset(self) -> Any:
        """The set for any PyTorch training loop: a `TensorDataset` of images, normalised and enlarged, and labels.

        Soft labels stand in place of the labels; `cross_entropy` takes either. Test images must be normalised with the set's `mean` and `std`. Of a set of Dataset Distillation it leaves out the steps.
        """
        import torch

        seen = self.enlarged()
        labels = seen.labels if seen.soft is None else seen.soft
        return torch.utils.data.TensorDataset(torch.from_numpy(seen.images), torch.from_numpy(labels))

    def export(self, path: Path | str, to: str = "npz", tested: Any = None) -> None:
        """Write the set for other programs, in data colours and with each image enlarged.

        Args:
            path: the file, or the folder.
            to: "npz"; "png", a file for each image; or "imagefolder", the same with a card for the common hubs.
            tested: test images (`results.export.Tested`), with which dclib can read what is written as a data set.

        Raises:
            SpecError: no such form.
            FileError: the place cannot be written.
        """
        from . import export

        export.FORMS[one_of("form", to, export.FORMS)](self.enlarged(), path, tested)

    def save(self, path: Path | str) -> None:
        """Write the set as safetensors, atomically.

        Raises:
            FileError: the place cannot be written.
        """
        about = {"dataset": self.dataset, "class_names": self.class_names, "mean": self.mean, "std": self.std}
        about |= {"key": self.key, "about": self.about} | ({"factor": self.factor} if self.factor > 1 else {})
        text = json.dumps(about)
        tensors = self._tensors()
        if self.about.get("storage") == "float16":
            tensors["images"] = tensors["images"].astype(np.float16)  # exact, for they were rounded when they were made
        write_atomic(path, safetensors.numpy.save(tensors, {"dclib": text, "crc": self._checksum(text)}))

    def _checksum(self, text: str) -> str:
        return array_checksum(text, *self._tensors().values())

    @classmethod
    def load(cls, path: Path | str) -> "CondensedSet":
        """Read a set; nothing in the file is executed.

        Raises:
            FileError: no such file, or it is damaged or no set of dclib's.
        """
        path = Path(path)
        try:
            if path.is_dir():
                raise FileError(f"{path} is a folder, and a condensed set is a file: name the file that `dclib condense` wrote")
            if not path.is_file():
                raise FileError(f"there is no condensed set {path}: make one with `dclib condense DATASET -o {path}`")
            with safe_open(path, "np") as file:
                text, crc = file.metadata()["dclib"], file.metadata().get("crc")
                images, labels = file.get_tensor("images"), file.get_tensor("labels")
                images = images.astype(np.float32) if images.dtype == np.float16 else images
                steps = {name: file.get_tensor(name) for name in sorted(file.keys()) if name in OPTIONAL}
            about = json.loads(text)
            names, mean, std = (tuple(about[name]) for name in ("class_names", "mean", "std"))
            steps |= {"factor": about.get("factor", 1)}
            found = cls(images, labels, about["dataset"], names, mean, std, about["key"], about["about"], **steps)
            if crc and crc != found._checksum(text):
                raise DataError("its checksum is wrong")
        except FileError:
            raise
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise _no_set(path, error) from error
        return found

    def _check_names(self) -> None:
        if not all(isinstance(text, str) for text in (self.dataset, self.key)) or not isinstance(self.about, dict):
            raise DataError("a set's dataset and key are text, and what is known about it is a dictionary")
        given = self.class_names
        names = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else ()
        if not names or not all(isinstance(name, str) for name in names):
            raise DataError(f"a set's class_names are {given!r}: give a list of names, one for each class")
        if doubled := [name for i, name in enumerate(names) if name in names[:i]]:
            raise DataError(f"two classes of a set are called {doubled[0]!r}: give each class a name of its own")
        object.__setattr__(self, "class_names", names)

    def _check_arrays(self) -> None:
        images, labels, classes = self.images, self.labels, len(self.class_names)
        if images.ndim != 4 or not images.size:
            raise DataError(f"a set's images have the shape {images.shape}: give (n, channels, height, width)")
        if labels.shape != images.shape[:1]:
            raise DataError(f"a set's labels have the shape {labels.shape} for {len(images)} images: give one for each image")
        if labels.min() < 0 or labels.max() >= classes:
            span = f"from {labels.min()} to {labels.max()} for {classes} classes"
            raise DataError(f"a set has labels {span}: number the classes from 0 to {classes - 1}")
        if not len(self.mean) == len(self.std) == images.shape[1]:
            counts = f"{len(self.mean)} means and {len(self.std)} deviations for {images.shape[1]} channels"
            raise DataError(f"a set has {counts}: give one of each for each channel")
        if not (type(self.factor) is int and self.factor >= 1 and not any(side % self.factor for side in images.shape[2:])):
            raise DataError(f"a set's factor is {self.factor!r}: give a whole number that divides the sides {images.shape[2:]}")
        if not np.isfinite(images).all():
            raise DataError("a set has NaN or infinite pixels: leave out the images that have them")
        if not (np.isfinite([*self.mean, *self.std]).all() and min(self.std) > 0):
            raise DataError(f"a set's mean and std are {self.mean} and {self.std}: give numbers, those of std above 0")

    def _check_steps(self) -> None:
        """Refuse steps that see images that are not there, or whose rates are none."""
        if self.order is None and self.rates is None:
            return
        if self.order is None or self.rates is None or self.order.ndim != 2 or self.rates.shape != self.order.shape[:1]:
            raise DataError("a set has an order of steps without a rate for each, or rates without an order: give both")
        if not self.order.size or self.order.min() < 0 or self.order.max() >= len(self.labels):
            raise DataError(f"a set's steps see images other than its {len(self.labels)}: number them from 0")
        if not (np.isfinite(self.rates).all() and self.rates.min() > 0):
            raise DataError("a set's rates are no positive numbers: give one above 0 for each step")

    def _check_soft(self) -> None:
        """Refuse soft labels that are no probabilities."""
        if self.soft is None:
            return
        if self.soft.shape != (len(self.labels), len(self.class_names)):
            shape = f"{self.soft.shape} for {len(self.labels)} images and {len(self.class_names)} classes"
            raise DataError(f"a set's soft labels have the shape {shape}: give a probability of each class for each image")
        if not (np.isfinite(self.soft).all() and self.soft.min() >= 0 and np.allclose(self.soft.sum(1), 1, atol=1e-3)):
            raise DataError("a set's soft labels are no probabilities: give numbers of at least 0 that add up to 1 for each image")


def _array(name: str, given: Any, dtype: type) -> np.ndarray | None:
    """An array or a torch tensor as a plain array of that type; integers stay integers."""
    if given is None and name in OPTIONAL:
        return None
    if hasattr(given, "detach"):
        given = given.detach().cpu()
        given = (given.float() if given.is_floating_point() else given).numpy()
    try:
        array = np.asarray(given)
    except ValueError as error:  # rows of different lengths
        raise DataError(f"a set's {name} make no array ({first_line(error)}): give an array or a tensor") from None
    whole = np.issubdtype(dtype, np.integer)
    if array.dtype.kind not in ("iu" if whole else "f"):
        raise DataError(f"a set's {name} are {array.dtype}: give {'whole numbers' if whole else 'floats'}")
    if whole and array.size and array.max() > np.iinfo(np.int64).max:
        raise DataError(f"a set's {name} go up to {array.max()}: number from 0")
    array = np.require(array, dtype, ["C", "W"])
    return array.reshape(-1).reshape(array.shape)  # of one channel, the strides of a transposed array are not those of its shape


def _numbers(name: str, given: Any) -> tuple[float, ...]:
    try:
        return tuple(float(x) for x in given)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"a set's {name} is {given!r}: give a list of numbers, one for each channel") from None


def _no_set(path: Path, error: Exception) -> FileError:
    """What is said of a file that cannot be read as a set: what it is, if that can be told, and what can be done with it."""
    kind = kind_of(path)
    if kind not in ("", SET):
        return FileError(f"{path} is {kind}, not a condensed set: {USES.get(kind, 'name the file of a set')}")
    why, advice = first_line(error), "name a set's file, or, if this was one, delete it and make it again"
    return FileError(f"{path} is no condensed set, or a damaged one ({why}): {advice}")
