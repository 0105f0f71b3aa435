"""A small learned or chosen set in a file: safetensors with labels, normalisation, class names and the run that made it.

A set of Dataset Distillation also holds the steps that it was learned for: which images each sees, and at which learned rate.
"""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from ..errors import DataError, FileError, first_line
from ..support.files import array_checksum, write_atomic

TENSORS = {"images": np.float32, "labels": np.int64, "order": np.int64, "rates": np.float32}  # the last two where there are steps


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

    Args:
        images: float32 (n, channels, height, width), normalised with `mean` and `std`.
        labels: int64 (n,).
        dataset: the data set it stands for.
        class_names: the classes' names.
        mean: of each channel, for pixels in [0, 1].
        std: likewise.
        key: the key of the run that made it; empty for a set made by hand.
        about: the spelled-out run and anything else worth keeping (JSON).
        order: int64 (steps, images of a step): the images that each step of training is to see; None where any order will do.
        rates: float32 (steps,): the learning rate of each of these steps.
    """

    images: np.ndarray
    labels: np.ndarray
    dataset: str
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    key: str = ""
    about: dict[str, Any] = field(default_factory=dict)
    order: np.ndarray | None = None
    rates: np.ndarray | None = None

    @property
    def ipc(self) -> int:
        """Images per class (of the largest class)."""
        return int(np.bincount(self.labels).max())

    @property
    def hash(self) -> str:
        """16 hexadecimal digits of a SHA-256 over images and labels, and over order and rates where there are any."""
        return hashlib.sha256(b"".join(array.tobytes() for array in self._tensors().values())).hexdigest()[:16]

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

    def as_dataset(self) -> Any:
        """The set for any PyTorch training loop: a `TensorDataset` of images, normalised, and labels.

        Test images must be normalised with the set's `mean` and `std`. Of a set of Dataset Distillation it leaves out the steps.
        """
        import torch

        return torch.utils.data.TensorDataset(torch.from_numpy(self.images), torch.from_numpy(self.labels))

    def save(self, path: Path | str) -> None:
        """Write the set as safetensors, atomically.

        Raises:
            FileError: the place cannot be written.
        """
        about = {"dataset": self.dataset, "class_names": self.class_names, "mean": self.mean, "std": self.std}
        about |= {"key": self.key, "about": self.about}
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
        try:
            if not Path(path).is_file():
                raise FileError(f"there is no condensed set {path}: make one with `dclib condense DATASET -o {path}`")
            with safe_open(path, "np") as file:
                text, crc = file.metadata()["dclib"], file.metadata().get("crc")
                images, labels = file.get_tensor("images"), file.get_tensor("labels")
                images = images.astype(np.float32) if images.dtype == np.float16 else images
                steps = {name: file.get_tensor(name) for name in sorted(file.keys()) if name in ("order", "rates")}
            about = json.loads(text)
            names, mean, std = (tuple(about[name]) for name in ("class_names", "mean", "std"))
            found = cls(images, labels, about["dataset"], names, mean, std, about["key"], about["about"], **steps)
            found._check()
            if crc and crc != found._checksum(text):
                raise DataError("its checksum is wrong")
        except FileError:
            raise
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise FileError(
                f"{path} is no condensed set, or a damaged one ({first_line(error)}): delete it and make it again"
            ) from error
        return found

    def _check(self) -> None:
        """Refuse what no set can be, so that whoever uses one need not ask again."""
        n, classes, channels = len(self.labels), len(self.class_names), self.images.shape[1:2]
        if self.images.dtype != np.float32 or self.labels.dtype != np.int64:
            raise DataError(f"images of type {self.images.dtype} and labels of type {self.labels.dtype}")
        if self.images.ndim != 4 or self.images.shape[0] != n or self.labels.ndim != 1 or not self.images.size:
            raise DataError(f"images of shape {self.images.shape} and labels of shape {self.labels.shape}")
        if self.labels.min() < 0 or self.labels.max() >= classes:
            raise DataError(f"labels from {self.labels.min()} to {self.labels.max()} for {classes} classes")
        if (len(self.mean),) != channels or (len(self.std),) != channels:
            raise DataError(f"{len(self.mean)} means for {channels[0]} channels")
        if not (np.isfinite(self.images).all() and np.isfinite([*self.mean, *self.std]).all() and min(self.std) > 0):
            raise DataError("NaN or infinite pixels, or no deviation of theirs")
        self._check_steps()
        if not all(isinstance(text, str) for text in (self.dataset, self.key, *self.class_names)) or not isinstance(
            self.about, dict
        ):
            raise DataError("names that are no text")

    def _check_steps(self) -> None:
        """Refuse steps that see images that are not there, or whose rates are none."""
        if self.order is None and self.rates is None:
            return
        if self.order is None or self.rates is None or self.order.ndim != 2 or self.rates.shape != self.order.shape[:1]:
            raise DataError("an order of steps without a rate for each, or rates without an order")
        if self.order.dtype != np.int64 or not self.order.size or self.order.min() < 0 or self.order.max() >= len(self.labels):
            raise DataError(f"steps that see images other than its {len(self.labels)}")
        if self.rates.dtype != np.float32 or not (np.isfinite(self.rates).all() and self.rates.min() > 0):
            raise DataError("rates that are no positive numbers")
