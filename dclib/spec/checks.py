"""Hyper-parameters declared once: a field of a dataclass carries the paper's symbol, a help text and the range of its values.

The checks of values, the options of the command line and the tables in the book are made from these fields.
"""

import dataclasses
import math
from typing import Any

from ..errors import SpecError, one_of

LARGEST = 10**9


def param(default: Any, text: str, symbol: str = "", **rules: Any) -> Any:
    """Declare a hyper-parameter, a field of a dataclass.

    Args:
        default: the value, or a function that makes it; `MISSING` if there is none.
        text: what it is, in a few words.
        symbol: the paper's.
        rules: `at_least`, `above` and `below` limit a number; `choices` are the names that a text may be, with `joined` several
            of them with + between; with `outside_key` the field is no part of a run's key.
    """
    value = {"default_factory": default} if callable(default) else {"default": default}
    return dataclasses.field(**value, metadata={"help": text, "symbol": symbol, **rules})


def check(spec: Any) -> None:
    """Refuse a value that its field does not allow, and turn whole numbers into floats where the field is one.

    Raises:
        SpecError: a hyper-parameter of another type, out of its range, or not among its choices.
    """
    for f in declared(spec):
        value, rules = getattr(spec, f.name), f.metadata
        if "choices" in rules:
            parts = str(value).split("+") if rules.get("joined") else [value]
            for part in parts:
                one_of(f.name, part, ("none", *rules["choices"]) if rules.get("joined") and len(parts) == 1 else rules["choices"])
        elif f.type is bool:
            require(isinstance(value, bool), f"{f.name} must be true or false, not {value!r}")
        elif f.type in (int, float):
            require(_allowed(value, f.type, rules), f"{f.name} must be {range_of(f)}, not {value!r}")
            require("at_least" not in rules or value <= LARGEST, f"{f.name} is at most {LARGEST:,}, not {value:,}")
            object.__setattr__(spec, f.name, f.type(value))  # 1 and 1.0 are one run, with one key


def declared(spec: Any) -> list[dataclasses.Field]:
    """The hyper-parameters of a dataclass, or of one of its objects."""
    return [f for f in dataclasses.fields(spec) if "help" in f.metadata]


def range_of(f: dataclasses.Field) -> str:
    """The values that a hyper-parameter takes, in words."""
    if "choices" in f.metadata:
        return " or ".join(f.metadata["choices"])
    limits = {"at_least": "of at least", "above": "above", "below": "below"}
    words = [f"{word} {f.metadata[rule]}" for rule, word in limits.items() if rule in f.metadata]
    kind = {int: "a whole number", float: "a number", bool: "true or false"}.get(f.type, "")
    return " ".join([kind, " and ".join(words)]).strip()


def require(ok: bool, sentence: str) -> None:
    """Raise `SpecError` with that sentence unless `ok`."""
    if not ok:
        raise SpecError(sentence)


def _allowed(value: Any, kind: type, rules: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, kind if kind is int else int | float) or not math.isfinite(value):
        return False
    least, above, below = rules.get("at_least", -math.inf), rules.get("above", -math.inf), rules.get("below", math.inf)
    return least <= value < below and value > above
