"""What networks trained on a set reach beside those trained on as many real images: one row a kind of network and augmentation.

The networks of a set differ in their initial weights, those of random images in the draw as well; every interval is Student's t
over the networks (see `claims`).
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import FileError
from ..spec import Training, full
from ..support.files import reason
from .claims import NOTHING, Estimate, Interval, between

if TYPE_CHECKING:
    import pandas as pd

SET, REAL = "set", ("herding", "random")
IMAGES = (SET, *REAL)
BESIDE = ("data_hash", "mean", "std", "counts", "training")  # of a line: what a set and real images have in common
IDENTITY = ("images", "key", *BESIDE)  # and on which images the networks were trained
COLUMNS = ["network", "augment", "images", "networks", "accuracy", "low", "high", "gain", "gain_low", "gain_high"]
COLUMNS += ["augmented", "augmented_low", "augmented_high", "accuracies"]
Accuracies = dict[tuple[str, str, str], list[float]]  # in percent, by network, augmentation and images


def frame(found: Mapping[tuple[str, str, str], Sequence[float]]) -> "pd.DataFrame":
    """Return a row for each network, augmentation and kind of images.

    The columns, with accuracies in percent and intervals of 95 %, infinite where a single network was trained:

    - `network`, `augment`, `images`: "set", "herding" or "random"; `networks`: how many were trained;
    - `accuracy`, `low`, `high`: the mean and its interval;
    - `gain`, `gain_low`, `gain_high`: by how much the set lies above these real images; NaN for the set;
    - `augmented`, `augmented_low`, `augmented_high`: by how much the augmentation raises the accuracy on the same images; NaN
      without augmentation, or where no network was trained without it;
    - `accuracies`: of each network.
    """
    import pandas as pd

    rows = []
    for (network, augment, images), accuracies in found.items():
        own = Estimate.over(accuracies)
        gain = _above(found.get((network, augment, SET)), own) if images != SET else NOTHING
        plain = found.get((network, "none", images))
        augmented = between(own, Estimate.over(plain)) if plain and augment != "none" else NOTHING
        row = dict(network=network, augment=augment, images=images, networks=len(accuracies))
        for name, interval in {"accuracy": own.interval, "gain": gain, "augmented": augmented}.items():
            ends = ("low", "high") if name == "accuracy" else (f"{name}_low", f"{name}_high")
            row |= dict(zip((name, *ends), interval, strict=True))
        rows.append(row | {"accuracies": tuple(accuracies)})
    return pd.DataFrame(rows, columns=COLUMNS)


def _above(one: Sequence[float] | None, other: Estimate) -> Interval:
    return between(Estimate.over(one), other) if one else NOTHING


def read_lines(path: Path | str | None) -> list[dict[str, Any]]:
    """Read what `dclib judge --record` wrote; a torn last line is left out, and a file that is not there, or None, has none.

    Raises:
        FileError: it cannot be read, or is no such file.
    """
    try:
        lines = Path(path).read_text().split("\n") if path and Path(path).exists() else []
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"cannot read {path}: {reason(error) if isinstance(error, OSError) else 'it is no text'}") from error
    found = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            record = json.loads(line)
            found.append(record | {name: record[name] for name in (*IDENTITY, "accuracies")})
        except (ValueError, TypeError, KeyError) as error:
            raise FileError(f"{path}, line {number}, is no record of `dclib judge`: name another file") from error
    return found


def recorded(lines: Sequence[dict[str, Any]], about: Mapping[str, Any]) -> dict[int, float]:
    """The accuracies by the number of the network that these lines have for images and a training."""
    same = [line for line in lines if all(line[name] == about[name] for name in IDENTITY)]
    return {int(j): accuracy for line in same for j, accuracy in line["accuracies"].items()}


def of_set(lines: Sequence[dict[str, Any]], key: str, epochs: int = 300) -> Accuracies:
    """What lines say of a set, and of the real images that it was judged beside; nothing for an unknown set.

    Args:
        lines: from `read_lines`.
        key: the set's hash.
        epochs: of the trainings that count.
    """
    lines = [line | {"training": full(Training()) | line["training"]} for line in lines]
    own = [line for line in lines if (line["images"], line["key"], line["training"]["epochs"]) == (SET, key, epochs)]
    beside = {json.dumps([line[name] for name in BESIDE]) for line in own}
    real = [line for line in lines if line["images"] != SET and json.dumps([line[name] for name in BESIDE]) in beside]
    found: dict[tuple[str, str, str], dict[int, float]] = {}
    for line in own + real:
        place = line["training"]["network"], line["training"]["augment"], line["images"]
        found.setdefault(place, {}).update({int(j): accuracy for j, accuracy in line["accuracies"].items()})
    order = dict.fromkeys(place[:2] for place in found)
    return {(*one, images): list(found[*one, images].values()) for one in order for images in IMAGES if (*one, images) in found}
