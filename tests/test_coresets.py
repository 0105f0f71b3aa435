"""dclib.methods.coresets: each choice against one written out on few images, and by its properties."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dclib.core import networks
from dclib.data.dataset import generator
from dclib.errors import DataError, SpecError
from dclib.methods import coresets
from dclib.methods.coresets import forgetting, herding, k_center, select
from dclib.run import sets
from dclib.spec import Condensation, ConvNet, MakeSet

quick = settings(max_examples=40, deadline=None, derandomize=True)
sizes = st.integers(1, 12)
seeds = st.integers(0, 10**6)


def points(n, seed, d=3):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def radius(features, chosen):
    """The largest distance of an image to its nearest centre."""
    return float(torch.cdist(features, features[chosen]).amin(1).max())


# --- herding


@quick
@given(sizes, seeds)
def test_each_step_of_herding_is_the_best_there_is(n, seed):
    """The mean of the images chosen so far, over every next one that could be taken."""
    features, chosen = points(n, seed), herding(points(n, seed), n).tolist()
    assert sorted(chosen) == list(range(n))
    for i in range(1, n):
        before, left = chosen[:i], [j for j in range(n) if j not in chosen[:i]]
        gaps = {j: float((features[[*before, j]].mean(0) - features.mean(0)).norm()) for j in left}
        assert gaps[chosen[i]] == pytest.approx(min(gaps.values()))


def test_herding_takes_the_near_and_not_the_far():
    """An argmax where argmin belongs would take the outlier first."""
    features = torch.tensor([[9.0], [0.0], [0.1], [-0.1], [-0.4]]).double()
    assert herding(features - features.mean(), 1).tolist() == [2]
    assert 0 not in herding(features, 1).tolist()


def test_the_mean_of_herding_comes_nearer_than_that_of_random_images():
    features = points(300, 0, 8)
    mean = features.mean(0)
    herd = herding(features, 40)
    for ipc in (5, 10, 20, 40):
        drawn = [float((features[torch.randperm(300, generator=generator(s))[:ipc]].mean(0) - mean).norm()) for s in range(20)]
        assert float((features[herd[:ipc]].mean(0) - mean).norm()) < 0.5 * min(drawn)


# --- k-center


@quick
@given(sizes, seeds)
def test_k_center_is_the_greedy_choice_written_out(n, seed):
    features = points(n, seed)
    chosen = [int((features - features.mean(0)).norm(dim=1).argmin())]
    while len(chosen) < n:
        gaps = {j: min(float((features[j] - features[c]).norm()) for c in chosen) for j in range(n) if j not in chosen}
        chosen.append(max(gaps, key=gaps.get))
    for ipc in range(1, n + 1):
        assert k_center(features, ipc).tolist() == chosen[:ipc]


@quick
@given(st.integers(2, 9), seeds)
def test_the_cover_never_grows_and_is_within_twice_the_best(n, seed):
    """Farthest-first from any start covers within twice the optimum, here by trying all choices."""
    features = points(n, seed, 2)
    radii = [radius(features, k_center(features, ipc).tolist()) for ipc in range(1, n + 1)]
    assert all(after <= before for before, after in itertools.pairwise(radii))
    for ipc, reached in enumerate(radii, 1):
        best = min(radius(features, list(some)) for some in itertools.combinations(range(n), ipc))
        assert reached <= 2 * best + 1e-9


@quick
@given(sizes, seeds)
def test_herding_and_k_center_begin_with_the_same_image(n, seed):
    features = points(n, seed)
    assert herding(features, 1).tolist() == k_center(features, 1).tolist()


@pytest.mark.parametrize("choose", [herding, k_center])
def test_of_identical_images_each_is_taken_once(choose):
    assert sorted(choose(torch.ones(5, 2).double(), 5).tolist()) == [0, 1, 2, 3, 4]


# --- forgetting


def test_forgetting_takes_the_never_learned_then_the_most_forgotten():
    events = torch.tensor([0, 3, 1, 0, 2, 0])
    learned = torch.tensor([True, True, True, False, True, True])
    chosen = forgetting(events, learned, 6, generator(0)).tolist()
    assert chosen[:4] == [3, 1, 4, 2]
    assert set(chosen[4:]) == {0, 5}


def test_ties_are_drawn():
    same = torch.zeros(20, dtype=torch.int64)
    drawn = [forgetting(same, same == 0, 3, generator(seed)).tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0] != [0, 1, 2]


# --- all classes


@pytest.fixture
def network(made):
    return networks.build(ConvNet(width=4, depth=2), channels=1, classes=3, size=made.size, seed=0)


@pytest.mark.parametrize("method", coresets.METHODS)
def test_every_class_gives_as_many_different_images_of_its_own(method, made, network):
    events = torch.arange(23) % 4
    chosen = select(method, made, 5, network=network, events=events, learned=events >= 0)
    assert chosen.shape == (3, 5)
    assert (made.y_train[chosen] == torch.arange(3)[:, None]).all()
    assert all(len(set(row)) == 5 for row in chosen.tolist())
    fewer = select(method, made, 2, network=network, events=events, learned=events >= 0)
    assert fewer.tolist() == chosen[:, :2].tolist() or method == "random"


def test_classes_are_chosen_from_by_themselves(made, network):
    members = made.class_indices(1)
    features = coresets.features_of(made, network, members)
    both = {"herding": herding, "k-center": k_center}
    for method, function in both.items():
        assert select(method, made, 4, network=network)[1].tolist() == members[function(features, 4)].tolist()


def test_the_features_are_what_enters_the_last_layer(made, network):
    logits = []
    hook = network.classifier.register_forward_pre_hook(lambda module, given: logits.append(given[0]))
    indices = torch.tensor([3, 0, 22])
    features = coresets.features_of(made, network, indices)
    network(made.normalise(made.x_train[indices]))
    hook.remove()
    assert features.dtype == torch.float64
    torch.testing.assert_close(features.float(), logits[-1].detach())
    assert isinstance(network.classifier, nn.Linear)


def test_random_is_the_draw_of_real_initialisation(made):
    run = MakeSet("made", "random", 7, Condensation(ipc=5))
    draw = generator(7, "init")
    assert [row.tolist() for row in sets.choose(run, made)] == [made.draw(c, 5, draw).tolist() for c in range(3)]


@pytest.mark.parametrize("method", coresets.METHODS)
def test_more_images_than_a_class_has_are_refused(method, made, network):
    with pytest.raises(DataError, match="class 'a' of made has 5 images, fewer than the 6 asked for: lower ipc"):
        select(method, made, 6, network=network, events=torch.zeros(23).long(), learned=torch.ones(23).bool())


def test_an_unknown_method_is_refused(made):
    with pytest.raises(SpecError, match="did you mean 'herding'"):
        select("herdin", made, 1)
