"""What the files of results say: a record is one line of JSON, and a checkpoint knows how far it is.

Each line of a file is read once; a torn or damaged one is told.
"""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open

from ..errors import FileError
from ..spec.words import in_words as spelled
from ..support.files import array_checksum, reason

FILES = {"MakeSet": "sets.jsonl", "TrainNetworks": "networks.jsonl", "WholeTraining": "whole.jsonl", "TrainGan": "whole.jsonl"}
FILES |= {"LearnTasks": "tasks.jsonl", "TrainCandidate": "candidates.jsonl"}
UNTESTED = ("MakeSet", "TrainGan")  # runs of no accuracy


class RecordFile:
    """A file of records that other processes append to, of which each line is read once.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path | str):
        self.path, self.end, self.lines = Path(path), 0, 0

    def appended(self) -> Iterator[dict[str, Any]]:
        """Yield the records added since the last call; a torn last line, left by a killed process, is skipped with a warning.

        Raises:
            FileError: the file cannot be read, or a line that is not the last is no record.
        """
        try:
            with open(self.path, "rb") as file:
                file.seek(self.end)
                lines = file.readlines()
        except OSError as error:
            raise FileError(f"cannot read the records in {self.path}: {reason(error)}") from error
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    record = json.loads(line)
                    _check_record(record)
                except (ValueError, TypeError, KeyError, AttributeError) as error:
                    if number == len(lines) and not line.endswith(b"\n"):
                        warnings.warn(f"{self.path}: the last line is torn and is left out", stacklevel=2)
                        return
                    raise FileError(f"{self.path}, line {self.lines + 1}, is no record: delete that line") from error
                yield record
            self.end += len(line)
            self.lines += line.endswith(b"\n")

    @property
    def replaced(self) -> bool:
        """Whether what was read is no longer in the file: it is gone, or shorter."""
        return not self.path.exists() or self.path.stat().st_size < self.end


def values(record: dict[str, Any]) -> dict[str, Any]:
    """What a record says of each network, by its number: accuracies; of a set the hash, of a GAN the losses, as of network 0."""
    if record["kind"] in UNTESTED:
        return {"0": record["losses"] if record["kind"] == "TrainGan" else record.get("set_hash")}
    return record["accuracies"]


def _check_record(record: Any) -> None:
    if not isinstance(record["key"], str) or record["kind"] not in FILES:
        raise ValueError
    if record["kind"] not in UNTESTED:
        for network, accuracy in record["accuracies"].items():
            int(network), float(accuracy)


def checkpoint_about(path: Path | str) -> dict[str, Any] | None:
    """What a checkpoint says of itself, with `k`, the steps done; None if it is damaged or not there."""
    try:
        with safe_open(path, "np") as file:
            text, crc = file.metadata()["dclib"], file.metadata().get("crc")
            arrays = [file.get_tensor(name) for name in sorted(file.keys())]
        about = json.loads(text)
        return about if isinstance(about["k"], int) and crc in (None, array_checksum(text, *arrays)) else None
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        return None


def plain(record: dict[str, Any]) -> dict[str, Any]:
    """A record as it is on disk, without the name of its folder."""
    return {name: value for name, value in record.items() if name != "preset"}


def machine_of(record: dict[str, Any]) -> str:
    """The machine that a record was measured on, and before it the GPU if one did the work."""
    device = record.get("device", "cpu")
    return record["machine"] if device == "cpu" else f"{device} ({record['machine']})"


def in_words(record: dict[str, Any]) -> str:
    """The run of a record in a few words."""
    return spelled(record["kind"], record["run"])


class DataOf(NamedTuple):
    """What names the data of a run: its data sets, and how their images are seen."""

    names: tuple[str, ...]
    image_size: int = 0
    channels: int = 0
    held_out: int = 0

    @property
    def title(self) -> str:
        """The data sets' names."""
        return ", ".join(self.names)


def data_of(record: dict[str, Any]) -> DataOf:
    """What names the data of a record: those of its set, or, where it has none, its own."""
    run = record.get("run", {})
    source = run.get("set") or run
    names = source.get("tasks") or [source[name] for name in ("dataset",) if name in source]
    return DataOf(tuple(names), *(source.get(part, 0) for part in DataOf._fields[1:]))
