"""The data sets of the paper (Table T1) and those found on this machine, counted and looked at; for the notebook `datasets`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..data.sources import KNOWN, available
from ..experiments import paper
from ..reproduce import Given, as_list, check, check_names
from ..results import CondensedSet
from ..results.outcomes import DASH, title
from .tables import pipe_table

if TYPE_CHECKING:
    from ..data.dataset import Dataset

NAMES = (*paper.TABLE_T1, "svhn10k", "digits")


@dataclass(frozen=True)
class Found:
    """A data set by name, where it was found, and its images, or None where it is not on this machine."""

    name: str
    where: str
    dataset: "Dataset | None"


def survey(
    *,
    preset: Given = "best",
    recompute: Given = False,
    device: Given = "auto",
    datasets: Given = None,
    **unknown: Any,
) -> list[Found]:
    """Load what is on this machine of the data sets; nothing is downloaded.

    Args:
        preset: "smoke" looks at the embedded digits alone.
        recompute: there is nothing to compute.
        device: there is nothing to compute.
        datasets: some names or paths, text is split at spaces and commas.
        unknown: none is allowed.

    Raises:
        SpecError: an unknown parameter, or a value that its parameter cannot take.
        DataError: files that are there cannot be read.
    """
    check_names(unknown, survey)
    check(preset, recompute, device, as_list(datasets) or ())
    names = as_list(datasets) or (("digits",) if preset == "smoke" else NAMES)
    places = {row.name: row.where for row in available()}
    return [_load(name, places.get(name, "own")) for name in names]


def _load(name: str, where: str) -> Found:
    if where == "downloadable":
        return Found(name, where, None)
    from ..run.sets import load

    return Found(name, where, load(name))


def statistics_table(found: Sequence[Found]) -> str:
    """Table T1 in Markdown: the paper's numbers of images, and those of the embedded digits; the same on every machine."""
    rows = []
    for name in (f.name for f in found if f.name in KNOWN):
        counts, source = (paper.TABLE_T1[name], "Table T1") if name in paper.TABLE_T1 else (KNOWN[name].counts, "not in the paper")
        rows.append([title(name), source, *(f"{n:,}" for n in (len(KNOWN[name].classes), *counts))])
    return pipe_table(["data set", "in", "classes", "training images", "test images"], rows, left=2)


def found_table(found: Sequence[Found]) -> str:
    """What is on this machine, in Markdown: the images counted, and the difference from the paper's numbers."""
    rows = []
    for f in found:
        counts, image, apart = (DASH, DASH), DASH, DASH
        if f.dataset:
            numbers = len(f.dataset.y_train), len(f.dataset.y_test)
            image, counts = " × ".join(map(str, (f.dataset.channels, *f.dataset.size))), tuple(f"{n:,}" for n in numbers)
            if f.name in paper.TABLE_T1:
                apart = _apart(numbers, paper.TABLE_T1[f.name])
        rows.append([title(f.name), f.where if f.dataset else "not here", image, *counts, apart])
    return pipe_table(["data set", "found", "image", "training", "test", "difference from the paper"], rows, left=2)


def _apart(numbers: tuple[int, int], printed: tuple[int, int]) -> str:
    if numbers == printed:
        return "none"
    return ", ".join(f"{n - theirs:+,}" for n, theirs in zip(numbers, printed, strict=True))


def missing_sentence(found: Sequence[Found]) -> str:
    """How to get what is not here; empty if all is."""
    names = [f.name for f in found if f.dataset is None]
    if not names:
        return ""
    return (
        f"Not here: {', '.join(names)}. Each is downloaded when it is first used on a machine with a network; without one, put "
        "`NAME.npz` (with x_train, y_train, x_test, y_test) or torchvision's files into the folder that `dclib data` names."
    )


def samples(found: Sequence[Found]) -> dict[str, CondensedSet]:
    """One training image for each class of each data set that is here, chosen at random."""
    from ..run.sets import as_set, choose_at_random
    from ..spec import MakeSet

    chosen = {}
    for f in found:
        if f.dataset:
            run = MakeSet(f.name, "random")
            chosen[title(f.name)] = as_set(choose_at_random(run, f.dataset), f.dataset, run)
    return chosen
