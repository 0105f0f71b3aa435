"""torch's own random draws (initial weights) made from a seed, whichever thread asks for them, and nobody else's draws changed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_alone = threading.Lock()  # torch has one default generator for all threads


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let torch draw from `seed` on the CPU, and put its default generator back afterwards; one thread at a time."""
    with _alone, torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the accelerators too
        yield
