"""Files as arrays: .npz, idx, scikit-learn's digits, and folders of pictures with train/<class>/… and test/<class>/…."""

import gzip
import hashlib
import re
import zipfile
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np

from ..errors import DataError
from ..support.kinds import CHECKPOINT, GZIP, NPZ, SET, TORCH, ZIP, kind_of
from .arrays import ARRAYS, Raw, stack
from .meaning import DEEP, DEEP_LEAST, VALIDATION, as_pixels, from_16_bits, roles

IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
UNREADABLE = (OSError, ValueError, EOFError, RuntimeError, MemoryError, SyntaxError, zipfile.BadZipFile, zlib.error)
READ = f"give an .npz with {', '.join(ARRAYS)}, or a folder with train/<class>/ and test/<class>/"
UNPACK, MADE_FROM = "unpack it and name the .npz or the folder that is in it", "name the data that it was made from"
USES = {NPZ: "let its name end in .npz", ZIP: UNPACK, GZIP: UNPACK, CHECKPOINT: MADE_FROM}
USES |= {SET: f"{MADE_FROM}, or make an .npz of it with dclib export", TORCH: f"read it with torch.load, then {READ}"}

GREY = ("1", "L", "LA")  # Pillow's modes of at most 8 bits per channel, without colour
COLOUR = ("RGB", "RGBA", "RGBX", "P", "PA", "CMYK", "YCbCr", "HSV", "LAB")
BACKGROUNDS = ("white", "black")  # on which transparent pictures are laid
SYSTEM = ("__macosx", "thumbs.db", "ehthumbs.db", "desktop.ini")  # what systems leave in folders, besides what begins with a dot


def words(error: BaseException) -> str:
    """Return the first sentence of an error's text, to quote within one of ours."""
    text = getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error) or type(error).__name__
    return re.split(r"[.!] |\n", str(text).strip())[0].rstrip(".:; ")


def is_npz(path: Path) -> bool:
    """Whether a file's name says that it is an .npz, in small letters or in capitals."""
    return path.suffix.lower() == ".npz"


def no_data(path: Path) -> DataError:
    """Return the error for a file that is no data set: it says what the file is, if that can be told, and what to do with it."""
    kind = kind_of(path)
    return DataError(f"{path} is {kind or 'neither an .npz nor a folder'}, not a data set: {USES.get(kind, READ)}")


def read_path(path: Path, image_size: int = 0, channels: int = 0, background: str = "white", held_out: bool = False) -> Raw:
    """Read a folder of pictures, as `read_folder` does, or an .npz file.

    Raises:
        DataError: it is neither, is not there, or cannot be used.
    """
    if path.is_dir():
        return read_folder(path, image_size, channels, background, held_out)
    if background != "white":
        raise DataError(f"+onblack is for a folder of images, and {path} is none: leave out +onblack")
    if not path.is_file():
        raise DataError(f"there is no {'file' if is_npz(path) else 'folder'} {path}: {READ}")
    if not is_npz(path):
        raise no_data(path)
    return read_npz(path)


def read_npz(path: Path) -> Raw:
    """Read x_train, y_train, x_test and y_test, and class_names if it has them, from an .npz file (never pickled objects).

    Arrays of other names, types and orders of axes are understood as `meaning` says.

    Raises:
        DataError: no such file, not a whole .npz, or an array is missing or can mean nothing.
    """
    arrays, lines = {}, ()
    try:
        with open(path, "rb") as file:  # np.load leaves a path that it cannot read open
            archive = np.load(file, allow_pickle=False)
            names, lines = roles(getattr(archive, "files", ()), str(path))
            names |= {"class_names": "class_names"} if "class_names" in getattr(archive, "files", ()) else {}
            arrays = {key: archive[name] for key, name in names.items()}
        needed = ARRAYS if {"x_test", "y_test"} & arrays.keys() else ARRAYS[:2]
        missing = [key for key in needed if not isinstance(arrays.get(key), np.ndarray)]
        why = f"it has no array {missing[0]!r}" if missing else ""
    except DataError:
        raise
    except UNREADABLE as error:
        why = words(error)
    if why and kind_of(path) not in ("", NPZ):
        raise no_data(path)
    if why:
        raise DataError(f"cannot read {path} ({why}): give the path of a whole .npz with {', '.join(ARRAYS)}")
    names = np.asarray(arrays.pop("class_names", ()))
    arrays = {"x_test": None, "y_test": None} | arrays
    (arrays["x_train"], *test), said = as_pixels(arrays["x_train"], arrays["x_test"], str(path))
    arrays["x_test"] = test[0] if test else None
    classes = tuple(map(str, names)) if names.dtype.kind == "U" else ()
    return Raw(**arrays, where=str(path), classes=classes, understood=lines + said)


def npz_counts(path: Path) -> tuple[int, int]:
    """Return how many training and test images an .npz holds, by its labels; (0, 0) if they cannot be read."""
    try:
        with np.load(path) as archive:
            names, _ = roles(archive.files, str(path))
            return len(archive[names["y_train"]]), len(archive[names["y_test"]]) if "y_test" in names else 0
    except (*UNREADABLE, KeyError, TypeError, AttributeError, DataError):
        return 0, 0


def read_idx(folder: Path) -> Raw:
    """Read the four gzipped idx files of MNIST's kind from a folder.

    Raises:
        DataError: a file cannot be read or is not of the size that it states.
    """
    arrays = []
    for path in (folder / f"{part}.gz" for part in IDX):
        try:
            content = gzip.decompress(path.read_bytes())
            shape = np.frombuffer(content, ">i4", content[3], offset=4)
            arrays.append(np.frombuffer(content, np.uint8, offset=4 + 4 * len(shape)).reshape(shape))
        except (*UNREADABLE, IndexError) as error:
            raise DataError(f"cannot read {path} ({words(error)}): install or fetch the file again") from error
    return Raw(*arrays, where=str(folder))


def read_digits() -> Raw:
    """Return scikit-learn's 1,797 digits, 8×8, split once and for all into 1,000 for training and 797 for testing.

    Within each class the images are ordered by a hash of their index (they come in runs of one writer's); every
    1797/1000-th image in this order trains, which gives each class its share to within one image.
    """
    from sklearn.datasets import load_digits

    data = load_digits()
    images, labels = np.rint(data.images * (255 / 16)).astype(np.uint8), data.target.astype(np.int64)
    hashed = [hashlib.sha256(str(i).encode()).digest() for i in range(len(labels))]
    order = np.array(sorted(range(len(labels)), key=lambda i: (labels[i], hashed[i])))
    trains = np.diff(np.arange(len(order) + 1) * 1000 // len(order)) == 1
    first, second = order[trains], order[~trains]
    return Raw(images[first], labels[first], images[second], labels[second], "scikit-learn")


def read_folder(path: Path, image_size: int = 0, channels: int = 0, background: str = "white", held_out: bool = False) -> Raw:
    """Read a folder of pictures; its classes are the names of the folders in alphabetical order.

    Without a folder test, one called val, valid or validation is tested on.

    Args:
        path: the folder that holds train and test.
        image_size: each picture is resized to this square size; with 0 all must be of one size.
        channels: 1 reads grey, 3 reads RGB, 0 reads grey if every picture is grey and else RGB.
        background: white or black, on which transparent pictures are laid.
        held_out: test images will be held out of the training ones: a folder without test and val is whole, and one without
            train is a folder of classes.

    Raises:
        DataError: a folder or a class is missing or empty, a file is no picture, or the sizes differ.
    """
    lines, places = [], {name: path / name for name in ("train", "test", *VALIDATION) if (path / name).is_dir()}
    tested = next((name for name in places if name != "train"), "")
    if tested not in ("", "test"):
        lines.append(f"{tested}/ is tested on, for there is no test/")
    unused = [f"{name}/" for name in places if name not in ("train", tested)]
    lines += [f"{' and '.join(unused)} is left out, for there is {tested}/"] if unused else []
    if held_out and not tested:
        train, test = _class_files(path / "train" if "train" in places else path), {}
    else:
        train, test = _class_files(path / "train"), _class_files(path / (tested or "test"))
        if odd := sorted(train.keys() ^ test.keys()):
            split = tested if odd[0] in train else "train"
            raise DataError(f"{path / split} has no folder {odd[0]!r} as its counterpart has: each class needs images in both")
    files = [file for split in (train, test) for members in split.values() for file in members]
    deep: list[str] = []  # the first picture of 16 bits
    images = stack(((str(file), _read(file, background, channels, deep)) for file in files), image_size, channels)
    lines += [f"pixels of 16 bits, as in {deep[0]}, go from 0 to {DEEP}: 8 bits are kept"] if deep else []
    labels = [np.repeat(np.arange(len(split)), [len(members) for members in split.values()]) for split in (train, test)]
    count = len(labels[0])
    last = (images[count:], labels[1]) if test else (None, None)
    return Raw(images[:count], labels[0], *last, str(path), tuple(train), tuple(lines))


def _read(file: Path, background: str, channels: int, deep: list[str]) -> np.ndarray:
    picture = read_picture(file, background, channels)
    if picture.info.get("deep") and not deep:
        deep.append(str(file))
    return np.asarray(picture)


def _class_files(split: Path) -> dict[str, list[Path]]:
    """Return the files of each class of train/ or test/, in alphabetical order; é is one letter however a system writes it."""
    classes: dict[str, list[Path]] = defaultdict(list)
    for entry in sorted(_listed(split), key=lambda entry: normal(entry.name)):
        if not entry.is_dir():
            raise DataError(f"{entry} lies in no class: move it into {split}/<class>/ or remove it")
        classes[normal(entry.name)] += _listed(entry)
    if not classes:
        raise DataError(f"{split} has no class: put the images into {split}/<class>/")
    for name, members in classes.items():
        if not members:
            raise DataError(f"the class {name!r} has no image in {split}: add images or remove its folders")
        if nested := [member for member in members if member.is_dir()]:
            advice = f"move its images into {nested[0].parent}, or the folder into {split} as a class of its own"
            raise DataError(f"{nested[0]} is a folder within the class {name!r}, and classes cannot be nested: {advice}")
    return classes


def normal(name: str) -> str:
    """Return a class's name in Unicode's composed form, whichever form a system gave it."""
    return normalize("NFC", name)


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(x for x in folder.iterdir() if not x.name.startswith(".") and x.name.lower() not in SYSTEM)
    except OSError as error:
        raise DataError(
            f"cannot read the folder {folder} ({words(error)}): put images into train/<class>/ and test/<class>/, or "
            "into one folder for each class with --hold-out 0.2 (hold_out=0.2)"
        ) from error


def read_picture(file: Path | str, background: str, channels: int = 0) -> Any:
    """Read a picture from its file, as `flat` gives it.

    Raises:
        DataError: the file is no whole picture, or one of a kind that cannot be read.
    """
    from PIL import Image

    try:
        with Image.open(file) as picture:
            picture.verify()  # a PNG's checksums, which decoding does not look at
        with Image.open(file) as picture:
            return flat(picture, background, str(file), channels)
    except DataError:
        raise
    except (*UNREADABLE, Image.DecompressionBombError) as error:
        raise DataError(f"cannot read {file} as an image ({words(error)}): repair or remove it") from error


def flat(picture: Any, background: str, name: str, channels: int = 0) -> Any:
    """Return Pillow's picture upright as its EXIF says, opaque, and grey (if it is, or `channels` is 1) or RGB.

    Of grey pictures with 16 bits, 0 to 65535, 8 bits are kept, and `info["deep"]` is true.

    Raises:
        DataError: names the picture, which has pixels of more than 8 bits per channel, and not 16.
    """
    from PIL import Image, ImageOps

    if picture.mode.startswith("I;16"):
        values = np.asarray(ImageOps.exif_transpose(picture))
        if 0 < (high := values.max()) < DEEP_LEAST:
            raise DataError(f"{name} has 16 bits per pixel and none above {high} of {DEEP}: save it with 8 bits per channel")
        reduced = Image.fromarray(from_16_bits(values))
        reduced.info["deep"] = True
        return reduced.convert("RGB") if channels == 3 else reduced
    mode = picture.mode
    if mode not in (*GREY, *COLOUR):
        raise DataError(f"{name} has pixels of the kind {mode}: save it with 8 bits per channel")
    picture = ImageOps.exif_transpose(picture)
    marked = mode in ("1", "L", "RGB") and "transparency" in picture.info  # one value or colour of it is transparent
    if marked or mode in ("P", "PA", "LA", "RGBA"):
        colours, picture = picture.convert("RGBA"), Image.new("RGB", picture.size, background)
        picture.paste(colours, mask=colours)  # c·α + ground·(1 − α), rounded
    return picture.convert("L" if channels == 1 or mode in GREY else "RGB")
