"""Condense to a file with a checkpoint beside it, so that the same command continues after a stop or a kill."""

from pathlib import Path
from typing import Any

from ..core.ranks import ALONE
from ..errors import FileError
from ..results import CondensedSet
from ..spec import MakeSet
from .sets import condense_set, load_of


def condense_to_file(run: MakeSet, output: Path, **how: Any) -> CondensedSet:
    """Condense one set into a file; interrupted in any way, the same call goes on from the checkpoint beside it.

    Of several ranks the first writes.

    Args:
        run: as for `condense_set`.
        output: the file.
        how: as for `condense_set`.
    """
    made = condense_set(run, checkpoint=checkpoint_of(output), **how)
    if how.get("ranks", ALONE).rank == 0:
        made.save(output)
    return made


def is_there(run: MakeSet, output: Path) -> bool:
    """Whether a file holds the set of that run.

    Raises:
        FileError: it holds anything else.
    """
    if not output.exists():
        return False
    try:
        found = CondensedSet.load(output)
    except FileError:
        raise FileError(f"{output} exists and is no condensed set: choose another name, or replace it with --force") from None
    dataset = load_of(run)
    if (found.key, found.data_hash, found.class_names) != (run.key, dataset.hash, dataset.class_names):
        raise FileError(f"{output} holds the set of another run: choose another name, or replace it with --force")
    return True


def checkpoint_of(output: Path) -> Path:
    """The checkpoint beside a set's file."""
    return output.with_name(f"{output.name}.checkpoint")


def remove_checkpoint(output: Path) -> None:
    """Remove the checkpoint of a set that is made, and what a killed process left of files half written."""
    checkpoint = checkpoint_of(output)
    checkpoint.unlink(missing_ok=True)
    for left in output.parent.iterdir():
        if left.name.startswith((f".{output.name}.", f".{checkpoint.name}.")):
            left.unlink(missing_ok=True)
