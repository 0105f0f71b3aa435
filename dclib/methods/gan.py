"""The conditional GAN (Mirza and Osindero, 2014) of Table T8: a baseline that draws images from a trained generator.

The paper (appendix C, "Generative model") gives the blocks: two of up-sampling, convolution, batch norm and LeakyReLU in the
generator, three of strided convolution, batch norm and LeakyReLU in the discriminator, both conditioned on the label. The widths,
Adam and the non-saturating logistic loss are our choice (`spec.baselines.GanTraining`). The label enters the generator beside the
noise and the discriminator beside the image, as in the original. In our trials, as a product with the discriminator's features
(Miyato and Koyama, 2018), it left the images of a class nearly alike.
"""

import math
import time
from itertools import pairwise
from typing import Any, no_type_check

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..core import engine as engines
from ..core import resume as loop
from ..core.networks import seeded
from ..data.dataset import Dataset, generator
from ..errors import DataError, Diverged, SpecError
from ..spec import MakeSet, TrainGan, key
from ..spec.baselines import GanTraining, loss_summary
from ..support.progress import Progress
from . import Context, Made


class Generator(nn.Module):
    """Maps noise and labels to images in [-1, 1].

    Args:
        hyper: its widths.
        channels, classes: of the data set.
        size: height and width in pixels, both divisible by 4.
    """

    def __init__(self, hyper: GanTraining, channels: int, classes: int, size: tuple[int, int]) -> None:
        super().__init__()
        w, self.latent = hyper.generator_width, hyper.latent
        self.label = nn.Embedding(classes, hyper.label_width)
        self.start = nn.Linear(hyper.latent + hyper.label_width, w * size[0] * size[1] // 16)
        self.grid = (w, size[0] // 4, size[1] // 4)
        blocks = [*_up(w, w, hyper.slope), *_up(w, w // 2, hyper.slope)]
        self.body = nn.Sequential(*blocks, nn.Conv2d(w // 2, channels, 3, padding=1), nn.Tanh())

    @no_type_check
    def forward(self, z: Float[Tensor, "n latent"], y: Int[Tensor, " n"]) -> Float[Tensor, "n c h w"]:
        return self.body(self.start(torch.cat([z, self.label(y)], 1)).unflatten(1, self.grid))


def _up(inputs: int, outputs: int, slope: float) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return [nn.Upsample(scale_factor=2), convolution, nn.BatchNorm2d(outputs), nn.LeakyReLU(slope)]


class Discriminator(nn.Module):
    """Maps images in [-1, 1] and labels, each as one plane of ones among planes of zeros, to logits of being real."""

    def __init__(self, hyper: GanTraining, channels: int, classes: int, size: tuple[int, int]) -> None:
        super().__init__()
        self.classes, w = classes, hyper.discriminator_width
        widths = [channels + classes, w, 2 * w, 4 * w]
        blocks = [layer for a, b in pairwise(widths) for layer in _down(a, b, hyper.slope)]
        features = widths[-1] * math.prod(math.ceil(side / 8) for side in size)
        self.body = nn.Sequential(*blocks, nn.Flatten(), nn.Linear(features, 1))

    @no_type_check
    def forward(self, x: Float[Tensor, "n c h w"], y: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        planes = F.one_hot(y, self.classes).to(x.dtype)[:, :, None, None].expand(-1, -1, *x.shape[2:])
        return self.body(torch.cat([x, planes], 1))[:, 0]


def _down(inputs: int, outputs: int, slope: float) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.LeakyReLU(slope)]


def discriminator_loss(real: Float[Tensor, " n"], fake: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """Return the cross-entropy of telling real from generated, E[-log σ(D(x))] + E[-log(1 - σ(D(G(z))))], from the logits."""
    return F.softplus(-real).mean() + F.softplus(fake).mean()


def generator_loss(fake: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """Return the non-saturating loss E[-log σ(D(G(z)))] (Goodfellow et al., 2014), from the logits."""
    return F.softplus(-fake).mean()


class Gan(loop.Work):
    """A generator and a discriminator in training; a step updates both, and returns the two losses, the discriminator's first.

    Args:
        dataset: on the device where the work is to run.
        hyper: the hyper-parameters.
        seed: of weights, batches and noise.

    Raises:
        DataError: a side of the images is not divisible by 4.
    """

    engine = "eager"

    def __init__(self, dataset: Dataset, hyper: GanTraining, seed: int) -> None:
        super().__init__()
        if any(side % 4 for side in dataset.size):
            height, width = dataset.size
            raise DataError(
                f"the generator doubles its images twice and cannot make the {height}x{width} pixels of {dataset.name}: "
                "load the data with an image_size that 4 divides"
            )
        self.dataset, self.hyper, self.seed = dataset, hyper, seed
        self.device = dataset.x_train.device
        self.generator, self.discriminator = (self._draw(kind) for kind in (Generator, Discriminator))
        self.optimisers = {"g": self._adam(self.generator), "d": self._adam(self.discriminator)}

    def _draw(self, kind: type[nn.Module]) -> nn.Module:
        d = self.dataset
        with seeded(generator(self.seed, kind.__name__).initial_seed()):
            return kind(self.hyper, d.channels, d.classes, d.size).to(self.device)

    def _adam(self, network: nn.Module) -> torch.optim.Adam:
        return torch.optim.Adam(network.parameters(), lr=self.hyper.lr, betas=(self.hyper.beta1, self.hyper.beta2))

    def step(self) -> list[float]:
        """Update the discriminator, then the generator, with one batch; generated images have the labels of the real ones."""
        self.generator.train()  # `sample` may have been called since the last step
        x, y = self.real_batch(self.k)
        z = torch.randn(len(y), self.hyper.latent, generator=generator(self.seed, "noise", self.k)).to(self.device)
        fake = self.generator(z, y)
        d_loss = discriminator_loss(self.discriminator(x, y), self.discriminator(fake.detach(), y))
        _update(self.optimisers["d"], self.discriminator, d_loss)
        g_loss = generator_loss(self.discriminator(fake, y))
        _update(self.optimisers["g"], self.generator, g_loss)
        losses = [d_loss.item(), g_loss.item()]
        if not all(map(math.isfinite, losses)):
            raise Diverged(f"the GAN's loss became NaN or infinite in step {self.k + 1}: lower lr")
        return losses

    def real_batch(self, k: int) -> tuple[Float[Tensor, "n c h w"], Int[Tensor, " n"]]:
        """Draw step k's training images, scaled to [-1, 1], and their labels, uniformly and with replacement."""
        d = self.dataset
        chosen = torch.randint(len(d.y_train), (self.hyper.batch,), generator=generator(self.seed, "real", k)).to(self.device)
        return d.x_train[chosen].float().div_(127.5).sub_(1), d.y_train[chosen]

    def tensors(self) -> dict[str, Tensor]:
        """Weights, batch norm's statistics and Adam's moments of both networks."""
        found = {}
        for name, network in (("g", self.generator), ("d", self.discriminator)):
            found |= {f"{name}.{n}": t for n, t in network.state_dict().items()}
            found |= loop.optimiser_tensors(f"adam_{name}", self.optimisers[name])
        return found

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `tensors` returned."""
        for name, network in (("g", self.generator), ("d", self.discriminator)):
            network.load_state_dict({n[2:]: t for n, t in tensors.items() if n.startswith(f"{name}.")})
            loop.restore_optimiser(f"adam_{name}", self.optimisers[name], tensors)

    def result(self) -> dict[str, Any]:
        """What a record says of the training."""
        return {"losses": loss_summary(self.losses)}


def _update(optimiser: torch.optim.Optimizer, network: nn.Module, loss: Tensor) -> None:
    parameters = list(network.parameters())
    for p, g in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        p.grad = g
    optimiser.step()


def train(dataset: Dataset, hyper: GanTraining, *, seed: int = 0, device: str = "auto", **how: Any) -> Gan:
    """Train a GAN on the training images and return it; `sample` draws images from its `generator`.

    Args:
        dataset: from `data.load`; images whose sides are divisible by 4.
        hyper: the hyper-parameters.
        seed: of all random draws.
        device: "auto", "cpu", "cuda" or "cuda:1".
        how: `checkpoint`, `on_step`, `on_resume` and `should_stop`, as for `resume.run`; the checkpoint is kept to the end.

    Raises:
        DataError: a side of the images is not divisible by 4.
        Diverged: a loss became NaN or infinite.
        Interrupted, FileError: as `resume.run` raises them.
    """
    where = engines.resolve_device(device)
    gan = Gan(dataset.to(where), hyper, seed)
    identity = {"run": key(hyper), "data": dataset.hash, "seed": seed}
    with engines.arithmetic("float32", where):
        loop.run(gan, hyper.steps, identity, what="steps of the GAN", keep=True, **how)
    return gan


@torch.no_grad()
def sample(network: Generator, dataset: Dataset, ipc: int, *, seed: int = 0) -> Float[Tensor, "classes ipc c h w"]:
    """Draw images of each class, normalised as the data set's, on the generator's device.

    Each image has noise of its own, so that a larger draw begins with the images of a smaller one.

    Args:
        network: a trained generator; left in evaluation mode.
        dataset: on which it was trained.
        ipc: images per class, at least 1.
        seed: of the noise.

    Returns:
        Images whose pixels, before normalisation, lie in [0, 1].

    Raises:
        SpecError: `ipc` is below 1.
        Diverged: an image is NaN, because the training diverged in its last steps.
    """
    if ipc < 1:
        raise SpecError(f"cannot draw {ipc} images of each class: draw at least 1")
    network.eval()
    device, images = network.start.weight.device, []
    mean, std = (torch.tensor(v, device=device).view(-1, 1, 1) for v in (dataset.mean, dataset.std))
    for c in range(dataset.classes):
        z = torch.stack([torch.randn(network.latent, generator=generator(seed, "sample", c, i)) for i in range(ipc)])
        pixels = (network(z.to(device), torch.full((ipc,), c, device=device)) + 1) / 2
        images.append(pixels.clamp(0, 1).sub(mean).div(std))
    if not torch.isfinite(drawn := torch.stack(images)).all():
        raise Diverged("the GAN draws images that are NaN or infinite: train it again with a lower lr")
    return drawn


def make(run: MakeSet, dataset: Dataset, context: Context) -> Made:
    """Draw images from the run's GAN."""
    start = time.perf_counter()
    with engines.arithmetic("float32", torch.device(context.device)):
        images = sample(context.trained.generator, dataset, run.hyper.ipc, seed=run.seed)
    return Made(images, {"seconds": round(time.perf_counter() - start, 2)})


def train_run(run: TrainGan, dataset: Dataset, *, engine: str = "auto", **how: Any) -> Gan:
    """Train the GAN of a run under a progress bar, or take it as its checkpoint has it; `how` is as for `train`."""
    with Progress(f"training a GAN on {run.dataset}", run.hyper.steps) as progress:
        callbacks = progress.follow(lambda gan: f"losses {gan.losses[-1][0]:.2f}, {gan.losses[-1][1]:.2f}")
        return train(dataset, run.hyper, seed=run.seed, **callbacks, **how)
