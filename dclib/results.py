"""Records and condensed sets on disk.

A record is one line of JSON: the key and the spelled-out run, its raw values, and where, when and by what code it was
measured. Records live in `results/<preset>/`, sets beside them as safetensors; both are found by key, whatever the preset.
"""

import json
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from .errors import DataError, FileError
from .files import append_line, checksum, reason, write_atomic
from .presets import Cell, Run

FILES = {"MakeSet": "sets.jsonl", "TrainNetworks": "networks.jsonl", "WholeTraining": "whole.jsonl"}
KEPT_IPC = 10  # sets of seed 0 with up to so many images per class are kept in git


def results_root() -> Path:
    """The folder of the results: $DCLIB_RESULTS, else `results/` beside the package, else the user's cache folder."""
    if given := os.environ.get("DCLIB_RESULTS"):
        return Path(given)
    beside = Path(__file__).resolve().parents[1] / "results"
    return beside if beside.is_dir() else Path.home() / ".cache" / "dclib" / "results"


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
    """

    images: np.ndarray
    labels: np.ndarray
    dataset: str
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    key: str = ""
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def ipc(self) -> int:
        """Images per class (of the largest class)."""
        return int(np.bincount(self.labels).max())

    def pixels(self) -> np.ndarray:
        """The images in data colours: uint8 (n, height, width) or (n, height, width, 3), clamped to [0, 255]."""
        shape = (1, -1, 1, 1)
        unit = self.images * np.reshape(self.std, shape) + np.reshape(self.mean, shape)
        bytes_ = np.clip(np.rint(unit * 255), 0, 255).astype(np.uint8)
        return bytes_[:, 0] if bytes_.shape[1] == 1 else bytes_.transpose(0, 2, 3, 1)

    def save(self, path: Path | str) -> None:
        """Write the set as safetensors, atomically.

        Raises:
            FileError: the place cannot be written.
        """
        about = {"dataset": self.dataset, "class_names": self.class_names, "mean": self.mean, "std": self.std}
        about |= {"key": self.key, "about": self.about}
        tensors = {"images": np.ascontiguousarray(self.images, np.float32), "labels": np.ascontiguousarray(self.labels, np.int64)}
        text = json.dumps(about)
        write_atomic(path, safetensors.numpy.save(tensors, {"dclib": text, "crc": self._checksum(text)}))

    def _checksum(self, text: str) -> str:
        arrays = (np.ascontiguousarray(self.images, np.float32), np.ascontiguousarray(self.labels, np.int64))
        return checksum(text.encode(), *(part for a in arrays for part in (repr(a.shape).encode(), a.tobytes())))

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
            about = json.loads(text)
            names, mean, std = (tuple(about[name]) for name in ("class_names", "mean", "std"))
            found = cls(images, labels, about["dataset"], names, mean, std, about["key"], about["about"])
            found._check()
            if crc and crc != found._checksum(text):
                raise DataError("its checksum is wrong")
        except FileError:
            raise
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise FileError(
                f"{path} is no condensed set, or a damaged one ({_first_line(error)}): delete it and make it again"
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
        if not all(isinstance(text, str) for text in (self.dataset, self.key, *self.class_names)) or not isinstance(
            self.about, dict
        ):
            raise DataError("names that are no text")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


class Store:
    """The records and sets below one folder.

    Args:
        root: the folder; by default that of `results_root`.
    """

    def __init__(self, root: Path | str | None = None):
        self.root = Path(root) if root is not None else results_root()

    @cached_property
    def records(self) -> dict[str, list[dict[str, Any]]]:
        """All records by key, oldest first."""
        found: dict[str, list[dict[str, Any]]] = {}
        for path in sorted(self.root.glob("*/*.jsonl")):
            for record in read_records(path):
                found.setdefault(record["key"], []).append({**record, "preset": path.parent.name})
        for records in found.values():
            records.sort(key=lambda r: str(r.get("started", "")))
        return found

    def add(self, preset: str, record: dict[str, Any]) -> None:
        """Append a record; a killed process leaves it whole or not at all.

        Raises:
            FileError: the folder cannot be written.
        """
        known = self.records  # read before the file has the new one, too
        append_line(self.root / preset / FILES[record["kind"]], json.dumps(record, sort_keys=True))
        known.setdefault(record["key"], []).append({**record, "preset": preset})

    def accuracies(self, key: str) -> dict[int, float]:
        """The test accuracies in percent recorded for a run that tests networks, by network; the oldest counts if there are two."""
        merged: dict[int, float] = {}
        for record in self.records.get(key, []):
            for network, value in record["accuracies"].items():
                merged.setdefault(int(network), value)
        return merged

    def missing(self, run: Run) -> list[int]:
        """The numbers of the networks of a run that are not recorded."""
        recorded = self.accuracies(run.key)
        return [j for j in range(run.networks) if j not in recorded]

    def incomplete(self, cells: Sequence[Cell]) -> list[Cell]:
        """Those cells of which a network is not recorded."""
        return [cell for cell in cells if any(self.missing(run) for run in cell.runs())]

    def set_path(self, preset: str, key: str) -> Path:
        """Where the set of that key is written."""
        return self.root / preset / "sets" / f"{key}.safetensors"

    def checkpoint_path(self, preset: str, key: str) -> Path:
        """Where the run of that key keeps its state while it is under way."""
        return self.root / preset / "checkpoints" / f"{key}.safetensors"

    def whole_path(self, preset: str, key: str) -> Path:
        """Where the training of that key on the whole set keeps its state: where it is, else at that preset."""
        name = f"whole/{key}.safetensors"
        return next(iter(sorted(self.root.glob(f"*/{name}"))), self.root / preset / name)

    def find_set(self, key: str) -> Path | None:
        """The file of a set, whatever the preset it was made at."""
        return next(iter(sorted(self.root.glob(f"*/sets/{key}.safetensors"))), None)


def read_records(path: Path | str) -> Iterator[dict[str, Any]]:
    """Yield the records of one file; a torn last line, left by a killed process, is skipped with a warning.

    Raises:
        FileError: a line that is not the last is no record.
    """
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        raise FileError(f"cannot read the records in {path}: {reason(error)}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            _check_record(record)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            if number == len(lines):
                warnings.warn(f"{path}: the last line is torn and is left out", stacklevel=2)
                return
            raise FileError(f"{path}, line {number}, is no record: delete that line") from error
        yield record


def _check_record(record: Any) -> None:
    if not isinstance(record["key"], str) or record["kind"] not in FILES:
        raise ValueError
    if record["kind"] != "MakeSet":
        for network, accuracy in record["accuracies"].items():
            int(network), float(accuracy)
