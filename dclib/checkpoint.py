"""The state of Algorithm 1 between two outer steps, and how it is kept on disk, so that a stopped run loses little."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import safetensors.torch
import torch
from jaxtyping import Float
from safetensors import SafetensorError
from torch import Tensor

from .errors import FileError
from .files import array_checksum, write_atomic


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
    text = json.dumps({**identity, "k": state.k, "losses": state.losses, "seconds": state.seconds})
    tensors = {"images": state.images.cpu(), "velocity": state.velocity.cpu()}
    write_atomic(path, safetensors.torch.save(tensors, {"dclib": text, "crc": _checksum(text, tensors)}))


def _checksum(text: str, tensors: dict[str, Tensor]) -> str:
    return array_checksum(text, *(t.contiguous().numpy() for t in tensors.values()))


def load_checkpoint(path: Path | str, identity: dict, device: torch.device) -> State:
    """Read a state back.

    Raises:
        FileError: the file is damaged or belongs to another run, data set, seed or engine.
    """
    try:
        with safetensors.safe_open(path, "pt") as file:
            text, crc = file.metadata()["dclib"], file.metadata().get("crc")
            tensors = {name: file.get_tensor(name) for name in ("images", "velocity")}
        if crc and crc != _checksum(text, tensors):
            raise ValueError("its checksum is wrong")
        about = json.loads(text)
        state = State(tensors["images"].to(device), tensors["velocity"].to(device), about["k"], about["losses"], about["seconds"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise FileError(f"the checkpoint {path} is damaged: delete it to start this run again") from error
    if different := [name for name in identity if about.get(name) != identity[name]]:
        names = ", ".join(different)
        raise FileError(f"the checkpoint {path} belongs to another run (its {names} differ): delete it or name another")
    return state
