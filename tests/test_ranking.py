"""Spearman's ρ and its interval, the best of a ranking, and by how much one ranking foretells better than another."""

import math

import numpy as np
import pytest
from scipy import stats

from dclib.results.claims import HOLDS, OPEN, interval
from dclib.results.ranking import advantage, agreement, best, spearman


def test_rho_and_its_interval_by_hand():
    """Ranks 1 2 3 4 5 and 2 1 4 3 5: ρ = 1 - 6·4 / 120 = 0.8, atanh 0.8 = 1.0986, its deviation √(1.32 / 2) = 0.8124."""
    found = spearman([10.0, 20.0, 30.0, 40.0, 50.0], [0.2, 0.1, 0.4, 0.3, 0.5])
    assert (found.rho, found.count) == (pytest.approx(0.8), 5)
    ends = [math.atanh(x) - math.atanh(found.rho) for x in (found.low, found.high)]
    assert ends == pytest.approx([-1.959964 * 0.812404, 1.959964 * 0.812404], rel=1e-5)


def test_rho_is_scipys_with_ties():
    draw = np.random.default_rng(0)
    a, b = draw.integers(0, 6, 30).astype(float).tolist(), draw.normal(size=30).tolist()
    assert spearman(a, b).rho == pytest.approx(stats.spearmanr(a, b).statistic)


def test_where_nothing_can_be_said():
    assert math.isnan(spearman([1.0], [2.0]).rho)
    assert math.isnan(spearman([1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0]).rho)
    three = spearman([1.0, 2.0, 3.0], [1.0, 3.0, 2.0])
    assert three.rho == pytest.approx(0.5)
    assert math.isnan(three.low)
    assert spearman([1.0, 2.0, 3.0, 4.0], [2.0, 4.0, 6.0, 8.0])[:3] == pytest.approx((1, 1, 1))


def test_the_best_come_first_and_ties_by_name():
    assert best({"c": 1.0, "b": 2.0, "a": 1.0, "d": 0.0}, 3) == ["b", "a", "c"]


def test_agreement_looks_at_those_in_both_and_at_the_best_by_the_proxy():
    proxy = dict(zip("abcdef", (6.0, 5.0, 4.0, 3.0, 2.0, 1.0), strict=True))
    whole = dict(zip("abcde", (1.0, 2.0, 3.0, 0.5, 0.1), strict=True))
    assert agreement(proxy, whole, 3).rho == pytest.approx(-1)
    assert agreement(proxy, whole).count == 5
    assert agreement(proxy, whole).rho == pytest.approx(stats.spearmanr([6, 5, 4, 3, 2], [1, 2, 3, 0.5, 0.1]).statistic)


def test_an_interval_by_students_t():
    values = [1.0, 2.0, 4.0]
    assert interval(values) == pytest.approx((7 / 3, *stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))))
    assert interval([1.0])[1:] == (-math.inf, math.inf)


@pytest.mark.parametrize(("noises", "verdict"), [((0.5, 0.5), OPEN), ((0.3, 2.0), HOLDS)], ids=["alike", "better"])
def test_the_advantage_of_one_ranking_over_another(noises, verdict):
    """Of rankings that are alike some 95 % have an interval with zero in it; of a much better one nearly none has."""
    draw, verdicts = np.random.default_rng(0), []
    for _ in range(20):
        whole = {str(i): draw.normal() for i in range(40)}
        one, other = ({name: score + noise * draw.normal() for name, score in whole.items()} for noise in noises)
        verdicts.append(advantage(one, other, whole).above())
    assert verdicts.count(verdict) >= 18


def test_the_advantage_is_of_the_architectures_that_all_have():
    whole = {name: float(i) for i, name in enumerate("abcdef")}
    one, other = whole | {"x": -5.0}, {name: -score for name, score in whole.items()} | {"y": 9.0}
    assert advantage(one, other, whole) == (2, 2, 2)
    assert advantage(one, one, whole) == (0, 0, 0)
    assert math.isnan(advantage({}, other, whole).mean)
