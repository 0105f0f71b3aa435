"""Several real images in one, not learned: what the formation gives by itself, the control of learned sets that have it.

The images are those that condensing with `init="real"` would start from (see `core.formation`).
"""

import dataclasses

import torch

from ..core.condense import initial_images
from ..data.dataset import Dataset
from ..spec import MakeSet
from . import Context, Made


def make(run: MakeSet, dataset: Dataset, context: Context) -> Made:
    """Reduce real images drawn at random and put factor × factor of them into each image of the set."""
    factor = run.settings.factor
    images = initial_images(dataset, dataclasses.replace(run.hyper, init="real", factor=factor), run.seed, torch.float32)
    return Made(images, {"seconds": 0.0}, {"factor": factor})
