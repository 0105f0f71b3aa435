"""How a run is written down and hashed: plain dictionaries, the key of a run, and the seed of each random draw.

Where a correction has changed what a run computes, its property `mended` names the correction. It is written and hashed like a
field, so that the run has a new key and an older record does not answer for it.
"""

import dataclasses
import hashlib
import json
from functools import cache, cached_property
from typing import Any, ClassVar

from .architectures import FAMILIES, Network
from .words import in_words

SCHEMA = 1
TRAINS = {"network_epochs", "network_lr", "network_momentum", "network_batch"}  # options of the network's training on S


def spell(thing: Any) -> dict[str, Any]:
    """Turn a run into a plain dictionary without the fields at their default, the form that is hashed and recorded."""
    return _plain(thing, defaults=False)


def full(thing: Any) -> dict[str, Any]:
    """Turn a run into a plain dictionary with every field, the form that a reader of the records sees."""
    return _plain(thing, defaults=True)


def _plain(thing: Any, defaults: bool) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for f in dataclasses.fields(thing):
        value = getattr(thing, f.name)
        if f.metadata.get("outside_key") or (not defaults and value == _default(f)):
            continue
        is_spec = dataclasses.is_dataclass(value)
        out[f.name] = str(value) if isinstance(value, Network) else _plain(value, defaults) if is_spec else value
    mended = getattr(thing, "mended", ())
    return out | ({"mended": list(mended)} if mended else {})


@cache
def _default(f: dataclasses.Field) -> Any:
    return f.default if f.default_factory is dataclasses.MISSING else f.default_factory()


def key(thing: Any) -> str:
    """Return the key of a run: 16 hexadecimal digits of a SHA-256."""
    text = json.dumps({"schema": SCHEMA, "kind": type(thing).__name__, **spell(thing)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Run:
    """What every declared run answers: the runner, the workers and the store ask nothing else.

    `networks` is how many networks the run trains, each recorded by its number; a set or a GAN counts as one.
    `leaves` names what other runs take from it: the "indices" in its record, or its file in the folder "sets" or "whole".
    `shared_state` names the checkpoint that it shares with similar runs, if there is one. `brief` runs are many, and share one
    progress bar. `repeatable` runs train networks on a set that is kept or can be chosen again: `dclib verify` compares them.
    """

    networks: ClassVar[int] = 1
    leaves: ClassVar[str] = ""
    shared_state: ClassVar[str] = ""
    brief: ClassVar[bool] = False
    repeatable: ClassVar[bool] = False

    @cached_property
    def key(self) -> str:
        """The key of the run, by which its records are found."""
        return key(self)

    @property
    def words(self) -> str:
        """The run in a few words."""
        return in_words(type(self).__name__, full(self))

    def needs(self) -> tuple["Run", ...]:
        """The runs that must be done first."""
        return ()

    def behind(self) -> list["Run"]:
        """All runs that must be done for this one, itself included, each after those that it needs."""
        return [*(one for need in self.needs() for one in need.behind()), self]

    def finished(self, about: dict[str, Any]) -> bool:
        """Whether a file in "whole" that says this of itself is the end of the run."""
        return False


def derive(seed: int, *purpose: object) -> int:
    """Return a 63-bit seed for one purpose, a hash of `seed` and `purpose` (such as "real", k, t)."""
    text = json.dumps([seed, *map(str, purpose)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def acting(run: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a recorded run that can change what it computes: those to show to a reader.

    A record has every option, also those of batch norm for a network without it, or of the network's training where T = 1.
    """
    kept = {name: value for name, value in run.items() if value is not None and name not in _idle(run)}
    if run.get("method", "condense") != "condense":
        kept["hyper"] = {"ipc": run["hyper"]["ipc"]}
    elif run.get("way") == "rates":
        kept["hyper"] = {"network": run["hyper"]["network"]}
    return {name: acting(value) if isinstance(value, dict) else value for name, value in kept.items()}


def _idle(options: dict[str, Any]) -> set[str]:
    """The options of a run, or of its hyper-parameters, that have no effect beside the others."""
    idle = set()
    if "bn" in options and not _may_have_batch_norm(options["network"]):
        idle.add("bn")
    if options.get("image_lr_end") == 0:
        idle.add("image_lr_end")
    if options.get("inner_steps") == 1:
        idle |= TRAINS
    if "decay_epochs" in options and options["decay_epochs"] >= options["epochs"]:
        idle |= {"decay_epochs", "decay"}
    return idle


def _may_have_batch_norm(network: str) -> bool:
    """Whether a network, by its text, has batch norm while images are condensed; of a user's own that is not known."""
    family, _, options = network.partition(":")
    if family not in FAMILIES or options.startswith("code="):
        return True
    return "norm" in FAMILIES[family] and Network.parse(network).resolve("condense")["norm"] == "batch"
