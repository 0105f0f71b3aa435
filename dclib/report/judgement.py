"""What a set is worth, as a table in Markdown (see `results.judged`)."""

from typing import TYPE_CHECKING

from ..results.judged import IMAGES, REAL
from ..results.outcomes import DASH
from .tables import pipe_table, signed

if TYPE_CHECKING:
    import pandas as pd

HEADS = ("network", "augmentation", *IMAGES, *(f"set − {name}" for name in REAL), "by augmentation")


def judged_table(cells: "pd.DataFrame") -> str:
    """Set accuracies side by side, then by how much the set lies above real images, and above itself without augmentation.

    Each number has the half of its 95 % interval behind it, where several networks were trained.

    Args:
        cells: from `dclib.judge`.
    """
    body = []
    for (network, augment), rows in cells.groupby(["network", "augment"], sort=False):
        found = {row.images: row for row in rows.itertuples()}
        row = [_number(found.get(name), "accuracy", "high") for name in IMAGES]
        row += [_number(found.get(name), "gain", "gain_high") for name in REAL]
        row.append(_number(found.get(IMAGES[0]), "augmented", "augmented_high"))
        body.append([network, augment, *row])
    return pipe_table(HEADS, body, left=2)


def _number(row: object, name: str, high: str) -> str:
    """A number with the half of its interval; a dash where there is none."""
    value = getattr(row, name, float("nan"))
    if value != value:
        return DASH
    half = getattr(row, high) - value
    text = f"{value:.1f}" if name == "accuracy" else signed(value)
    return f"{text} ± {half:.1f}" if half != float("inf") else text
