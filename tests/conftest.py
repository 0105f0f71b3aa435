"""Small made data, for the tests that need images but no particular ones."""

import pytest
import torch

from dclib.data import Dataset


@pytest.fixture(scope="session")
def make_dataset():
    """Return a function that makes a data set of random pixels, with so many training images of each class."""

    def make(*counts: int, channels: int = 1, size: int = 8, seed: int = 0) -> Dataset:
        y = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        draw = torch.Generator().manual_seed(seed)
        x = torch.randint(256, (len(y), channels, size, size), dtype=torch.uint8, generator=draw)
        names = tuple("abcdefgh"[: len(counts)])
        return Dataset("made", x, y, x[::2], y[::2], (0.5,) * channels, (0.3,) * channels, names)

    return make


@pytest.fixture(scope="session")
def made(make_dataset):
    """Three classes of 5, 9 and 9 images of 8 × 8 pixels."""
    return make_dataset(5, 9, 9)
