"""A variant of a run: hyper-parameters of Algorithm 1 in place of the preset's, as text such as "distance=euclidean,init=real".

The fifth axis of an experiment's grid; the empty text, or "default", changes nothing.
"""

import dataclasses
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ..errors import SpecError, one_of
from .runs import Condensation

DEFAULT = "default"  # what a user may write for the empty text
FIXED = ("ipc", "network")  # axes of their own
KINDS = {f.name: type(f.default) for f in dataclasses.fields(Condensation) if f.name not in FIXED}


@lru_cache(maxsize=256)
def _parsed(text: str) -> tuple[tuple[str, Any], ...]:
    changes: dict[str, Any] = {}
    for part in filter(None, map(str.strip, text.removeprefix(DEFAULT).split(","))):
        name, equals, value = (word.strip() for word in part.partition("="))
        one_of("hyper-parameter in a variant", name, KINDS)
        if not equals or name in changes:
            raise SpecError(f"a variant is written name=value, each name once, not {text!r}")
        changes[name] = _read(name, value)
    Condensation(**changes)  # refuses what no hyper-parameter can be
    return tuple(changes.items())


def _read(name: str, value: str) -> Any:
    try:
        return KINDS[name](value)
    except ValueError:
        kind = {int: "a whole number", float: "a number"}[KINDS[name]]
        raise SpecError(f"{name} in a variant must be {kind}, not {value!r}") from None


def parse(text: str) -> dict[str, Any]:
    """Read a variant: the values by the names of `Condensation`'s fields.

    Raises:
        SpecError: an unknown hyper-parameter, or a value that it cannot take.
    """
    return dict(_parsed(text))


def canonical(text: str) -> str:
    """Return the one spelling of a variant: in the order of the fields, without spaces."""
    changes = parse(text)
    return ",".join(f"{name}={changes[name]}" for name in KINDS if name in changes)


def apply(hyper: Condensation, text: str) -> Condensation:
    """Put a variant's values in place of a preset's."""
    return dataclasses.replace(hyper, **parse(text))


def steps(K: Sequence[int], T: Sequence[int]) -> tuple[str, ...]:
    """The variants of so many outer and inner steps, the fewest outer ones first (see `courses`)."""
    return tuple(f"outer_steps={k},inner_steps={t}" for t in T for k in K)
