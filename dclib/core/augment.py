"""Augmentation while a network is trained on a small set (stage T); condensation uses none.

`augment` draws an operation for each image and then the operations' numbers, all from the caller's CPU generator. It applies each
operation to all its images at once, on their device. The functions of the operations take the drawn numbers as arguments; `scale`
agrees with nearest-neighbour `torch.nn.functional.interpolate`, and `rotate` with `scipy.ndimage.rotate`.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from ..errors import one_of
from ..spec import AUGMENTATIONS, SIAMESE
from . import siamese

PAD = 4  # of crop, in pixels
FACTORS = (0.8, 1.2)  # of scale
DEGREES = 45  # of rotate
NOISE = 0.001
DSA = {"dsa": SIAMESE, "dsa-noflip": tuple(name for name in SIAMESE if name != "flip")}  # one of them for each image
TABLE = 64 * 64  # pixels up to which every rotation is kept in a table: 91 × 49 bytes a pixel

Images = Float[Tensor, "n c h w"]


def crop(images: Images, mean: Float[Tensor, "*n c 1 1"], offsets: Int[Tensor, "2 n"]) -> Images:
    """Pad each image by 4 pixels of `mean` and cut it out again at its offset (down, right), each 0 … 8."""
    starts = offsets.to(images.device)[:, :, None] - PAD
    return _pick(images, *(_side(images, axis) + starts[axis] for axis in (0, 1)), mean)


def scale(images: Images, factors: Float[Tensor, "2 n"]) -> Images:
    """Resize each image by its factors (down, right) to nearest pixels; crop it, or pad it with zeros, to its old size."""
    old = torch.tensor(images.shape[2:])[:, None]
    new = (factors * old).long().clamp(min=1)
    canvas = new.amax(0).clamp(min=max(images.shape[2:]))  # the side of the square that the resized image is centred in
    starts = ((canvas - old) // 2 - (canvas - new) // 2).to(images.device)[:, :, None]
    sides = new.to(images.device)[:, :, None]
    origins = ((_side(images, axis) + starts[axis]) * images.shape[2 + axis] // sides[axis] for axis in (0, 1))
    return _pick(images, *origins, torch.zeros_like(images[:1, :, :1, :1]))


def flip(images: Images, flipped: Bool[Tensor, " n"]) -> Images:
    """Mirror the images that `flipped` marks from left to right."""
    return torch.where(flipped.to(images.device)[:, None, None, None], images.flip(3), images)


def rotate(images: Images, mean: Float[Tensor, "*n c 1 1"], degrees: Int[Tensor, " n"]) -> Images:
    """Turn each image by -45 … 45 degrees about its centre by cubic splines.

    Pixels outside the turned image get the mean of `mean` in all channels, as in the authors' code.
    """
    height, width = images.shape[2:]
    kind = images.dtype, images.device
    if height * width <= TABLE:
        at = (degrees + DEGREES).to(images.device)
        grid, weights, inside = (every[at] for every in _every_turn(height, width, *kind))
    else:
        grid, weights, inside = _turns(degrees, height, width, *kind)
    picked = F.grid_sample(_coefficients(images), grid, align_corners=True)  # n c 4 h·w
    return torch.where(inside, (picked * weights).sum(2).view_as(images), mean.mean(-3, keepdim=True))


def _coefficients(images: Images) -> Tensor:
    """Return the images as coefficients of cubic splines; on a GPU in float64, since float32 products may round to TF32."""
    exact = torch.float64 if images.is_cuda else images.dtype
    to_rows, to_columns = (_to_coefficients(side, exact, images.device) for side in images.shape[2:])
    return (to_rows @ images.to(exact) @ to_columns.T).to(images.dtype)


def _side(images: Images, axis: int) -> Int[Tensor, " side"]:
    return torch.arange(images.shape[2 + axis], device=images.device)


def _pick(images: Images, rows: Int[Tensor, "n h"], columns: Int[Tensor, "n w"], fill: Tensor) -> Images:
    """Return each image's pixels at `rows` × `columns`, and `fill` where these lie outside the image."""
    height, width = images.shape[2:]
    row, column = rows.clamp(0, height - 1), columns.clamp(0, width - 1)
    index = ((row * width)[:, :, None] + column[:, None]).view(len(images), 1, -1).expand(-1, images.shape[1], -1)
    inside = (row == rows)[:, None, :, None] & (column == columns)[:, None, None]
    return torch.where(inside, images.flatten(2).gather(2, index).view_as(images), fill)


def _origins(degrees: Int[Tensor, " n"], height: int, width: int) -> Float[Tensor, "2 n 3"]:
    """Return the affine maps from a pixel (row, column, 1) of the turned image to its (row, column) in the image.

    The turned image's size is rounded to whole pixels before its middle is cut out, so that the centre may move by half a pixel.
    """
    angle = torch.deg2rad(degrees.double())
    matrix = torch.stack((angle.cos(), angle.sin(), -angle.sin(), angle.cos())).view(2, 2, -1)
    old = torch.tensor([[height], [width]])
    turned = ((matrix.abs() * old).sum(1) + 0.5).floor()  # 2 n
    starts = (turned - old).div(2, rounding_mode="floor") - (turned - 1) / 2
    offset = (matrix * starts).sum(1, keepdim=True) + ((old - 1) / 2)[:, None]
    return torch.cat((matrix, offset), 1).transpose(1, 2)


def _turns(
    degrees: Int[Tensor, " n"], height: int, width: int, dtype: torch.dtype, device: torch.device
) -> tuple[Float[Tensor, "n 4 hw 2"], Float[Tensor, "n 1 4 hw"], Bool[Tensor, "n 1 h w"]]:
    """Return the places where `grid_sample` samples for each pixel, their weights, and which pixels lie inside the image."""
    affine = _origins(degrees, height, width).to(device, dtype)[..., None]
    row, column = (torch.arange(side, dtype=dtype, device=device) for side in (height, width))
    row, column = row.repeat_interleave(width), column.repeat(height)
    at = affine[:, :, 0] * row + affine[:, :, 1] * column + affine[:, :, 2]  # no matrix product, which might be in TF32
    ends = at.new_tensor([height - 1, width - 1])[:, None, None]
    inside = ((at >= 0) & (at <= ends)).all(0).view(-1, 1, height, width)
    places, (row_weights, column_weights) = _pairs(at, height, width)
    grid = torch.stack(torch.broadcast_tensors(places[1][:, None], places[0][:, :, None]), -1)
    weights = row_weights[:, :, None] * column_weights[:, None]
    return grid.flatten(1, 2), weights.flatten(1, 2)[:, None], inside


@lru_cache(maxsize=4)
def _every_turn(height: int, width: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return `_turns` for all of -45 … 45 degrees, a table for small images."""
    return _turns(torch.arange(-DEGREES, DEGREES + 1), height, width, dtype, device)


def _pairs(at: Float[Tensor, "2 n hw"], *sides: int) -> tuple[Float[Tensor, "2 n 2 hw"], Float[Tensor, "2 n 2 hw"]]:
    """Return the two places along each side whose weighted sum is the cubic B-spline at `at`, and their weights.

    A place lies between two neighbouring coefficients, so that `grid_sample`'s linear interpolation weighs the two. Places count
    from -1 to 1 over the coefficients of `_to_coefficients`.
    """
    base = at.floor()
    t = at - base
    second, last = (4 + t * t * (3 * t - 6)) / 6, t * t * t / 6
    upper = (1 + t * (3 + t * (3 - 2 * t))) / 6  # the third's weight and the last's
    lower = 1 - upper  # the first's and the second's
    places = torch.stack((base + second / lower, base + 2 + last / upper), 2)
    spans = torch.tensor([(side + 2) / 2 for side in sides]).to(at)
    return places / spans[:, None, None, None] - 1, torch.stack((lower, upper), 2)


@lru_cache(maxsize=16)
def _to_coefficients(side: int, dtype: torch.dtype, device: torch.device) -> Float[Tensor, "side_and_3 side"]:
    """Return the matrix from samples, mirrored at both ends, to the coefficients -1 … side + 1 of the spline through them."""
    index = torch.arange(-1, side + 2)
    period = max(2 * side - 2, 1)
    mirrored = torch.minimum(index % period, -index % period)
    sampling = torch.eye(side, dtype=torch.float64) * 4 / 6
    for neighbours in (mirrored[:-3], mirrored[2:-1]):
        sampling[index[1:-2], neighbours] += 1 / 6
    return torch.linalg.inv(sampling)[mirrored].to(device, dtype)


def _draw(operation: str, n: int, shape: tuple[int, ...], generator: Generator) -> Tensor:
    """Draw the numbers of one operation for n images of that shape."""
    if operation == "crop":
        return torch.randint(2 * PAD, (2, n), generator=generator)  # never the last offset, as in the code
    if operation == "scale":
        low, high = FACTORS
        return low + (high - low) * torch.rand(2, n, generator=generator, dtype=torch.float64)
    if operation == "rotate":
        return torch.randint(-DEGREES, DEGREES, (n,), generator=generator)
    if operation == "flip":
        return torch.randint(2, (n,), generator=generator).bool()
    if operation in DSA:
        return siamese.draw(n, DSA[operation], generator)
    return NOISE * torch.randn(n, *shape, generator=generator)


def _apply(operation: str, images: Images, mean: Float[Tensor, "n c 1 1"], numbers: Tensor) -> Images:
    """Apply one operation to all images, each with its own numbers."""
    if operation == "noise":
        return images + numbers.to(images)
    if operation == "crop":
        return crop(images, mean, numbers)
    if operation == "rotate":
        return rotate(images, mean, numbers)
    if operation in DSA:
        return siamese.apply(images, numbers.to(images.device))
    return scale(images, numbers) if operation == "scale" else flip(images, numbers)


def augment(images: Images, operations: tuple[str, ...], generator: Generator) -> Images:
    """Apply to each image one operation, drawn uniformly from `operations`.

    Args:
        images: normalised, on any device; never changed in place.
        operations: among "crop", "scale", "rotate", "noise", "flip" (left to right, with probability 1/2) and "dsa" (see
            `siamese`); empty for none.
        generator: on the CPU, for every draw.

    Returns:
        The augmented images. Pixels outside an image get the channel's mean over the batch, for "rotate" the mean over all
        channels, and for "scale" zero.

    Raises:
        SpecError: an unknown operation.
    """
    return augment_each(images[None], operations, [generator])[0]


def augment_each(
    batches: Float[Tensor, "k n c h w"], operations: tuple[str, ...], generators: Sequence[Generator]
) -> Float[Tensor, "k n c h w"]:
    """Do for several batches at once what `augment` does for one, with draws and means of its own for each.

    Args:
        batches: k batches of n images.
        operations: as for `augment`.
        generators: one for each batch.

    Returns:
        The augmented batches.

    Raises:
        SpecError: an unknown operation.
    """
    for operation in operations:
        one_of("augmentation", operation, AUGMENTATIONS)
    if not operations:
        return batches
    plans = [_plan(len(batches[0]), batches.shape[2:], operations, generator) for generator in generators]
    choice = torch.cat([chosen for chosen, _ in plans])
    images, mean = batches.flatten(0, 1), batches.mean((1, 3, 4)).repeat_interleave(batches.shape[1], 0)[..., None, None]
    order = choice.argsort(stable=True).to(images.device)
    counts = choice.bincount(minlength=len(operations)).tolist()
    done = []
    for i, (name, part) in enumerate(zip(operations, order.split(counts), strict=True)):
        if len(part):
            numbers = torch.cat([drawn[i] for _, drawn in plans], dim=0 if name == "noise" else -1)
            done.append(_apply(name, images[part], mean[part], numbers))
    return torch.empty_like(images).index_copy(0, order, torch.cat(done)).view_as(batches)


def _plan(n: int, shape: tuple[int, ...], operations: tuple[str, ...], generator: Generator) -> tuple[Tensor, list[Tensor]]:
    """Draw the operation of each image of a batch, and for each operation the numbers of its images."""
    choice = torch.randint(len(operations), (n,), generator=generator)
    counts = choice.bincount(minlength=len(operations)).tolist()
    return choice, [_draw(name, count, tuple(shape), generator) for name, count in zip(operations, counts, strict=True)]
