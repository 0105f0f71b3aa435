"""The frozen dataclasses of a run: which hyper-parameters of Algorithm 1 and of stage T, which network, which set.

Nothing here computes and nothing imports torch. Each hyper-parameter carries the paper's symbol in a comment; each object
turns into a plain dictionary (`spell`) whose hash is the run's key, with fields at their default left out, so that a field
added later changes no key.
"""

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .architectures import (
    FAMILIES,
    MLP,
    VGG11,
    AlexCifarNet,
    AlexNet,
    ConvNet,
    LeNet,
    Network,
    ResNet18,
)
from .errors import SpecError, one_of

__all__ = [
    "FAMILIES", "MLP", "VGG11", "AlexCifarNet", "AlexNet", "Condensation", "ConvNet", "LeNet", "MakeSet",
    "Network", "ResNet18", "TrainNetworks", "Training", "derive", "full", "key", "loops", "spell",
]

SCHEMA = 1
METHODS = ("condense", "random")

DISTANCES = ("layerwise", "euclidean", "cosine")
PRECISIONS = ("float32", "float64", "bfloat16", "tf32")  # the last two in first-order passes; TF32 on GPUs
AUGMENTATIONS = ("crop", "scale", "rotate", "noise", "flip")


def loops(ipc: int) -> tuple[int, int]:
    """Return the paper's T and ς_θ for any number of images per class (appendix A, "Dataset condensation").

    The paper gives 1 image/class → (1, 1), 10 → (10, 50), 50 → (50, 10) and, above ten, T = ipc with ς_θ = 500 / T; we use
    the latter rule, rounded, for 2 … 9 as well.
    """
    if ipc == 1:
        return 1, 1
    return ipc, max(1, round(500 / ipc))


def _whole(spec: Any, least: int, *names: str) -> None:
    for name in names:
        value = getattr(spec, name)
        _require(_is_int(value) and value >= least, f"{name} must be a whole number of at least {least}, not {value!r}")


def _positive(spec: Any, *names: str) -> None:
    for name in names:
        value = getattr(spec, name)
        _require(_is_number(value) and 0 < value < float("inf"), f"{name} must be a positive number, not {value!r}")
        object.__setattr__(spec, name, float(value))  # 1 and 1.0 are one run, with one key


def _fraction(spec: Any, *names: str) -> None:
    for name in names:
        value = getattr(spec, name)
        _require(_is_number(value) and 0 <= value < 1, f"{name} must lie in [0, 1), not {value!r}")
        object.__setattr__(spec, name, float(value))


def _require(ok: bool, sentence: str) -> None:
    if not ok:
        raise SpecError(sentence)


@dataclass(frozen=True)
class Condensation:
    """The hyper-parameters of Algorithm 1; the defaults are the paper's.

    `inner_steps` and `network_epochs` left at 0 follow the paper's rule for `ipc` (see `loops`).
    """

    ipc: int = 1  # images per class
    network: Network = field(default_factory=Network)  # φ, drawn afresh from P_θ0 at each outer step
    outer_steps: int = 1000  # K
    inner_steps: int = 0  # T
    image_steps: int = 1  # ς_S
    image_lr: float = 0.1  # η_S
    image_momentum: float = 0.5
    network_epochs: int = 0  # ς_θ, in epochs over S
    network_lr: float = 0.01  # η_θ
    network_momentum: float = 0.5
    network_batch: int = 256
    real_batch: int = 256  # |B^T_c|
    distance: str = "layerwise"  # D, Eqs. 9-10
    init: str = "noise"  # of S: N(0, 1), or real images
    bn: str = "code"  # batch norm's statistics: as the authors' code estimates them, or those of the real images ("true")
    patience: int = 0  # stop when the best mean loss of `patience` outer steps has not fallen for as many; 0: never
    precision: str = "float32"

    def __post_init__(self) -> None:
        _whole(self, 1, "ipc", "outer_steps", "image_steps", "network_batch", "real_batch")
        _whole(self, 0, "inner_steps", "network_epochs", "patience")
        _positive(self, "image_lr", "network_lr")
        _fraction(self, "image_momentum", "network_momentum")
        one_of("distance", self.distance, DISTANCES)
        one_of("init", self.init, ("noise", "real"))
        one_of("bn", self.bn, ("true", "code"))
        one_of("precision", self.precision, PRECISIONS)

    def resolve(self) -> "Condensation":
        """Spell out T, ς_θ and the network's "auto" options."""
        T, epochs = loops(self.ipc)
        return dataclasses.replace(
            self,
            network=self.network.resolve("condense"),
            inner_steps=self.inner_steps or T,
            network_epochs=self.network_epochs or epochs,
        )


@dataclass(frozen=True)
class Training:
    """Stage T: how a network is trained from scratch on a small set; the defaults are the authors' code's.

    `epochs` is E in "epochs 0 … E", so E + 1 are run; left at 0 it is 300, or 1000 with augmentation. After epoch
    E // 2 + 1 the learning rate falls to a tenth and the momentum starts afresh.
    """

    network: Network = field(default_factory=Network)
    epochs: int = 0  # E
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 5e-4
    batch: int = 256
    augment: str = "none"  # or operations joined by "+", of which each image gets one: crop+scale+rotate
    precision: str = "float32"

    def __post_init__(self) -> None:
        _whole(self, 0, "epochs")
        _whole(self, 1, "batch")
        _positive(self, "lr")
        _fraction(self, "momentum")
        decay = self.weight_decay
        _require(_is_number(decay) and 0 <= decay < float("inf"), f"weight_decay must be a number of at least 0, not {decay!r}")
        for operation in self.operations:
            one_of("augmentation", operation, AUGMENTATIONS if "+" in self.augment else ("none", *AUGMENTATIONS))
        one_of("precision", self.precision, PRECISIONS)

    @property
    def operations(self) -> tuple[str, ...]:
        """The augmentations as a tuple; empty for "none"."""
        return () if self.augment == "none" else tuple(self.augment.split("+"))

    def resolve(self) -> "Training":
        """Spell out E and the network's "auto" options."""
        return dataclasses.replace(
            self, network=self.network.resolve("train"), epochs=self.epochs or (1000 if self.operations else 300)
        )


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def spell(thing: Any) -> dict[str, Any]:
    """Turn a spec into a plain dictionary without the fields at their default, the form that is hashed and recorded."""
    out: dict[str, Any] = {}
    for f in dataclasses.fields(thing):
        value = getattr(thing, f.name)
        default = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
        if value == default or f.metadata.get("outside_key"):
            continue
        out[f.name] = str(value) if isinstance(value, Network) else spell(value) if dataclasses.is_dataclass(value) else value
    return out


def full(thing: Any) -> dict[str, Any]:
    """Turn a spec into a plain dictionary with every field, the form that a reader of the records sees."""
    values = {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing) if not f.metadata.get("outside_key")}
    return {n: str(v) if isinstance(v, Network) else full(v) if dataclasses.is_dataclass(v) else v for n, v in values.items()}


def key(thing: Any) -> str:
    """Return the key of a spelled-out run: 16 hexadecimal digits of a SHA-256."""
    text = json.dumps({"schema": SCHEMA, "kind": type(thing).__name__, **spell(thing)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class MakeSet:
    """The run that makes a small set: by condensing, or by choosing real images.

    Args:
        dataset: a data set's name, or the path of the user's own.
        method: "condense" (with `hyper`) or "random".
        seed: 0, 1, …: one for each set.
        hyper: resolved hyper-parameters; for "random" only its `ipc` counts.
        image_size: images are resized to this square size first; 0 leaves them.
    """

    dataset: str
    method: str = "condense"
    seed: int = 0
    hyper: Condensation = field(default_factory=Condensation)
    image_size: int = 0

    def __post_init__(self) -> None:
        one_of("method", self.method, METHODS)

    @cached_property
    def key(self) -> str:
        """The key of the set."""
        return key(self)


@dataclass(frozen=True)
class TrainNetworks:
    """The run that trains `networks` networks on one set and tests each; the number is not part of the key."""

    set: MakeSet
    hyper: Training = field(default_factory=Training)
    networks: int = field(default=1, metadata={"outside_key": True})

    @cached_property
    def key(self) -> str:
        """The key of the run; records of the same key add up."""
        return key(self)


def derive(seed: int, *purpose: object) -> int:
    """Return a 63-bit seed for one purpose, a hash of `seed` and `purpose` (such as "real", k, t)."""
    text = json.dumps([seed, *map(str, purpose)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
