"""How a spec is written down and hashed: plain dictionaries, the key of a run, and the seed of each random draw.

A run that a mend has changed since runs like it were recorded says so in its property `mended`, which is written and hashed like
a field: it has a new key, and the older record does not answer for it.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar

from .architectures import FAMILIES, Network
from .words import in_words

SCHEMA = 1
TRAINS = ("network_epochs", "network_lr", "network_momentum", "network_batch")  # options of the network's training on S


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


def acting(run: dict[str, Any]) -> dict[str, Any]:
    """The options of a spelled-out run, as its record has them, that can act on what it computes: those to show to a reader.

    A record spells every option. What it says of batch norm where there is none, or of the network's training where T = 1, is
    without meaning, and with another value the run would be the same.
    """
    idle, only = set(_idle(run)), _read_alone(run)
    kept = {name: value for name, value in run.items() if value is not None and name not in idle}
    kept |= {"hyper": {name: kept["hyper"][name] for name in only}} if only else {}
    return {name: acting(value) if isinstance(value, dict) else value for name, value in kept.items()}


def _read_alone(run: dict[str, Any]) -> tuple[str, ...]:
    """The only hyper-parameters that a run reads; none where it reads them all."""
    if run.get("method", "condense") != "condense":
        return ("ipc",)
    return ("network",) if run.get("way") == "rates" else ()


def _idle(options: dict[str, Any]) -> Iterator[str]:
    """Those of these options, of one spec, that the others leave without effect."""
    if "bn" in options and not _may_have_batch_norm(options["network"]):
        yield "bn"
    if options.get("image_lr_end") == 0:
        yield "image_lr_end"
    if options.get("inner_steps") == 1:
        yield from TRAINS
    if options.get("distillation") == 0:  # a weight; the hyper-parameters of Dataset Distillation have the same name
        yield "temperature"
    if options.get("finetuning") == 0:
        yield "finetuning_lr"
    if "decay_epochs" in options and options["decay_epochs"] >= options["epochs"]:
        yield from ("decay_epochs", "decay")


def _may_have_batch_norm(network: str) -> bool:
    """Whether a network, by its text, has batch norm while images are condensed; of a user's own that is not known."""
    family, _, options = network.partition(":")
    if family not in FAMILIES or options.startswith("code="):
        return True
    return "norm" in FAMILIES[family] and Network.parse(network).resolve("condense")["norm"] == "batch"


def key(thing: Any) -> str:
    """Return the key of a spelled-out run: 16 hexadecimal digits of a SHA-256."""
    text = json.dumps({"schema": SCHEMA, "kind": type(thing).__name__, **spell(thing)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Run:
    """What every declared run answers: the runner, the workers and the store ask nothing else.

    `networks` is how many networks the run trains, each recorded by its number; a set or a GAN counts as one.
    `leaves` names what other runs take from it: the "indices" in its record, or its file in the folder "sets" or "whole".
    `shared_state` names the checkpoint that it shares with similar runs, if there is one. `brief` runs are many, and share one
    progress bar.
    """

    networks: ClassVar[int] = 1
    leaves: ClassVar[str] = ""
    shared_state: ClassVar[str] = ""
    brief: ClassVar[bool] = False

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

    def finished(self, about: dict[str, Any]) -> bool:
        """Whether a file in "whole" that says this of itself is the end of the run."""
        return False


def derive(seed: int, *purpose: object) -> int:
    """Return a 63-bit seed for one purpose, a hash of `seed` and `purpose` (such as "real", k, t)."""
    text = json.dumps([seed, *map(str, purpose)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
