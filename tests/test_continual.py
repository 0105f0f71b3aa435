"""Continual learning: losses and the balanced set by hand, what the memory holds, what no step may see, and shared first tasks."""

import dataclasses
import math
from itertools import accumulate

import pytest
import torch
from helpers import refused, same, stop_after

from dclib.core import condense
from dclib.core.train import accuracy
from dclib.data.dataset import generator
from dclib.errors import DataError, Diverged, FileError, Interrupted, SpecError
from dclib.methods import continual
from dclib.methods.continual import Continual, Phase, distillation, few_tests, phases
from dclib.spec import Condensation, ConvNet
from dclib.spec.applications import MEMORIES, LearnTasks, Rehearsal

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
        parts = {"x_train": whole.x_train[~held], "y_train": whole.y_train[~held]}
        parts |= {"x_test": whole.x_train[held], "y_test": whole.y_train[held]}
        made.append(dataclasses.replace(whole, name=name, mean=(0.4 + j / 10,) * 3, **parts))
    return made


@pytest.fixture(scope="module")
def sets(tasks):
    """Condensed sets: noise."""
    draw = generator(0, "sets")
    return [torch.randn(3, 2, 3, 8, 8, generator=draw) for _ in tasks]


@pytest.fixture
def begin(tasks, sets):
    """Return a function that sets up the work of three tasks."""

    def begin(tasks=tasks, seed=0, **changes):
        hyper = small(**changes)
        return Continual(tasks, hyper, seed, sets if hyper.memory == "condense" else None)

    return begin


def learnt(work, steps=None):
    """The work after so many steps, by default all."""
    while work.k < (work.steps if steps is None else steps):
        work.losses.append(work.step())
        work.k += 1
    return work


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


@pytest.mark.parametrize("weight", [0.0, 0.25])
def test_the_loss_adds_distillation_from_the_second_task_on(begin, weight):
    work = learnt(begin(distillation=weight), 4)  # one step into the second task
    x, y = work.batch(Phase(1, False, 3), 1)
    logits, before = work.network(x), work.before(x).detach()
    assert not torch.equal(logits, before)
    plain = -logits.log_softmax(1)[torch.arange(len(y)), y].mean()
    held = -((before / 2).softmax(1) * (logits / 2).log_softmax(1)).sum(1).mean()
    assert work.loss(Phase(0, False, 3), x, y).item() == pytest.approx(plain.item(), rel=1e-5)
    for phase in (Phase(1, False, 3), Phase(1, True, 2), Phase(2, False, 3)):
        assert work.loss(phase, x, y).item() == pytest.approx((plain + weight * held).item(), rel=1e-5)


def test_the_old_network_is_that_before_the_phase(begin):
    """Before balanced fine-tuning, too, where it knows the new task as well."""
    work = begin()
    for end in accumulate(phase.steps for phase in work.plan):
        before = {n: t.clone() for n, t in work.network.state_dict().items()}
        learnt(work, end)
        assert all(torch.equal(t, before[n]) for n, t in work.before.state_dict().items())
        assert any(not torch.equal(t, before[n]) for n, t in work.network.state_dict().items())


@pytest.mark.parametrize(("step", "rate"), [(0, 0.05), (6, 0.3)])
def test_the_first_step_of_a_phase_is_sgds_at_rest_and_at_its_own_rate(begin, step, rate):
    """Of the first task, and of the first balanced fine-tuning."""
    work = learnt(begin(weight_decay=0.1, lr=0.05, finetuning_lr=0.3, distillation=0.0), step)
    x, y = work.batch(*work.place(step))
    gradients = torch.autograd.grad(torch.nn.functional.cross_entropy(work.network(x), y), work.parameters)
    wanted = [p.detach() - rate * (g + 0.1 * p.detach()) for p, g in zip(work.parameters, gradients, strict=True)]
    learnt(work, step + 1)
    torch.testing.assert_close([p.detach() for p in work.parameters], wanted, rtol=1e-5, atol=1e-7)


# --- the memory, and what a step sees


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


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_phase_sees_its_task_and_the_memory_or_the_memory_alone(tasks, begin, memory):
    """And the memory has as many images of each class of each task, of the right labels."""
    work = begin(memory=memory, batch=100)  # so that a batch is everything
    for phase, (x, y) in seen_by(work).items():
        kept = work.memory[: phase.task + phase.balanced].flatten(0, 1)
        task = tasks[phase.task]
        new = [] if phase.balanced else task.normalise(task.x_train)
        counts = [0] * 3 if phase.balanced else task.y_train.bincount().tolist()
        held = 2 * (phase.task + phase.balanced)
        assert rows(x) == rows([*new, *kept])
        assert y[: len(new) + len(kept)].bincount().tolist() == [n + held for n in counts]
        for image, label in zip(kept, work.labels.repeat(3), strict=False):
            assert set(y[(x == image).all((1, 2, 3))].tolist()) == {int(label)}


@pytest.mark.parametrize("memory", MEMORIES)
def test_the_memory_grows_by_a_tasks_share_when_it_is_learnt(tasks, sets, begin, memory):
    """Random images are those that condensing starts from; herding looks at the network that has just learnt the task."""
    work, filled = begin(memory=memory, seed=5), []
    for k in range(work.steps):
        learnt(work, k + 1)
        filled.append(sum(bool(images.any()) for images in work.memory))
        if memory == "herding" and k == 2:
            ones = tasks[0].normalise(tasks[0].x_train[tasks[0].y_train == 1])
            features = work.network.features(ones).detach().double()
            torch.testing.assert_close(work.memory[0][2], ones[(features - features.mean(0)).norm(dim=1).argmin()])
    assert work.memory.shape == (3, 6, 3, 8, 8)
    assert filled == [0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3]
    start = Condensation(ipc=2, network=NETWORK, init="real").resolve()
    drawn = [condense.initial_images(task, start, 5, torch.float32) for task in tasks]
    expected = {"condense": sets, "random": drawn}.get(memory)
    assert expected is None or torch.equal(work.memory, torch.stack(expected).flatten(1, 2))


@pytest.mark.parametrize("memory", ["random", "herding"])
def test_no_step_sees_a_test_image_and_one_that_did_would_be_found(tasks, begin, memory):
    leaky = dataclasses.replace(tasks[1], x_train=tasks[1].x_train.clone())
    leaky.x_train[3] = leaky.x_test[3]
    for given, expected in ((tasks, 0), ([tasks[0], leaky, tasks[2]], 1)):
        seen = set().union(*(rows(x) for x, _ in seen_by(begin(given, memory=memory, iterations=12)).values()))
        assert len(seen & set().union(*(rows(task.normalise(task.x_test)) for task in given))) == expected


def test_each_stage_is_tested_on_what_is_learnt_so_far(tasks, begin):
    work = learnt(begin())
    assert work.found.isnan().tolist() == [[False, True, True], [False, False, True], [False, False, False]]
    assert [accuracy(work.network, few_tests(t, 5, generator(0, "test", j))) for j, t in enumerate(tasks)] == work.found[2].tolist()


# --- a first task that memories share


@pytest.mark.parametrize("held", [0.0, 1.0])
@pytest.mark.parametrize("memory", MEMORIES)
def test_from_another_memorys_first_task_it_ends_as_from_its_own(tasks, sets, tmp_path, memory, held):
    hyper, given = small(memory=memory, distillation=held), dict(sets=sets if memory == "condense" else None, **CPU)
    other, resumed = small(memory="random" if memory == "herding" else "herding"), []
    with pytest.raises(Interrupted, match="stopped after 2 of 3 steps"):
        continual.learn(tasks, other, first=tmp_path / "f", should_stop=stop_after(2), **CPU)
    assert same(continual.learn(tasks, other, first=tmp_path / "f", **CPU), continual.learn(tasks, other, **CPU))
    on = continual.learn(tasks, hyper, first=tmp_path / "f", on_resume=lambda work: resumed.append(work.k), **given)
    assert resumed == [3]
    assert same(on, continual.learn(tasks, hyper, **given))
    with pytest.raises(FileError, match="belongs to another run"):
        continual.learn(tasks, small(lr=0.02), first=tmp_path / "f", **CPU)


def test_a_checkpoint_with_other_sets_is_refused(tasks, sets, tmp_path):
    given = dict(checkpoint=tmp_path / "c", **CPU)
    with pytest.raises(Interrupted):
        continual.learn(tasks, small(memory="condense"), sets=sets, should_stop=lambda: True, **given)
    with pytest.raises(FileError, match="its sets differ"):
        continual.learn(tasks, small(memory="condense"), sets=sets[::-1], **given)


# --- what is refused


def test_tasks_that_do_not_go_together_are_refused(tasks, make_dataset):
    one, two = tasks[:2]
    cases = [
        ([one], "at least 2 tasks, not 1"),
        ([one, make_dataset(4, 4, channels=3)], "one has 3 classes and made has 2"),
        ([one, make_dataset(4, 4, 4)], "3x8x8 of one and 1x8x8 of made"),
        ([one, make_dataset(4, 1, 4, channels=3)], "class 'b' of made has 1 images, fewer than the 2"),
        ([one, make_dataset(2, 2, 2, channels=3)], "test_images=5"),
        ([one, two, one], "tasks must differ"),
    ]
    for given, part in cases:
        refused(part, call=continual.learn, error=DataError, tasks=given, hyper=small(), **CPU)
    refused("lower lr", call=continual.learn, error=Diverged, tasks=tasks, hyper=small(lr=1e30, iterations=9), **CPU)


def test_sets_that_do_not_fit_the_memory_are_refused(tasks, sets):
    for given, memory, part in (
        (None, "condense", "needs the condensed sets"),
        (sets, "random", "takes no condensed sets"),
        (sets[:2], "condense", "needs 3 sets of 2 images"),
        ([images[:, :1] for images in sets], "condense", "needs 3 sets of 2 images"),
    ):
        refused(part, call=continual.learn, error=SpecError, tasks=tasks, hyper=small(memory=memory), sets=given, **CPU)


def test_a_run_knows_its_sets_and_refuses_what_makes_no_sense():
    run = LearnTasks(("svhn", "mnist"), Rehearsal(), 3, condensation=Condensation(ipc=10))
    made = [(s.dataset, s.method, s.seed, s.image_size, s.channels) for s in run.sets]
    assert made == [("svhn", "condense", 3, 32, 3), ("mnist", "condense", 3, 32, 3)]
    plain = LearnTasks(("svhn", "mnist"), Rehearsal("random"))
    assert plain.sets == ()
    changes = {"tasks": ("mnist", "svhn")}, {"seed": 1}, {"hyper": Rehearsal("herding")}
    assert len({plain.key, *(dataclasses.replace(plain, **change).key for change in changes)}) == 4
    for tasks, memory, condensation, part in (
        (("a", "b"), "condense", None, "needs a `condensation`"),
        (("a", "b"), "random", Condensation(ipc=10), "takes no `condensation`"),
        (("a", "b"), "condense", Condensation(), "ipc=10"),
        (("a", "a"), "random", None, "tasks must differ"),
        (("mnist",), "random", None, "at least 2 tasks"),
    ):
        refused(part, call=LearnTasks, error=SpecError, tasks=tasks, hyper=Rehearsal(memory), condensation=condensation)
