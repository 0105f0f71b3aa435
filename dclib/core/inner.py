"""The inner step of Algorithm 1 (lines 4 to 9) on tensors that stay in place.

The real side needs first derivatives: the mean gradient of each class, computed piece by piece without keeping a graph. The
synthetic side needs second ones: the gradients of several classes at once, and the derivative of their distance by the images.
Then the images move, and the network is trained on them. All state is changed in place, so that on a GPU each part can be
captured once as a CUDA graph and replayed.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from ..data.dataset import Dataset, generator
from ..spec import Condensation
from . import engine as engines
from . import formation, lanes, matching, networks, siamese
from .ranks import ALONE, Ranks
from .reference import network_seed

WORKING_NUMBERS = 400_000_000  # limit on the numbers in the real gradients that are held at once
WORKING_PIXELS = 200_000  # limit on the pixels (of one channel) of the synthetic images that are differentiated at once
STATISTICS = {"true": 64, "code": 16}  # real images of each class that estimate batch norm's statistics


class InnerStep:
    """The network, the images and the gradients between them, on one device.

    Args:
        dataset: on the device that does the work.
        hyper: resolved hyper-parameters.
        seed: of all random draws.
        images: S (classes, ipc, c, h, w); copied.
        engine: "eager", "compiled" or "captured" (see `engine.choose`).
        ranks: the processes that share the classes.
        check: called before each class and each batch, in any thread; what it raises ends the step, whose state is then lost.
    """

    def __init__(
        self,
        dataset: Dataset,
        hyper: Condensation,
        seed: int,
        images: Tensor,
        engine: str = "eager",
        ranks: Ranks = ALONE,
        check: Callable[[], None] = lambda: None,
    ):
        self.check = check
        self.dataset, self.hyper, self.seed, self.ranks = dataset, hyper, seed, ranks
        self.images, self.velocity = images.clone(), torch.zeros_like(images)
        self.seen = hyper.ipc * hyper.factor**2  # images of a class that networks see
        self.count = len(images) * self.seen
        self.labels = torch.arange(dataset.classes, device=images.device)
        self.network = self.draw_network(0)
        self.parameters = list(self.network.parameters())
        self.momenta = [torch.zeros_like(p) for p in self.parameters]
        self.first_order = engines.prepare(self.network, engine, hyper.precision)
        if hyper.objective == "features":
            self.embed = engines.prepare(networks.features(self.network), engine, hyper.precision)
        sizes = [min(hyper.real_batch, len(dataset.class_indices(c))) for c in range(dataset.classes)]
        self.drawn = [self.labels.new_zeros(n) for n in sizes]  # indices of B^T_c
        self.estimated_from = [d.clone()[: STATISTICS[hyper.bn]] for d in self.drawn] if has_batch_norm(self.network) else []
        self.batch = {n: self.labels.new_zeros(n) for n in self._batch_sizes()}  # indices into S, as networks see it
        self.changes = self._no_changes(dataset.classes)  # the siamese augmentation of each class
        self.batch_changes = {n: self._no_changes(n) for n in self.batch}  # and of each image of a batch
        self.lanes = lanes.count(images.device)
        capture = engine == "captured"
        state = [*self.parameters, *self.network.buffers(), *self.momenta]
        self.gradient = engines.Captured(self._gradient, state) if capture else self._gradient
        self.descend = {n: engines.Captured(self._descend(n), state) if capture else self._descend(n) for n in self.batch}

    def draw_network(self, k: int) -> nn.Module:
        """θ_0 ~ P_θ0 of outer step k."""
        d = self.dataset
        network = networks.build(self.hyper.network, **d.shape, seed=network_seed(self.seed, k), stage="condense")
        return network.to(self.images.device, self.images.dtype)

    def begin(self, k: int) -> None:
        """Line 3: take the network of outer step k, with its optimiser at rest."""
        self.network.load_state_dict(self.draw_network(k).state_dict())
        torch._foreach_zero_(self.momenta)

    def draw(self, k: int, t: int) -> None:
        """Line 6: draw real images of every class, and choose those that estimate batch norm's statistics."""
        for c, kept in enumerate(self.drawn):
            kept.copy_(self.dataset.draw(c, self.hyper.real_batch, generator(self.seed, "real", k, t, c)))
        if operations := self.hyper.operations:
            self.changes.copy_(siamese.draw(len(self.drawn), operations, generator(self.seed, "siamese", k, t)))
        for c, kept in enumerate(self.estimated_from):
            kept.copy_(self._some(c, len(kept), generator(self.seed, "statistics", k, t, c)))

    def _some(self, c: int, count: int, draw: torch.Generator) -> Int64[Tensor, " k"]:
        """Return some of B^T_c at random: the first ones; or, as a class taken whole comes in its own order, a draw of its own."""
        whole = len(self.drawn[c]) == len(self.dataset.class_indices(c))
        return self.dataset.draw(c, count, draw) if whole else self.drawn[c][:count]

    def _no_changes(self, n: int) -> Tensor:
        return torch.zeros(4, n, dtype=torch.float64, device=self.images.device)

    def _changed(self, x: Float[Tensor, "n c h w"], changes: Float[Tensor, "4 n"]) -> Float[Tensor, "n c h w"]:
        """Images after siamese augmentation, where there is one."""
        return siamese.apply(x, changes) if self.hyper.operations else x

    def real_images(self, c: int) -> Float[Tensor, "n c h w"]:
        """B^T_c, normalised and augmented."""
        x = self._normalised(self.drawn[c])
        return self._changed(x, self.changes[:, c : c + 1].expand(-1, len(x)))

    def as_seen(self, S: Float[Tensor, "some ipc c h w"], which: slice) -> Float[Tensor, "some n c h w"]:
        """The learned images of some classes as a network sees them: enlarged and augmented."""
        if self.hyper.factor == 1 and not self.hyper.operations:
            return S
        x = formation.enlarge(S.flatten(0, 1), self.hyper.factor)
        return self._changed(x, self.changes[:, which].repeat_interleave(self.seen, 1)).unflatten(0, (-1, self.seen))

    def _normalised(self, indices: Int64[Tensor, " n"]) -> Float[Tensor, "n c h w"]:
        return self.dataset.normalise(self.dataset.x_train[indices]).to(self.images.dtype)

    def update_images(self, rate: float) -> Float[Tensor, ""]:
        """Lines 7-8: match the gradients of every class and move S by ς_S steps at η_S = `rate`; return the last step's loss."""
        for _ in range(self.hyper.image_steps):
            loss, gradient = self.gradient()
            self.ranks.add(loss, gradient)
            engines.descend([self.images], [self.velocity], [gradient], rate, self.hyper.image_momentum)
        return loss.clone()

    def _gradient(self) -> tuple[Float[Tensor, ""], Tensor]:
        """The matching loss summed over this rank's classes, and its derivative by all images, zero for other ranks' classes."""
        mine = range(self.ranks.rank, self.dataset.classes, self.ranks.count)
        if self.estimated_from:
            set_statistics(self.network.train(), list(map(self._normalised, self.estimated_from)), self.hyper.bn)
        self.network.eval()
        loss, gradient = self.images.new_zeros(()), torch.zeros_like(self.images)
        if self.hyper.batches == "mixed":  # a single pair of gradients cannot be shared: the first rank matches it
            return self.match_all() if self.ranks.rank == 0 else (loss, gradient)
        held = max(1, min(self.held(), -(-len(mine) // self.lanes)))
        shares = [mine[i : i + held] for i in range(0, len(mine), held)]
        for classes, (share, found) in zip(shares, lanes.each(self.match, shares, self.lanes), strict=True):
            loss = loss + share
            gradient[classes.start : classes.stop : classes.step] = found
        return loss, gradient

    def held(self) -> int:
        """How many classes each lane may hold at once, which bounds the memory."""
        numbers = sum(p.numel() for p in self.parameters)
        pixels = self.images[0, :, 0].numel()
        return max(1, min(WORKING_NUMBERS // numbers, WORKING_PIXELS // pixels) // self.lanes)

    def match(self, classes: range) -> tuple[Float[Tensor, ""], Float[Tensor, "some ipc c h w"]]:
        """Return the matching loss summed over some classes, and its derivative by their images."""
        which = slice(classes.start, classes.stop, classes.step)
        S = self.images[which].detach().requires_grad_()
        x, chunk = self.as_seen(S, which), engines.chunk(S.device)
        self.check()
        if self.hyper.objective == "features":
            real = torch.stack([matching.mean_features(self.embed, self.real_images(c), chunk) for c in classes])
            loss = matching.features_loss(self.embed, real, x).sum()
        else:
            stacked = [torch.stack(g) for g in zip(*map(self.real_gradients, classes), strict=True)]
            self.check()
            loss = matching.matching_loss(self.network, self.hyper.distance, stacked, x, self.labels[which]).sum()
        return loss.detach(), torch.autograd.grad(loss, S)[0]

    def real_gradients(self, c: int) -> list[Tensor]:
        """∇_θ L^T_c, the gradient of the mean loss over the real images of a class."""
        self.check()
        chunk = engines.chunk(self.images.device)
        return matching.real_gradients(self.first_order, self.parameters, self.real_images(c), c, chunk)

    def match_all(self) -> tuple[Float[Tensor, ""], Tensor]:
        """Match the gradient over all real images drawn with that over all of S; return the loss and its derivative by S."""
        total, real = sum(map(len, self.drawn)), [torch.zeros_like(p) for p in self.parameters]
        gradients = lanes.each(self.real_gradients, range(self.dataset.classes), self.lanes)
        for drawn, of_class in zip(self.drawn, gradients, strict=True):
            torch._foreach_add_(real, of_class, alpha=len(drawn) / total)
        S, labels = self.images.detach().requires_grad_(), self.labels.repeat_interleave(self.seen)
        one, x = [g[None] for g in real], self.as_seen(S, slice(None))  # a single "class" of many labels
        loss = matching.matching_loss(self.network, self.hyper.distance, one, x.flatten(0, 1)[None], labels[None]).sum()
        return loss.detach(), torch.autograd.grad(loss, S)[0]

    def train_network(self, k: int, t: int) -> None:
        """Line 9: ς_θ epochs over the whole of S, in shuffled batches."""
        shuffle = generator(self.seed, "shuffle", k, t)
        self.network.train()
        for _ in range(self.hyper.network_epochs):
            for part in torch.randperm(self.count, generator=shuffle).split(self.hyper.network_batch):
                self.check()
                self.batch[len(part)].copy_(part)
                if operations := self.hyper.operations:
                    self.batch_changes[len(part)].copy_(siamese.draw(len(part), operations, shuffle))
                self.descend[len(part)]()
        self.ranks.copy(self.parameters)

    def _batch_sizes(self) -> set[int]:
        whole, rest = divmod(self.count, self.hyper.network_batch)
        return {n for n, there in ((self.hyper.network_batch, whole), (rest, rest)) if there}

    def _descend(self, size: int):
        """Return one step of SGD with momentum on a batch of that size."""
        h, labels = self.hyper, self.labels.repeat_interleave(self.seen)
        beside = 1 if has_batch_norm(self.network) else self.lanes  # batch norm in training needs the batch in one piece

        def gradients(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
            part, changes = batch
            x, y = self._changed(formation.enlarge(self.images.flatten(0, 1), h.factor)[part], changes), labels[part]
            loss = F.cross_entropy(self.first_order(x), y, reduction="sum") / size
            return torch.autograd.grad(loss, self.parameters)

        def step() -> None:
            parts = zip(lanes.parts(self.batch[size], beside), lanes.parts(self.batch_changes[size].T, beside), strict=True)
            found = matching.total(lanes.each(gradients, ((part, changes.T) for part, changes in parts), beside))
            engines.descend(self.parameters, self.momenta, found, h.network_lr, h.network_momentum)  # η_θ

        return step


def has_batch_norm(network: nn.Module) -> bool:
    """Whether the network has batch norm, whose statistics must be set before each step."""
    return any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in network.modules())


@torch.no_grad()
def set_statistics(network: nn.Module, batches: list[Tensor], mode: str) -> None:
    """Estimate batch norm's mean and variance from real images (appendix A); the caller freezes them with `eval()`.

    Args:
        network: in training mode.
        batches: for each class up to `STATISTICS[mode]` real images, drawn at random.
        mode: "true" takes their statistics. "code" does what the authors' code does: one update at momentum 0.1, which keeps most
            of the initial mean 0 and variance 1.
    """
    norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    momenta = [m.momentum for m in norms]
    for m in norms:
        m.momentum = 1.0 if mode == "true" else m.momentum
    network(torch.cat(batches))
    for m, momentum in zip(norms, momenta, strict=True):
        m.momentum = momentum
