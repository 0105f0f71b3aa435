"""Where the paper's data sets come from (Sec. 3, "Datasets"): the data root, Debian's files, torchvision.

`find` looks a name up in the data root ($DCLIB_DATA, else the user's cache folder): an .npz of that name, torchvision's
files, Debian's, then torchvision's download. Nothing here imports torch before a data set must come from torchvision.
"""

import hashlib
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import DataError, SpecError, one_of
from ..support.files import locked
from .formats import ARRAYS, IDX, Raw, is_npz, npz_counts, read_digits, read_idx, read_npz, words
from .pixels import ONBLACK, VIEWS

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
SILENCE = 30  # seconds after which a download that receives nothing is given up
UNVERIFIED = ("MNIST", "FashionMNIST", "USPS")  # torchvision takes their unpacked files as they are, even cut short

DIGITS = tuple("0123456789")
FASHION = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100 = tuple(
    re.findall(
        r"\w+",
        """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
    caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
    forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
    mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
    possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
    sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree
    wolf woman worm""",
    )
)


@dataclass(frozen=True)
class Known:
    """A data set that dclib knows by name; without `mean` and `std` they are measured on the training pixels."""

    classes: tuple[str, ...]
    counts: tuple[int, int]  # training and test images
    channels: int = 1
    mean: tuple[float, ...] = ()  # of pixels in [0, 1], per channel
    std: tuple[float, ...] = ()
    torchvision: str = ""  # the class in torchvision.datasets
    files: tuple[str, ...] = ()  # torchvision's: that all are there shows that it need not download
    note: str = ""


def _idx(name: str) -> tuple[str, ...]:
    return tuple(f"{name}/raw/{part}" for part in IDX)


_SVHN = (0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970), "SVHN"
_CIFAR10 = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010), "CIFAR10"  # std: the mean of the images' own
_CIFAR100 = (0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762), "CIFAR100"
KNOWN = {
    "digits": Known(DIGITS, (1000, 797)),
    "mnist": Known(DIGITS, (60000, 10000), 1, (0.1307,), (0.3081,), "MNIST", _idx("MNIST")),
    "fashionmnist": Known(FASHION, (60000, 10000), 1, (0.2861,), (0.3530,), "FashionMNIST", _idx("FashionMNIST")),
    "svhn": Known(DIGITS, (73257, 26032), 3, *_SVHN, ("train_32x32.mat", "test_32x32.mat")),
    "svhn10k": Known(DIGITS, (8000, 2000), 3, *_SVHN, ("test_32x32.mat",), "a stand-in"),
    "cifar10": Known(CIFAR10, (50000, 10000), 3, *_CIFAR10, ("cifar-10-batches-py",)),
    "cifar100": Known(CIFAR100, (50000, 10000), 3, *_CIFAR100, ("cifar-100-python",)),
    "usps": Known(DIGITS, (7291, 2007), 1, (), (), "USPS", ("usps.bz2", "usps.t.bz2")),
}


class Available(NamedTuple):
    """One row of `dclib data`."""

    name: str
    where: str  # embedded, npz, torchvision, debian, downloadable or unreadable
    train: int  # images
    test: int
    note: str


def data_root(root: str | os.PathLike | None = None) -> Path:
    """Return the folder of the data sets: `root`, else $DCLIB_DATA, else dclib in the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root or os.environ.get("DCLIB_DATA") or Path(cache) / "dclib").expanduser()


def available(root: str | os.PathLike | None = None) -> list[Available]:
    """List every data set that `find` can be asked for, with the place where it would be found."""
    folder = data_root(root)
    return [_available(name, folder) for name in all_names(folder)]


def spelled(name: str | os.PathLike, root: str | os.PathLike | None = None) -> str:
    """Tell a data set's name from a path, once: a name stays as it is, a path is given in full and means the same in any folder.

    What has a separator, as `./mnist`, ends in .npz or is no text is a path. A name in `KNOWN` or in the data root goes before a
    file or folder of the working directory.

    Raises:
        DataError: no file can be called so.
    """
    base, view = parted(name)
    if view:
        return f"{spelled(base if isinstance(name, str) else Path(base), root)}+{view}"
    path, text = as_path(name), str(name)
    bare = isinstance(name, str) and os.sep not in text and not is_npz(path)
    if bare and (not text or text in KNOWN or (data_root(root) / f"{text}.npz").is_file() or not path.exists()):
        return text
    return os.path.abspath(path)


def parted(name: str | os.PathLike) -> tuple[str, str]:
    """A data set's name without its last view, and that view; empty if it has none."""
    base, _, view = str(name).rpartition("+")
    return (base, view) if view in (*VIEWS, ONBLACK) else (str(name), "")


def own_place(name: str) -> Path | None:
    """Where the user's own data of that name, as `spelled` gives it, lies on this machine; None if it is not here, or is known."""
    name = _seen(name)
    return _place(name) if name not in KNOWN and _place(name).exists() else None


def stamp(name: str) -> str:
    """What is another as soon as a user's file or folder of that name changes: a hash of its files' sizes and times."""
    place = _place(_seen(name))
    try:
        if not place.exists():  # data that is known, and not from an .npz
            return str(place)
        files = sorted(path for split in ("train", "test") for path in (place / split).rglob("*")) if place.is_dir() else [place]
        states = [(str(path), state.st_size, state.st_mtime_ns) for path, state in zip(files, map(os.stat, files), strict=True)]
    except OSError:  # whoever loads it says why
        return ""
    return hashlib.sha256(repr(states).encode()).hexdigest()


def _seen(name: str) -> str:
    """The data whose view, or view of a view, a name may be."""
    base, view = parted(name)
    return _seen(base) if view else name


def _place(name: str) -> Path:
    """Where a user's file or folder of that name is, if there is one."""
    return Path(name) if os.path.isabs(name) else data_root() / f"{name}.npz"


def all_names(root: Path) -> list[str]:
    """The names of data sets: those known, and those of the user's own .npz files in the data root."""
    return [*KNOWN, *sorted(path.stem for path in root.glob("*.npz") if path.stem not in KNOWN)]


def as_path(name: str | os.PathLike) -> Path:
    """What a data set is called, as a path, in which ~ stands for the home folder.

    Raises:
        DataError: no file can be called so.
    """
    try:
        path = Path(name).expanduser()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        short = str(name) if len(str(name)) < 60 else f"{str(name)[:60]}…"
        raise DataError(f"no data set can be called {short!r} ({words(error)}): give a name or a path") from None
    return path


def _available(name: str, root: Path) -> Available:
    known, where = KNOWN.get(name), _where(name, root)
    note = known.note if known else ""
    if where != "npz":
        return Available(name, where, *known.counts, note)
    counts = npz_counts(root / f"{name}.npz")
    return Available(name, "npz" if all(counts) else "unreadable", *counts, note)


def _where(name: str, root: Path) -> str:
    """Say where a data set would be found, in the order of look-up."""
    if name == "digits":
        return "embedded"
    if (root / f"{name}.npz").is_file():
        return "npz"
    if all((root / file).exists() for file in KNOWN[name].files):
        return "torchvision"
    if name == "fashionmnist" and all((DEBIAN / f"{part}.gz").is_file() for part in IDX):
        return "debian"
    return "downloadable"


def find(name: str, root: Path, download: bool = True) -> Raw:
    """Find the arrays of a data set by name.

    Args:
        name: a name in `KNOWN`, or the stem of an .npz file in `root`.
        root: the data root.
        download: whether torchvision may fetch what is not there.

    Raises:
        DataError: unknown name, nothing found, or what was found cannot be read.
    """
    try:
        one_of("data set", name, all_names(root))
    except SpecError as error:
        raise DataError(f"{error}, or give the path of an .npz file or of a folder with train/ and test/") from None
    where = _where(name, root)
    if where == "embedded":
        return read_digits()
    if where == "npz":
        return read_npz(root / f"{name}.npz")
    if where == "debian":
        return read_idx(DEBIAN)
    if where == "downloadable" and not download:
        raise DataError(f"{name} is not on this machine: {_three_ways(name, root)}")
    return _from_torchvision(name, root, where == "torchvision", download)


def _three_ways(name: str, root: Path) -> str:
    return (
        f"put {name}.npz (with {', '.join(ARRAYS)}) into {root}, or put torchvision's files there "
        f"({', '.join(KNOWN[name].files)}), or run the command once on a machine with a network, which downloads them"
    )


def _from_torchvision(name: str, root: Path, present: bool, download: bool) -> Raw:
    """Read a data set through torchvision, which draws a progress bar while it downloads.

    With `download`, files that are present but damaged are fetched again where torchvision knows their checksums.
    """
    known = KNOWN[name]
    try:
        with nullcontext() if present else locked(root), _given_up_when_silent(), _no_half_files(known, root):
            splits = ("test",) if name == "svhn10k" else ("train", "test")
            parts = [_split(known.torchvision, root, split, download) for split in splits]
    except ImportError as error:
        package = error.name or "torchvision"
        raise DataError(
            f"{name} needs {package}, which cannot be imported: pip install {package}, or put {name}.npz into {root}"
        ) from error
    except Exception as error:  # torchvision lets through whatever its parsers and urllib raise
        if not present:
            raise DataError(
                f"{name} is not on this machine and cannot be downloaded ({words(error)}): {_three_ways(name, root)}"
            ) from error
        raise DataError(
            f"cannot read torchvision's files of {name} in {root} ({words(error)}): delete and fetch them again"
        ) from error
    if name == "svhn10k":
        images, labels = parts[0]
        parts = [(images[:8000], labels[:8000]), (images[8000:10000], labels[8000:10000])]
    return Raw(*parts[0], *parts[1], where=f"torchvision's files in {root}")


def _split(kind: str, root: Path, split: str, download: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return images (N, H, W) or (N, H, W, C) and labels of the "train" or "test" split."""
    from torchvision import datasets

    make = getattr(datasets, kind)
    if kind == "SVHN":
        part = make(str(root), split=split, download=download)
        return part.data.transpose(0, 2, 3, 1), part.labels
    part = make(str(root), train=split == "train", download=download)
    return np.asarray(part.data), np.asarray(part.targets)


@contextmanager
def _given_up_when_silent() -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(SILENCE)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


@contextmanager
def _no_half_files(known: Known, root: Path) -> Iterator[None]:
    """Remove the files that a failed or interrupted download leaves, where torchvision would later take them for whole."""
    files = [root / file for file in known.files if known.torchvision in UNVERIFIED]
    new = [file for file in files if not file.exists()]
    try:
        yield
    except BaseException:
        for file in new:
            file.unlink(missing_ok=True)
        raise
