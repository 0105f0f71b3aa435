"""Builds a user's own network from its factory; whatever the user's code raises becomes a sentence."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import nn

from ..errors import DclibError, SpecError, first_line
from ..spec import OwnNetwork
from .seeded import seeded


def build(network: OwnNetwork, *, channels: int, classes: int, size: tuple[int, int], seed: int) -> nn.Module:
    """Build a user's network and draw its weights from `seed`, leaving the global random state as it was.

    Args:
        network: its factory.
        channels, classes, size, seed: as for `networks.build`.

    Raises:
        SpecError: it cannot be built.
    """
    what = f"cannot be built for {channels} channels, {classes} classes and {by(size)} pixels"
    with seeded(seed), explained(network, what):
        model = network.factory(channels=channels, classes=classes, size=size)
    require(isinstance(model, nn.Module), network, f"gives a {type(model).__name__}: return an nn.Module")
    return model.float().train()


def by(sides: Sequence[int]) -> str:
    """A shape in words: 32x32."""
    return "x".join(map(str, sides))


def require(ok: bool, network: OwnNetwork, sentence: str) -> None:
    """Raise `SpecError` with the network's name and that sentence unless `ok`."""
    if not ok:
        raise SpecError(f"{network.family} {sentence}")


@contextmanager
def explained(network: OwnNetwork, what: str) -> Iterator[None]:
    """Turn whatever the user's code raises into a sentence; the cause hangs on the error."""
    try:
        yield
    except DclibError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {first_line(error)}"
        raise SpecError(f"{network.family} {what} ({said}): repair it, or use another network") from error
