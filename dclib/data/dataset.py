"""The data sets of the paper (Sec. 3, "Datasets") and the user's own, each as whole uint8 tensors on one device.

`load` goes one way: a name or path is spelled out and its arrays are found (`sources`), read from files (`formats`), checked,
converted and put into a canonical order (`arrays`), so that a seed and an index mean the same wherever the data came from.
A `Dataset` normalises pixels on use and draws batches of one class from a seeded generator. Objects in Python: `objects`.
"""

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from ..errors import DataError, one_of
from ..spec import derive
from . import sources
from .arrays import ARRAYS, VIEWS, Raw, canonical, check, convert, measure
from .formats import is_npz, read_path
from .sources import KNOWN, Known

NO_TEST = "has no test images: add them, or hold a share of each class out with --hold-out 0.2 (hold_out=0.2)"


def generator(seed: int, *purpose: object) -> torch.Generator:
    """Return the CPU generator of one purpose (such as "real", k, t), which is the same whatever else is drawn.

    torch's CPU generator uses only the lowest 32 of the seed's 63 bits, so two purposes draw the same numbers with a probability of
    2⁻³²: one pair is expected among the 100,000 batches of a run at 10 images/class. Other seeds would change every recorded draw.
    """
    return torch.Generator().manual_seed(derive(seed, *purpose))


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set with everything needed to draw, normalise and name its images.

    Args:
        name: what the data set is called.
        x_train, x_test: uint8 images (N, C, H, W).
        y_train, y_test: int64 labels (N,).
        mean, std: of pixels in [0, 1], per channel.
        class_names: one for each label.
        note: what a table must say beside the name, such as "a stand-in"; else empty.
        source: the name or the full path that it was loaded by, which tells MNIST from a folder called mnist; empty for data
            made in Python.
        understood: how what was not in dclib's own form was read, a line each.
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
    source: str = ""
    understood: tuple[str, ...] = ()

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

    def normalise(self, pixels: UInt8[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """Scale pixels to [0, 1], subtract the channel's mean and divide by its standard deviation."""
        largest, mean, std = self._moments(pixels.device)
        return pixels.float().div_(largest).sub_(mean).div_(std)

    def _moments(self, device: torch.device) -> tuple[Tensor, ...]:
        """Keep 255, mean and std on a device, for captured steps, as tensors: a GPU divides by a number less exactly."""
        kept, values = self.__dict__.setdefault("_kept_moments", {}), ((255.0,), self.mean, self.std)
        if device not in kept:
            kept[device] = tuple(torch.tensor(v, dtype=torch.float32, device=device).view(-1, 1, 1) for v in values)
        return kept[device]

    @property
    def shape(self) -> dict[str, int | tuple[int, int]]:
        """What `networks.build` must know of the images."""
        return dict(channels=self.channels, classes=self.classes, size=self.size)

    def to(self, device: torch.device | str) -> "Dataset":
        """Return the data set with its tensors on `device`."""
        moved = {name: getattr(self, name).to(device) for name in ARRAYS}
        copy = dataclasses.replace(self, **moved)
        if "hash" in self.__dict__:
            copy.__dict__["hash"] = self.hash
        return copy

    def class_indices(self, c: int) -> Int64[Tensor, " k"]:
        """Return the indices of the training images of class `c`."""
        return self._members[c]

    def require(self, ipc: int, advice: str) -> None:
        """Refuse more images of a class than there are.

        Raises:
            DataError: a class has fewer than `ipc` training images; ends with the advice.
        """
        for c, name in enumerate(self.class_names):
            if (n := len(self.class_indices(c))) < ipc:
                raise DataError(f"class {name!r} of {self.name} has {n} images, fewer than the {ipc} asked for: {advice}")

    def draw(self, c: int, count: int, generator: torch.Generator) -> Int64[Tensor, " k"]:
        """Draw `count` training images of class `c` without replacement; a smaller class is taken whole.

        Args:
            c: the class.
            count: how many, at least 1.
            generator: a CPU generator, so that every device sees the same images.

        Returns:
            Indices into `x_train`, on its device.
        """
        members = self.class_indices(c)
        if len(members) <= count:
            return members
        return members[torch.randperm(len(members), generator=generator)[:count].to(members.device)]

    def describe(self) -> str:
        """What was understood of the data, in lines: the images, what was not in dclib's own form, and the classes."""
        counts = [y.bincount(minlength=self.classes).tolist() for y in (self.y_train, self.y_test)]
        channels = {1: "grey", 3: "RGB"}.get(self.channels, f"of {self.channels} channels")
        splits = f"{len(self.y_train):,} training and {len(self.y_test):,} test images"
        rows = zip(self.class_names, *counts, strict=True)
        lines = [f"{self.name}: {splits}, {self.size[0]}×{self.size[1]} pixels, {channels}", *self.understood]
        lines += [f"{self.classes} classes, each with its training and test images:"]
        lines += [f"  {name}: {trains:,} + {tests:,}" for name, trains, tests in rows]
        mean, std = (", ".join(f"{x:.4f}" for x in values) for values in (self.mean, self.std))
        return "\n".join([*lines, f"normalised with mean {mean} and standard deviation {std}, of pixels in [0, 1]"])

    def only(self, classes: Sequence[str]) -> "Dataset":
        """Return the images of some classes, in the order of the data set; the normalisation stays.

        Raises:
            SpecError: no such class.
            DataError: fewer than two classes.
        """
        for name in classes:
            one_of("class", name, self.class_names)
        kept = [c for c, name in enumerate(self.class_names) if name in classes]
        if len(kept) < 2:
            raise DataError(f"{', '.join(classes)} is one class only: condensing needs at least two")
        changes: dict[str, Any] = {"class_names": tuple(self.class_names[c] for c in kept)}
        for split in ("train", "test"):
            x, y = getattr(self, f"x_{split}"), getattr(self, f"y_{split}")
            inside = torch.isin(y, torch.tensor(kept, device=y.device))
            changes[f"x_{split}"] = x[inside]
            changes[f"y_{split}"] = torch.bucketize(y[inside], torch.tensor(kept, device=y.device))
        name, source = (text and sources.narrowed(text, classes) for text in (self.name, self.source))
        return dataclasses.replace(self, name=name, source=source, **changes)


def load(
    name: str | os.PathLike,
    *,
    classes: Sequence[str] = (),
    hold_out: float = 0.0,
    root: str | os.PathLike | None = None,
    image_size: int = 0,
    channels: int = 0,
    download: bool = True,
) -> Dataset:
    """Load a data set by name, or the user's own by its path.

    Args:
        name: a name in `KNOWN`, the stem of an .npz in the data root, or the path of an .npz or of an image folder; with
            "+inverted" or "+turned" behind it, its images are another domain with the same labels. A folder's transparent
            images are laid on white; with "+onblack" behind its path, on black. `classes` and `hold_out` may stand there, too:
            "cifar10+classes=cat,dog", "path/to/folder+hold-out=0.2".
        classes: the names of the classes that are taken; all, if none is given.
        hold_out: where the data have no test images, this share of each class is drawn at random, always the same, and tested on.
        root: the data root; by default $DCLIB_DATA, else dclib in the user's cache folder.
        image_size: resize to this square size in pixels (bilinear with antialiasing); 0 leaves it (digits: 28).
        channels: 1 makes the images grey, 3 makes them RGB, 0 leaves them.
        download: whether to download what is not there.

    Returns:
        The data set on the CPU.

    Raises:
        DataError: nothing found, or the data cannot be used.
    """
    if isinstance(image_size, bool) or not isinstance(image_size, int) or image_size < 0:
        raise DataError(f"cannot resize images to {image_size!r} pixels: give a whole number, 0 to leave them as they are")
    if channels not in (0, 1, 3):
        raise DataError(f"cannot turn images into {channels!r} channels: give 1 for grey, 3 for RGB, 0 to leave them")
    source = sources.spelled(name, root, classes, hold_out)
    base, endings = sources.parted(source)
    given = dict(map(sources.option, endings))
    path, known = Path(base), KNOWN.get(base)
    side, background = image_size or (known.image_size if known else 0), "black" if "onblack" in given else "white"
    if path.is_absolute() or background == "black":
        raw = read_path(path, side, channels, background, "hold-out" in given)
    else:
        raw = sources.find(base, sources.data_root(root), download)
    title = path.stem if is_npz(path) else path.name
    share = given.get("hold-out", 0.0)
    found = assemble(title, raw, side, channels, known, [name for name in given if name in VIEWS], share)
    found = found.only(given["classes"]) if "classes" in given else found
    return dataclasses.replace(found, name="+".join((title, *endings)), source=source)


def assemble(
    name: str,
    raw: Raw,
    side: int = 0,
    channels: int = 0,
    known: Known | None = None,
    views: Sequence[str] = (),
    share: float = 0.0,
) -> Dataset:
    """Check the arrays, convert the images, change them as the views say, order them, and add names and normalisation.

    Where there are no test images, `share` of each class is held out and tested on.
    """
    if (raw.x_test is None) != bool(share):
        tells = "has test images: leave hold-out away" if share else NO_TEST
        raise DataError(f"{raw.where} {tells}")
    raw = raw._replace(x_test=raw.x_train[:1], y_test=raw.y_train[:1]) if share else raw
    raw = check(raw, len(known.classes), known.channels) if known else check(raw)
    arrays: list[np.ndarray] = []
    for images, labels in ((raw.x_train, raw.y_train), (raw.x_test, raw.y_test)):
        images = convert(images, side, channels, raw.where)
        for view in views:
            images = VIEWS[view](images)
        arrays += canonical(images, labels)
    if share:
        arrays = _split(*arrays[:2], share, raw)
    x_train, y_train = arrays[:2]
    if known and known.mean and not views and x_train.shape[1] in (known.channels, 3):
        times = x_train.shape[1] // known.channels  # grey made RGB has the same constant three times
        mean, std = known.mean * times, known.std * times
    else:
        mean, std = measure(x_train, raw.where)
    names = known.classes if known else raw.classes or tuple(map(str, range(int(y_train[-1]) + 1)))
    note = known.note if known else ""
    return Dataset(name, *map(torch.from_numpy, arrays), mean, std, names, note, understood=raw.understood)


def _split(x: np.ndarray, y: np.ndarray, share: float, raw: Raw) -> list[np.ndarray]:
    """Draw a share of the images of each class to test on, and return what is left, and them."""
    tested = np.zeros(len(y), bool)
    for c in np.unique(y):
        members = np.flatnonzero(y == c)
        count = round(share * len(members))
        if not 0 < count < len(members):
            name = raw.classes[c] if raw.classes else c
            few = f"class {name} of {raw.where} has {len(members)} images"
            raise DataError(f"{few}, of which {share:g} cannot be held out: add images, or hold out another share")
        tested[members[torch.randperm(len(members), generator=generator(0, "test", c))[:count].numpy()]] = True
    return [x[~tested], y[~tested], x[tested], y[tested]]


def hold_out(dataset: Dataset, count: int) -> tuple[Dataset, Dataset]:
    """Draw `count` training images, always the same, and keep them to validate on.

    Returns:
        The data set without them, and it with them in place of its test images.

    Raises:
        DataError: no training image would be left.
    """
    n = len(dataset.y_train)
    if count >= n:
        raise DataError(f"cannot hold {count} images out of {dataset.name}, which has {n} to train on: hold out fewer")
    order = torch.randperm(n, generator=generator(0, "held out")).to(dataset.y_train.device)
    out, kept = order[:count].sort().values, order[count:].sort().values
    rest = dataclasses.replace(dataset, x_train=dataset.x_train[kept], y_train=dataset.y_train[kept])
    return rest, dataclasses.replace(rest, x_test=dataset.x_train[out], y_test=dataset.y_train[out])
