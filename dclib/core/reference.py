"""Algorithm 1 to the letter, one loop inside another as the paper prints it, with nothing done to make it fast; and stage T.

It is the oracle for the fast code (the tests compare loss and image gradient in float64) and the baseline of the benchmarks. The
two share only the networks and the draws of real images.
"""

import numpy as np
import torch
import torch.nn.functional as F
from scipy import ndimage
from torch import Tensor, nn

from ..data.dataset import Dataset, generator
from ..errors import SpecError
from ..spec import SIAMESE, Condensation, Training
from . import networks


def distance(real: list[Tensor], synthetic: list[Tensor], kind: str = "layerwise") -> Tensor:
    """Eqs. 9-10, or one of the two rivals of Table T7, row by row as printed."""
    if kind == "euclidean":
        return sum(((A - B) ** 2).sum() for A, B in zip(real, synthetic, strict=True))
    if kind == "cosine":
        a, b = (torch.cat([g.reshape(-1) for g in gradient]) for gradient in (real, synthetic))
        return 1 - a @ b / (a.norm() * b.norm() + 1e-6)
    total = torch.zeros((), dtype=real[0].dtype, device=real[0].device)
    for A, B in zip(real, synthetic, strict=True):
        if A.ndim == 1:  # biases and scales take no part
            continue
        A, B = A.reshape(len(A), -1), B.reshape(len(B), -1)
        total = total + torch.sum(1 - torch.sum(A * B, dim=1) / (A.norm(dim=1) * B.norm(dim=1) + 1e-6))
    return total


def class_loss(network: nn.Module, x_real: Tensor, x_synthetic: Tensor, label: int, kind: str = "layerwise") -> Tensor:
    """D(∇_θ L^S_c, ∇_θ L^T_c) for one class: both gradients by autograd, the synthetic one with its graph."""
    parameters = list(network.parameters())
    y_real = torch.full((len(x_real),), label, device=x_real.device)
    y_synthetic = torch.full((len(x_synthetic),), label, device=x_real.device)
    real = torch.autograd.grad(F.cross_entropy(network(x_real), y_real), parameters)
    synthetic = torch.autograd.grad(F.cross_entropy(network(x_synthetic), y_synthetic), parameters, create_graph=True)
    return distance([g.detach() for g in real], list(synthetic), kind)


def features_loss(network: nn.Module, x_real: Tensor, x_synthetic: Tensor) -> Tensor:
    """What distribution matching has in place of D, for one class: the squared distance of the mean features."""
    real, synthetic = (network.features(x).flatten(1).mean(0) for x in (x_real, x_synthetic))
    return torch.sum((real.detach() - synthetic) ** 2)


def mixed_loss(network: nn.Module, real: list[Tensor], S: Tensor, kind: str = "layerwise") -> Tensor:
    """D(∇_θ L^S, ∇_θ L^T) over all classes at once, which the paper found slower; `real` lists each class's real images."""
    parameters, labels = list(network.parameters()), torch.arange(len(S), device=S.device)
    y_real = torch.cat([label.expand(len(x)) for label, x in zip(labels, real, strict=True)])
    g_real = torch.autograd.grad(F.cross_entropy(network(torch.cat(real)), y_real), parameters)
    loss = F.cross_entropy(network(S.flatten(0, 1)), labels.repeat_interleave(S.shape[1]))
    return distance([g.detach() for g in g_real], list(torch.autograd.grad(loss, parameters, create_graph=True)), kind)


def condense(dataset: Dataset, hyper: Condensation, seed: int = 0, device: str = "cpu") -> Tensor:
    """Run Algorithm 1 and return S, normalised images of shape (classes, ipc, channels, height, width).

    It is not for networks with batch norm, which need their statistics set first (see `inner.set_statistics`).

    Raises:
        SpecError: `init`, `patience` or `precision` have values that the printed algorithm does not have.
    """
    h = hyper.resolve()
    if h.init != "noise" or h.patience:
        raise SpecError(f"the literal algorithm starts from noise and runs all K steps, not init={h.init!r}, patience={h.patience}")
    if h.precision not in ("float32", "float64"):
        raise SpecError(f"the literal algorithm computes in float32 or float64, not in {h.precision}")
    S = torch.randn(dataset.classes, h.ipc, dataset.channels, *dataset.size, generator=generator(seed, "init"))
    S = S.to(device, getattr(torch, h.precision)).requires_grad_()
    opt_S = torch.optim.SGD([S], lr=h.image_lr, momentum=h.image_momentum)  # η_S
    annealing = torch.optim.lr_scheduler.CosineAnnealingLR(opt_S, h.outer_steps, h.image_lr_end or h.image_lr)
    for k in range(h.outer_steps):  # K
        outer_step(dataset, h, seed, k, S, opt_S)
        annealing.step()
    return S.detach()


def outer_step(dataset: Dataset, h: Condensation, seed: int, k: int, S: Tensor, opt_S: torch.optim.Optimizer) -> None:
    """The body of the loop over k: a new network, and T inner steps along its training."""
    network = networks.build(h.network, **dataset.shape, seed=network_seed(seed, k), stage="condense")  # θ_0 ~ P_θ0
    network = network.to(S.device, S.dtype)
    opt_theta = torch.optim.SGD(network.parameters(), lr=h.network_lr, momentum=h.network_momentum)  # η_θ
    for t in range(h.inner_steps):  # T
        real = [dataset.draw(c, h.real_batch, generator(seed, "real", k, t, c)) for c in range(dataset.classes)]  # B^T_c
        for _ in range(h.image_steps):  # ς_S
            x_real = [dataset.normalise(dataset.x_train[i]).to(S.device, S.dtype) for i in real]
            x_S = [enlarge(images, h.factor) for images in S]
            if h.operations:
                drawn = siamese_draws(dataset.classes, h.operations, generator(seed, "siamese", k, t))
                for c in range(dataset.classes):
                    x_real[c], x_S[c] = (torch.stack([change(x, *drawn[c]) for x in images]) for images in (x_real[c], x_S[c]))
            if h.batches == "mixed":
                loss = mixed_loss(network, x_real, torch.stack(x_S), h.distance)
            elif h.objective == "features":
                loss = sum(features_loss(network, x_real[c], x_S[c]) for c in range(dataset.classes))
            else:
                loss = sum(class_loss(network, x_real[c], x_S[c], c, h.distance) for c in range(dataset.classes))  # C
            (S.grad,) = torch.autograd.grad(loss, [S])
            opt_S.step()
        if t < h.inner_steps - 1:
            train_network(network, opt_theta, S.detach(), h, seed, k, t)


def network_seed(seed: int, k: int) -> int:
    """Return the seed of the network that outer step k draws."""
    return generator(seed, "network", k).initial_seed()


def train_network(
    network: nn.Module, optimiser: torch.optim.Optimizer, S: Tensor, h: Condensation, seed: int, k: int, t: int
) -> None:
    """Line 9 of Algorithm 1: ς_θ epochs of SGD over the whole synthetic set, in shuffled batches."""
    x = torch.cat([enlarge(images, h.factor) for images in S])
    y = torch.arange(len(S), device=S.device).repeat_interleave(len(x) // len(S))
    shuffle = generator(seed, "shuffle", k, t)
    for _ in range(h.network_epochs):
        for batch in torch.randperm(len(x), generator=shuffle).split(h.network_batch):
            images = x[batch]
            if h.operations:
                drawn = siamese_draws(len(batch), h.operations, shuffle)
                images = torch.stack([change(image, *one) for image, one in zip(images, drawn, strict=True)])
            optimiser.zero_grad()
            F.cross_entropy(network(images), y[batch]).backward()
            optimiser.step()


def enlarge(images: Tensor, factor: int) -> Tensor:
    """Cut images (n, c, h, w) into factor × factor parts each, and enlarge these one by one."""
    h, w, found = images.shape[2] // factor, images.shape[3] // factor, []
    for image in images:
        for i in range(factor):
            for j in range(factor):
                part = image[:, i * h : (i + 1) * h, j * w : (j + 1) * w]
                found.append(F.interpolate(part[None], list(image.shape[1:]), mode="bilinear", align_corners=False)[0])
    return torch.stack(found)


def siamese_draws(n: int, operations: tuple[str, ...], draw: torch.Generator) -> list[tuple[str, list[float]]]:
    """Draw n operations of siamese augmentation by name, each with three numbers in [0, 1)."""
    chosen = torch.randint(len(operations), (n,), generator=draw).tolist()
    numbers = torch.rand(3, n, generator=draw, dtype=torch.float64).T.tolist()
    return [(operations[i], u) for i, u in zip(chosen, numbers, strict=True)]


def change(image: Tensor, operation: str, u: list[float]) -> Tensor:
    """Change one image (c, h, w) by an operation of siamese augmentation with its numbers, case by case."""
    (height, width), zero = image.shape[1:], torch.zeros_like(image)
    if operation == "color":
        image = image + (u[0] - 0.5)
        image = (image - image.mean(0)) * 2 * u[1] + image.mean(0)
        return (image - image.mean()) * (u[2] + 0.5) + image.mean()
    if operation == "flip":
        return image.flip(2) if u[0] < 0.5 else image
    if operation == "crop":
        right, down = (int(u[i] * (2 * int(side / 8 + 0.5) + 1)) - int(side / 8 + 0.5) for i, side in enumerate((width, height)))
        inside = image[:, max(0, down) : height + min(0, down), max(0, right) : width + min(0, right)]
        return F.pad(inside, (max(0, -right), max(0, right), max(0, -down), max(0, down)))
    if operation == "cutout":
        keep = torch.ones_like(image[0])
        (top, rows), (left, columns) = (
            (int(u[i] * (side + 1 - int(side / 2 + 0.5) % 2)) - int(side / 2 + 0.5) // 2, int(side / 2 + 0.5))
            for i, side in enumerate((height, width))
        )
        keep[max(0, top) : max(0, top + rows), max(0, left) : max(0, left + columns)] = 0
        return torch.where(keep > 0, image, zero)
    angle = np.deg2rad(15 * (2 * u[0] - 1))
    turned = [[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0]]
    scaled = [[1 / 1.2 + u[0] * (1.2 - 1 / 1.2), 0, 0], [0, 1 / 1.2 + u[1] * (1.2 - 1 / 1.2), 0]]
    affine = torch.tensor(turned if operation == "rotate" else scaled, dtype=torch.float64).to(image)[None]
    grid = F.affine_grid(affine, [1, *image.shape], align_corners=False)
    return F.grid_sample(image[None], grid, align_corners=False)[0]


def train(network: nn.Module, images: Tensor, labels: Tensor, hyper: Training, seed: int = 0) -> None:
    """Stage T: E + 1 epochs; after epoch E // 2 + 1 a tenth of the rate and a fresh optimiser."""
    h, shuffle, draw = hyper.resolve(), generator(seed, "shuffle"), np.random.default_rng(seed)
    lr, settings = h.lr, dict(momentum=h.momentum, weight_decay=h.weight_decay)
    optimiser = torch.optim.SGD(network.parameters(), lr=lr, **settings)
    for epoch in range(h.epochs + 1):
        order = torch.randperm(len(images), generator=shuffle) if len(images) > h.batch else torch.arange(len(images))
        for part in order.split(h.batch):
            x = images[part]
            if h.operations:
                x = torch.from_numpy(augment(x.numpy(), h.operations, draw))
            optimiser.zero_grad()
            F.cross_entropy(network(x), labels[part]).backward()
            optimiser.step()
        if epoch == h.epochs // 2 + 1:
            lr *= 0.1
            optimiser = torch.optim.SGD(network.parameters(), lr=lr, **settings)


def augment(images: np.ndarray, operations: tuple[str, ...], draw: np.random.Generator) -> np.ndarray:
    """Apply to each image (n, c, h, w) one operation drawn uniformly, image by image."""
    mean, out = images.mean((0, 2, 3)), images.copy()
    for i, image in enumerate(images):
        operation = operations[draw.integers(len(operations))]
        if operation == "crop":
            out[i] = crop(image, mean, *draw.integers(0, 8, 2).tolist())
        elif operation == "scale":
            out[i] = scale(image, *draw.uniform(0.8, 1.2, 2).tolist())
        elif operation == "rotate":
            out[i] = rotate(image, mean, int(draw.integers(-45, 45)))
        elif operation.startswith("dsa"):
            names = [name for name in SIAMESE if operation == "dsa" or name != "flip"]
            out[i] = change(torch.from_numpy(image), names[draw.integers(len(names))], draw.random(3).tolist()).numpy()
        elif operation == "noise":
            out[i] = image + 0.001 * draw.standard_normal(image.shape)
        elif draw.random() < 0.5:
            out[i] = image[:, :, ::-1]
    return out


def crop(image: np.ndarray, mean: np.ndarray, down: int, right: int) -> np.ndarray:
    """Pad an image by 4 pixels of the channels' means and crop it at an offset."""
    c, h, w = image.shape
    padded = np.empty((c, h + 8, w + 8), image.dtype)
    padded[:] = np.asarray(mean).reshape(c, 1, 1)
    padded[:, 4 : 4 + h, 4 : 4 + w] = image
    return padded[:, down : down + h, right : right + w]


def scale(image: np.ndarray, vertical: float, horizontal: float) -> np.ndarray:
    """Resize an image by two factors, centre it on zeros and cut its old size out of the middle."""
    c, h, w = image.shape
    new_h, new_w = int(vertical * h), int(horizontal * w)
    resized = F.interpolate(torch.from_numpy(image)[None], [new_h, new_w])[0].numpy()
    side = max(h, w, new_h, new_w)
    canvas = np.zeros((c, side, side), image.dtype)
    top, left = (side - new_h) // 2, (side - new_w) // 2
    canvas[:, top : top + new_h, left : left + new_w] = resized
    top, left = (side - h) // 2, (side - w) // 2
    return canvas[:, top : top + h, left : left + w]


def rotate(image: np.ndarray, mean: np.ndarray, degrees: int) -> np.ndarray:
    """Turn an image by cubic splines, with the mean of all channels outside it, and cut its old size out of the middle."""
    out, fill = [], np.mean(mean)
    for channel in image:
        h, w = channel.shape
        turned = ndimage.rotate(channel, degrees, cval=fill)
        turned = np.pad(turned, 9, constant_values=fill)  # a long image turns into a shorter one
        top, left = (turned.shape[0] - h) // 2, (turned.shape[1] - w) // 2
        out.append(turned[top : top + h, left : left + w])
    return np.stack(out)
