"""The processes that share one condensation: each matches the gradients of its own classes (torch.distributed).

The classes are independent within a step of Algorithm 1, so each process, or rank, computes the gradient by the images of its
classes, and the gradients are summed over the ranks. Every rank trains the network, which needs all images, on its own. `torchrun`
starts the ranks; without it there is one rank and nothing is exchanged.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..errors import SpecError
from ..support.provenance import launched


@dataclass(frozen=True)
class Ranks:
    """This process among those that share the work.

    Args:
        rank: its number, from 0.
        count: how many there are.
    """

    rank: int = 0
    count: int = 1

    def add(self, *tensors: Tensor) -> None:
        """Replace each tensor by its sum over the ranks; no gradient passes through it."""
        for tensor in tensors if self.count > 1 else ():
            dist.all_reduce(tensor.detach())

    def copy(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by that of rank 0, so that rounding cannot separate the ranks; no gradient passes through it."""
        for tensor in tensors if self.count > 1 else ():
            dist.broadcast(tensor.detach(), 0)

    def share(self, thing: Any) -> Any:
        """Return what rank 0 passes here, which may be any plain data."""
        if self.count == 1:
            return thing
        box = [thing]
        dist.broadcast_object_list(box, 0)
        return box[0]

    def any(self, flag: bool) -> bool:
        """Return on every rank whether the flag is True on any rank."""
        if self.count == 1:
            return flag
        where = "cuda" if dist.get_backend() == "nccl" else "cpu"
        raised = torch.tensor(float(flag), device=where)
        dist.all_reduce(raised, dist.ReduceOp.MAX)
        return bool(raised)


ALONE = Ranks()


@contextmanager
def joined(device: str) -> Iterator[tuple[Ranks, str]]:
    """Join the ranks that `torchrun` started; yield this rank and its device, a GPU of its own if there are GPUs.

    Args:
        device: "auto", "cpu" or "cuda".

    Raises:
        SpecError: a single GPU is named for several ranks, or there are fewer GPUs than ranks on this machine.
    """
    if launched() == 1:
        yield ALONE, device
        return
    device = _own_device(device)
    dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size()), device
    finally:
        dist.destroy_process_group()


def _own_device(device: str) -> str:
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return "cpu"
    if device not in ("auto", "cuda"):
        raise SpecError(f"device {device!r} was asked for by {launched()} ranks: use cuda, and each takes a GPU of its own")
    local, there = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if local >= there:
        raise SpecError(f"rank {local} on this machine finds {there} GPUs: start fewer processes, or use device=cpu")
    torch.cuda.set_device(local)
    return f"cuda:{local}"
