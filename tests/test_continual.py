"""Continual learning: losses and the balanced set by hand, what the memory holds, what no step may see, and going on."""

import dataclasses
import math
from itertools import accumulate

import pytest
import torch

from dclib.core import condense
from dclib.core.train import accuracy
from dclib.data.dataset import generator
from dclib.errors import DataError, Diverged, FileError, Interrupted, SpecError
from dclib.methods import continual
from dclib.methods.continual import Continual, Phase, distillation, few_tests, phases
from dclib.spec import Condensation, ConvNet, key
from dclib.spec.applications import LearnTasks, Rehearsal

CPU = {"device": "cpu"}
NETWORK = ConvNet(width=4, depth=1)
MEMORIES = ("random", "herding", "condense")


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


def learnt(work, steps=None):
    """The work after so many steps, by default all."""
    while work.k < (work.steps if steps is None else steps):
        work.losses.append(work.step())
        work.k += 1
    return work


def same(one, other):
    theirs = other.tensors()
    alike = (torch.equal(t.nan_to_num(-1), theirs[n].nan_to_num(-1)) for n, t in one.tensors().items())
    return all(alike) and one.losses == other.losses


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


@pytest.mark.parametrize(("step", "rate"), [(0, 0.05), (6, 0.3)])
def test_the_first_step_of_a_phase_is_sgds_at_rest_and_at_its_own_rate(tasks, step, rate):
    """Of the first task, and of the first balanced fine-tuning."""
    work = learnt(Continual(tasks, small(weight_decay=0.1, lr=0.05, finetuning_lr=0.3, distillation=0.0), 0), step)
    x, y = work.batch(*work.place(step))
    gradients = torch.autograd.grad(torch.nn.functional.cross_entropy(work.network(x), y), work.parameters)
    wanted = [p.detach() - rate * (g + 0.1 * p.detach()) for p, g in zip(work.parameters, gradients, strict=True)]
    learnt(work, step + 1)
    torch.testing.assert_close([p.detach() for p in work.parameters], wanted, rtol=1e-5, atol=1e-7)


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


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_phase_sees_its_task_and_the_memory_or_the_memory_alone(tasks, sets, memory):
    """And the memory has as many images of each class of each task, of the right labels."""
    hyper = small(memory=memory, batch=100)  # so that a batch is everything
    work = Continual(tasks, hyper, 0, sets if memory == "condense" else None)
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
def test_the_memory_grows_by_a_tasks_share_when_it_is_learnt(tasks, sets, memory):
    work, filled = Continual(tasks, small(memory=memory), 0, sets if memory == "condense" else None), []
    for k in range(work.steps):
        learnt(work, k + 1)
        filled.append(sum(bool(images.any()) for images in work.memory))
    assert work.memory.shape == (3, 6, 3, 8, 8)
    assert filled == [0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3]
    assert memory != "condense" or torch.equal(work.memory.view(3, 3, 2, 3, 8, 8), torch.stack(sets))


def test_a_random_memory_holds_the_images_that_condensing_starts_from(tasks):
    """So that the two differ by the condensing alone."""
    start = Condensation(ipc=2, network=NETWORK, init="real").resolve()
    work = learnt(Continual(tasks, small(), 5))
    for j, task in enumerate(tasks):
        assert torch.equal(work.memory[j], condense.initial_images(task, start, 5, torch.float32).flatten(0, 1))


def test_herding_looks_at_the_network_that_has_just_learnt_the_task(tasks):
    work = learnt(Continual(tasks, small(memory="herding"), 0), 3)
    ones = tasks[0].normalise(tasks[0].x_train[tasks[0].y_train == 1])
    features = work.network.features(ones).detach().double()
    torch.testing.assert_close(work.memory[0][2], ones[(features - features.mean(0)).norm(dim=1).argmin()])


# --- test images


def strangers(work, tasks):
    """How many of the images that any step saw are test images of any task."""
    tests = set().union(*(rows(task.normalise(task.x_test)) for task in tasks))
    return len(tests & set().union(*(rows(x) for x, _ in seen_by(work).values())))


@pytest.mark.parametrize("memory", ["random", "herding"])
def test_no_step_sees_a_test_image_and_one_that_did_would_be_found(tasks, memory):
    leaky = dataclasses.replace(tasks[1], x_train=tasks[1].x_train.clone())
    leaky.x_train[3] = leaky.x_test[3]
    for given, expected in ((tasks, 0), ([tasks[0], leaky, tasks[2]], 1)):
        assert strangers(Continual(given, small(memory=memory, iterations=12), 0), given) == expected


def test_each_stage_is_tested_on_what_is_learnt_so_far(tasks):
    work = learnt(Continual(tasks, small(), 0))
    assert work.found.isnan().tolist() == [[False, True, True], [False, False, True], [False, False, False]]
    assert [accuracy(work.network, few_tests(t, 5, generator(0, "test", j))) for j, t in enumerate(tasks)] == work.found[2].tolist()


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


STOPS = [(0, "random"), (2, "random"), (3, "herding"), (5, "condense"), (7, "random"), (12, "herding")]


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
@pytest.mark.parametrize("memory", MEMORIES)
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
    with pytest.raises(FileError, match=r"belongs to another run \(its run differ\)"):
        continual.learn(tasks, small(lr=0.02), first=tmp_path / "f", **CPU)


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
    with pytest.raises(Diverged, match=r"^the loss became NaN or infinite in step \d+: lower lr or finetuning_lr$"):
        continual.learn(tasks, small(lr=1e30, iterations=9), **CPU)


def test_sets_that_do_not_fit_the_memory_are_refused(tasks, sets):
    for given, memory, sentence in (
        (None, "condense", "a memory filled by 'condense' needs the condensed sets"),
        (sets, "random", "a memory filled by 'random' takes no condensed sets"),
        (sets[:2], "condense", "the memory needs 3 sets of 2 images per class in the tasks' shape"),
        ([images[:, :1] for images in sets], "condense", "the memory needs 3 sets of 2 images per class in the tasks' shape"),
    ):
        with pytest.raises(SpecError, match=f"^{sentence}$"):
            continual.learn(tasks, small(memory=memory), sets=given, **CPU)


BAD = [{"memory": "attic"}, {"ipc": 0}, {"distillation": -1.0}, {"temperature": 0.0}, {"iterations": 0}, {"finetuning": -1}]


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_hyper_parameters_out_of_range_are_refused(bad):
    with pytest.raises(SpecError, match=next(iter(bad))):
        small(**bad)


def test_a_run_knows_its_sets_and_refuses_what_makes_no_sense():
    run = LearnTasks(("svhn", "mnist"), Rehearsal(), 3, condensation=Condensation(ipc=10))
    made = [(s.dataset, s.method, s.seed, s.image_size, s.channels) for s in run.sets]
    assert made == [("svhn", "condense", 3, 32, 3), ("mnist", "condense", 3, 32, 3)]
    assert LearnTasks(("svhn", "mnist"), Rehearsal("random")).sets == ()
    for memory, condensation, sentence in (
        ("condense", None, "^a memory filled by 'condense' needs a `condensation`$"),
        ("random", Condensation(ipc=10), "^a memory filled by 'random' takes no `condensation`$"),
        ("condense", Condensation(), "^the memory has ipc=10: condense as many images per class$"),
    ):
        with pytest.raises(SpecError, match=sentence):
            LearnTasks(("a", "b"), Rehearsal(memory), condensation=condensation)
    with pytest.raises(SpecError, match=r"^continual learning needs at least 2 tasks, not 1 \(mnist\): name more"):
        LearnTasks(("mnist",), Rehearsal("random"))


def test_keys_follow_what_matters():
    run = LearnTasks(("a", "b"), Rehearsal("random"))
    hypers = [{"hyper": Rehearsal("herding")}, {"hyper": Rehearsal("random", distillation=0.0)}]
    changed = [dataclasses.replace(run, **change) for change in ({"tasks": ("b", "a")}, {"seed": 1}, *hypers)]
    assert len({run.key, *(other.key for other in changed)}) == 5
    assert key(Rehearsal()) == key(Rehearsal(lr=0.01)) != key(Rehearsal(lr=0.02))
