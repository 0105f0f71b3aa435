"""How a spec is written down and hashed: plain dictionaries, the key of a run, and the seed of each random draw.

A run that a mend has changed since runs like it were recorded says so in its property `mended`, which is written and hashed like
a field: it has a new key, and the older record does not answer for it.
"""

import dataclasses
import hashlib
import json
from typing import Any

from .architectures import Network

SCHEMA = 1


def spell(thing: Any) -> dict[str, Any]:
    """Turn a spec into a plain dictionary without the fields at their default, the form that is hashed and recorded."""
    out: dict[str, Any] = {}
    for f in dataclasses.fields(thing):
        value = getattr(thing, f.name)
        default = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
        if value == default or f.metadata.get("outside_key"):
            continue
        out[f.name] = str(value) if isinstance(value, Network) else spell(value) if dataclasses.is_dataclass(value) else value
    return out | _mended(thing)


def full(thing: Any) -> dict[str, Any]:
    """Turn a spec into a plain dictionary with every field, the form that a reader of the records sees."""
    values = {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing) if not f.metadata.get("outside_key")}
    out = {n: str(v) if isinstance(v, Network) else full(v) if dataclasses.is_dataclass(v) else v for n, v in values.items()}
    return out | _mended(thing)


def _mended(thing: Any) -> dict[str, Any]:
    mended = getattr(thing, "mended", ())
    return {"mended": list(mended)} if mended else {}


def key(thing: Any) -> str:
    """Return the key of a spelled-out run: 16 hexadecimal digits of a SHA-256."""
    text = json.dumps({"schema": SCHEMA, "kind": type(thing).__name__, **spell(thing)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def derive(seed: int, *purpose: object) -> int:
    """Return a 63-bit seed for one purpose, a hash of `seed` and `purpose` (such as "real", k, t)."""
    text = json.dumps([seed, *map(str, purpose)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
