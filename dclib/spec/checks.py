"""What a spec refuses: numbers out of their range, and augmentations that do not exist; and which augmentation is usual."""

from typing import Any

from ..errors import SpecError, one_of
from .architectures import Network

LARGEST = 10**9
AUGMENTATIONS = ("crop", "scale", "rotate", "noise", "flip")


def whole(spec: Any, least: int, *names: str) -> None:
    """Refuse what is no whole number of at least `least`."""
    for name in names:
        value = getattr(spec, name)
        require(_is_int(value) and value >= least, f"{name} must be a whole number of at least {least}, not {value!r}")
        require(value <= LARGEST, f"{name} is at most {LARGEST:,}, not {value:,}")


def positive(spec: Any, *names: str) -> None:
    """Refuse what is no positive number."""
    for name in names:
        value = getattr(spec, name)
        require(_is_number(value) and 0 < value < float("inf"), f"{name} must be a positive number, not {value!r}")
        object.__setattr__(spec, name, float(value))  # 1 and 1.0 are one run, with one key


def fraction(spec: Any, *names: str) -> None:
    """Refuse what lies outside [0, 1)."""
    for name in names:
        value = getattr(spec, name)
        require(_is_number(value) and 0 <= value < 1, f"{name} must lie in [0, 1), not {value!r}")
        object.__setattr__(spec, name, float(value))


def at_least_zero(spec: Any, *names: str) -> None:
    """Refuse what is negative, infinite or no number."""
    for name in names:
        value = getattr(spec, name)
        ok = _is_number(value) and 0 <= value < float("inf")
        require(ok, f"{name} must be a number of at least 0, not {value!r}")
        object.__setattr__(spec, name, float(value))


def require(ok: bool, sentence: str) -> None:
    """Raise `SpecError` with that sentence unless `ok`."""
    if not ok:
        raise SpecError(sentence)


def operations(augment: str) -> tuple[str, ...]:
    """Split augmentations joined by "+"; "none" is none."""
    return () if augment == "none" else tuple(augment.split("+"))


def descent(spec: Any) -> None:
    """Check what every training of a network by SGD has."""
    whole(spec, 1, "batch")
    positive(spec, "lr")
    fraction(spec, "momentum")
    at_least_zero(spec, "weight_decay")
    for operation in spec.operations:
        one_of("augmentation", operation, AUGMENTATIONS if "+" in spec.augment else ("none", *AUGMENTATIONS))


def usual_augmentation(dataset: str, network: Network) -> str:
    """How images are augmented in stage T where nothing else is said, by the data set and the network that is trained.

    As in the authors' code a ConvNet with batch norm gets crops and noise on any data, every other network on MNIST crop, scale
    and rotation. AlexCifarNet, which only Table 3 trains, gets the latter on any data: the paper augments CIFAR10 there as well
    and does not say how.

    Args:
        dataset: a known name, or the full path of the user's own data (`Dataset.source`), which is not MNIST whatever it is called.
        network: the one that is trained.
    """
    if network.family == "ConvNet" and ("norm", "batch") in network.options:
        return "crop+noise"
    return "crop+scale+rotate" if dataset == "mnist" or network.family == "AlexCifarNet" else "none"


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
