"""The options of the commands: those that several share, and those made from the declared hyper-parameters."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ..spec.checks import declared
from ..spec.runs import NETWORK

SHORT = {"outer_steps": "-K", "inner_steps": "-T"}


def examples(*lines: str) -> str:
    """What stands below a command's options."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def option(text: str, *names: str) -> Any:
    """An option with its sentence; its name is the parameter's where none is given."""
    return typer.Option(*names, help=text)


def hyper_options(spec: type, **shown: str) -> Callable[[Callable], Callable]:
    """Give a command an option for each hyper-parameter of a dataclass, in place of its `**hyper`; None: it is not given.

    Args:
        spec: the dataclass.
        shown: defaults to show in the help where they are not the field's.
    """
    defaults = vars(spec()) | shown

    def made(f: Any) -> inspect.Parameter:
        symbol = f"{f.metadata['symbol']}: " if f.metadata["symbol"] else ""
        text = f"{symbol}{f.metadata['help']}  [default: {defaults[f.name]}]"
        names = (f"--{f.name.replace('_', '-')}", SHORT[f.name]) if f.name in SHORT else ()
        kind = Annotated[(f.type if f.type in (int, float) else str) | None, option(text, *names)]
        return inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)

    def decorate(command: Callable) -> Callable:
        *own, _ = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in inspect.signature(command).parameters.values()]
        needed, rest = ([p for p in own if (p.default is p.empty) == first] for first in (True, False))
        command.__signature__ = inspect.Signature([*needed, *map(made, declared(spec)), *rest])  # type: ignore[attr-defined]
        return command

    return decorate


def source(dataset: str, classes: str, hold_out: float) -> str:
    """The name of the data, spelled out, with the options that narrow them behind it."""
    from ..data.sources import spelled

    return spelled(dataset, None, names(classes), hold_out)


def names(classes: str) -> list[str]:
    """Names of classes with commas between or, if there is none, spaces."""
    return [name.strip() for name in classes.split(",") if name.strip()] if "," in classes else classes.split()


def given(hyper: dict[str, Any]) -> dict[str, Any]:
    """The hyper-parameters that are given on the command line."""
    return {name: value for name, value in hyper.items() if value is not None}


DATASET = "a name, an .npz file or a folder of images, which lie on white where transparent; with +onblack behind it, on black"
DataSet = Annotated[str, typer.Argument(metavar="DATASET", help=DATASET)]
Classes = Annotated[str, option("take only these classes, with commas or spaces between, as 'cat dog'")]
HoldOut = Annotated[float, option("where there are no test images, test on this share of each class, as 0.2, drawn at random")]
Output = Annotated[Path, option("the set's file", "--output", "-o")]
Picture = Annotated[Path | None, option("a picture  [default: SET.png]", "--output", "-o")]
Network_ = Annotated[str, option(NETWORK)]
Seed = Annotated[int, option("0, 1, …: another seed, another result")]
Device = Annotated[str, option("auto, cpu, cuda or cuda:1")]
Engine = Annotated[str, option("auto, eager, compiled or captured (CUDA graphs): how it is computed, not what")]
Size = Annotated[int, option("resize to this square size first; 0: leave it")]
Confusion = Annotated[Path | None, option("a picture of what the images of each class are taken for", "--confusion")]
Limit = Annotated[str, option("stop after 90s, 8m or 2h, at a point from which the same command goes on", "--for")]
Force = Annotated[bool, option("replace another set in that file", "--force")]
SetFile = Annotated[Path, typer.Argument(metavar="SET", help="a set's file, made by `dclib condense`")]
OtherData = Annotated[bool, option("allow data that the set was not made from, with the same classes", "--other-data")]
TestData = Annotated[str, option("whose test images  [default: the set's own]")]
Preset_ = Annotated[str, option("smoke, cpu or paper: how much is spent")]
RESULTS = "the folder of the records  [default: $DCLIB_RESULTS; else results/, and for smoke _build/smoke/]"
Results = Annotated[Path | None, option(RESULTS, "--results")]
Datasets = Annotated[list[str] | None, option("only these data sets; several with commas between, or in quotes")]
Networks = Annotated[list[str] | None, option("only sets made with these networks, or random")]
TestNetworks = Annotated[list[str] | None, option("only these networks trained on the sets")]
Variants = Annotated[list[str] | None, option("only these variants, as in distance=euclidean,init=real")]
Ipc = Annotated[list[str] | None, option("only these numbers of images per class")]
