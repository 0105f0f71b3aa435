"""Batches of a training on many images: epoch after epoch, each in a random order of its own; several methods train so."""

from functools import lru_cache

import torch
from jaxtyping import Int
from torch import Tensor

from ..data.dataset import generator


def batch(step: int, count: int, size: int, seed: int, *purpose: str | int, rest: bool = True) -> Int[Tensor, " b"]:
    """Return the images of one step of training, as indices below `count`.

    Args:
        step: its number in the training, from 0.
        count: of images.
        size: of a batch.
        seed, purpose: of each epoch's order, with the epoch's number as for `generator`.
        rest: whether the images left over at the end of an epoch are a smaller batch; else they are left out.
    """
    epoch, i = divmod(step, steps_of_epoch(count, size, rest))
    return _order(count, seed, *purpose, epoch)[i * size : (i + 1) * size]


def steps_of_epoch(count: int, size: int, rest: bool = True) -> int:
    """Return how many batches of that size an epoch has."""
    return -(-count // size) if rest else max(1, count // size)


@lru_cache(maxsize=1)  # of the epoch under way
def _order(count: int, seed: int, *purpose: str | int) -> Int[Tensor, " n"]:
    return torch.randperm(count, generator=generator(seed, *purpose))
