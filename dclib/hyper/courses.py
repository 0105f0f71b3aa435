"""Condensed sets that differ in K alone are stations of one course: the longer run passes through the set of fewer outer steps.

Every draw depends on (seed, purpose, step) and none on K, so that the longer run may go on from the shorter one's final state.
"""

import dataclasses
from collections.abc import Iterable

from ..spec import Condensation, MakeSet, key


def course(hyper: Condensation) -> str:
    """The key of what hyper-parameters have in common that differ in K alone."""
    return key(dataclasses.replace(hyper, outer_steps=1))


def course_of(run: MakeSet) -> str:
    """The name of a set's course: for that of its state, apart from every run's own."""
    return "course-" + dataclasses.replace(run, hyper=dataclasses.replace(run.hyper, outer_steps=1)).key


def shared(runs: Iterable[MakeSet]) -> dict[str, int]:
    """The courses that several of these sets lie on, each with its longest K."""
    stations: dict[str, set[int]] = {}
    for run in runs:
        if run.method == "condense":
            stations.setdefault(course_of(run), set()).add(run.hyper.outer_steps)
    return {name: max(steps) for name, steps in stations.items() if len(steps) > 1}
