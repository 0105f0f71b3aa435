"""Reading the user's own images: a folder with train/<class>/… and test/<class>/…, as numpy arrays."""

from collections import defaultdict
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np

from ..errors import DataError
from .formats import UNREADABLE, Raw, no_data, words
from .pixels import resize

GREY = ("1", "L", "LA")  # Pillow's modes of at most 8 bits per channel, without colour
COLOUR = ("RGB", "RGBA", "RGBX", "P", "PA", "CMYK", "YCbCr", "HSV", "LAB")
BACKGROUNDS = {"white": 255, "black": 0}  # on which transparent images are laid
SYSTEM = ("__macosx", "thumbs.db", "ehthumbs.db", "desktop.ini")  # what systems leave in folders, besides what begins with a dot


def read_folder(path: Path, image_size: int = 0, channels: int = 0, background: str = "white") -> Raw:
    """Read an image folder; its classes are the names of the folders in alphabetical order.

    Args:
        path: the folder that holds train and test.
        image_size: each image is resized to this square size; with 0 all must be square and of one size.
        channels: 1 reads grey, 3 reads RGB, 0 reads grey if every image is grey and else RGB.
        background: white or black, on which transparent images are laid.

    Raises:
        DataError: a folder or a class is missing or empty, a file is no image, or the sizes differ.
    """
    if path.is_file():
        raise no_data(path)
    if not path.is_dir():
        raise DataError(f"there is no folder {path}: give the path of a folder with train/<class>/ and test/<class>/")
    train, test = (_class_files(path / split) for split in ("train", "test"))
    if odd := sorted(train.keys() ^ test.keys()):
        split = "test" if odd[0] in train else "train"
        raise DataError(f"{path / split} has no folder {odd[0]!r} as its counterpart has: each class needs images in both")
    files = [file for split in (train, test) for members in split.values() for file in members]
    channels = channels or (1 if all(mode_of(file) in GREY for file in files) else 3)
    images = np.stack(_read_all(files, image_size, channels, background))
    labels = [np.repeat(np.arange(len(split)), [len(members) for members in split.values()]) for split in (train, test)]
    count = len(labels[0])
    return Raw(images[:count], labels[0], images[count:], labels[1], str(path), tuple(train))


def _class_files(split: Path) -> dict[str, list[Path]]:
    """Return the files of each class of train/ or test/, in alphabetical order; é is one letter however a system writes it."""
    if not split.is_dir():
        raise DataError(f"there is no folder {split}: an image folder holds train/<class>/ and test/<class>/")
    entries = _listed(split)
    if stray := [entry for entry in entries if not entry.is_dir()]:
        raise DataError(f"{stray[0]} lies in no class: move it into {split}/<class>/ or remove it")
    if not entries:
        raise DataError(f"{split} has no class: put the images into {split}/<class>/")
    classes: dict[str, list[Path]] = defaultdict(list)
    for entry in sorted(entries, key=lambda entry: normal(entry.name)):
        classes[normal(entry.name)] += _listed(entry)
    if nested := [(name, member) for name, members in classes.items() for member in members if member.is_dir()]:
        name, inner = nested[0]
        advice = f"move its images into {inner.parent}, or the folder into {split} as a class of its own"
        raise DataError(f"{inner} is a folder within the class {name!r}, and classes cannot be nested: {advice}")
    if empty := [name for name, members in classes.items() if not members]:
        raise DataError(f"the class {empty[0]!r} has no image in {split}: add images or remove its folders")
    return classes


def normal(name: str) -> str:
    """A class's name in Unicode's composed form, whichever form a system gave it."""
    return normalize("NFC", name)


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(x for x in folder.iterdir() if not x.name.startswith(".") and x.name.lower() not in SYSTEM)
    except OSError as error:
        raise DataError(f"cannot read the folder {folder} ({words(error)}): check its permissions") from error


def _read_all(files: list[Path], image_size: int, channels: int, background: str) -> list[np.ndarray]:
    images: list[np.ndarray] = []
    for file in files:
        pixels = _pixels(file, channels, background)
        height, width = pixels.shape[:2]
        if not image_size and height != width:
            raise DataError(f"{file} is {width}×{height} pixels, not square: give an image size to which all are resized")
        if not image_size and images and pixels.shape != images[0].shape:
            first = "×".join(map(str, images[0].shape[:2]))
            raise DataError(f"{file} is {width}×{height} pixels, {files[0]} {first}: give an image size to which all are resized")
        images.append(_fitted(pixels, image_size) if image_size else pixels)
    return images


def _fitted(pixels: np.ndarray, side: int) -> np.ndarray:
    return resize(pixels.transpose(2, 0, 1)[None], side)[0].transpose(1, 2, 0)


def mode_of(file: Path) -> str:
    with _open(file) as image:
        return image.mode


def flat(image: Any, channels: int, background: str) -> Any:
    """A PIL image of a mode in `GREY` or `COLOUR`, upright as its EXIF says, opaque, with one channel or with three."""
    from PIL import ImageOps

    image = ImageOps.exif_transpose(image)
    marked = image.mode in ("1", "L", "RGB") and "transparency" in image.info  # one value or colour of it is transparent
    if marked or image.mode in ("P", "PA", "LA", "RGBA"):
        image = _laid_on(image.convert("RGBA"), BACKGROUNDS[background])
    return image.convert("L" if channels == 1 else "RGB")


def _laid_on(image: Any, ground: int) -> Any:
    """An RGBA image on a ground of one grey: c·α + ground·(1 − α), rounded, which leaves opaque pixels as they are."""
    from PIL import Image

    pixels = np.asarray(image).astype(np.uint32)
    colours, alpha = pixels[..., :3], pixels[..., 3:]
    return Image.fromarray(((colours * alpha + ground * (255 - alpha) + 127) // 255).astype(np.uint8))


def _pixels(file: Path, channels: int, background: str) -> np.ndarray:
    """Decode one image as uint8 (H, W, C)."""
    with _open(file) as image:
        try:
            image.verify()  # a PNG's checksums, which decoding does not look at
        except (*UNREADABLE, SyntaxError) as error:
            raise _unreadable(file, error) from error
    with _open(file) as image:
        try:
            pixels = np.asarray(flat(image, channels, background))
        except (*UNREADABLE, SyntaxError) as error:
            raise _unreadable(file, error) from error
    return pixels.reshape(*pixels.shape[:2], channels)


def _open(file: Path):
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError(f"{file} needs Pillow, which cannot be imported: pip install pillow") from error
    try:
        image = Image.open(file)
    except (*UNREADABLE, SyntaxError, Image.DecompressionBombError) as error:
        raise _unreadable(file, error) from error
    if image.mode not in (*GREY, *COLOUR):
        image.close()
        raise DataError(f"{file} has pixels of the kind {image.mode}: save it with 8 bits per channel")
    return image


def _unreadable(file: Path, error: BaseException) -> DataError:
    why = "no known format" if type(error).__name__ == "UnidentifiedImageError" else words(error)
    return DataError(f"cannot read {file} as an image ({why}): repair or remove it")
