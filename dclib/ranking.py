"""How well one ranking of architectures foretells another (the paper's Table 4, Fig. F1): Spearman's ρ with its interval.

Ten points, which is what the paper's ρ rests on, leave it nearly open: the interval at ρ = 0 reaches from -0.63 to 0.63.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from scipy.stats import rankdata

LEAST = 4  # points, below which there is no interval


@dataclass(frozen=True)
class Correlation:
    """Spearman's ρ over `count` points and the interval of 95 % about it; NaN where there are too few, or nothing varies."""

    rho: float
    low: float
    high: float
    count: int


def spearman(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> Correlation:
    """Return Spearman's ρ, with ties at their mean rank, and its interval by Fisher's transformation (Bonett and Wright, 2000).

    The transform z = atanh ρ is taken as normal with variance (1 + ρ²/2) / (n - 3).

    Args:
        a, b: two values for each point.
        level: of the interval.
    """
    x, y = (rankdata(values) - (len(a) + 1) / 2 for values in (a, b))
    norm, n = math.sqrt(float(x @ x) * float(y @ y)), len(a)
    if n < 2 or not norm:
        return Correlation(math.nan, math.nan, math.nan, n)
    rho = float(x @ y) / norm
    if n < LEAST or abs(rho) > 1 - 1e-12:  # the interval of a perfect order has no width
        return Correlation(rho, *((math.nan, math.nan) if n < LEAST else (rho, rho)), n)
    half = _half(rho, n, level)
    return Correlation(rho, math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half), n)


def standard_error(rho: float, n: int) -> float:
    """Return that of z over n points."""
    return math.sqrt((1 + rho**2 / 2) / (n - 3))


def _half(rho: float, n: int, level: float) -> float:
    """Half the interval's width in z."""
    return NormalDist().inv_cdf((1 + level) / 2) * standard_error(rho, n)


def least_sure(n: int, level: float = 0.95) -> float:
    """Return the least ρ, in hundredths, whose interval over n points leaves out zero."""
    return next(k / 100 for k in range(1, 100) if math.atanh(k / 100) > _half(k / 100, n, level))


def best(scores: Mapping[str, float], count: int = 10) -> list[str]:
    """Return the names of the highest scores, the highest first; equal ones in the order of their names."""
    return sorted(scores, key=lambda name: (-scores[name], name))[:count]


def agreement(proxy: Mapping[str, float], whole: Mapping[str, float], count: int = 0) -> Correlation:
    """Return ρ between two scores of the architectures that have both, or of the `count` best of these by the proxy.

    Args:
        proxy: what architectures are ranked by.
        whole: what they are worth when trained on the whole set.
        count: 0: all.
    """
    both = {name: score for name, score in proxy.items() if name in whole}
    names = best(both, count) if count else sorted(both)
    return spearman([both[name] for name in names], [whole[name] for name in names])
