"""The state of Algorithm 1 between two outer steps, and how it is kept on disk, so that a stopped run loses little."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import safetensors.torch
import torch
from jaxtyping import Float
from safetensors import SafetensorError
from torch import Tensor

from .errors import FileError
from .files import checksum, write_atomic


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
    about = {**identity, "k": state.k, "losses": state.losses, "seconds": state.seconds}
    save_tensors(path, {"images": state.images, "velocity": state.velocity}, about)


def load_checkpoint(path: Path | str, identity: dict, device: torch.device) -> State:
    """Read a state back.

    Raises:
        FileError: the file is damaged or belongs to another run, data set, seed or engine.
    """
    tensors, about = load_tensors(path, identity, ("images", "velocity"), ("k", "losses", "seconds"))
    return State(tensors["images"].to(device), tensors["velocity"].to(device), about["k"], about["losses"], about["seconds"])


def save_tensors(path: Path | str, tensors: dict[str, Tensor], about: dict) -> None:
    """Write tensors and what is to be said of them (JSON), atomically and with a checksum."""
    text, tensors = json.dumps(about), {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    write_atomic(path, safetensors.torch.save(tensors, {"dclib": text, "crc": _checksum(text, tensors)}))


def load_tensors(
    path: Path | str, identity: dict, names: Iterable[str] = (), more: Iterable[str] = ()
) -> tuple[dict[str, Tensor], dict]:
    """Read back what `save_tensors` wrote.

    Args:
        path: the file.
        identity: what must be said of the tensors.
        names: of tensors that must be there.
        more: what else must be said.

    Raises:
        FileError: the file is damaged or belongs to another run.
    """
    try:
        with safetensors.safe_open(path, "pt") as file:
            text, crc = file.metadata()["dclib"], file.metadata().get("crc")
            tensors = {name: file.get_tensor(name) for name in {*file.keys(), *names}}
        if crc and crc != _checksum(text, tensors):
            raise ValueError("its checksum is wrong")
        about = json.loads(text)
        _ = [about[name] for name in more]
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise FileError(f"the checkpoint {path} is damaged: delete it to start this run again") from error
    if different := [name for name in identity if about.get(name) != identity[name]]:
        names = ", ".join(different)
        raise FileError(f"the checkpoint {path} belongs to another run (its {names} differ): delete it or name another")
    return tensors, about


def _checksum(text: str, tensors: dict[str, Tensor]) -> str:
    parts = (part for _, t in sorted(tensors.items()) for part in (repr(tuple(t.shape)).encode(), t.numpy().tobytes()))
    return checksum(text.encode(), *parts)
