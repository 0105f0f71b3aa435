"""The conditional GAN: its blocks, its losses by hand, its draws, and what it learns of the digits in a few seconds."""

import math

import pytest
import torch
from helpers import refused
from torch import nn

from dclib.data import dataset as data
from dclib.errors import DataError, Diverged, SpecError
from dclib.methods import gan
from dclib.spec.baselines import GanTraining

CPU = {"device": "cpu"}


def small(**changes):
    return GanTraining(**{"steps": 4, "batch": 6, "generator_width": 4, "discriminator_width": 3, "latent": 16, **changes})


# --- the networks


@pytest.mark.parametrize(("channels", "size"), [(1, (28, 28)), (3, (4, 4)), (3, (20, 12))])
def test_shapes_and_that_both_networks_see_the_label(channels, size):
    g, d = (kind(small(), channels, 3, size).eval() for kind in (gan.Generator, gan.Discriminator))
    y = torch.arange(3)
    drawn, judged = g(torch.randn(1, 16).expand(3, -1), y), d(torch.randn(1, channels, *size).expand(3, -1, -1, -1), y)
    assert (drawn.shape, judged.shape) == ((3, channels, *size), (3,))
    assert drawn.abs().max() <= 1
    assert len(drawn.detach().unique(dim=0)) == len(judged.detach().unique(dim=0)) == 3


def test_the_blocks_are_the_papers():
    g, d = (kind(GanTraining(), 1, 10, (28, 28)) for kind in (gan.Generator, gan.Discriminator))
    kinds = lambda network: [type(layer).__name__ for layer in network.body]  # noqa: E731
    assert kinds(g) == ["Upsample", "Conv2d", "BatchNorm2d", "LeakyReLU"] * 2 + ["Conv2d", "Tanh"]
    assert kinds(d) == ["Conv2d", "BatchNorm2d", "LeakyReLU"] * 3 + ["Flatten", "Linear"]
    assert [m.stride for m in d.body if isinstance(m, nn.Conv2d)] == [(2, 2)] * 3
    assert [m.out_channels for m in g.body if isinstance(m, nn.Conv2d)] == [128, 64, 1]
    assert [m.out_channels for m in d.body if isinstance(m, nn.Conv2d)] == [64, 128, 256]


# --- the losses and the steps


def test_the_losses_by_hand():
    """Logits log 3 and 0 are the probabilities 3/4 and 1/2 of being real."""
    three, even = torch.tensor([math.log(3), 0.0]), torch.tensor([0.0, math.log(3)])
    real, fake = -(math.log(3 / 4) + math.log(1 / 2)) / 2, -(math.log(1 / 2) + math.log(1 / 4)) / 2
    assert gan.discriminator_loss(three, even).item() == pytest.approx(real + fake, rel=1e-6)
    assert gan.generator_loss(three).item() == pytest.approx(real, rel=1e-6)


def test_one_step_is_adams_on_either_loss(made):
    """In the first step, Adam moves every weight by lr against the sign of its gradient."""
    work = gan.Gan(made, small(lr=1e-3), 0)
    before = {n: t.clone() for n, t in work.tensors().items()}
    x, y = work.real_batch(0)
    z = torch.randn(6, 16, generator=data.generator(0, "noise", 0))
    g, d = work.generator, work.discriminator
    p_real, p_fake = d(x, y).sigmoid(), d(g(z, y), y).sigmoid()
    d_loss = -(p_real.log().mean() + (1 - p_fake).log().mean())
    gradients = dict(zip((n for n, _ in d.named_parameters()), torch.autograd.grad(d_loss, list(d.parameters())), strict=True))
    assert work.step()[0] == pytest.approx(d_loss.item(), rel=1e-5)
    for name, p in d.named_parameters():
        sure = gradients[name].abs() > 1e-5
        moved = (p.detach() - before[f"d.{name}"])[sure]
        torch.testing.assert_close(moved, -1e-3 * gradients[name][sure].sign(), rtol=2e-3, atol=1e-6)
    assert any(not torch.equal(p, before[f"g.{n}"]) for n, p in g.named_parameters())


def test_real_images_are_scaled_and_keep_their_labels(made):
    x, y = gan.Gan(made, small(batch=40), 0).real_batch(3)
    assert x.abs().max() <= 1
    pixels = ((x + 1) * 127.5).round().to(torch.uint8)
    for image, label in zip(pixels, y, strict=True):
        assert any(torch.equal(image, other) for other in made.x_train[made.y_train == label])


# --- the images drawn


class Constant(gan.Generator):
    """Gives images of one value."""

    def forward(self, z, y):
        return torch.full((len(y), 1, 8, 8), self.value)


@pytest.mark.parametrize(("value", "pixel"), [(-1.0, 0.0), (0.0, 0.5), (1.0, 1.0), (1.1, 1.0)])
def test_minus_one_is_black_and_one_is_white(made, value, pixel):
    network = Constant(small(), 1, 3, (8, 8))
    network.value = value
    assert gan.sample(network, made, 1).unique().tolist() == [pytest.approx((pixel - 0.5) / 0.3)]


def test_a_larger_draw_begins_with_the_smaller_and_seeds_differ(made):
    network = gan.train(made, small(), **CPU).generator
    two, three = gan.sample(network, made, 2), gan.sample(network, made, 3)
    assert three.shape == (3, 3, 1, 8, 8)
    assert not three.requires_grad
    assert len(three.flatten(0, 1).unique(dim=0)) == 9
    torch.testing.assert_close(three[:, :2], two, rtol=1e-5, atol=1e-6)
    assert torch.equal(two, gan.sample(network, made, 2))
    assert not torch.equal(two, gan.sample(network, made, 2, seed=1))


@pytest.mark.slow
def test_it_learns_the_digits():
    """The class means of real digits classify the drawn ones as asked, and the drawn ones of a class differ."""
    digits = data.load("digits", image_size=8)
    hyper = GanTraining(steps=250, batch=64, generator_width=32, discriminator_width=16, lr=1e-3)
    drawn = gan.sample(gan.train(digits, hyper, **CPU).generator, digits, 20)
    real = digits.normalise(digits.x_train)
    classes = [real[digits.y_train == c] for c in range(10)]
    nearest = torch.cdist(drawn.flatten(0, 1).flatten(1), torch.stack([x.mean(0).flatten() for x in classes])).argmin(1)
    assert (nearest == torch.arange(10).repeat_interleave(20)).float().mean() > 0.7
    assert drawn.std(1).mean() > 0.5 * torch.stack([x.std(0).mean() for x in classes]).mean()


def test_what_cannot_be_drawn_is_refused(made, make_dataset):
    refused("30x30", "image_size", call=lambda: gan.train(make_dataset(4, 4, size=30), small(), **CPU), error=DataError)
    refused("lower lr", call=lambda: gan.train(made, small(lr=1e30, steps=9), **CPU), error=Diverged)
    network = gan.Generator(small(), 1, 3, (8, 8))
    refused("0 images", call=lambda: gan.sample(network, made, 0), error=SpecError)
    torch.nn.init.constant_(network.start.bias, float("nan"))
    refused("lower lr", call=lambda: gan.sample(network, made, 1), error=Diverged)
