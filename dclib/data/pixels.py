"""What happens to the pixels of a data set when it is loaded: channels, size, order, and the measuring of mean and std.

All of it is exact arithmetic on uint8 arrays (N, C, H, W), or rounds with a margin, so that the hash of a data set is the
same on every machine.
"""

import numpy as np
from jaxtyping import Float, Int64, UInt8

from ..errors import DataError

NEAR_HALF = 1e-6  # a value this close below a half rounds up as the half does, so that the last bits do not decide


def convert(images: UInt8[np.ndarray, "n h w c"], side: int, channels: int, where: str) -> UInt8[np.ndarray, "n k s t"]:
    """Bring the channels to the front and change their number and the size where wanted.

    Args:
        images: uint8 (N, H, W, C).
        side: the square size in pixels; 0 leaves it.
        channels: 1 for grey, 3 for RGB; 0 leaves them.
        where: the place they came from.

    Raises:
        DataError: 2 or 4 channels cannot be made grey or RGB.
    """
    images, have = np.ascontiguousarray(images.transpose(0, 3, 1, 2)), images.shape[3]
    if channels and have not in (1, 3):
        raise DataError(f"the images in {where} have {have} channels, which cannot be turned into {channels}: leave channels at 0")
    if channels == 3 and have == 1:
        images = np.repeat(images, 3, axis=1)
    elif channels == 1 and have == 3:
        images = grey(images)
    return resize(images, side) if side else images


def grey(images: UInt8[np.ndarray, "n 3 h w"]) -> UInt8[np.ndarray, "n 1 h w"]:
    """Return the luma of RGB images (ITU-R 601-2), rounded as Pillow rounds it."""
    red, green, blue = (images[:, c : c + 1].astype(np.int32) for c in range(3))
    return ((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16).astype(np.uint8)


def resize(images: UInt8[np.ndarray, "n c h w"], side: int) -> UInt8[np.ndarray, "n c s t"]:
    """Resize to `side` × `side` pixels, bilinear with antialiasing (the filter of Pillow and torchvision)."""
    if images.shape[2:] == (side, side):
        return images
    rows, columns = _filter(images.shape[2], side), _filter(images.shape[3], side)
    out = np.empty((*images.shape[:2], side, side), np.uint8)
    for start in range(0, len(images), 1024):  # in float64, so in parts
        part = rows @ images[start : start + 1024].astype(np.float64) @ columns.T
        out[start : start + 1024] = np.floor(part + (0.5 + NEAR_HALF)).clip(0, 255)
    return out


def _filter(length: int, side: int) -> Float[np.ndarray, "{side} {length}"]:
    """Return the weights of the triangle filter that makes `side` samples of `length`."""
    scale = length / side
    centres = (np.arange(side)[:, None] + 0.5) * scale
    weights = np.maximum(1 - np.abs(np.arange(length) + 0.5 - centres) / max(scale, 1), 0)
    return weights / weights.sum(1, keepdims=True)


def turn(images: UInt8[np.ndarray, "n c h w"]) -> UInt8[np.ndarray, "n c w h"]:
    """Turn images by a quarter, against the clock."""
    return np.ascontiguousarray(np.rot90(images, axes=(2, 3)))


VIEWS = {"inverted": np.invert, "turned": turn}  # of the same images, other domains with the same labels
ONBLACK = "onblack"  # the view of a folder whose transparent images are laid on black


def canonical(
    images: UInt8[np.ndarray, "n c h w"], labels: Int64[np.ndarray, " n"]
) -> tuple[UInt8[np.ndarray, "n c h w"], Int64[np.ndarray, " n"]]:
    """Order images and labels by label, then by the image's bytes, whatever order they came in."""
    rows = images.reshape(len(images), -1)
    order = np.lexsort((rows.view(f"S{rows.shape[1]}")[:, 0], labels))
    return images[order], labels[order]


def measure(images: UInt8[np.ndarray, "n c h w"], where: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of all pixels in [0, 1], per channel, from exact counts.

    Raises:
        DataError: all pixels of a channel are equal, so that nothing can be divided by their deviation.
    """
    mean, std = [], []
    for c in range(images.shape[1]):
        counts = np.bincount(images[:, c].ravel(), minlength=256).tolist()
        n = sum(counts)
        first, second = (sum(count * value**power for value, count in enumerate(counts)) for power in (1, 2))
        if n * second == first**2:
            raise DataError(f"every pixel of channel {c} of the training images in {where} is {first // n}: nothing can be learnt")
        mean.append(first / n / 255)
        std.append((n * second - first**2) ** 0.5 / n / 255)
    return tuple(mean), tuple(std)
