"""augment.py: each operation against a literal version, image by image; the draws against their distributions."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dclib.core import reference
from dclib.core.augment import augment, crop, rotate, scale
from dclib.spec import AUGMENTATIONS

SHAPES = [(1, 28, 28), (3, 32, 32), (2, 9, 14), (1, 14, 9)]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(n, shape, seed=0):
    """Smooth random images with a mean away from zero."""
    noise = torch.randn(n, *shape, generator=generator(seed), dtype=torch.float64)
    return F.avg_pool2d(noise, 3, 1, 1) + 0.3


def channel_mean(images):
    return images.mean((0, 2, 3))[:, None, None]


@pytest.mark.parametrize("shape", SHAPES)
def test_crop_and_scale_are_exact(shape):
    offsets = torch.cartesian_prod(torch.arange(9), torch.arange(9)).T.contiguous()
    images = pictures(offsets.shape[1], shape)
    mean = channel_mean(images)
    want = [reference.crop(image, mean.numpy(), *at) for image, at in zip(images.numpy(), offsets.T.tolist(), strict=True)]
    assert np.array_equal(crop(images, mean, offsets).numpy(), np.stack(want))
    edges = torch.tensor([0.8, 0.95, 1.0, 1.05, 1.2], dtype=torch.float64)
    factors = torch.cat((torch.cartesian_prod(edges, edges).T, 0.8 + 0.4 * torch.rand(2, 150, generator=generator()).double()), 1)
    images = pictures(factors.shape[1], shape)
    want = [reference.scale(image, *factor) for image, factor in zip(images.numpy(), factors.T.tolist(), strict=True)]
    assert np.array_equal(scale(images, factors).numpy(), np.stack(want))


@pytest.mark.parametrize("table", [0, 4096])
@pytest.mark.parametrize("shape", SHAPES)
def test_rotate_is_scipys(shape, table, monkeypatch):
    monkeypatch.setattr("dclib.core.augment.TABLE", table)
    degrees = torch.arange(-45, 46)
    images = pictures(len(degrees), shape)
    mean = channel_mean(images)
    want = np.stack([reference.rotate(image, mean.numpy(), d) for image, d in zip(images.numpy(), degrees.tolist(), strict=True)])
    np.testing.assert_allclose(rotate(images, mean, degrees).numpy(), want, atol=1e-12)
    single = rotate(images.float(), mean.float(), degrees).numpy()
    assert np.mean(np.abs(single - want) > 1e-5) < 1e-3  # rounding may move a pixel over the image's edge


def test_rotation_fills_all_channels_with_one_mean():
    """In the corners of a red picture, turned by 45 degrees, lies the mean over all channels, in each of them."""
    red = torch.zeros(1, 3, 12, 12, dtype=torch.float64)
    red[:, 0] = 3.0
    mean = channel_mean(red)
    for found in (rotate(red, mean, torch.tensor([45]))[0].numpy(), reference.rotate(red[0].numpy(), mean.numpy(), 45)):
        np.testing.assert_allclose(found[:, 0, 0], [1.0, 1.0, 1.0])
        np.testing.assert_allclose(found[:, 6, 6], [3.0, 0.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("operations", [*((name,) for name in AUGMENTATIONS), ("crop", "scale", "rotate"), ("crop", "noise")])
def test_draws_follow_the_literal_versions_distribution(operations):
    """Means and variances of every pixel over many draws differ by no more than their own sampling error."""
    n = 3000
    image = pictures(1, (1, 12, 12), seed=3)
    images = image.expand(n, -1, -1, -1)
    ours = augment(images, operations, generator(1)).numpy()
    literal = reference.augment(images.numpy().copy(), operations, np.random.default_rng(2))
    centre = literal.mean(0)
    for power in (1, 2):
        a, b = (ours - centre) ** power, (literal - centre) ** power
        error = np.sqrt((a.var(0) + b.var(0)) / n)
        z = np.abs(a.mean(0) - b.mean(0)) / np.maximum(error, 1e-12)
        assert z.max() < 4.5  # of 144 pixels, each about N(0, 1)
        assert 0.3 < np.sqrt((z**2).mean()) < 2


@pytest.mark.parametrize("operation", AUGMENTATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shapes_and_types_are_kept_and_the_input_is_left_alone(operation, dtype):
    for shape in ((1, 28, 28), (3, 32, 32), (2, 3, 5), (1, 1, 1)):
        images = torch.randn(6, *shape, generator=generator()).to(dtype)
        before = images.clone()
        out = augment(images, (operation,), generator())
        assert (out.shape, out.dtype) == (images.shape, dtype)
        assert out.isfinite().all()
        assert torch.equal(images, before)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_agrees_with_the_cpu():
    images = pictures(64, (3, 32, 32))
    for operation in AUGMENTATIONS:
        got = augment(images.cuda(), (operation,), generator())
        torch.testing.assert_close(got.cpu(), augment(images, (operation,), generator()), rtol=1e-9, atol=1e-9)
