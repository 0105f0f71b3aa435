"""A condensed set in the forms that other programs read: an .npz of arrays, or a folder of PNG files, with a card or without.

All hold the images in data colours: values are clamped to [0, 1] and rounded to 256 steps. The .npz has the exact values, too.
Neither takes dclib to read. With test images added, dclib reads either as a data set.
"""

import csv
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import DataError, FileError
from ..support.files import write_atomic
from .card import card


class Tested(NamedTuple):
    """Test images, uint8 (n, height, width) or (n, height, width, 3), and their classes."""

    x: np.ndarray
    y: np.ndarray


def clamped(made: Any) -> float:
    """The share of the set's values that lie outside of the data's colours, in percent."""
    unit = made.unit()
    return 100.0 * float(((unit < 0) | (unit > 1)).mean())


def to_npz(made: Any, path: Path | str, tested: Tested | None = None) -> None:
    """Write one .npz, atomically.

    It holds `x_train` (uint8, data colours) and `y_train`, with `x_test` and `y_test` if they are given; and, exactly as
    learned, `images` (float32, (n, channels, height, width), normalised), `mean` and `std`: images · std + mean lies in [0, 1]
    where nothing is clamped. `class_names` are text. A set of Dataset Distillation has `order` and `rates` as
    well, one with soft labels `soft`.

    Raises:
        FileError: the place cannot be written.
    """
    arrays = {"x_train": made.pixels(), "y_train": made.labels}
    if tested is not None:
        arrays |= {"x_test": tested.x, "y_test": tested.y}
    exact = ("images", "mean", "std", "class_names", "order", "rates", "soft")
    arrays |= {name: np.array(value) for name in exact if (value := getattr(made, name)) is not None}
    file = BytesIO()
    np.savez_compressed(file, **arrays)
    write_atomic(path, file.getvalue())


def to_png(made: Any, folder: Path | str, tested: Tested | None = None) -> None:
    """Write train/<class>/<number>.png, and test/… if test images are given, and labels.csv: file, label, class.

    A class's folder begins with its number, so that alphabetical order is that of the labels.

    Raises:
        FileError: the folder exists and is not empty, or cannot be written.
        DataError: the images have neither one channel nor three.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileError(f"{folder} exists and is not empty: choose another name, or remove it")
    if made.images.shape[1] not in (1, 3):
        raise DataError(f"the images have {made.images.shape[1]} channels, which PNG cannot hold: export to npz")
    splits = {"train": Tested(made.pixels(), made.labels)} | ({"test": tested} if tested is not None else {})
    table = StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(("file", "label", "class"))
    for split, (x, y) in splits.items():
        for i, (pixels, label) in enumerate(zip(x, y, strict=True)):
            file = f"{split}/{class_folder(made.class_names, int(label))}/{i:05d}.png"
            write_atomic(folder / file, png(pixels))
            rows.writerow((file, int(label), made.class_names[label]))
    write_atomic(folder / "labels.csv", table.getvalue().encode())


def to_imagefolder(made: Any, folder: Path | str, tested: Tested | None = None) -> None:
    """Write the same as `to_png`, and README.md, the card by which the common hubs show and load the folder.

    Raises:
        FileError, DataError: as for `to_png`.
    """
    to_png(made, folder, tested)
    write_atomic(Path(folder) / "README.md", card(made, tested is not None, clamped(made)).encode())


FORMS = {"npz": to_npz, "png": to_png, "imagefolder": to_imagefolder}


def class_folder(names: tuple[str, ...], label: int) -> str:
    """The folder of a class: its number, in as many digits as the last, and its name, in letters that every system takes."""
    name = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in names[label])
    return f"{label:0{len(str(len(names) - 1))}d}-{name}"


def png(pixels: np.ndarray) -> bytes:
    """One image, uint8 (height, width) or (height, width, 3), as the content of a PNG file."""
    from PIL import Image

    file = BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()
