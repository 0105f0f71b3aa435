"""The coreset baselines of Table 1 (Sec. 3.1 and appendix C): a few real images of each class in place of condensed ones.

`random` draws the images of one class; `herding` and `k_center` choose by the features of a network trained on the whole set,
`forgetting` by how often that training forgot each image (see `full_training`). `select` chooses the images of every class.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from ..core import engine as engines
from ..core.networks import Classifier
from ..data.dataset import Dataset, generator
from ..errors import one_of
from ..spec import GUIDED, MakeSet
from . import Context, Made

METHODS = ("random", *GUIDED)
BATCH = 250  # images whose features are taken at a time

Features = Float[Tensor, "n d"]
Indices = Int[Tensor, " ipc"]


def random(count: int, ipc: int, draw: Generator) -> Indices:
    """Draw `ipc` of `count` images without replacement; all of them are left in their order."""
    return torch.randperm(count, generator=draw)[:ipc] if ipc < count else torch.arange(count)


def herding(features: Features, ipc: int) -> Indices:
    """Choose, one after the other, the image that brings the mean of the chosen ones nearest to the class's mean (Welling, 2009).

    Args:
        features: φ of each image of a class, in the order of their indices.
        ipc: how many, at most n.
    """
    mean, total, chosen = features.mean(0), torch.zeros_like(features[0]), []
    for i in range(ipc):
        distances = _distances(features, mean * (i + 1) - total)  # argmin over φ of |μ·(i+1) − Σ − φ|
        distances[chosen] = torch.inf
        chosen.append(int(distances.argmin()))
        total = total + features[chosen[-1]]
    return torch.tensor(chosen)


def k_center(features: Features, ipc: int) -> Indices:
    """Choose the image nearest to the class's mean, then again and again the one farthest from all chosen (Wolf, 2011).

    Args:
        features: φ of each image of a class, in the order of their indices.
        ipc: how many, at most n.
    """
    chosen = [int(_distances(features, features.mean(0)).argmin())]
    nearest = torch.full_like(features[:, 0], torch.inf)  # to the nearest centre
    while len(chosen) < ipc:
        nearest = torch.minimum(nearest, _distances(features, features[chosen[-1]]))
        nearest[chosen] = -1  # so that the twin of a centre can still be chosen, and the centre itself cannot
        chosen.append(int(nearest.argmax()))
    return torch.tensor(chosen)


def forgetting(events: Int[Tensor, " n"], learned: Bool[Tensor, " n"], ipc: int, draw: Generator) -> Indices:
    """Choose the images forgotten most often; those never learned count as forgotten more often than any (Toneva, 2019).

    Args:
        events: how often each image was classified rightly and at its next presentation wrongly.
        learned: whether it was ever classified rightly.
        ipc: how many, at most n.
        draw: breaks ties, of which a short training leaves many.
    """
    shuffled = torch.randperm(len(events), generator=draw)
    counts = torch.where(learned, events.long(), torch.iinfo(torch.int64).max)
    return shuffled[counts[shuffled].sort(descending=True, stable=True).indices[:ipc]]


def _distances(features: Features, point: Float[Tensor, " d"]) -> Float[Tensor, " n"]:
    return torch.linalg.vector_norm(features - point, dim=1)


@torch.inference_mode()
def features_of(dataset: Dataset, network: Classifier, indices: Int[Tensor, " n"]) -> Features:
    """Return what enters the network's last linear layer for these training images, in float64."""
    network.eval()
    images = dataset.x_train[indices.to(dataset.x_train.device)]
    return torch.cat([network.features(dataset.normalise(x)).double().cpu() for x in images.split(BATCH)])


def select(
    method: str,
    dataset: Dataset,
    ipc: int,
    *,
    seed: int = 0,
    network: Classifier | None = None,
    events: Int[Tensor, " n"] | None = None,
    learned: Bool[Tensor, " n"] | None = None,
) -> Int[Tensor, "classes ipc"]:
    """Choose `ipc` training images of each class.

    Args:
        method: one of `METHODS`.
        dataset: its training images are chosen from.
        ipc: images per class.
        seed: of random draws, and of ties between images forgotten equally often.
        network: gives the features, on the data set's device; for herding and k-center.
        events, learned: of each training image, as for `forgetting`.

    Returns:
        Indices into `dataset.x_train`, the first chosen first.

    Raises:
        SpecError: an unknown method.
        DataError: a class has fewer than `ipc` images.
    """
    one_of("method", method, METHODS)
    dataset.require(ipc, "lower ipc")
    draw = generator(seed, "init" if method == "random" else method)  # random images are those that condensing starts from
    choose = {
        "random": lambda members: random(len(members), ipc, draw),
        "herding": lambda members: herding(features_of(dataset, network, members), ipc),
        "k-center": lambda members: k_center(features_of(dataset, network, members), ipc),
        "forgetting": lambda members: forgetting(events.cpu()[members], learned.cpu()[members], ipc, draw),
    }[method]
    classes = [dataset.class_indices(c).cpu() for c in range(dataset.classes)]
    return torch.stack([members[choose(members)] for members in classes])


def pick(dataset: Dataset, indices: Int[Tensor, "classes ipc"]) -> Float[Tensor, "classes ipc c h w"]:
    """The training images of these indices, normalised."""
    images = dataset.normalise(dataset.x_train[indices.flatten().to(dataset.x_train.device)])
    return images.unflatten(0, tuple(indices.shape))


def make(run: MakeSet, dataset: Dataset, context: Context) -> Made:
    """Choose images by the method of a run; what is said of them is their indices."""
    where, trained = torch.device(context.device), context.trained
    guide = {name: getattr(trained, name) for name in ("network", "events", "learned")} if trained else {}
    with engines.arithmetic("float32", where):
        indices = select(run.method, dataset.to(where), run.hyper.ipc, seed=run.seed, **guide)
    return Made(pick(dataset, indices), {"indices": indices.tolist()})
