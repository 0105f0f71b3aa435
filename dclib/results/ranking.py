"""How well one ranking of architectures foretells another (the paper's Table 4, Fig. F1): Spearman's ρ with its interval.

Ten points, which is what the paper's ρ rests on, leave it nearly open: the interval at ρ = 0 reaches from -0.63 to 0.63.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import norm, rankdata

from .claims import LEVEL, NOTHING, Interval

LEAST = 4  # points, below which there is no interval
DRAWS = 2000  # of a bootstrap


class Correlation(NamedTuple):
    """Spearman's ρ over `count` points and the interval of 95 % about it; NaN where there are too few, or nothing varies."""

    rho: float
    low: float
    high: float
    count: int


def spearman(a: Sequence[float], b: Sequence[float]) -> Correlation:
    """Return Spearman's ρ, with ties at their mean rank, and its interval by Fisher's transformation (Bonett and Wright, 2000).

    The transform z = atanh ρ is taken as normal with variance (1 + ρ²/2) / (n - 3).

    Args:
        a, b: two values for each point.
    """
    n, rho = len(a), float(_rho(np.array(a), np.array(b))) if a else math.nan
    if n < LEAST or math.isnan(rho):
        return Correlation(rho, math.nan, math.nan, n)
    if abs(rho) > 1 - 1e-12:  # the interval of a perfect order has no width
        return Correlation(rho, rho, rho, n)
    half = _half(rho, n)
    return Correlation(rho, math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half), n)


def _rho(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """ρ along the last axis; NaN where nothing varies."""
    x, y = (rankdata(values, axis=-1) - (a.shape[-1] + 1) / 2 for values in (a, b))
    with np.errstate(invalid="ignore"):
        return np.asarray((x * y).sum(-1) / np.sqrt((x * x).sum(-1) * (y * y).sum(-1)))


def _half(rho: float, n: int) -> float:
    """Half the interval's width in z."""
    return float(norm.ppf((1 + LEVEL) / 2)) * math.sqrt((1 + rho**2 / 2) / (n - 3))


def least_sure(n: int) -> float:
    """Return the least ρ, in hundredths, whose interval over n points leaves out zero."""
    return next(k / 100 for k in range(1, 100) if math.atanh(k / 100) > _half(k / 100, n))


def best(scores: Mapping[str, float], count: int = 10) -> list[str]:
    """Return the names of the highest scores, the highest first; equal ones in the order of their names."""
    return sorted(scores, key=lambda name: (-scores[name], name))[:count]


def advantage(one: Mapping[str, float], other: Mapping[str, float], whole: Mapping[str, float]) -> Interval:
    """Return by how much ρ of one proxy with the whole set lies above another's, over the architectures that all three have.

    Both proxies rank the same architectures, so that the interval is that of a paired bootstrap: architectures are drawn anew, with
    replacement, `DRAWS` times, always by the same seed.
    """
    names = sorted(one.keys() & other.keys() & whole.keys())
    a, b, c = (np.array([source[name] for name in names]) for source in (one, other, whole))
    if len(names) < LEAST or math.isnan(mean := float(_rho(a, c) - _rho(b, c))):
        return NOTHING
    drawn = np.random.default_rng(0).integers(len(names), size=(DRAWS, len(names)))
    differences = _rho(a[drawn], c[drawn]) - _rho(b[drawn], c[drawn])
    return Interval(mean, *map(float, np.nanquantile(differences, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])))


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
