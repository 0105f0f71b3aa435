"""Made-up rows of `results.table`, for the tests of what is said and drawn of them."""

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pandas as pd

from dclib.results.outcomes import summarise

PLACE = dict(dataset="mnist", ipc=1, network="ConvNet", test_network="ConvNet", variant="")


def cell(
    *sets: Sequence[float],
    experiment: str = "coresets",
    preset: str = "cpu",
    paper: tuple[float, float] | None = None,
    planned: tuple[int, int] = (1, 1),
    keys: Sequence[str] | None = None,
    records: Iterable[dict] = (),
    **place: Any,
) -> SimpleNamespace:
    """A row: the accuracies of the networks on each set, the paper's number, and where the cell stands."""
    place = PLACE | place
    names = [f"{place['network']}-key-{i}" for i in range(len(sets))] if keys is None else keys
    about = dict(experiment=experiment, **place, preset=preset if sets else "")
    return SimpleNamespace(**about, **summarise(sets, paper, planned), keys=tuple(names), records=tuple(records))


def frame(*cells: SimpleNamespace) -> pd.DataFrame:
    """The rows as `results.table` returns them."""
    return pd.DataFrame([vars(one) for one in cells])
