"""Records and condensed sets on disk, found by key.

A record is one line of JSON: the key and the spelled-out run, its raw values, and where, when and by what code it was
measured. Records live in `results/<preset>/`, sets beside them as safetensors; both are found by key, whatever the preset.
The preset `smoke` has a folder of its own, so that no page and no test depends on what it recorded.
"""

import json
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ..experiments.presets import Cell, Run
from ..spec.applications import ApplicationRun
from .sets import CondensedSet
from .records import FILES, checkpoint_about, read_records
from ..spec import TrainGan, WholeTraining
from ..experiments.studies import Case
from ..support.files import append_line, locked

__all__ = ["CondensedSet", "Store", "read_records", "results_root"]


def results_root(preset: str = "") -> Path:
    """The folder of a preset's results: $DCLIB_RESULTS, else `results/` beside the package, else one in the user's cache folder.

    In place of `results/` the preset `smoke` has `_build/smoke/`.
    """
    if given := os.environ.get("DCLIB_RESULTS"):
        return Path(given)
    package, name = Path(__file__).resolve().parents[2], "_build/smoke" if preset == "smoke" else "results"
    return (package if (package / "results").is_dir() else Path.home() / ".cache" / "dclib") / name


class Store:
    """The records and sets below one folder.

    Args:
        root: the folder; by default that of `results_root` for the preset.
        checkpoints: the root of another store, where the states of what is under way are kept, and removed when it has the set;
            with them those of trainings on the whole set.
        preset: whose records are looked for, where no folder is given.
    """

    def __init__(self, root: Path | str | None = None, checkpoints: Path | None = None, preset: str = ""):
        self.root = Path(root) if root is not None else results_root(preset)
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
        with locked(self.root / preset):
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
