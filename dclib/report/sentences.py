"""Lines of facts below a table: how near the paper its numbers are, what they cost, and which commands compute what is missing."""

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .. import experiments
from ..experiments import AXES
from ..results.lines import machine_of
from ..results.outcomes import title, varying
from ..support.progress import clock
from .downloads import csv_link
from .tables import signed

if TYPE_CHECKING:
    import pandas as pd

FLAGS = {axis: f"--{option.replace('_', '-')}" for option, axis in experiments.OPTIONS.items() if axis in AXES}
KINDS = {"WholeTraining": "training on a whole set", "TrainGan": "GAN", "MakeSet": "set", "TrainNetworks": "trained network"}
KINDS |= {"LearnTasks": "run on all tasks", "TrainCandidate": "trained candidate"}
WHERE = {  # how a cell is named in a sentence
    "ipc": "{}/class".format,
    "network": lambda name: title(name) if name in experiments.INSTEAD else f"condensed with {name}",
    "test_network": "trained: {}".format,
}
Place = dict[str, Any]


def facts(cells: "pd.DataFrame") -> str:
    """The agreement with the paper, the cost, what is missing and a link to the recorded rows, as paragraphs in Markdown."""
    recorded = cells[cells.sets > 0]
    link = "" if recorded.empty else f"These {csv_link(recorded, recorded.experiment.iloc[0])}."
    return "\n\n".join(filter(None, (agreement_sentence(cells), cost_sentence(cells), missing_sentence(cells), link)))


def budget(cells: "pd.DataFrame") -> str:
    """What the numbers rest on, for a caption: the presets, and how many sets and networks are behind a number."""
    recorded = cells[cells.sets > 0]
    if recorded.empty:
        return "nothing recorded yet"
    presets = [name for name in reversed(experiments.PRESETS) if (recorded.preset == name).any()]
    networks = [len(found) for cell in recorded.itertuples() for found in cell.accuracies]
    rests = f"{_span(list(recorded.sets), 'set')} × {_span(networks, 'network')} for each number"
    part = (~recorded.complete).sum()
    short = f"; {part} of {len(recorded)} numbers {'has' if part == 1 else 'have'} fewer than the preset plans" if part else ""
    return f"preset{'s' if len(presets) > 1 else ''} {' and '.join(presets)}; {rests}{short}"


def images_of(cells: "pd.DataFrame") -> str:
    """Data sets and numbers of images, for a caption: "MNIST, one image per class"."""
    numbers = list(cells.ipc.unique())
    images = "one image" if numbers == [1] else f"{' and '.join(map(str, numbers))} images"
    return f"{', '.join(map(title, cells.dataset.unique()))}, {images} per class"


def _span(counts: Sequence[int], what: str) -> str:
    low, high = min(counts), max(counts)
    return f"{low if low == high else f'{low} to {high}'} {what}{'' if high == 1 else 's'}"


def agreement_sentence(cells: "pd.DataFrame") -> str:
    """How many numbers lie within two standard errors of the paper's, the median and largest difference, and Spearman's ρ."""
    both = cells[cells.difference.notna()]
    if both.empty:
        return ""
    sure = both[both.standard_error.notna()]
    near, single = (sure.difference.abs() <= 2 * sure.standard_error).sum(), len(both) - len(sure)
    said = f"Within two standard errors of the paper's number: {near} of {len(sure)}"
    said += f" ({single} more rest on a single set)" if single else ""
    if len(both) > 2:
        far = both.loc[both.difference.abs().idxmax()]
        where = ", ".join(WHERE.get(axis, title)(far[axis]) for axis in varying(cells))
        said += f"; median difference {signed(both.difference.median())} points"
        said += f", largest difference {signed(far.difference)} ({where})"
    if len(both) > 3 and both.ours.nunique() > 1 < both.paper.nunique():
        rho = f"{both.ours.corr(both.paper, method='spearman'):.2f}".replace("-", "−")
        said += f"; our numbers rank as the paper's with Spearman's ρ = {rho}"
    return said + "."


def missing_sentence(cells: "pd.DataFrame", preset: str = "") -> str:
    """How many cells are not recorded and which commands fill them, narrowed as the page is; empty if there is none.

    Args:
        cells: of one experiment, from `results.table`.
        preset: at which they are to be filled; by default `cpu`, and `paper` for what only its grid has.
    """
    absent = cells[cells.sets == 0]
    if absent.empty:
        return ""
    name, places = cells.experiment.iloc[0], absent[list(AXES)].to_dict("records")
    small, large = (preset, preset) if preset else ("cpu", "paper")
    grids = {p: [cell.place for cell in experiments.find(name).cells(experiments.find_preset(p))] for p in (small, large)}
    beyond = [place for place in places if place not in grids[small] and place in grids[large]]
    rest = [place for place in places if place not in beyond]
    commands = [(_command(name, p, cells, wanted, grids[p]), wanted) for p, wanted in ((small, rest), (large, beyond)) if wanted]
    said = ", ".join(f"`{command}` computes {len(wanted)}" for command, wanted in commands)
    return f"{len(absent)} of {len(cells)} cells are not recorded yet: {said}."


def _command(name: str, preset: str, cells: "pd.DataFrame", wanted: Sequence[Place], grid: Sequence[Place]) -> str:
    """The command that computes these cells at a preset: an axis is narrowed where the page's is, or where they leave the grid."""
    words = ["dclib", "run", name, "--preset", preset]
    for axis, flag in FLAGS.items():
        page, known = set(cells[axis]), {place[axis] for place in grid}
        values = list(dict.fromkeys(place[axis] for place in wanted))
        if not page >= known or not known >= set(values):
            words += [flag, " ".join(str(value) or "default" for value in values)]
    return shlex.join(words)


def cost_sentence(cells: "pd.DataFrame | Iterable[Any]") -> str:
    """What the recorded runs cost, and where and by what code they ran: a sentence for each preset.

    Args:
        cells: from `results.table`, or anything else that has a `preset` and `records`.
    """
    rows = list(cells.itertuples() if hasattr(cells, "itertuples") else cells)
    presets = [name for name in reversed(experiments.PRESETS) if any(row.preset == name for row in rows)]
    said = [_cost(name, [record for row in rows if row.preset == name for record in row.records]) for name in presets]
    return " ".join(said) or "No run behind this page is recorded yet."


def _cost(preset: str, found: Sequence[dict[str, Any]]) -> str:
    records = {(r["key"], r["started"], str(r.get("accuracies"))): r for r in found}.values()
    parts = []
    for kind, what in KINDS.items():
        if same := [r for r in records if r["kind"] == kind]:
            number = sum(len(r["accuracies"]) for r in same) if kind in ("TrainNetworks", "TrainCandidate") else len(same)
            noun, of, rest = what.partition(" on ")
            parts.append(f"{number} {noun}{'' if number == 1 else 's'}{of}{rest} took {clock(_spent(same))}")
    machines = dict.fromkeys(map(machine_of, records))
    memory = max(r["peak_memory_mb"] for r in records) / 1000
    runs = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    where = f"on {' and '.join(machines)}, with at most {memory:.1f} GB of memory"
    return f"At preset {preset}, {runs} {where}; code at {_commits(records)}."


def _spent(records: Sequence[dict[str, Any]]) -> float:
    """Seconds behind records. Of sets that share a trajectory only the longest counts, because it continued from the others."""
    longest: dict[str, float] = {}
    for r in records:
        course = r.get("course", id(r))
        longest[course] = max(r["seconds"], longest.get(course, 0.0))
    return sum(longest.values())


def _commits(records: Iterable[dict[str, Any]]) -> str:
    """The commits behind records, oldest first; a long list by its ends."""
    ordered = sorted(records, key=lambda r: r["started"])
    names = list(dict.fromkeys(r.get("commit", "an unknown commit")[:7] for r in ordered))
    changed = " (partly with changes not committed)" if any(r.get("dirty") for r in records) else ""
    if len(names) > 4:
        return f"{len(names)} commits from {names[0]} to {names[-1]}{changed}"
    return f"{'commit ' if len(names) == 1 else 'commits '}{', '.join(names)}{changed}"
