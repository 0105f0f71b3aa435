"""Records and condensed sets on disk.

A record is one line of JSON: the key and the spelled-out run, its raw values, and where, when and by what code it was
measured. Records live in `results/<preset>/`, sets beside them as safetensors; both are found by key, whatever the preset.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from .applications import ApplicationRun
from .errors import DataError, FileError, first_line
from .files import append_line, array_checksum, write_atomic
from .presets import Cell, Run
from .records import FILES, checkpoint_about, read_records
from .spec import TrainGan, WholeTraining
from .studies import Case

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

    @property
    def hash(self) -> str:
        """16 hexadecimal digits of a SHA-256 over images and labels."""
        return hashlib.sha256(self.images.tobytes() + self.labels.tobytes()).hexdigest()[:16]

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
        return array_checksum(text, np.ascontiguousarray(self.images, np.float32), np.ascontiguousarray(self.labels, np.int64))

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
                f"{path} is no condensed set, or a damaged one ({first_line(error)}): delete it and make it again"
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


class Store:
    """The records and sets below one folder.

    Args:
        root: the folder; by default that of `results_root`.
        checkpoints: the root of another store, where the states of what is under way are kept, and removed when it has the set;
            with them those of trainings on the whole set.
    """

    def __init__(self, root: Path | str | None = None, checkpoints: Path | None = None):
        self.root = Path(root) if root is not None else results_root()
        self.checkpoints = checkpoints

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

    def add_once(self, preset: str, record: dict[str, Any]) -> bool:
        """Append a record, unless another process has recorded the same set, or all of its networks, since ours were read.

        Raises:
            FileError: the folder cannot be read or written.
        """
        self.refresh()
        known = self.records.get(record["key"], [])
        if known and not set(record.get("accuracies", ())).difference(*(r.get("accuracies", ()) for r in known)):
            return False
        self.add(preset, record)
        return True

    def refresh(self) -> None:
        """Read the records anew when they are next asked for: another process may have added some."""
        self.__dict__.pop("records", None)

    def accuracies(self, key: str) -> dict[int, float]:
        """The test accuracies in percent recorded for a run that tests networks, by network; the oldest counts if there are two."""
        merged: dict[int, float] = {}
        for record in self.records.get(key, []):
            for network, value in record["accuracies"].items():
                merged.setdefault(int(network), value)
        return merged

    def missing(self, run: Run | ApplicationRun) -> list[int]:
        """The numbers of the networks of a run that are not recorded."""
        recorded = self.accuracies(run.key)
        return [j for j in range(run.networks) if j not in recorded]

    def incomplete(self, cells: Sequence[Cell | Case]) -> list[Cell | Case]:
        """Those cells of which a network is not recorded."""
        return [cell for cell in cells if any(self.missing(run) for run in cell.runs())]

    def set_path(self, preset: str, key: str) -> Path:
        """Where the set of that key is written."""
        return self.root / preset / "sets" / f"{key}.safetensors"

    def checkpoint_path(self, preset: str, key: str) -> Path:
        """Where the run of that key keeps its state while it is under way."""
        return (self.checkpoints or self.root) / preset / "checkpoints" / f"{key}.safetensors"

    def remove_checkpoint(self, preset: str, key: str) -> None:
        """Remove the checkpoint of a run that is recorded, if it is ours."""
        if self.checkpoints is None:
            self.checkpoint_path(preset, key).unlink(missing_ok=True)

    def whole_path(self, preset: str, key: str) -> Path:
        """Where the training of that key on the whole set keeps its state: where it is, else at that preset."""
        root, name = self.checkpoints or self.root, f"whole/{key}.safetensors"
        return next(iter(sorted(root.glob(f"*/{name}"))), root / preset / name)

    def is_trained(self, run: WholeTraining | TrainGan) -> bool:
        """Whether a training on the whole set is recorded and its state kept to the end."""
        about = checkpoint_about(self.whole_path("", run.key)) or {}
        if isinstance(run, TrainGan):
            return run.key in self.records and about.get("k") == run.hyper.steps
        return run.key in self.records and len(about.get("epoch_accuracies", ())) == run.epochs

    def indices(self, key: str) -> list[list[int]] | None:
        """The recorded indices of a set of real images, by class; None where none are recorded."""
        return next((record["indices"] for record in self.records.get(key, []) if "indices" in record), None)

    def find_set(self, key: str) -> Path | None:
        """The file of a set, whatever the preset it was made at."""
        return next(iter(sorted(self.root.glob(f"*/sets/{key}.safetensors"))), None)
