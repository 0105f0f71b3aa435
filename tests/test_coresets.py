"""dclib.methods.coresets: each choice against one written out on few images, and by its properties."""

import itertools

import pytest
import torch
from helpers import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from dclib.core import networks
from dclib.data.dataset import generator
from dclib.errors import DataError, SpecError
from dclib.methods import coresets
from dclib.methods.coresets import forgetting, herding, k_center, select
from dclib.spec import ConvNet

quick = settings(max_examples=40, deadline=None, derandomize=True)
seeds = st.integers(0, 10**6)


def points(n, seed, d=3):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- one class


@quick
@given(st.integers(1, 12), seeds)
def test_each_step_of_herding_is_the_best_there_is(n, seed):
    """The mean of the images chosen so far, over every next one that could be taken."""
    features, chosen = points(n, seed), herding(points(n, seed), n).tolist()
    assert sorted(chosen) == list(range(n))
    for i in range(n):
        before, left = chosen[:i], [j for j in range(n) if j not in chosen[:i]]
        gaps = {j: float((features[[*before, j]].mean(0) - features.mean(0)).norm()) for j in left}
        assert gaps[chosen[i]] == pytest.approx(min(gaps.values()))


@quick
@given(st.integers(2, 9), seeds)
def test_k_center_is_the_greedy_choice_written_out(n, seed):
    """Which covers all within twice the best radius, as farthest-first guarantees from any start."""
    features = points(n, seed, 2)
    chosen = [int((features - features.mean(0)).norm(dim=1).argmin())]
    while len(chosen) < n:
        gaps = {j: min(float((features[j] - features[c]).norm()) for c in chosen) for j in range(n) if j not in chosen}
        chosen.append(max(gaps, key=gaps.get))
    radius = lambda chosen: float(torch.cdist(features, features[chosen]).amin(1).max())  # noqa: E731
    for ipc in range(1, n + 1):
        found = k_center(features, ipc).tolist()
        assert found == chosen[:ipc]
        assert radius(found) <= 2 * min(radius(list(some)) for some in itertools.combinations(range(n), ipc)) + 1e-9


@pytest.mark.parametrize("choose", [herding, k_center])
def test_of_identical_images_each_is_taken_once(choose):
    assert sorted(choose(torch.ones(5, 2).double(), 5).tolist()) == [0, 1, 2, 3, 4]


def test_forgetting_takes_the_never_learned_then_the_most_forgotten_and_draws_among_equals():
    events = torch.tensor([0, 3, 1, 0, 2, 0])
    learned = torch.tensor([True, True, True, False, True, True])
    chosen = forgetting(events, learned, 6, generator(0)).tolist()
    assert chosen[:4] == [3, 1, 4, 2]
    assert set(chosen[4:]) == {0, 5}
    same = torch.zeros(20, dtype=torch.int64)
    drawn = [forgetting(same, same == 0, 3, generator(seed)).tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0] != [0, 1, 2]


# --- all classes


@pytest.fixture
def guide(made):
    network = networks.build(ConvNet(width=4, depth=2), **made.shape, seed=0)
    return dict(network=network, events=torch.arange(23) % 4, learned=torch.ones(23).bool())


@pytest.mark.parametrize("method", coresets.METHODS)
def test_every_class_gives_as_many_different_images_of_its_own(method, made, guide):
    chosen = select(method, made, 5, **guide)
    assert chosen.shape == (3, 5)
    assert (made.y_train[chosen] == torch.arange(3)[:, None]).all()
    assert all(len(set(row)) == 5 for row in chosen.tolist())
    assert method == "random" or select(method, made, 2, **guide).tolist() == chosen[:, :2].tolist()
    refused("class 'a' of made has 5 images", "the 6", call=lambda: select(method, made, 6, **guide), error=DataError)


@pytest.mark.parametrize(("method", "choose"), [("herding", herding), ("k-center", k_center)])
def test_images_are_chosen_by_what_enters_the_last_layer(method, choose, made, guide):
    members, entered = made.class_indices(1), []
    hook = guide["network"].eval().classifier.register_forward_pre_hook(lambda module, given: entered.append(given[0].detach()))
    guide["network"](made.normalise(made.x_train[members]))
    hook.remove()
    assert select(method, made, 4, **guide)[1].tolist() == members[choose(entered[0].double(), 4)].tolist()


def test_random_is_the_draw_of_real_initialisation(made):
    draw = generator(7, "init")
    assert select("random", made, 5, seed=7).tolist() == [made.draw(c, 5, draw).tolist() for c in range(3)]
    refused("did you mean 'herding'", call=lambda: select("herdin", made, 1), error=SpecError)
