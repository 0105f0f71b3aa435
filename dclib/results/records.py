"""What the files of results say: a record is one line of JSON, and a checkpoint knows how far it is.

Each line of a file is read once; a torn or damaged one is told.
"""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from ..errors import FileError
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


def read_records(path: Path | str) -> Iterator[dict[str, Any]]:
    """Yield all records of one file, as `RecordFile.appended` does."""
    return RecordFile(path).appended()


def numbers(record: dict[str, Any]) -> set[int]:
    """The numbers of the networks that a record tells of; a set, or a GAN, counts as one, number 0."""
    return set(map(int, record.get("accuracies", (0,))))


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


def in_words(run: dict[str, Any]) -> str:
    """A run, spelled out as records spell it, in a few words."""
    if "tasks" in run:
        hyper = run["hyper"]
        how = f"memory filled by {hyper['memory']}, {'with' if hyper['distillation'] else 'without'} distillation"
        return f"{', '.join(run['tasks'])}, {how}, seed {run['seed']}"
    if "images" in run:
        on = in_words(run["set"]) if run["set"] else run["dataset"]
        return f"{run['network']} for {run['hyper']['steps']} steps on {on}"
    made = run.get("set", run)
    if "method" not in made:
        return f"{run.get('network', 'a GAN')} on the whole of {run['dataset']}, seed {run['seed']}"
    how = {"condense": f"condensed with {made['hyper']['network']}", "gan": "drawn by a GAN"}.get(made["method"], made["method"])
    if made["method"] == "distill":
        how = f"distilled with {made['distillation']['network']}"
    if run.get("way") == "rates":
        how += ", at its learned rates"
    text = f"{made['dataset']}, {made['hyper']['ipc']}/class, {how}, seed {made['seed']}"
    text += ", tested on held-out images" if run.get("tested_on") == "held-out" else ""
    return f"{run['hyper']['network']} on {text}" if "set" in run else text


def data_of(record: dict[str, Any]) -> tuple:
    """What names the data of a record."""
    made = record.get("run", {})
    made = made.get("set") or made
    name = made.get("dataset") or ", ".join(made.get("tasks", ())) or None
    return name, *(made.get(part, 0) for part in ("image_size", "channels", "held_out"))
