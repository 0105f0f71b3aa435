"""Sets that differ only in K, at a constant η_S, share one trajectory: K = 1000 continues from K = 100.

Random draws depend on (seed, purpose, step), not on K. A decaying η_S depends on K, so that such a set has a trajectory of its own.
"""

import dataclasses
from collections.abc import Iterable

from .keys import key
from .runs import Condensation, MakeSet


def course(hyper: Condensation) -> str:
    """The key that hyper-parameters which differ only in K share."""
    return key(dataclasses.replace(hyper, outer_steps=1))


def course_of(run: MakeSet) -> str:
    """The name of a set's trajectory, under which its state is kept."""
    return run.shared_state


def shared(runs: Iterable[MakeSet]) -> dict[str, int]:
    """The courses that several of these sets lie on, each with its longest K."""
    stations: dict[str, set[int]] = {}
    for run in runs:
        if run.method == "condense":
            stations.setdefault(course_of(run), set()).add(run.hyper.outer_steps)
    return {name: max(steps) for name, steps in stations.items() if len(steps) > 1}
