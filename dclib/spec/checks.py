"""Hyper-parameters declared once: a field of a dataclass carries the paper's symbol, a help text and the range of its values.

The checks of values, the options of the command line and the tables in the book are made from these fields.
"""

import dataclasses
import math
from functools import cache
from typing import Any

from ..errors import SpecError, one_of

LARGEST = 10**9


def param(default: Any, text: str, symbol: str = "", **rules: Any) -> Any:
    """Declare a hyper-parameter, a field of a dataclass.

    Args:
        default: the value, or a function that makes it; `MISSING` if there is none.
        text: what it is, in a few words.
        symbol: the paper's.
        rules: `at_least`, `above` and `below` limit a number; `choices` are the names that a text may be, `joined` those that it
            joins by +; with `outside_key` the field is no part of a run's key.
    """
    value = {"default_factory": default} if callable(default) else {"default": default}
    return dataclasses.field(**value, metadata={"help": text, "symbol": symbol, **rules})


def check(spec: Any) -> None:
    """Refuse a value that its field does not allow, and turn whole numbers into floats where the field is one.

    Raises:
        SpecError: a hyper-parameter of another type, out of its range, or not among its choices.
    """
    for f in declared(type(spec)):
        value, rules = getattr(spec, f.name), f.metadata
        if "choices" in rules:
            one_of(f.name, value, rules["choices"])
        elif "joined" in rules:
            parts = str(value).split("+")
            for part in parts:
                one_of("augmentation", part, rules["joined"] if len(parts) > 1 else ("none", *rules["joined"]))
        elif f.type in (int, float, bool):
            if not _allowed(value, f.type, rules):
                raise SpecError(f"{f.name} must be {range_of(f)}, not {value!r}")
            if "at_least" in rules and value > LARGEST:
                raise SpecError(f"{f.name} is at most {LARGEST:,}, not {value:,}")
            if type(value) is not f.type:  # 1 and 1.0 are one run, with one key
                object.__setattr__(spec, f.name, f.type(value))


@cache
def declared(kind: type) -> tuple[dataclasses.Field, ...]:
    """The hyper-parameters of a dataclass."""
    return tuple(f for f in dataclasses.fields(kind) if "help" in f.metadata)


def range_of(f: dataclasses.Field) -> str:
    """The values that a hyper-parameter takes, in words."""
    if names := f.metadata.get("choices", f.metadata.get("joined")):
        return " or ".join(names)
    limits = {"at_least": "of at least", "above": "above", "below": "below"}
    words = [f"{word} {f.metadata[rule]}" for rule, word in limits.items() if rule in f.metadata]
    kind = {int: "a whole number", float: "a number", bool: "true or false"}.get(f.type, "")
    return " ".join([kind, " and ".join(words)]).strip()


def require(ok: bool, sentence: str) -> None:
    """Raise `SpecError` with that sentence unless `ok`."""
    if not ok:
        raise SpecError(sentence)


def _allowed(value: Any, kind: type, rules: Any) -> bool:
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if not isinstance(value, (int, kind)) or not math.isfinite(value):
        return False
    return rules.get("at_least", value) <= value < rules.get("below", math.inf) and value > rules.get("above", -math.inf)
