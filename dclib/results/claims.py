"""What a page claims of its numbers, and what the records say of it: it holds, it is refuted, or it is not decided.

A claim stands on differences, each with its interval of 95 % by Student's t over sets, or over whatever was drawn anew each
time. A directional claim says that they are positive: it holds where every interval lies above zero and is refuted where one
lies below, so that exchanging what is compared turns the one into the other. A claim of equality declares its margin
beforehand: it holds where every interval lies within, and is refuted where one lies outside. Everything else is not decided:
the spread of a single set is not known.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev, variance
from typing import NamedTuple

from scipy.stats import t as student

from .outcomes import Outcome

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
    def verdict(self) -> str:
        """What the differences say together: one that refutes is enough, and all must hold."""
        found = [d.above(self.least) if self.margin is None else d.within(self.margin) for d in self.differences]
        return REFUTED if REFUTED in found else HOLDS if found and set(found) == {HOLDS} else OPEN


class Estimate(NamedTuple):
    """A mean over sets, the variance of that mean (None: not known), and the degrees of freedom of that variance."""

    mean: float
    squared_error: float | None
    freedom: int

    @classmethod
    def of(cls, found: Outcome) -> "Estimate | None":
        """Of an outcome, as its pages have it; None where nothing is recorded."""
        return cls(found.mean, found.squared_error, len(found.sets) - 1) if found.shown else None

    @classmethod
    def over(cls, values: Sequence[float]) -> "Estimate":
        """Of values that were drawn independently, such as the means of sets."""
        n = len(values)
        return cls(fmean(values), variance(values) / n if n > 1 else None, n - 1)


def between(one: Estimate | None, other: Estimate | None) -> Interval:
    """Return by how much one mean lies above another, with Welch's interval; it is everything where one is of a single set."""
    if one is None or other is None:
        return NOTHING
    mean, errors = one.mean - other.mean, (one.squared_error, other.squared_error)
    if None in errors:
        return Interval(mean, -math.inf, math.inf)
    if not (error := sum(errors) ** 0.5):
        return Interval(mean, mean, mean)
    freedom = error**4 / (errors[0] ** 2 / one.freedom + errors[1] ** 2 / other.freedom)  # Welch and Satterthwaite
    half = float(student.ppf((1 + LEVEL) / 2, freedom)) * error
    return Interval(mean, mean - half, mean + half)


def compared(one: Outcome, *others: Outcome) -> Claim:
    """The claim that one outcome lies above each of the others."""
    return Claim(tuple(between(Estimate.of(one), Estimate.of(other)) for other in others))


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of values and the interval by Student's t; of a single value it is everything, of none it is not a number."""
    if not values:
        return NOTHING
    n, mean = len(values), fmean(values)
    half = float(student.ppf((1 + LEVEL) / 2, n - 1)) * stdev(values) / n**0.5 if n > 1 else math.inf
    return Interval(mean, mean - half, mean + half)
