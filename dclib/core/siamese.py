"""Differentiable siamese augmentation (Zhao and Bilen, ICML 2021): the same random change of the real and the learned images.

For each class and step one operation is drawn with its numbers. It changes every real and every learned image of the class in the
same way, so that the gradients or features that are compared are those of one view. Networks that train on the images draw an
operation for each image instead.

    color    brightness ± 0.5, saturation × 0 … 2, contrast × 0.5 … 1.5     cutout   a square of half the side becomes 0
    crop     shift by up to an eighth of the side, 0 outside               scale    each side by 1 / 1.2 … 1.2
    flip     mirror from left to right, with probability 1/2               rotate   -15° … 15°
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor

from ..spec import SIAMESE

BRIGHTNESS, SATURATION, CONTRAST = 1.0, 2.0, 0.5
PAD, CUTOUT = 0.125, 0.5  # shares of a side
SCALE, DEGREES = 1.2, 15.0


def draw(n: int, operations: Sequence[str], generator: Generator) -> Float[Tensor, "4 n"]:
    """Draw n operations: the place of each in `SIAMESE`, and three numbers in [0, 1).

    Args:
        n: how many.
        operations: those among which one is drawn uniformly.
        generator: on the CPU.
    """
    places = torch.tensor([float(SIAMESE.index(name)) for name in operations], dtype=torch.float64)
    chosen = places[torch.randint(len(places), (n,), generator=generator)]
    return torch.cat((chosen[None], torch.rand(3, n, generator=generator, dtype=torch.float64)))


def apply(images: Float[Tensor, "n c h w"], drawn: Float[Tensor, "4 n"]) -> Float[Tensor, "n c h w"]:
    """Change each image by the operation drawn for it; differentiable, and without a look at a tensor's value.

    Args:
        images: normalised.
        drawn: from `draw`, on the images' device.
    """
    drawn = drawn.to(images)
    is_ = {name: drawn[0] == i for i, name in enumerate(SIAMESE)}
    return _cut_out(_move(_colour(images, is_["color"], drawn[1:]), is_, drawn[1:]), is_["cutout"], drawn[1:])


def _colour(x: Tensor, here: Tensor, u: Tensor) -> Tensor:
    brightness = torch.where(here, (u[0] - 0.5) * BRIGHTNESS, 0.0)
    saturation, contrast = torch.where(here, u[1] * SATURATION, 1.0), torch.where(here, u[2] + CONTRAST, 1.0)
    x = x + brightness[:, None, None, None]
    for factor, over in ((saturation, 1), (contrast, (1, 2, 3))):
        mean = x.mean(over, keepdim=True)
        x = torch.lerp(mean, x, factor[:, None, None, None])
    return x


def _move(x: Tensor, is_: dict[str, Tensor], u: Tensor) -> Tensor:
    """Crop, flip, scale and rotate: each pixel is sampled, by linear interpolation, at its place under an affine map."""
    height, width = x.shape[2:]
    low = 1 / SCALE
    across, down = (torch.where(is_["scale"], low + u[i] * (SCALE - low), 1.0) for i in (0, 1))
    across = torch.where(is_["flip"] & (u[0] < 0.5), -across, across)
    angle = torch.where(is_["rotate"], (u[0] - 0.5) * 2 * math.radians(DEGREES), 0.0)
    right, below = (torch.where(is_["crop"], _shift(side, u[i]), 0.0) for i, side in enumerate((width, height)))
    rows = (across * angle.cos(), -angle.sin(), right), (angle.sin(), down * angle.cos(), below)
    affine = torch.stack([torch.stack(row, 1) for row in rows], 1)
    return F.grid_sample(x, F.affine_grid(affine, list(x.shape), align_corners=False), align_corners=False)


def _shift(side: int, u: Tensor) -> Tensor:
    """A shift by whole pixels, in the units of an affine map, where a side is 2 long."""
    most = int(side * PAD + 0.5)
    return ((u * (2 * most + 1)).floor() - most) * 2 / side


def _cut_out(x: Tensor, here: Tensor, u: Tensor) -> Tensor:
    inside = here[:, None, None]
    for i, side in enumerate(x.shape[2:]):
        size = int(side * CUTOUT + 0.5)
        start = (u[i] * (side + 1 - size % 2)).floor()[:, None] - size // 2
        place = torch.arange(side, device=x.device)
        within = (place >= start) & (place < start + size)
        inside = inside & (within[:, :, None] if i == 0 else within[:, None])
    return torch.where(inside[:, None], 0.0, x)
