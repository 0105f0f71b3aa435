"""What a name or a path means, and where its images are: the paper's data sets (Sec. 3, "Datasets") and the user's own.

A name is looked up in the data root ($DCLIB_DATA, else the user's cache folder): an .npz of that name, torchvision's files,
Debian's, then torchvision's download. Nothing here imports torch before a data set must come from torchvision.
"""

import os
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import DataError, SpecError, one_of
from ..support.files import locked
from .arrays import ARRAYS, VIEWS, Raw
from .formats import IDX, is_npz, npz_counts, read_digits, read_idx, read_npz, words

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
SILENCE = 30  # seconds after which a download that receives nothing is given up
ENDINGS = (*VIEWS, "onblack", "classes=.+", "hold-out=.+")  # what may stand behind a name and +, as patterns
UNVERIFIED = ("MNIST", "FashionMNIST", "USPS")  # torchvision takes their unpacked files as they are, even cut short

DIGITS = tuple("0123456789")
FASHION = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100 = tuple(
    re.findall(
        r"\w+",
        """
        apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
        caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
        forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
        mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy
        porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
        squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
        wardrobe whale willow_tree wolf woman worm
        """,
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
    image_size: int = 0  # to which images are resized if nothing else is asked for


def _idx(name: str) -> tuple[str, ...]:
    return tuple(f"{name}/raw/{part}" for part in IDX)


_SVHN = (0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970), "SVHN"
_CIFAR10 = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010), "CIFAR10"  # std: the mean of the images' own
_CIFAR100 = (0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762), "CIFAR100"
KNOWN = {
    "digits": Known(DIGITS, (1000, 797), image_size=28),
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


def all_names(root: Path) -> list[str]:
    """Return the names of data sets: those known, and those of the user's own .npz files in the data root."""
    own = (path.stem for path in root.glob("*.npz") if not path.name.startswith("."))  # macOS leaves ._NAME beside NAME
    return [*KNOWN, *sorted(set(own) - KNOWN.keys())]


def available(root: str | os.PathLike | None = None) -> list[Available]:
    """List every data set that has a name, with the place where it would be found."""
    rows, folder = [], data_root(root)
    for name in all_names(folder):
        where, known = _where(name, folder), KNOWN.get(name)
        counts = npz_counts(folder / f"{name}.npz") if where == "npz" else known.counts
        rows.append(Available(name, where if all(counts) else "unreadable", *counts, known.note if known else ""))
    return rows


def spelled(
    name: str | os.PathLike, root: str | os.PathLike | None = None, classes: Sequence[str] = (), hold_out: float = 0.0
) -> str:
    """Tell a data set's name from a path, once: a name stays as it is, a path is given in full and means the same in any folder.

    What has a separator, as `./mnist`, ends in .npz or is no text is a path. A name in `KNOWN` or in the data root goes before a
    file or folder of the working directory. `classes` and `hold_out` are put behind it, as `narrowed` does.

    Raises:
        DataError: no file can be called so, or a share that cannot be held out.
    """
    base, views = parted(name)
    for view in views:
        option(view)
    path = _path(base)
    bare = isinstance(name, str) and os.sep not in base and not is_npz(path)
    named = not base or base in KNOWN or (data_root(root) / f"{base}.npz").is_file()
    if not bare or (path.exists() and not named):
        base = os.path.abspath(path)
    return narrowed("+".join((base, *views)), classes, hold_out)


def parted(name: str | os.PathLike) -> tuple[str, tuple[str, ...]]:
    """Split a name or path from the views and the options at its end (`ENDINGS`); what exists under its whole name has none."""
    base, views = str(name), ()
    while found := re.fullmatch(rf"(.*)\+({'|'.join(ENDINGS)})", base, re.DOTALL):
        if found[1] not in KNOWN and _path(base).exists():
            break
        base, views = found[1], (found[2], *views)
    return base, views


def narrowed(name: str, classes: Sequence[str] = (), hold_out: float = 0.0) -> str:
    """Return a name or path with the options behind it that take only some classes, and hold test images out.

    Args:
        name: a data set's.
        classes: the names of those that are wanted, in any order.
        hold_out: the share of each class that is tested on, where the data have no test images; 0 for none.

    Raises:
        DataError: a share that is not between 0 and 1.
    """
    chosen = [f"classes={','.join(sorted({*classes}))}"] if classes else []
    chosen += [f"hold-out={hold_out:g}"] if hold_out else []
    for one in chosen:
        option(one)
    return "+".join((name, *chosen))


def option(view: str) -> tuple[str, Any]:
    """Return the name of a view or an option, and its value: names of classes, or the share that is held out.

    Raises:
        DataError: a share that is not between 0 and 1.
    """
    name, _, value = view.partition("=")
    if name == "classes":
        return name, tuple(value.split(","))
    if name == "hold-out":
        with suppress(ValueError):
            if 0 < float(value) < 1:
                return name, float(value)
        raise DataError(f"cannot hold out {value} of each class: give a share between 0 and 1, as 0.2")
    return name, None


def _path(name: str) -> Path:
    """Return a name as a path, in which ~ stands for the home folder.

    Raises:
        DataError: no file can be called so.
    """
    try:
        path = Path(name).expanduser()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        short = name if len(name) < 60 else f"{name[:60]}…"
        raise DataError(f"no data set can be called {short!r} ({words(error)}): give a name or a path") from None
    return path


def own_place(name: str) -> Path | None:
    """Return where the user's own data of a name, as `spelled` gives it, is here; None if it is elsewhere, or is known."""
    base, _ = parted(name)
    return place if base not in KNOWN and (place := _place(base)).exists() else None


def stamp(name: str) -> str:
    """Return a text that changes, in this process, as soon as a file of the user's data of that name does."""
    place = _place(parted(name)[0])
    try:
        states = [(path, os.stat(path).st_size, os.stat(path).st_mtime_ns) for path in (place, *sorted(place.rglob("*")))]
    except OSError:  # data that is known, and not from an .npz; or whoever loads it says why
        states = []
    return f"{place} {hash(tuple(states))}"


def _place(base: str) -> Path:
    return Path(base) if os.path.isabs(base) else data_root() / f"{base}.npz"


def _where(name: str, root: Path) -> str:
    """Say where the data set of a name is, in the order of look-up."""
    if name == "digits":
        return "embedded"
    if (root / f"{name}.npz").is_file():
        return "npz"
    if all((root / file).exists() for file in KNOWN[name].files):
        return "torchvision"
    if name == "fashionmnist" and all((DEBIAN / f"{part}.gz").is_file() for part in IDX):
        return "debian"
    return "downloadable"


def check_name(name: str, root: Path) -> None:
    """Refuse a name, without its views, that no data set has.

    Raises:
        DataError: lists those there are.
    """
    try:
        one_of("data set", name, all_names(root))
    except SpecError as error:
        raise DataError(f"{error}, or give the path of an .npz file or of a folder with train/ and test/") from None


def find(name: str, root: Path, download: bool = True) -> Raw:
    """Find the arrays of a data set by name.

    Args:
        name: a name in `KNOWN`, or the stem of an .npz file in `root`.
        root: the data root.
        download: whether torchvision may fetch what is not there.

    Raises:
        DataError: unknown name, nothing found, or what was found cannot be read.
    """
    check_name(name, root)
    where = _where(name, root)
    if where == "embedded":
        return read_digits()
    if where == "npz":
        return read_npz(root / f"{name}.npz")
    if where == "debian":
        return read_idx(DEBIAN)
    try:
        with nullcontext() if where == "torchvision" or not download else locked(root):
            return _from_torchvision(name, root, download)
    except Exception as error:  # torchvision lets through whatever its parsers and urllib raise
        why = f"cannot read torchvision's files of {name} in {root} ({words(error)}): delete and fetch them again"
        if where != "torchvision":
            why = (
                f"{name} is not on this machine ({words(error)}): put {name}.npz (with {', '.join(ARRAYS)}) into {root}, or put "
                f"torchvision's files there ({', '.join(KNOWN[name].files)}), or run the command once on a machine with a "
                "network, which downloads them"
            )
        raise DataError(why) from error


def _from_torchvision(name: str, root: Path, download: bool) -> Raw:
    """Read a data set through torchvision, which draws a progress bar while it downloads.

    With `download`, files that are present but damaged are fetched again where torchvision knows their checksums.
    """
    known = KNOWN[name]
    with _safe_download(known, root):
        test = _split(known.torchvision, root, False, download)
        train = test if name == "svhn10k" else _split(known.torchvision, root, True, download)
    if name == "svhn10k":
        train, test = ([array[part] for array in test] for part in (slice(8000), slice(8000, 10000)))
    return Raw(*train, *test, where=f"torchvision's files in {root}")


def _split(kind: str, root: Path, train: bool, download: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return images (N, H, W) or (N, H, W, C) and labels of the training or the test split."""
    from torchvision import datasets

    if kind == "SVHN":
        part = datasets.SVHN(str(root), split="train" if train else "test", download=download)
        return part.data.transpose(0, 2, 3, 1), part.labels
    part = getattr(datasets, kind)(str(root), train=train, download=download)
    return np.asarray(part.data), np.asarray(part.targets)


@contextmanager
def _safe_download(known: Known, root: Path) -> Iterator[None]:
    """Give up on a server that is silent, and remove the half files of a failed download that torchvision would take for whole."""
    files = [root / file for file in known.files if known.torchvision in UNVERIFIED]
    new, before = [file for file in files if not file.exists()], socket.getdefaulttimeout()
    socket.setdefaulttimeout(SILENCE)
    try:
        yield
    except BaseException:
        for file in new:
            file.unlink(missing_ok=True)
        raise
    finally:
        socket.setdefaulttimeout(before)
