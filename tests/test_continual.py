"""Continual learning: losses and the balanced set by hand, what the memory holds, what no step may see, and going on."""

import dataclasses
import math
from itertools import accumulate

import pytest
import torch

from dclib.core import condense
from dclib.core import resume as loop
from dclib.core.train import accuracy
from dclib.data.dataset import generator
from dclib.errors import DataError, Diverged, FileError, Interrupted, SpecError
from dclib.methods import continual
from dclib.methods.continual import Continual
from dclib.methods.tasks import Phase, check_tasks, distillation, few_tests, phases
from dclib.spec import Condensation, ConvNet, key
from dclib.spec.applications import LearnTasks, Rehearsal

CPU = {"device": "cpu"}
NETWORK = ConvNet(width=4, depth=1)


def small(**changes):
    given = {"memory": "random", "ipc": 2, "network": NETWORK, "iterations": 3, "finetuning": 2, "batch": 8, "test_images": 5}
    return Rehearsal(**{**given, **changes})


@pytest.fixture(scope="module")
def tasks(make_dataset):
    """Three tasks of three classes; no test image is a training image."""
    made = []
    for j, name in enumerate(("one", "two", "three")):
        whole = make_dataset(9, 12, 10, channels=3, seed=j)
        held = torch.arange(31) % 3 == 0
        parts = dict(
            x_train=whole.x_train[~held], y_train=whole.y_train[~held], x_test=whole.x_train[held], y_test=whole.y_train[held]
        )
        made.append(dataclasses.replace(whole, name=name, mean=(0.4 + j / 10,) * 3, **parts))
    return made


@pytest.fixture(scope="module")
def sets(tasks):
    """Condensed sets: noise."""
    draw = generator(0, "sets")
    return [torch.randn(3, 2, 3, 8, 8, generator=draw) for _ in tasks]


def learnt(work, steps=None):
    while work.k < (work.steps if steps is None else steps):
        loop._do_step(work)
    return work


def same(one, other):
    theirs = other.tensors()
    return (
        all(torch.equal(t.nan_to_num(-1), theirs[n].nan_to_num(-1)) for n, t in one.tensors().items())
        and one.losses == other.losses
    )


# --- by hand


def test_the_plan_tunes_after_every_task_but_the_first():
    plan = phases(Rehearsal(), 3)
    assert plan == [Phase(0, False, 5000), Phase(1, False, 5000), Phase(1, True, 500), Phase(2, False, 5000), Phase(2, True, 500)]
    assert [p for p in phases(Rehearsal(finetuning=0), 3) if p.balanced] == []


def test_distillation_by_hand():
    """At T = 2, logits 2·log 3 and 0 are the probabilities 3/4 and 1/4; the other network says 1/2 and 1/2, then 1/4 and 3/4."""
    old = torch.tensor([[2 * math.log(3), 0.0], [0.0, 0.0]])
    new = torch.tensor([[0.0, 0.0], [0.0, 2 * math.log(3)]])
    first = -(3 / 4 * math.log(1 / 2) + 1 / 4 * math.log(1 / 2))
    second = -(1 / 2 * math.log(1 / 4) + 1 / 2 * math.log(3 / 4))
    assert distillation(new, old, 2.0).item() == pytest.approx((first + second) / 2, rel=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_distillation_is_least_at_the_old_outputs(temperature):
    old, rest = torch.randn(4, 3), torch.randn(4, 3)
    gradient = torch.autograd.grad(distillation(logits := old.clone().requires_grad_(), old, temperature), logits)[0]
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-6)
    assert distillation(old + rest, old, temperature) > distillation(old, old, temperature)


@pytest.mark.parametrize("weight", [0.0, 1.0, 0.25])
def test_the_loss_adds_distillation_from_the_second_task_on(tasks, weight):
    work = learnt(Continual(tasks, small(distillation=weight), 0), 4)  # one step into the second task
    x, y = work.batch(Phase(1, False, 3), 1)
    logits, before = work.network(x), work.before(x).detach()
    assert not torch.equal(logits, before)
    plain = -logits.log_softmax(1)[torch.arange(len(y)), y].mean()
    held = -((before / 2).softmax(1) * (logits / 2).log_softmax(1)).sum(1).mean()
    assert work.loss(Phase(0, False, 3), x, y).item() == pytest.approx(plain.item(), rel=1e-5)
    for phase in (Phase(1, False, 3), Phase(1, True, 2), Phase(2, False, 3)):
        assert work.loss(phase, x, y).item() == pytest.approx((plain + weight * held).item(), rel=1e-5)


def test_the_old_network_is_that_before_the_phase(tasks):
    """Before balanced fine-tuning, too, where it knows the new task as well."""
    work = Continual(tasks, small(), 0)
    for end in accumulate(phase.steps for phase in work.plan):
        before = {n: t.clone() for n, t in work.network.state_dict().items()}
        learnt(work, end)
        assert all(torch.equal(t, before[n]) for n, t in work.before.state_dict().items())
        assert any(not torch.equal(t, before[n]) for n, t in work.network.state_dict().items())


def test_one_step_is_sgds(tasks):
    work = Continual(tasks, small(momentum=0.9, weight_decay=0.1, lr=0.05), 0)
    x, y = work.batch(work.plan[0], 0)
    gradients = torch.autograd.grad(torch.nn.functional.cross_entropy(work.network(x), y), work.parameters)
    wanted = [p.detach() - 0.05 * (g + 0.1 * p.detach()) for p, g in zip(work.parameters, gradients, strict=True)]
    learnt(work, 1)
    torch.testing.assert_close([p.detach() for p in work.parameters], wanted, rtol=1e-5, atol=1e-7)


def test_fine_tuning_has_its_own_rate_and_starts_at_rest(tasks):
    work = learnt(Continual(tasks, small(weight_decay=0.0, finetuning_lr=1e-6), 0), 6)
    assert any(v.abs().max() > 0 for v in work.velocity)
    before = [p.detach().clone() for p in work.parameters]
    learnt(work, 7)
    moved = max(float((p.detach() - old).abs().max()) for p, old in zip(work.parameters, before, strict=True))
    assert 0 < moved < 1e-4


# --- the memory


def rows(images):
    return {tuple(image.flatten().tolist()) for image in images}


def seen_by(work):
    """Everything that the steps of a work draw, phase by phase, as (images, labels)."""
    seen, draw = {}, work.batch

    def batch(phase, i):
        x, y = draw(phase, i)
        seen.setdefault(phase, []).append((x.clone(), y.clone()))
        return x, y

    work.batch = batch
    learnt(work)
    return {phase: tuple(map(torch.cat, zip(*parts, strict=True))) for phase, parts in seen.items()}


@pytest.mark.parametrize("memory", ["random", "herding", "condense"])
def test_balanced_fine_tuning_has_as_many_images_of_each_class_of_each_task(tasks, sets, memory):
    hyper = small(memory=memory, batch=100)  # so that a batch is everything
    work = Continual(tasks, hyper, 0, sets if memory == "condense" else None)
    seen = seen_by(work)
    for stage in (1, 2):
        x, y = (part[: 6 * (stage + 1)] for part in seen[Phase(stage, True, 2)])
        assert y.bincount().tolist() == [2 * (stage + 1)] * 3
        for j in range(stage + 1):
            kept = work.memory[j]
            assert rows(kept) <= rows(x)
            assert {int(y[(x == image).all((1, 2, 3))]) for image in kept[4:]} == {2}
        assert len(rows(x)) == len(x)


def test_a_random_memory_holds_the_images_that_condensing_starts_from(tasks):
    """So that the two differ by the condensing alone."""
    start = Condensation(ipc=2, network=NETWORK, init="real").resolve()
    for seed in (0, 5):
        work = learnt(Continual(tasks, small(), seed))
        for j, task in enumerate(tasks):
            begun = condense.initial_images(task, start, seed, torch.float32)
            assert torch.equal(work.memory[j], begun.flatten(0, 1))


@pytest.mark.parametrize("memory", ["random", "herding", "condense"])
def test_the_memory_never_exceeds_its_budget_and_grows_by_a_tasks_share(tasks, sets, memory):
    work = Continual(tasks, small(memory=memory), 0, sets if memory == "condense" else None)
    filled = []
    for k in range(work.steps):
        learnt(work, k + 1)
        here = [j for j in range(3) if work.memory[j].any()]
        assert work.memory.shape == (3, 6, 3, 8, 8)
        assert here == list(range(len(here)))
        filled.append(len(here))
    assert filled == [0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3]


def test_a_task_is_learnt_with_its_images_and_the_memory_alone(tasks):
    work = Continual(tasks, small(batch=100), 0)
    seen = seen_by(work)
    for stage, task in enumerate(tasks):
        x, y = seen[Phase(stage, False, 3)]
        held = [*task.normalise(task.x_train), *work.memory[:stage].flatten(0, 1)]
        assert rows(x) == rows(held)
        assert y[: len(held)].bincount().tolist() == [n + 2 * stage for n in task.y_train.bincount().tolist()]


def test_remembered_images_are_the_tasks_own_and_bear_their_labels(tasks):
    for memory in ("random", "herding"):
        work = learnt(Continual(tasks, small(memory=memory), 0))
        for task, kept in zip(work.tasks, work.memory, strict=True):
            for image, label in zip(kept, work.labels, strict=True):
                assert any(torch.equal(image, x) for x in task.normalise(task.x_train[task.y_train == label]))


def test_herding_looks_at_the_network_that_has_just_learnt_the_task(tasks):
    work = learnt(Continual(tasks, small(memory="herding"), 0), 3)
    task = tasks[0]
    features = work.network.features(task.normalise(task.x_train[task.y_train == 1])).detach().double()
    first = task.normalise(task.x_train[task.y_train == 1])[(features - features.mean(0)).norm(dim=1).argmin()]
    torch.testing.assert_close(work.memory[0][2], first)


def test_condensed_sets_are_remembered_as_they_are(tasks, sets):
    work = learnt(Continual(tasks, small(memory="condense"), 0, sets))
    torch.testing.assert_close(work.memory, torch.stack([images.flatten(0, 1) for images in sets]))


# --- test images


def strangers(work, tasks):
    """How many of the images that any step saw are test images of any task."""
    tests = set().union(*(rows(task.normalise(task.x_test)) for task in tasks))
    return len(tests & set().union(*(rows(x) for x, _ in seen_by(work).values())))


@pytest.mark.parametrize("memory", ["random", "herding"])
def test_no_step_sees_a_test_image(tasks, memory):
    assert strangers(Continual(tasks, small(memory=memory, iterations=12), 0), tasks) == 0


def test_a_test_image_among_the_training_images_would_be_found(tasks):
    leaky = dataclasses.replace(tasks[1], x_train=tasks[1].x_train.clone())
    leaky.x_train[3] = leaky.x_test[3]
    assert strangers(Continual([tasks[0], leaky, tasks[2]], small(iterations=12), 0), [tasks[0], leaky, tasks[2]]) == 1


def test_each_stage_is_tested_on_what_is_learnt_so_far(tasks):
    work = learnt(Continual(tasks, small(), 0))
    assert work.found.isnan().tolist() == [[False, True, True], [False, False, True], [False, False, False]]
    assert [accuracy(work.network, few_tests(t, 5, generator(0, "test", j))) for j, t in enumerate(tasks)] == work.found[2].tolist()


def test_the_tests_are_drawn_without_replacement_and_differ_between_seeds(tasks):
    some, other = (few_tests(tasks[0], 7, generator(seed, "test", 0)) for seed in (0, 1))
    assert len(some.y_test) == 7
    assert len(rows(some.x_test)) == 7
    assert rows(some.x_test) <= rows(tasks[0].x_test)
    assert rows(some.x_test) != rows(other.x_test)
    assert some.x_train is tasks[0].x_train


# --- repeating and going on


def test_same_seed_same_bits_and_the_first_task_does_not_know_the_memory(tasks, sets):
    state = torch.random.get_rng_state()
    first, again, other = (continual.learn(tasks, small(), seed=seed, **CPU) for seed in (0, 0, 1))
    assert same(first, again)
    assert first.losses != other.losses
    assert torch.equal(torch.random.get_rng_state(), state)
    condensed = continual.learn(tasks, small(memory="condense", distillation=0.0), sets=sets, **CPU)
    assert condensed.losses[:3] == first.losses[:3]
    assert condensed.losses[3:] != first.losses[3:]


STOPS = [
    (0, "random"),
    (2, "random"),
    (3, "herding"),
    (5, "condense"),
    (6, "herding"),
    (7, "random"),
    (8, "condense"),
    (12, "herding"),
]


@pytest.mark.parametrize(("steps", "memory"), STOPS)
def test_stopped_in_the_middle_it_goes_on_to_the_identical_result(tasks, sets, tmp_path, steps, memory):
    given = dict(sets=sets if memory == "condense" else None, checkpoint=tmp_path / "c", **CPU)
    calls, resumed = iter([False] * steps), []
    with pytest.raises(Interrupted, match=f"stopped after {steps} of 13 steps of learning"):
        continual.learn(tasks, small(memory=memory), should_stop=lambda: next(calls, True), **given)
    on = continual.learn(tasks, small(memory=memory), on_resume=lambda work: resumed.append(work.k), **given)
    assert resumed == [steps]
    assert same(on, continual.learn(tasks, small(memory=memory), **given | {"checkpoint": None}))


@pytest.mark.parametrize("held", [0.0, 1.0])
@pytest.mark.parametrize("memory", ["random", "herding", "condense"])
def test_from_another_memorys_first_task_it_ends_as_from_its_own(tasks, sets, tmp_path, memory, held):
    hyper, given = small(memory=memory, distillation=held), dict(sets=sets if memory == "condense" else None, **CPU)
    other = small(memory="random" if memory == "herding" else "herding")
    calls, resumed = iter([False] * 2), []
    with pytest.raises(Interrupted, match="stopped after 2 of 3 steps"):
        continual.learn(tasks, other, first=tmp_path / "f", should_stop=lambda: next(calls, True), **CPU)
    assert same(continual.learn(tasks, other, first=tmp_path / "f", **CPU), continual.learn(tasks, other, **CPU))
    on = continual.learn(tasks, hyper, first=tmp_path / "f", on_resume=lambda work: resumed.append(work.k), **given)
    assert resumed == [3]
    assert same(on, continual.learn(tasks, hyper, **given))


def test_a_first_task_learnt_otherwise_is_refused(tasks, tmp_path):
    continual.learn(tasks, small(), first=tmp_path / "f", **CPU)
    for changed in (small(lr=0.02), small(batch=9)):
        with pytest.raises(FileError, match=r"belongs to another run \(its run differ\)"):
            continual.learn(tasks, changed, first=tmp_path / "f", **CPU)


def test_a_checkpoint_of_other_work_is_refused(tasks, sets, tmp_path):
    given = dict(checkpoint=tmp_path / "c", **CPU)
    with pytest.raises(Interrupted):
        continual.learn(tasks, small(memory="condense"), sets=sets, should_stop=lambda: True, **given)
    for changed, what in (({"sets": sets[::-1]}, "sets"), ({"seed": 1, "sets": sets}, "seed")):
        with pytest.raises(FileError, match=rf"belongs to another run \(its {what} differ\)"):
            continual.learn(tasks, small(memory="condense"), **changed, **given)
    with pytest.raises(FileError, match=r"belongs to another run \(its data differ\)"):
        continual.learn(tasks[::-1], small(memory="condense"), sets=sets, **given)


# --- what is refused


def test_tasks_that_do_not_go_together_are_refused(tasks, make_dataset):
    (one, two), larger = tasks[:2], "choose a larger data set or lower"
    cases = [
        ([one], "^continual learning needs at least 2 tasks, not 1: name more data sets$"),
        ([one, make_dataset(4, 4, channels=3)], r"^tasks must have equally many classes, but one has 3 classes and made has 2:"),
        ([one, make_dataset(4, 4, 4)], "^tasks must have images of one shape, not 3x8x8 of one and 1x8x8 of made: load them"),
        ([one, make_dataset(4, 1, 4, channels=3)], f"^class 'b' of made has 1 images, fewer than the 2 asked for: {larger} ipc$"),
        ([one, make_dataset(2, 2, 2, channels=3)], f"^made has 3 test images, fewer than test_images=5: {larger} test_images$"),
        ([one, two, one], "^tasks must differ, but one and one have the same images: name each data set once$"),
    ]
    for given, sentence in cases:
        with pytest.raises(DataError, match=sentence):
            continual.learn(given, small(), **CPU)
    check_tasks([one, two], small())


def test_sets_that_do_not_fit_the_memory_are_refused(tasks, sets):
    for given, memory, sentence in (
        (None, "condense", "a memory filled by 'condense' needs the condensed sets"),
        (sets, "random", "a memory filled by 'random' takes no condensed sets"),
        (sets[:2], "condense", "the memory needs 3 sets of 2 images per class in the tasks' shape"),
        ([images[:, :1] for images in sets], "condense", "the memory needs 3 sets of 2 images per class in the tasks' shape"),
    ):
        with pytest.raises(SpecError, match=f"^{sentence}$"):
            continual.learn(tasks, small(memory=memory), sets=given, **CPU)


def test_a_loss_that_is_not_finite_is_told(tasks):
    with pytest.raises(Diverged, match=r"^the loss became NaN or infinite in step \d+: lower lr or finetuning_lr$"):
        continual.learn(tasks, small(lr=1e30, iterations=9), **CPU)


BAD = [{"memory": "attic"}, {"ipc": 0}, {"distillation": -1.0}, {"temperature": 0.0}, {"iterations": 0}, {"finetuning": -1}]


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_hyper_parameters_out_of_range_are_refused(bad):
    name, value = next(iter(bad.items()))
    with pytest.raises(SpecError, match=f"^(unknown memory '{value}'|{name} must)"):
        small(**bad)


def test_a_run_knows_its_sets_and_refuses_what_makes_no_sense():
    run = LearnTasks(("svhn", "mnist"), Rehearsal(), 3, condensation=Condensation(ipc=10))
    assert [(s.dataset, s.method, s.seed, s.image_size, s.channels) for s in run.sets] == [
        ("svhn", "condense", 3, 32, 3),
        ("mnist", "condense", 3, 32, 3),
    ]
    assert LearnTasks(("svhn", "mnist"), Rehearsal("random")).sets == ()
    for given, sentence in (
        ((("mnist",), Rehearsal("random")), r"^continual learning needs at least 2 tasks, not 1 \(mnist\): name more"),
        ((("a", "b"), Rehearsal()), "^a memory filled by 'condense' needs a `condensation`$"),
        (
            (("a", "b"), Rehearsal("random"), 0, 32, 3, Condensation(ipc=10)),
            "^a memory filled by 'random' takes no `condensation`$",
        ),
        ((("a", "b"), Rehearsal(), 0, 32, 3, Condensation()), "^the memory has ipc=10: condense as many images per class$"),
    ):
        with pytest.raises(SpecError, match=sentence):
            LearnTasks(*given)


def test_keys_follow_what_matters():
    run = LearnTasks(("a", "b"), Rehearsal("random"))
    others = [
        LearnTasks(("b", "a"), Rehearsal("random")),
        LearnTasks(("a", "b"), Rehearsal("herding")),
        dataclasses.replace(run, seed=1),
        LearnTasks(("a", "b"), Rehearsal("random", distillation=0.0)),
    ]
    assert len({r.key for r in (run, *others)}) == 5
    assert key(Rehearsal()) == key(Rehearsal(lr=0.01)) != key(Rehearsal(lr=0.02))
