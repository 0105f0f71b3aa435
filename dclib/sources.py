"""Where the paper's data sets come from (Sec. 3, "Datasets"), and the user's own: numpy arrays as they lie on disk.

`find` looks a name up in the data root ($DCLIB_DATA, else the user's cache folder): an .npz of that name, torchvision's
files, Debian's, then torchvision's download. Torch and torchvision are imported by nothing here until they are needed.
"""

import gzip
import hashlib
import os
import socket
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .errors import DataError, SpecError, one_of

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
DEBIAN = Path("/usr/share/datasets/fashion-mnist")
DIGITS = tuple("0123456789")
FASHION = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
UNREADABLE = (OSError, ValueError, EOFError, RuntimeError, NotImplementedError, MemoryError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True)
class Known:
    """A data set that dclib knows by name; without `mean` and `std` they are measured on the training pixels."""

    classes: tuple[str, ...]
    counts: tuple[int, int]  # training and test images
    channels: int = 1
    mean: tuple[float, ...] = ()  # of pixels in [0, 1], per channel
    std: tuple[float, ...] = ()
    torchvision: str = ""  # the class in torchvision.datasets
    files: tuple[str, ...] = ()  # those of torchvision's files whose presence shows that it has the data
    note: str = ""


def _idx(name: str) -> tuple[str, ...]:
    return tuple(f"{name}/raw/{part}" for part in IDX)


IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_SVHN = (0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970), "SVHN"
_C10 = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010), "CIFAR10"
_C100 = (0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762), "CIFAR100"
KNOWN = {
    "digits": Known(DIGITS, (1000, 797)),
    "mnist": Known(DIGITS, (60000, 10000), 1, (0.1307,), (0.3081,), "MNIST", _idx("MNIST")),
    "fashionmnist": Known(FASHION, (60000, 10000), 1, (0.2861,), (0.3530,), "FashionMNIST", _idx("FashionMNIST")),
    "svhn": Known(DIGITS, (73257, 26032), 3, *_SVHN, ("train_32x32.mat", "test_32x32.mat")),
    "svhn10k": Known(DIGITS, (8000, 2000), 3, *_SVHN, ("test_32x32.mat",), "a stand-in"),
    "cifar10": Known(CIFAR10, (50000, 10000), 3, *_C10, ("cifar-10-batches-py",)),
    "cifar100": Known(tuple(map(str, range(100))), (50000, 10000), 3, *_C100, ("cifar-100-python",)),
    "usps": Known(DIGITS, (7291, 2007), 1, (), (), "USPS", ("usps.bz2", "usps.t.bz2")),
}


class Raw(NamedTuple):
    """Images as uint8 (N, H, W) or (N, H, W, C) and labels as whole numbers, unchecked, with the place they came from."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    where: str
    classes: tuple[str, ...] = ()


def data_root(root: str | os.PathLike | None = None) -> Path:
    """Return the folder of the data sets: `root`, else $DCLIB_DATA, else dclib in the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root or os.environ.get("DCLIB_DATA") or Path(cache) / "dclib").expanduser()


def words(error: BaseException) -> str:
    """The first line of an error's text, in order to quote it within a sentence."""
    text = (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0]
    return text.strip().rstrip(".")


def read_npz(path: Path) -> Raw:
    """Read x_train, y_train, x_test and y_test from an .npz file (never pickled objects).

    Raises:
        DataError: no such file, not a whole .npz, or an array is missing.
    """
    if not path.is_file():
        raise DataError(f"there is no file {path}: give the path of an .npz with {', '.join(ARRAYS)}")
    try:
        with np.load(path, allow_pickle=False) as archive:
            if missing := [key for key in ARRAYS if key not in archive.files]:
                raise DataError(f"{path} has no array {missing[0]!r}: an .npz must hold {', '.join(ARRAYS)}")
            return Raw(*(archive[key] for key in ARRAYS), where=str(path))
    except DataError:
        raise
    except (*UNREADABLE, AttributeError, TypeError) as error:
        raise DataError(f"cannot read {path} ({words(error)}): make or fetch the .npz file again") from error


def read_idx(folder: Path) -> Raw:
    """Read the four idx files of MNIST's kind, gzipped, from a folder.

    Raises:
        DataError: a file cannot be read or is not of the stated size.
    """
    return Raw(*(_read_idx_file(folder / f"{part}.gz") for part in IDX), where=str(folder))


def _read_idx_file(path: Path) -> np.ndarray:
    try:
        content = gzip.decompress(path.read_bytes())
        shape = np.frombuffer(content, ">i4", content[3], offset=4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)
    except (*UNREADABLE, IndexError) as error:
        raise DataError(f"cannot read {path} ({words(error)}): install the file again") from error


def read_digits() -> Raw:
    """Return scikit-learn's 1,797 digits, 8×8, split once and for all into 1,000 for training and 797 for testing.

    Within each class the images are ordered by a hash of their index, and the first 5/9 or so train (stratified).
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise DataError("digits come with scikit-learn, which is not installed: pip install scikit-learn") from error
    data = load_digits()
    images, labels = np.rint(data.images * (255 / 16)).astype(np.uint8), data.target.astype(np.int64)
    hashed = [hashlib.sha256(str(i).encode()).digest() for i in range(len(labels))]
    order = sorted(range(len(labels)), key=lambda i: (labels[i], hashed[i]))
    # every 1797/1000-th image in this order trains: 1,000 in all, and from each class its share to within one image
    train = np.array([(i + 1) * 1000 // 1797 > i * 1000 // 1797 for i in range(len(order))])
    first, second = np.array(order)[train], np.array(order)[~train]
    return Raw(images[first], labels[first], images[second], labels[second], "scikit-learn")


def find(name: str, root: Path, download: bool = True) -> Raw:
    """Find the arrays of a data set by name.

    Args:
        name: a name in `KNOWN`, or the stem of an .npz file in `root`.
        root: the data root.
        download: whether torchvision may fetch what is not there.

    Raises:
        DataError: unknown name, nothing found, or what was found cannot be read.
    """
    if name == "digits":
        return read_digits()
    if (path := root / f"{name}.npz").is_file():
        return read_npz(path)
    try:
        known = KNOWN[str(one_of("data set", name, (*KNOWN, *(p.stem for p in sorted(root.glob("*.npz"))))))]
    except SpecError as error:
        raise DataError(f"{error}, or give the path of an .npz file or of a folder with train/ and test/") from None
    if all((root / file).exists() for file in known.files):
        return from_torchvision(name, root, download=False)
    if name == "fashionmnist" and all((DEBIAN / f"{part}.gz").is_file() for part in IDX):
        return read_idx(DEBIAN)
    if not download:
        raise DataError(f"{name} is not on this machine: {_three_ways(name, root)}")
    return from_torchvision(name, root, download=True)


def _three_ways(name: str, root: Path) -> str:
    return (
        f"put {name}.npz (with {', '.join(ARRAYS)}) into {root}, or put torchvision's files there ({', '.join(KNOWN[name].files)}), "
        "or run the command once on a machine with a network, which downloads them"
    )


@contextmanager
def _patience(seconds: float) -> Iterator[None]:
    """Give up a connection that stays silent for `seconds`."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def from_torchvision(name: str, root: Path, download: bool) -> Raw:
    """Read a data set through torchvision, which draws a progress bar while it downloads.

    Raises:
        DataError: torchvision is not installed, or the files cannot be read or downloaded.
    """
    known = KNOWN[name]
    try:
        from torchvision import datasets
    except ImportError as error:
        raise DataError(f"{name} needs torchvision, which is not installed: pip install torchvision, or {_three_ways(name, root)}") from error
    make = getattr(datasets, known.torchvision)
    splits = ("test",) if name == "svhn10k" else ("train", "test")
    try:
        with _patience(30):
            parts = [_split(make, known.torchvision, root, split, download) for split in splits]
    except Exception as error:  # torchvision raises whatever its parser or urllib does
        if download:
            raise DataError(f"{name} is not on this machine and cannot be downloaded ({words(error)}): {_three_ways(name, root)}") from error
        raise DataError(f"cannot read torchvision's files of {name} in {root} ({words(error)}): delete them and fetch them again") from error
    if name == "svhn10k":
        (x, y), = parts
        parts = [(x[:8000], y[:8000]), (x[8000:10000], y[8000:10000])]
    return Raw(*parts[0], *parts[1], where=f"torchvision's files in {root}")


def _split(make, kind: str, root: Path, split: str, download: bool) -> tuple[np.ndarray, np.ndarray]:
    choice = {"split": split} if kind == "SVHN" else {"train": split == "train"}
    part = make(str(root), download=download, **choice)
    images, labels = np.asarray(part.data), np.asarray(part.labels if kind == "SVHN" else part.targets)
    return (images.transpose(0, 2, 3, 1) if kind == "SVHN" else images), labels
