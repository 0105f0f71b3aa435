"""Every run that an experiment needs at a preset, with its floating-point operations and its disk space, for the page `costs`."""

from math import prod
from typing import Any

from .. import experiments
from ..experiments import studies
from ..experiments.work import flop, shape_of
from ..spec import MakeSet, TrainNetworks, shared_trajectories
from ..spec.applications import ApplicationRun, behind

DECLARED = {**experiments.ALL, **studies.ALL}


def planned(preset: str) -> list[dict[str, Any]]:
    """Return a row for each run of each experiment; what several experiments share has a row in each.

    Sets that share a trajectory are one run: the longest. Random selection with a choice of the best has the runs of plain
    random selection.

    Args:
        preset: smoke, cpu or paper.

    Returns:
        Rows of experiment, preset, datasets (what its cells need), key, kind (of the run), family (of the network that it
        spends its time on), networks (how many it trains), flop (of one network) and bytes (of learned images in float32).
    """
    return [row for name in DECLARED for row in _rows(name, preset)]


def _rows(name: str, preset: str) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    runs = {}
    for cell in DECLARED[name].cells(experiments.find_preset(preset)):
        if getattr(cell, "network", "") in [*experiments.ORS][1:]:
            continue
        for run in cell.runs():
            for one in (*_needed(run), run):
                networks = max(getattr(one, "networks", 1), found.get(one.key, {"networks": 1})["networks"])
                found[one.key] = {"datasets": cell.datasets, "networks": networks}
                runs[one.key] = one
    place = {"experiment": name, "preset": preset}
    condensed = {key: run for key, run in runs.items() if isinstance(run, MakeSet) and run.method == "condense"}
    longest = shared_trajectories(condensed.values())
    passed = {key for key, run in condensed.items() if longest and run.hyper.outer_steps < longest.get(run.trajectory, 0)}
    return [place | {"key": key, **_about(run), **found[key]} for key, run in runs.items() if key not in passed]


def _needed(run: Any) -> list[Any]:
    """The runs that must be done before this one."""
    sets = (run.set,) if isinstance(run, TrainNetworks) else behind(run) if isinstance(run, ApplicationRun) else ()
    return [needed for made in sets for needed in (made.base, made) if needed]


def _about(run: Any) -> dict[str, Any]:
    """The kind of a run, its network's family, its operations and the bytes of its set."""
    if not isinstance(run, MakeSet):
        network = getattr(run, "network", None) or getattr(run.hyper, "network", None)
        return {"kind": type(run).__name__, "family": network.family if network else "", "flop": flop(run), "bytes": 0}
    spent = run.distillation or (run.hyper if run.method == "condense" else run.whole)
    channels, side, classes = shape_of(run.dataset, run.image_size, run.channels)
    size = 4 * prod((channels, side, side, classes, run.hyper.ipc)) if run.learned else 0
    return {"kind": run.method, "family": spent.network.family if spent else "", "flop": flop(run), "bytes": size}
