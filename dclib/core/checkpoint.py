"""The checkpoint: a file that keeps the tensors of a computation between two steps, and whose computation it is."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from ..errors import FileError
from ..support.files import array_checksum, write_atomic
from ..support.kinds import CHECKPOINT, kind_of


def save_tensors(path: Path | str, tensors: dict[str, Tensor], about: dict, identity: dict) -> None:
    """Write a checkpoint in one go: the older file is replaced as a whole or not at all.

    Args:
        path: the file.
        tensors: the tensors by name, on any device.
        about: numbers and lists to keep with them: `k`, the steps done, `losses`, `seconds` and others.
        identity: names and values that tell this computation from every other.

    Raises:
        FileError: the file cannot be written.
    """
    text = json.dumps({**identity, **about})
    kept = {name: tensors[name].detach().cpu().contiguous() for name in sorted(tensors)}
    write_atomic(path, safetensors.torch.save(kept, {"dclib": text, "crc": _checksum(text, kept)}))


def _checksum(text: str, tensors: dict[str, Tensor]) -> str:
    return array_checksum(text, *(t.contiguous().numpy() for t in tensors.values()))


def read_tensors(path: Path | str) -> tuple[dict[str, Tensor], dict]:
    """Read a checkpoint, whosesoever it is.

    Returns:
        The tensors on the CPU; and `identity` and `about` in one dictionary.

    Raises:
        FileError: the file is damaged or is something else.
    """
    try:
        with safetensors.safe_open(path, "pt") as file:
            text, crc = file.metadata()["dclib"], file.metadata().get("crc")
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
        about = json.loads(text)
        if not isinstance(about, dict) or (crc and crc != _checksum(text, tensors)):
            raise ValueError
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise _unusable(path) from error
    return tensors, about


def load_tensors(
    path: Path | str,
    identity: dict,
    names: set[str],
    values: Iterable[str] = ("k", "losses", "seconds"),
    also: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[dict[str, Tensor], dict]:
    """Read a checkpoint of a known computation.

    Args:
        path: the file.
        identity: the names and values with which the file was written.
        names: tensors that the file must have; it may have others.
        values: numbers and lists that the file must have.
        also: values that older files have in place of those in `identity`, by name.

    Returns:
        The tensors on the CPU; and `identity` and `about` in one dictionary.

    Raises:
        FileError: the file is damaged, is something else, or belongs to another run, data set, seed or engine.
    """
    tensors, about = read_tensors(path)
    if any(name not in about for name in values):
        raise _unusable(path)
    different = [name for name in identity if about.get(name) not in (identity[name], also.get(name, identity[name]))]
    if different == ["decay"] and (K := about.get("decay")):
        raise FileError(f"in the checkpoint {path} η_S decays over K = {K} outer steps: go on with -K {K}, or delete it")
    if different:
        begun = f"go on with --engine {about.get('engine')}, or delete it"
        advice = begun if different == ["engine"] else "delete it or name another"
        raise FileError(f"the checkpoint {path} belongs to another run (its {', '.join(different)} differ): {advice}")
    if not names <= set(tensors):
        raise _unusable(path)
    return tensors, about


def _unusable(path: Path | str) -> FileError:
    kind = kind_of(path)
    if kind not in ("", CHECKPOINT):
        return FileError(f"{path} is {kind} and no checkpoint: name another place for the checkpoint")
    return FileError(f"the checkpoint {path} is damaged: delete it to start this run again")
