"""Rows of `results.table`, made up and recorded, for the tests of what is said and drawn of them."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import pandas as pd

from dclib.results import Store
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


@cache
def committed() -> Store:
    """The records under test, read once."""
    return Store()


def printed(mean: float, std: float) -> SimpleNamespace:
    """A number of the paper's as a row: five sets, all of whose spread is between sets."""
    return cell(*([mean + std * x] for x in (-(2**0.5), -(0.5**0.5), 0.0, 0.5**0.5, 2**0.5)), paper=(mean, std))


def exchanged(rows: Mapping[tuple, Any], one: Any, other: Any, side: int = -1) -> dict[tuple, Any]:
    """The same rows under two names exchanged on one side of their places."""
    names = {one: other, other: one}
    return {tuple(names.get(v, v) if i == side % len(place) else v for i, v in enumerate(place)): o for place, o in rows.items()}


def frame(*cells: SimpleNamespace) -> pd.DataFrame:
    """The rows as `results.table` returns them."""
    return pd.DataFrame([vars(one) for one in cells])
