"""A trained network in a file: its weights as safetensors, with what is needed to build it again and to test it on other images."""

import dataclasses
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.torch
import torch
from jaxtyping import Int
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ..core import engine as engines
from ..core import networks
from ..core.train import confusion, predictions
from ..data.dataset import Dataset
from ..data.formats import normal
from ..errors import DataError, FileError
from ..results import CondensedSet
from ..spec import Network, Training, full
from ..support.files import array_checksum, write_atomic
from ..support.kinds import NETWORK, kind_of
from .loading import load


class Tested(NamedTuple):
    """What a network tells of the test images of a data set.

    Args:
        network: in words.
        dataset: the data's name.
        class_names: of the data.
        labels: the classes of the test images.
        predicted: those that the network tells.
        confusion: how many images of each class (row) are taken for each class (column).
    """

    network: str
    dataset: str
    class_names: tuple[str, ...]
    labels: Int[np.ndarray, " m"]
    predicted: Int[np.ndarray, " m"]
    confusion: Int[np.ndarray, "classes classes"]

    @property
    def accuracy(self) -> float:
        """The share of images classified rightly, in percent."""
        return 100.0 * int((self.labels == self.predicted).sum()) / len(self.labels)


def save(network: nn.Module, path: Path | str, hyper: Training, tested: Dataset, made: CondensedSet) -> None:
    """Write a trained network, atomically.

    Args:
        network: with its weights.
        path: the file.
        hyper: how it was trained.
        tested: the data that it was tested on, in the size and the normalisation of the set.
        made: the set that it was trained on.

    Raises:
        FileError: the place cannot be written.
    """
    about = {"training": full(hyper), "shape": tested.shape, "class_names": tested.class_names}
    about |= {"mean": tested.mean, "std": tested.std, "image_channels": made.about.get("channels", 0)}
    about |= {"trained_on": made.hash, "dataset": made.dataset, "source": made.source}
    text = json.dumps(about)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    write_atomic(path, safetensors.torch.save(weights, {"dclib": text, "crc": _checksum(text, weights)}))


def _checksum(text: str, weights: dict[str, Tensor]) -> str:
    return array_checksum(text, *(weights[name].numpy() for name in sorted(weights)))


def read(path: Path | str) -> tuple[nn.Module, dict[str, Any]]:
    """Build a saved network again, on the CPU; return it and what its file says of it.

    Raises:
        FileError: there is no such file, or it holds no network.
        SpecError: it is a network of the user's own whose file has changed.
    """
    path = Path(path)
    if not path.is_file():
        raise FileError(f"there is no network {path}: make one with `dclib train SET --save {path}`")
    try:
        with safe_open(path, "pt") as file:
            text, crc = file.metadata()["dclib"], file.metadata().get("crc")
            weights = {name: file.get_tensor(name) for name in sorted(file.keys())}
        about = json.loads(text)
        if "trained_on" not in about or crc != _checksum(text, weights):
            raise ValueError
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        kind = kind_of(path)
        said = f"{path} is {kind}" if kind not in ("", NETWORK) else f"{path} is no network of dclib's, or a damaged one"
        raise FileError(f"{said}: name a file that `dclib train SET --save FILE` wrote") from error
    network = networks.build(
        Network.parse(about["training"]["network"]), **about["shape"] | {"size": tuple(about["shape"]["size"])}, seed=0
    )
    weights = {
        name: tensor.to(torch.get_default_dtype()) if tensor.is_floating_point() else tensor for name, tensor in weights.items()
    }
    network.load_state_dict(weights)
    return network.eval(), about


def test(path: Path | str, dataset: str | Path | Dataset = "", device: str = "auto") -> Tested:
    """Test a saved network, as `dclib.test` says."""
    network, about = read(path)
    found = _data(about, dataset)
    where = engines.resolve_device(device)
    network, found = network.to(where), found.to(where)
    predicted, counts = predictions(network, found), confusion(network, found)
    arrays = (found.y_test.cpu().numpy(), predicted.cpu().numpy(), counts.numpy())
    return Tested(about["training"]["network"], found.name, found.class_names, *arrays)


def _data(about: dict[str, Any], dataset: str | Path | Dataset) -> Dataset:
    """Load the data that a network is tested on, in the size and the normalisation of its images.

    Raises:
        DataError: it has other classes, or images of another shape.
    """
    height, width = about["shape"]["size"]
    if not (name := dataset or about["source"]):
        raise DataError("the network was trained on data given in Python: name the data to test on")
    shape = height if height == width else 0, about["image_channels"]
    found = name if isinstance(name, Dataset) else load(name, *shape)
    theirs, ours = (tuple(map(normal, names)) for names in (found.class_names, about["class_names"]))
    if theirs != ours:
        odd = next((f"class {c} is {a!r}, not {b!r}" for c, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b), "")
        odd = odd or f"it has {len(theirs)} classes, not {len(ours)}"
        raise DataError(f"{found.name} has other classes than the network ({odd}): test it on data with the same classes in order")
    size = (about["shape"]["channels"], height, width)
    if tuple(found.x_test.shape[1:]) != size:
        raise DataError(f"images of {found.name} have shape {tuple(found.x_test.shape[1:])} and the network's {size}: give others")
    return dataclasses.replace(found, mean=tuple(about["mean"]), std=tuple(about["std"]))
