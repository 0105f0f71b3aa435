"""Several images in one (Kim et al., IDC, ICML 2022): a stored image holds factor × factor smaller ones.

They are enlarged to the full size when a network sees them, so that the same number of stored pixels gives more images to train on.
"""

from collections.abc import Sequence

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ..errors import SpecError


def check(factor: int, size: Sequence[int]) -> None:
    """Refuse a factor that does not divide the image's sides.

    Raises:
        SpecError: it does not.
    """
    if any(side % factor for side in size):
        raise SpecError(f"factor {factor} does not divide images of {size[0]}x{size[1]} pixels: choose one that does, or 1")


def enlarge(images: Float[Tensor, "n c h w"], factor: int) -> Float[Tensor, "many c h w"]:
    """Cut each image into its factor × factor parts, row by row, and enlarge each to the full size by linear interpolation."""
    if factor == 1:
        return images
    n, c, h, w = images.shape
    parts = images.view(n, c, factor, h // factor, factor, w // factor).permute(0, 2, 4, 1, 3, 5).flatten(0, 2)
    return F.interpolate(parts, (h, w), mode="bilinear", align_corners=False)


def join(images: Float[Tensor, "many c h w"], factor: int) -> Float[Tensor, "n c h w"]:
    """Reduce images to their place, by means over pixels, and put each factor × factor of them into one."""
    if factor == 1:
        return images
    c, h, w = images.shape[1:]
    parts = F.avg_pool2d(images, factor).view(-1, factor, factor, c, h // factor, w // factor)
    return parts.permute(0, 3, 1, 4, 2, 5).reshape(-1, c, h, w)
