"""The options that several commands share, each with its sentence in `--help`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ..spec import FAMILIES


def examples(*lines: str) -> str:
    """What stands below a command's options."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def option(text: str, *names: str, **more: Any):
    """An option with its sentence; its name is the parameter's where none is given."""
    return typer.Option(*names, help=text, **more)


DATASET = "a name, an .npz file or a folder of images, which lie on white where transparent; with +onblack behind it, on black"
DataSet = Annotated[str, typer.Argument(metavar="DATASET", help=DATASET)]
Network_ = Annotated[str, option(f"with its options, as ConvNet:width=64,norm=batch; one of {', '.join(FAMILIES)}")]
Seed = Annotated[int, option("0, 1, …: another seed, another result")]
Device = Annotated[str, option("auto, cpu, cuda or cuda:1")]
Engine = Annotated[str, option("auto, eager, compiled or captured (CUDA graphs): how it is computed, not what")]
Precision = Annotated[str, option("float32 or float64; in first-order passes also bfloat16 and, on a GPU, tf32")]
SetFile = Annotated[Path, typer.Argument(metavar="SET", help="a set's file, made by `dclib condense`")]
OtherData = Annotated[bool, option("the set was made from other data with the same classes, and that is meant", "--other-data")]
Preset_ = Annotated[str, option("smoke, cpu or paper: how much is spent")]
RESULTS = "the folder of the records  [default: $DCLIB_RESULTS; else results/, and for smoke _build/smoke/]"
Results = Annotated[Path | None, option(RESULTS, "--results")]
Datasets = Annotated[list[str] | None, option("only these data sets; several with commas between, or in quotes")]
Networks = Annotated[list[str] | None, option("only sets made with these networks, or random")]
TestNetworks = Annotated[list[str] | None, option("only these networks trained on the sets")]
Variants = Annotated[list[str] | None, option("only these variants, as in distance=euclidean,init=real")]
Ipc = Annotated[list[str] | None, option("only these numbers of images per class")]
