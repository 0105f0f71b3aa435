"""Augmentation while a network is trained on a small set (stage T); condensing uses none of it.

`augment` draws an operation for each image, then the operations' numbers, all from the caller's CPU generator, and applies
each operation to all its images at once, on their device. The operations themselves take the drawn numbers as arguments;
`scale` agrees with nearest-neighbour `torch.nn.functional.interpolate`, `rotate` with `scipy.ndimage.rotate`.
"""

from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from .errors import one_of
from .spec import AUGMENTATIONS

PAD = 4  # of crop, in pixels
FACTORS = (0.8, 1.2)  # of scale
DEGREES = 45  # of rotate
NOISE = 0.001

Images = Float[Tensor, "n c h w"]


def crop(images: Images, mean: Float[Tensor, "c 1 1"], offsets: Int[Tensor, "2 n"]) -> Images:
    """Pad each image by 4 pixels of `mean` and cut it out again at its offset (down, right), each 0 … 8."""
    starts = offsets.to(images.device)[:, :, None] - PAD
    return _pick(images, *(_side(images, axis) + starts[axis] for axis in (0, 1)), mean)


def scale(images: Images, factors: Float[Tensor, "2 n"]) -> Images:
    """Resize each image by its factors (down, right) to nearest pixels; cut it, or surround it with zeros, to its old size."""
    old = torch.tensor(images.shape[2:])[:, None]
    new = (factors * old).long().clamp(min=1)
    canvas = torch.maximum(new.amax(0), old.amax())  # the square in which the resized image is centred, then the cut
    starts = ((canvas - old) // 2 - (canvas - new) // 2).to(images.device)[:, :, None]
    sides = new.to(images.device)[:, :, None]
    origins = ((_side(images, axis) + starts[axis]) * images.shape[2 + axis] // sides[axis] for axis in (0, 1))
    return _pick(images, *origins, torch.zeros_like(images[:1, :, :1, :1]))


def flip(images: Images, flipped: Bool[Tensor, " n"]) -> Images:
    """Mirror the images marked in `flipped` from left to right."""
    return torch.where(flipped.to(images.device)[:, None, None, None], images.flip(3), images)


def rotate(images: Images, mean: Float[Tensor, "c 1 1"], degrees: Int[Tensor, " n"]) -> Images:
    """Turn each image about its centre by cubic splines, with `mean` where the turned image does not reach."""
    height, width = images.shape[2:]
    y, x = _origins(images, degrees)
    (rows, row_weights), (columns, column_weights) = _taps(y, height), _taps(x, width)
    index = (rows[:, :, None] * width + columns[:, None]).flatten(1)  # n 4·4·h·w
    weights = (row_weights[:, :, None] * column_weights[:, None]).flatten(1, 2)  # n 16 h w
    to_rows, to_columns = (_to_coefficients(side).to(images) for side in (height, width))
    coefficients = (to_rows @ images @ to_columns.T).flatten(2)
    picked = coefficients.gather(2, index[:, None].expand(-1, images.shape[1], -1)).unflatten(2, weights.shape[1:])
    inside = (y >= 0) & (y <= height - 1) & (x >= 0) & (x <= width - 1)
    return torch.where(inside[:, None], (picked * weights[:, None]).sum(2), mean)


def _side(images: Images, axis: int) -> Int[Tensor, " side"]:
    return torch.arange(images.shape[2 + axis], device=images.device)


def _pick(images: Images, rows: Int[Tensor, "n h"], columns: Int[Tensor, "n w"], fill: Tensor) -> Images:
    """Return each image's pixels at `rows` × `columns`, with `fill` where these lie outside of it."""
    height, width = images.shape[2:]
    rows, columns = rows[:, :, None], columns[:, None]
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    index = (rows.clamp(0, height - 1) * width + columns.clamp(0, width - 1)).flatten(1)
    picked = images.flatten(2).gather(2, index[:, None].expand(-1, images.shape[1], -1)).view_as(images)
    return torch.where(inside[:, None], picked, fill)


def _origins(images: Images, degrees: Int[Tensor, " n"]) -> tuple[Float[Tensor, "n h w"], Float[Tensor, "n h w"]]:
    """Return where each pixel of the turned images comes from (row, column).

    The turned image is rounded to whole pixels before its middle is cut out, so that the centre may move by half a pixel.
    """
    angle = torch.deg2rad(degrees.double())
    matrix = torch.stack((angle.cos(), angle.sin(), -angle.sin(), angle.cos())).view(2, 2, -1)
    old = torch.tensor(images.shape[2:])
    turned = (matrix.abs() * old[:, None]).sum(1).add(0.5).floor()  # 2 n
    starts = (turned - old[:, None]).div(2, rounding_mode="floor") - (turned - 1) / 2
    matrix, starts = matrix.to(images)[..., None, None], starts.to(images)[..., None]
    down, right = (_side(images, 0) + starts[0])[:, :, None], (_side(images, 1) + starts[1])[:, None]
    middle = (old - 1) / 2
    return tuple(matrix[axis, 0] * down + matrix[axis, 1] * right + middle[axis].item() for axis in (0, 1))


def _taps(at: Float[Tensor, "n h w"], side: int) -> tuple[Int[Tensor, "n 4 h w"], Float[Tensor, "n 4 h w"]]:
    """Return which four coefficients of a side make up the cubic B-spline at `at`, and their weights."""
    base = at.floor()
    t = at - base
    first, second, last = (1 - t) ** 3 / 6, (4 + t * t * (3 * t - 6)) / 6, t**3 / 6
    taps = base.long()[:, None] + torch.arange(-1, 3, device=at.device)[:, None, None]
    return _mirrored(taps, side), torch.stack((first, second, 1 - first - second - last, last), 1)


def _mirrored(index: Int[Tensor, "*shape"], side: int) -> Int[Tensor, "*shape"]:
    period = max(2 * side - 2, 1)
    return torch.minimum(index % period, -index % period)


@lru_cache(maxsize=16)
def _to_coefficients(side: int) -> Float[Tensor, "side side"]:
    """Return the matrix that turns samples, mirrored at both ends, into the coefficients of the spline through them."""
    index = torch.arange(side)
    sampling = torch.eye(side, dtype=torch.float64) * 4 / 6
    for neighbour in (index - 1, index + 1):
        sampling[index, _mirrored(neighbour, side)] += 1 / 6
    return torch.linalg.inv(sampling)


def _apply(operation: str, images: Images, mean: Float[Tensor, "c 1 1"], generator: Generator) -> Images:
    """Apply one operation to all images, each with numbers of its own."""
    n = len(images)
    if operation == "crop":
        return crop(images, mean, torch.randint(2 * PAD, (2, n), generator=generator))  # never the last offset, as in the code
    if operation == "scale":
        low, high = FACTORS
        return scale(images, low + (high - low) * torch.rand(2, n, generator=generator, dtype=torch.float64))
    if operation == "rotate":
        return rotate(images, mean, torch.randint(-DEGREES, DEGREES, (n,), generator=generator))
    if operation == "flip":
        return flip(images, torch.randint(2, (n,), generator=generator).bool())
    return images + NOISE * torch.randn(images.shape, generator=generator).to(images)


def augment(images: Images, operations: tuple[str, ...], generator: Generator) -> Images:
    """Apply to each image one operation, drawn uniformly from `operations`.

    Args:
        images: normalised, on any device; never changed in place.
        operations: of "crop", "scale", "rotate", "noise", "flip" (left to right, with probability 1/2); empty for none.
        generator: on the CPU, for every draw.

    Returns:
        The augmented images; outside an image lies the batch's mean of the channel, for "scale" zero.

    Raises:
        SpecError: an unknown operation.
    """
    for operation in operations:
        one_of("augmentation", operation, AUGMENTATIONS)
    if not operations:
        return images
    mean = images.mean((0, 2, 3))[:, None, None]
    choice = torch.randint(len(operations), (len(images),), generator=generator)
    out = images.clone()
    for number, operation in enumerate(operations):
        chosen = (choice == number).nonzero().squeeze(1).to(images.device)
        if len(chosen):
            out[chosen] = _apply(operation, images[chosen], mean, generator)
    return out
