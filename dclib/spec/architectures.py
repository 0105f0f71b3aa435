"""The networks by name: families with their options, the text form `ConvNet:width=64,norm=batch`, and networks of the user's own.

`core.networks` builds what is named here. In Python a network is a call, `ConvNet(width=64, norm="batch")`; on the command line
and in the notebooks it is text; both give the same frozen `Network`. A network of the user's own is `OwnNetwork.of(MyNet)`, or
the text FILE.py:NAME; a hash of its source tells whether it has changed. Nothing here imports torch.
"""

import hashlib
import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import SpecError, first_line, one_of

NORMS = ("none", "batch", "layer", "instance", "group")
ACTIVATIONS = ("sigmoid", "relu", "leakyrelu")
POOLINGS = ("none", "max", "avg")
INITS = ("pytorch", "kaiming", "xavier")
STAGES = ("condense", "train")
SUFFIX = ".py:"  # only FILE.py:NAME has it

# The options of each family: the default, then what is allowed (names, or `int` for any positive integer).
# "auto" is the paper's choice for the stage, in `AUTO`.
FAMILIES: dict[str, dict[str, tuple[Any, Any]]] = {
    "MLP": {"width": (128, int), "depth": (2, int), "activation": ("relu", ACTIVATIONS)},
    "ConvNet": {
        "width": (128, int),
        "depth": (3, int),
        "norm": ("instance", NORMS),
        "activation": ("relu", ACTIVATIONS),
        "pooling": ("avg", POOLINGS),
    },
    "LeNet": {},
    "AlexNet": {},
    "VGG11": {"norm": ("auto", ("auto", *NORMS))},
    "ResNet18": {"norm": ("auto", ("auto", *NORMS)), "downsampling": ("auto", ("auto", "stride", "average"))},
    "AlexCifarNet": {},
}
for _options in FAMILIES.values():
    _options["init"] = ("pytorch", INITS)
AUTO = {("norm", "condense"): "batch", ("norm", "train"): "instance"}
AUTO |= {("downsampling", "condense"): "average", ("downsampling", "train"): "stride"}


def _checked_option(family: str, option: str, value: Any) -> Any:
    one_of(f"option of {family}", option, FAMILIES[family])
    allowed = FAMILIES[family][option][1]
    if allowed is not int:
        return one_of(f"{option} of {family}", value, allowed)
    if isinstance(value, bool) or not str(value).isdecimal() or len(str(value)) > 9 or int(value) < 1:
        raise SpecError(f"{option}={value} of {family} is no positive integer: write it as {option}=64")
    return int(value)


@dataclass(frozen=True)
class Network:
    """A network by its family and those options that differ from the default; `str()` gives its text form.

    Args:
        family: one of `FAMILIES`.
        options: the non-default options, in the family's order; `make` and `parse` fill it in.
    """

    family: str = "ConvNet"
    options: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def make(cls, family: str, /, **options: Any) -> "Network":
        """Check the family and its options and return the network.

        Raises:
            SpecError: unknown family or option, or a value that the option cannot take.
        """
        one_of("network", family, FAMILIES)
        given = {name: _checked_option(family, name, value) for name, value in options.items()}
        known = FAMILIES[family]
        return cls(family, tuple((n, given[n]) for n in known if n in given and given[n] != known[n][0]))

    @classmethod
    def parse(cls, text: Any) -> "Network":
        """Read `ConvNet`, `ConvNet:width=64,norm=batch` or FILE.py:NAME; a class or function is a network of the user's own."""
        if isinstance(text, Network):
            return text
        if callable(text):
            return OwnNetwork.of(text)
        if SUFFIX in str(text):
            return OwnNetwork.parse(str(text))
        family, colon, rest = str(text).strip().partition(":")
        pairs = [[part.strip() for part in item.partition("=")] for item in rest.split(",")] if colon else []
        if bad := [name for name, sep, _ in pairs if not sep or not name]:
            raise SpecError(f"{bad[0]!r} in the network {str(text)!r} has no value: write it as ConvNet:width=64,norm=batch")
        names = [name for name, _, _ in pairs]
        if twice := [name for name in names if names.count(name) > 1]:
            raise SpecError(f"{twice[0]!r} is given twice in the network {str(text)!r}: give it once")
        return cls.make(family, **{name: value for name, _, value in pairs})

    def __getitem__(self, option: str) -> Any:
        return dict(self.options).get(option, FAMILIES[self.family][option][0])

    def resolve(self, stage: str) -> "Network":
        """Replace options left at "auto" by the paper's choice for `stage` ("condense" or "train")."""
        one_of("stage", stage, STAGES)
        auto = {name: AUTO[name, stage] for name in FAMILIES[self.family] if self[name] == "auto"}
        return Network.make(self.family, **dict(self.options), **auto) if auto else self

    def __str__(self) -> str:
        return self.family + (":" + ",".join(f"{n}={v}" for n, v in self.options) if self.options else "")


@dataclass(frozen=True)
class OwnNetwork(Network):
    """A user's own network: a factory, known by its name and a hash of its source, which are part of a run's key.

    Args:
        family: the factory's name, or FILE.py:NAME.
        options: the hash as `code`; empty where Python cannot find the source.
        factory: called with `channels`, `classes` and `size` (height, width), it returns an `nn.Module` with fresh weights.
    """

    factory: Callable[..., Any] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, factory: Any, name: str = "") -> "OwnNetwork":
        """The network of a class or function, called by that name or its own.

        Raises:
            SpecError: it cannot be called.
        """
        if not callable(factory):
            raise SpecError(f"{factory!r} is no network: give a class or function that takes channels, classes and size")
        try:
            options = (("code", _hash(inspect.getsource(factory))),)
        except (OSError, TypeError):  # written where Python keeps no source
            options = ()
        return cls(name or getattr(factory, "__name__", type(factory).__name__), options, factory)

    @classmethod
    def parse(cls, text: Any) -> "Network":
        """Read FILE.py:NAME, or what `str` made of it; the file is executed when the network is first built.

        Raises:
            SpecError: there is no such file, or it has changed since.
        """
        place, _, known = str(text).partition(":code=")
        stem, _, name = place.rpartition(SUFFIX)
        if not stem or not name.isidentifier():
            raise SpecError(f"{place!r} names no network of your own: write it as FILE.py:NAME")
        path = Path(f"{stem}.py").resolve()
        try:
            code = _hash(path.read_text())
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or first_line(error)
            raise SpecError(f"cannot read {path} ({why}): give the file of your own network as FILE.py:NAME") from None
        if known and known != code:
            raise SpecError(f"{path} has changed since {text!r} was written: leave out the code to take it as it is now")
        return cls(place, (("code", code),), FromFile(path, name))

    def resolve(self, stage: str) -> "OwnNetwork":
        """Itself: it leaves nothing open."""
        return self

    def __getitem__(self, option: str) -> Any:
        return dict(self.options)[option]

    def __str__(self) -> str:
        return ":".join((self.family, *(f"{name}={value}" for name, value in self.options)))


@dataclass(frozen=True)
class FromFile:
    """A class or function in a file, which is executed for each network that is built, in this process or in a worker."""

    path: Path
    name: str

    def __call__(self, **shape: Any) -> Any:
        """Execute the file and build a network.

        Raises:
            SpecError: the file cannot be executed, or has no such name.
        """
        spec = importlib.util.spec_from_file_location(f"dclib_own_{_hash(str(self.path))}", self.path)
        try:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        except Exception as error:  # whatever the user's own file raises
            raise SpecError(f"{self.path} cannot be executed ({type(error).__name__}: {first_line(error)}): repair it") from error
        if not callable(getattr(module, self.name, None)):
            raise SpecError(f"{self.path} has no class or function {self.name!r}: write its name as it stands there")
        return getattr(module, self.name)(**shape)


def _hash(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:8]


def _family(name: str):
    def make(**options: Any) -> Network:
        return Network.make(name, **options)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"The network {name}; options: {', '.join(FAMILIES[name])}."
    return make


MLP, ConvNet, LeNet, AlexNet, VGG11, ResNet18, AlexCifarNet = map(_family, FAMILIES)
