"""What the records say of a claim: it holds, it is refuted, or it is not decided.

A claim is about differences, each with its 95 % interval by Student's t over sets, or over whatever was drawn anew each time.
A directional claim says that the differences are positive: it holds if every interval lies above zero and is refuted if one
lies below. Exchanging what is compared turns *holds* into *refuted*. A claim of equality declares its margin beforehand: it
holds if every interval lies within the margin and is refuted if one lies outside. Everything else is not decided, such as
whatever rests on a single set, whose spread is not known.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, NamedTuple

from scipy.stats import t as student

from ..experiments import paper

HOLDS, REFUTED, OPEN = "holds", "refuted", "not decided"
LEVEL = 0.95  # of every interval


class Interval(NamedTuple):
    """A number and the ends of its interval; NaN where there are too few points, infinite where no spread is known."""

    mean: float
    low: float
    high: float

    def above(self, least: float = 0.0) -> str:
        """What it says of a number that is claimed to lie above `least`."""
        return HOLDS if self.low > least else REFUTED if self.high < least else OPEN

    def within(self, margin: float) -> str:
        """What it says of a number that is claimed to be at most `margin` away from zero."""
        outside = self.low > margin or self.high < -margin
        return HOLDS if -margin <= self.low and self.high <= margin else REFUTED if outside else OPEN


NOTHING = Interval(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Claim:
    """A sentence about differences.

    Args:
        differences: of the one from each of the others that it is compared with; none decide nothing.
        least: above what the differences are said to lie.
        margin: of a claim of equality; None: the claim is directional.
    """

    differences: tuple[Interval, ...]
    least: float = 0.0
    margin: float | None = None

    @property
    def recorded(self) -> bool:
        """Whether there is a number for every difference."""
        return bool(self.differences) and not any(math.isnan(d.mean) for d in self.differences)

    @property
    def verdict(self) -> str:
        """What the differences say together: one that refutes is enough, and all must hold."""
        found = [d.above(self.least) if self.margin is None else d.within(self.margin) for d in self.differences]
        return REFUTED if REFUTED in found else HOLDS if found and set(found) == {HOLDS} else OPEN


class Estimate(NamedTuple):
    """A mean over sets (NaN where nothing is recorded), its standard error (NaN: not known), and the error's degrees of freedom."""

    mean: float
    error: float
    freedom: float

    @classmethod
    def of(cls, cell: Any) -> "Estimate":
        """Of a row of `results.table`."""
        return cls(cell.ours, cell.error, cell.sets - 1)

    @classmethod
    def papers(cls, cell: Any) -> "Estimate":
        """Of the paper's number in a row of `results.table`, as if its whole spread were between its five sets."""
        return cls(cell.paper, cell.paper_std / paper.SETS**0.5, paper.SETS - 1)

    @classmethod
    def over(cls, values: Sequence[float]) -> "Estimate":
        """Of values that were drawn independently, such as the means of sets."""
        n, mean = len(values), fmean(values) if values else math.nan
        return cls(mean, stdev(values) / n**0.5 if n > 1 and not math.isnan(mean) else math.nan, n - 1)

    @property
    def interval(self) -> Interval:
        """The mean and its interval by Student's t: everything where the error is not known, NaN where the mean is not."""
        if math.isnan(self.mean):
            return NOTHING
        half = math.inf if math.isnan(self.error) else self.error and self.error * float(student.ppf((1 + LEVEL) / 2, self.freedom))
        return Interval(self.mean, self.mean - half, self.mean + half)


def between(one: Estimate, other: Estimate) -> Interval:
    """Return by how much one mean lies above another, with Welch's interval; it is everything where one is of a single set."""
    error = math.hypot(one.error, other.error)
    parts = one.error**4 / one.freedom + other.error**4 / other.freedom if error > 0 else 1.0
    return Estimate(one.mean - other.mean, error, error**4 / parts).interval  # Welch and Satterthwaite's degrees of freedom


def compared(one: Any, *others: Any) -> Claim:
    """The claim that one row of `results.table` lies above each of the others."""
    return Claim(tuple(between(Estimate.of(one), Estimate.of(other)) for other in others))


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of values and its interval by Student's t: everything for a single value, NaN for none."""
    return Estimate.over(values).interval
