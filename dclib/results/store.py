"""Records and condensed sets on disk, found by key.

A record is one line of JSON: the key and the spelled-out run, its raw values, and where, when and by what code it was
measured. Records live in `results/<preset>/`, sets beside them as safetensors; both are found by key, whatever the preset.
The preset `smoke` has a folder of its own, so that no page and no test depends on what it recorded.
"""

import json
import os
from bisect import insort
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..spec.keys import Run
from ..support.files import append_line, locked
from .lines import FILES, DataOf, RecordFile, checkpoint_about, data_of, values
from .sets import CondensedSet

__all__ = ["CondensedSet", "Store", "results_root"]


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
        shared: the root of another store on the same disk, whose sets are read, and where the states of what is under way are
            kept, and removed by that store's process.
        preset: whose records are looked for, where no folder is given.
    """

    def __init__(self, root: Path | str | None = None, shared: Path | None = None, preset: str = ""):
        self.root = Path(root) if root is not None else results_root(preset)
        self.shared = shared
        self._files: dict[Path, RecordFile] = {}
        self._records: dict[str, list[dict[str, Any]]] = {}
        self._data: dict[DataOf, set[str]] = {}

    @property
    def records(self) -> dict[str, list[dict[str, Any]]]:
        """All records by key, oldest first, as they were when they were last read."""
        if not self._files:
            self.refresh()
        return self._records

    @property
    def data(self) -> dict[DataOf, set[str]]:
        """For all data that records name, the hashes recorded with it."""
        return self._data if self.records else {}

    def refresh(self) -> None:
        """Read what any process has appended since the files were last read."""
        if any(file.replaced for file in self._files.values()):
            self._files, self._records, self._data = {}, {}, {}
        for path in sorted(self.root.glob("*/*.jsonl")):
            for record in self._files.setdefault(path, RecordFile(path)).appended():
                known = self._records.setdefault(record["key"], [])
                insort(known, {**record, "preset": path.parent.name}, key=lambda r: str(r.get("started", "")))
                if "data_hash" in record:
                    self._data.setdefault(data_of(record), set()).add(record["data_hash"])

    def add(self, preset: str, record: dict[str, Any]) -> None:
        """Append a record; a killed process leaves it whole or not at all.

        Raises:
            FileError: the folder cannot be written.
        """
        self.refresh()  # a damaged file is told before anything is written
        append_line(self.root / preset / FILES[record["kind"]], json.dumps(record, sort_keys=True))
        self.refresh()

    def add_once(self, preset: str, record: dict[str, Any]) -> bool:
        """Append a record, unless another process has recorded the same set, or all of its networks.

        Raises:
            FileError: the folder cannot be read or written.
        """
        with locked(self.root / preset):
            self.refresh()
            if set(map(int, values(record))) <= self.recorded(record["key"]):
                return False
            self.add(preset, record)
            return True

    def recorded(self, key: str) -> set[int]:
        """The numbers of the networks recorded of a run; of a run that trains none it is 0."""
        return {int(network) for record in self.records.get(key, ()) for network in values(record)}

    def accuracies(self, key: str) -> dict[int, float]:
        """The test accuracies in percent recorded for a run that tests networks, by network; the oldest counts if there are two."""
        merged: dict[int, float] = {}
        for record in self.records.get(key, []):
            for network, value in record["accuracies"].items():
                merged.setdefault(int(network), value)
        return merged

    def missing(self, run: Run) -> list[int]:
        """The numbers of the networks of a run that are not recorded."""
        recorded = self.recorded(run.key)
        return [j for j in range(run.networks) if j not in recorded]

    def incomplete(self, cells: Sequence[Any]) -> list[Any]:
        """Those cells of which a network is not recorded."""
        return [cell for cell in cells if any(self.missing(run) for run in cell.runs())]

    def set_path(self, preset: str, key: str) -> Path:
        """Where the set of that key is written."""
        return self.root / preset / "sets" / f"{key}.safetensors"

    def find_set(self, key: str) -> Path | None:
        """The file of a set, whatever the preset it was made at."""
        return self._find(f"sets/{key}.safetensors")

    def whole_path(self, preset: str, key: str) -> Path:
        """Where the training of that key on the whole set keeps its state: where it is, else at that preset."""
        name = f"whole/{key}.safetensors"
        return self._find(name) or (self.shared or self.root) / preset / name

    def _find(self, name: str) -> Path | None:
        """A file at any preset, in the shared folder, too."""
        roots = [self.root, *([self.shared] if self.shared else [])]
        return next((path for root in roots for path in sorted(root.glob(f"*/{name}"))), None)

    def has(self, run: Run) -> bool:
        """Whether a run is recorded, and what other runs take from it is here."""
        if self.missing(run):
            return False
        if run.leaves == "sets":
            return self.find_set(run.key) is not None
        if run.leaves == "whole":
            return run.finished(checkpoint_about(self.whole_path("", run.key)) or {})
        return True

    def indices(self, key: str) -> list[list[int]] | None:
        """The recorded indices of a set of real images, by class; None where none are recorded."""
        return next((record["indices"] for record in self.records.get(key, []) if "indices" in record), None)

    def checkpoint_path(self, preset: str, key: str) -> Path:
        """Where the run of that key keeps its state while it is under way."""
        return (self.shared or self.root) / preset / "checkpoints" / f"{key}.safetensors"

    def remove_checkpoint(self, preset: str, key: str) -> None:
        """Remove the checkpoint of a run that is recorded, if it is ours."""
        if self.shared is None:
            self.checkpoint_path(preset, key).unlink(missing_ok=True)
