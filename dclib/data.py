"""The data sets of the paper (Sec. 3, "Datasets") and the user's own, each as whole uint8 tensors on one device.

`load` finds the images (see `sources`), refuses what cannot be used, puts the images in a canonical order (label, then
bytes), so that a seed and an index mean the same wherever the data came from, and returns a `Dataset`, which normalises
pixels on use and draws batches of one class from a seeded generator.
"""

import dataclasses
import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from . import sources
from .errors import DataError
from .sources import KNOWN, Raw
from .spec import derive


def generator(seed: int, *purpose: object) -> torch.Generator:
    """Return a CPU generator for one purpose (such as "real", k, t), independent of every other purpose's."""
    return torch.Generator().manual_seed(derive(seed, *purpose))


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set with everything needed to draw, normalise and name its images.

    Args:
        name: the data set's name.
        x_train, x_test: uint8 images (N, C, H, W).
        y_train, y_test: int64 labels (N,).
        mean, std: of pixels in [0, 1], per channel.
        class_names: one for each label.
        note: what a table must say beside the name, such as "a stand-in"; else empty.
    """

    name: str
    x_train: UInt8[Tensor, "n c h w"]
    y_train: Int64[Tensor, " n"]
    x_test: UInt8[Tensor, "m c h w"]
    y_test: Int64[Tensor, " m"]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    class_names: tuple[str, ...]
    note: str = ""

    @property
    def channels(self) -> int:
        """C, the number of channels."""
        return self.x_train.shape[1]

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)

    @property
    def size(self) -> tuple[int, int]:
        """(H, W) in pixels."""
        return self.x_train.shape[2], self.x_train.shape[3]

    @cached_property
    def hash(self) -> str:
        """16 hexadecimal digits of a SHA-256 over the four arrays and their shapes."""
        digest = hashlib.sha256()
        for array in (self.x_train, self.y_train, self.x_test, self.y_test):
            digest.update(repr(tuple(array.shape)).encode())
            digest.update(array.cpu().contiguous().numpy())
        return digest.hexdigest()[:16]

    @cached_property
    def _members(self) -> list[Int64[Tensor, " k"]]:
        return [torch.nonzero(self.y_train == c).flatten() for c in range(self.classes)]

    def normalise(self, pixels: UInt8[Tensor, "b c h w"], dtype: torch.dtype = torch.float32) -> Float[Tensor, "b c h w"]:
        """Scale pixels to [0, 1], subtract the channel's mean and divide by its standard deviation."""
        mean, std = (torch.tensor(v, dtype=dtype, device=pixels.device).view(-1, 1, 1) for v in (self.mean, self.std))
        return pixels.to(dtype).div_(255).sub_(mean).div_(std)

    def to(self, device: torch.device | str) -> "Dataset":
        """Return the data set with its tensors on `device`."""
        moved = {name: getattr(self, name).to(device) for name in sources.ARRAYS}
        copy = dataclasses.replace(self, **moved)
        if "hash" in self.__dict__:
            copy.__dict__["hash"] = self.hash
        return copy

    def class_indices(self, c: int) -> Int64[Tensor, " k"]:
        """Return the indices of the training images of class `c`.

        Raises:
            DataError: there is no such class.
        """
        if not 0 <= c < self.classes:
            raise DataError(f"{self.name} has no class {c}: its classes are 0 to {self.classes - 1}")
        return self._members[c]

    def draw(self, c: int, count: int, generator: torch.Generator) -> Int64[Tensor, " k"]:
        """Draw `count` training images of class `c` without replacement; a smaller class is taken whole.

        Args:
            c: the class.
            count: how many, at least 1.
            generator: a CPU generator, so that every device sees the same images.

        Returns:
            Indices into `x_train`, on its device.

        Raises:
            DataError: there is no such class, or `count` is below 1.
        """
        if count < 1:
            raise DataError(f"cannot draw {count} images of class {c}: draw at least 1")
        members = self.class_indices(c)
        if len(members) <= count:
            return members
        return members[torch.randperm(len(members), generator=generator)[:count].to(members.device)]


def load(
    name: str | os.PathLike,
    *,
    root: str | os.PathLike | None = None,
    image_size: int = 0,
    channels: int = 0,
    download: bool = True,
) -> Dataset:
    """Load a data set by name, or the user's own by its path.

    Args:
        name: a name in `KNOWN`, the stem of an .npz in the data root, or the path of an .npz or of an image folder.
        root: the data root; by default $DCLIB_DATA, else dclib in the user's cache folder.
        image_size: resize to this square size in pixels (bilinear with antialiasing); 0 leaves it (digits: 28).
        channels: 1 makes the images grey, 3 makes them RGB, 0 leaves them.
        download: whether to download what is not there.

    Returns:
        The data set on the CPU.

    Raises:
        DataError: nothing found, or the data cannot be used.
    """
    text, folder = str(name), sources.data_root(root)
    own = text.endswith(".npz")
    raw = sources.read_npz(Path(text).expanduser()) if own else sources.find(text, folder, download)
    known = None if own else KNOWN.get(text)
    x_train, y_train = canonical(raw.x_train, raw.y_train)
    x_test, y_test = canonical(raw.x_test, raw.y_test)
    side = image_size or (28 if text == "digits" else 0)
    x_train, x_test = (resize(x, side) if side else x for x in (x_train, x_test))
    mean, std = (known.mean, known.std) if known and known.mean else measure(x_train)
    names = known.classes if known else tuple(map(str, range(int(y_train.max()) + 1)))
    return Dataset(
        Path(text).stem if own else text, x_train, y_train, x_test, y_test, mean, std, names, known.note if known else ""
    )


def canonical(images: np.ndarray, labels: np.ndarray) -> tuple[UInt8[Tensor, "n c h w"], Int64[Tensor, " n"]]:
    """Turn (N, H, W) or (N, H, W, C) into tensors (N, C, H, W), ordered by label, then by the image's bytes."""
    images = images[..., None] if images.ndim == 3 else images
    images = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    rows = images.reshape(len(images), -1).view(f"S{images[0].size}")[:, 0]
    order = np.lexsort((rows, labels))
    return torch.from_numpy(images[order]), torch.from_numpy(labels[order].astype(np.int64))


def resize(images: UInt8[Tensor, "n c h w"], side: int) -> UInt8[Tensor, "n c s s"]:
    """Resize to `side` × `side` pixels, bilinear with antialiasing, rounding halves up (the same on every machine)."""
    if images.shape[2:] == (side, side):
        return images
    out = torch.empty(*images.shape[:2], side, side, dtype=torch.uint8)
    for start in range(0, len(images), 1024):
        chunk = images[start : start + 1024].double()
        chunk = F.interpolate(chunk, (side, side), mode="bilinear", antialias=True, align_corners=False)
        out[start : start + 1024] = (chunk + (0.5 + 1e-6)).clamp_(0, 255).to(torch.uint8)
    return out


def measure(images: UInt8[Tensor, "n c h w"]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and the standard deviation of all pixels in [0, 1], per channel, counted exactly."""
    mean, std = [], []
    for c in range(images.shape[1]):
        counts = np.bincount(images[:, c].numpy().ravel(), minlength=256).tolist()
        n = sum(counts)
        first, second = (sum(k * v**power for v, k in enumerate(counts)) for power in (1, 2))
        mean.append(first / n / 255)
        std.append((n * second - first**2) ** 0.5 / n / 255)
    return tuple(mean), tuple(std)
