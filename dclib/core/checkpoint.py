"""The state of a long computation between two steps, and how it is kept on disk, so that a stopped run loses little.

`State` is Algorithm 1's; the baselines keep tensors of other names in the same kind of file.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import safetensors.torch
import torch
from jaxtyping import Float
from safetensors import SafetensorError
from torch import Tensor

from ..errors import FileError
from ..support.files import array_checksum, write_atomic
from ..support.kinds import CHECKPOINT, kind_of


@dataclass
class State:
    """What Algorithm 1 carries from one outer step to the next."""

    images: Float[Tensor, "classes ipc c h w"]  # S
    velocity: Float[Tensor, "classes ipc c h w"]  # of the image optimiser
    k: int = 0  # outer steps done
    losses: list[float] = field(default_factory=list)  # mean over t of the loss summed over classes, for each outer step
    seconds: float = 0.0


def save_checkpoint(path: Path | str, state: State, identity: dict) -> None:
    """Write the state atomically."""
    about = {"k": state.k, "losses": state.losses, "seconds": state.seconds}
    save_tensors(path, {"images": state.images, "velocity": state.velocity}, about, identity)


def load_checkpoint(path: Path | str, identity: dict, device: torch.device, also: dict[str, Any] | None = None) -> State:
    """Read a state back.

    Args:
        path: the file.
        identity: as it was given when the file was written.
        device: where the state is put.
        also: by name, what else may stand in its place.

    Raises:
        FileError: the file is damaged or belongs to another run, data set, seed or engine.
    """
    tensors, about = load_tensors(path, identity, {"images", "velocity"}, also=also or {})
    return State(tensors["images"].to(device), tensors["velocity"].to(device), about["k"], about["losses"], about["seconds"])


def save_tensors(path: Path | str, tensors: dict[str, Tensor], about: dict, identity: dict) -> None:
    """Write tensors by name, and what is to be known about them, atomically.

    Args:
        path: the file; an older one is replaced as a whole.
        tensors: on any device.
        about: numbers and lists beside them: `k`, the steps done, `seconds`, and others.
        identity: names and values that tell this run from every other.

    Raises:
        FileError: the file cannot be written.
    """
    text = json.dumps({**identity, **about})
    kept = {name: tensors[name].detach().cpu().contiguous() for name in sorted(tensors)}
    write_atomic(path, safetensors.torch.save(kept, {"dclib": text, "crc": _checksum(text, kept)}))


def _checksum(text: str, tensors: dict[str, Tensor]) -> str:
    return array_checksum(text, *(t.contiguous().numpy() for t in tensors.values()))


def load_tensors(
    path: Path | str,
    identity: dict,
    names: set[str],
    values: Iterable[str] = ("k", "losses", "seconds"),
    also: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[dict[str, Tensor], dict]:
    """Read back, on the CPU, what `save_tensors` wrote.

    Args:
        path: the file.
        identity: as it was given when the file was written.
        names: those that the file must have, if not alone.
        values: what must be known about them.
        also: by name, what may stand in the file in place of what `identity` has.

    Raises:
        FileError: the file is damaged, is something else, or belongs to another run, data set, seed or way of computing.
    """
    try:
        with safetensors.safe_open(path, "pt") as file:
            text, crc = file.metadata()["dclib"], file.metadata().get("crc")
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
        about = json.loads(text)
        different = [name for name in identity if about.get(name) not in (identity[name], also.get(name, identity[name]))]
        if crc and crc != _checksum(text, tensors):
            raise ValueError("its checksum is wrong")
        if missing := [name for name in values if name not in about]:
            raise KeyError(*missing)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unusable(path) from error
    if different:
        listed, K = ", ".join(different), about.get("decay")
        advice = {"engine": f"go on with --engine {about.get('engine')}, or delete it"}.get(listed, "delete it or name another")
        if listed == "decay" and K:
            raise FileError(f"in the checkpoint {path} η_S decays over K = {K} outer steps: go on with -K {K}, or delete it")
        raise FileError(f"the checkpoint {path} belongs to another run (its {listed} differ): {advice}")
    if not names <= set(tensors):
        raise _unusable(path)
    return tensors, about


def _unusable(path: Path | str) -> FileError:
    kind = kind_of(path)
    if kind not in ("", CHECKPOINT):
        return FileError(f"{path} is {kind} and no checkpoint: name another place for the checkpoint")
    return FileError(f"the checkpoint {path} is damaged: delete it to start this run again")
