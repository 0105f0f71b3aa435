"""Every run that an experiment needs at a preset, with its floating-point operations and its disk space, for the page `costs`."""

from typing import Any

from .. import experiments
from ..experiments.work import about
from ..spec import shared_trajectories


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
    return [row for experiment in experiments.ALL.values() for row in _rows(experiment, experiments.find_preset(preset))]


def _rows(experiment: experiments.Experiment, preset: experiments.Preset) -> list[dict[str, Any]]:
    runs, needed = {}, {}
    cells = [cell for cell in experiment.cells(preset) if cell.place.get("network") not in [*experiments.ORS][1:]]
    for cell in cells:
        for run in (one for of_cell in cell.runs() for one in of_cell.behind()):
            networks = max(run.networks, needed.get(run.key, {"networks": 1})["networks"])
            runs[run.key], needed[run.key] = run, {"datasets": cell.datasets, "networks": networks}
    place = {"experiment": experiment.name, "preset": preset.name}
    rows = {key: place | {"key": key, **about(run), **needed[key]} for key, run in runs.items()}
    condensed = {key: run for key, run in runs.items() if rows[key]["kind"] == "condense"}
    longest = shared_trajectories(condensed.values())
    passed = {key for key, run in condensed.items() if run.hyper.outer_steps < longest.get(run.shared_state, 0)}
    return [row for key, row in rows.items() if key not in passed]
