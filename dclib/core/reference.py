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
from ..spec import Condensation, Training
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
            if h.batches == "mixed":
                loss = mixed_loss(network, x_real, S, h.distance)
            else:
                loss = sum(class_loss(network, x_real[c], S[c], c, h.distance) for c in range(dataset.classes))  # C
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
    x, y = S.flatten(0, 1), torch.arange(len(S), device=S.device).repeat_interleave(S.shape[1])
    shuffle = generator(seed, "shuffle", k, t)
    for _ in range(h.network_epochs):
        for batch in torch.randperm(len(x), generator=shuffle).split(h.network_batch):
            optimiser.zero_grad()
            F.cross_entropy(network(x[batch]), y[batch]).backward()
            optimiser.step()


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
