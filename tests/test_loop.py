"""Whatever learns in steps: stopped or killed anywhere, it continues to the same bits; a checkpoint of another run is refused."""

import dataclasses

import pytest
import torch
from helpers import same, stop_after

from dclib.core import condense
from dclib.core import resume as loop
from dclib.errors import FileError, Interrupted
from dclib.methods import continual, distill, full_training, gan
from dclib.spec import MLP, Condensation, ConvNet, WholeTraining
from dclib.spec.applications import Rehearsal
from dclib.spec.baselines import Distillation, GanTraining

THIN = ConvNet(width=4, depth=1)
IDENTITY = {"run": "r", "data": "d", "seed": 0}


def condensing(dataset, hyper, **how):
    return condense.condense(dataset, hyper, engine="eager", **how)


def training(dataset, hyper, seed=0, **how):
    return full_training.train(dataset, dataclasses.replace(hyper, seed=seed), engine="eager", **how)


def drawing(dataset, hyper, **how):
    """A GAN that is asked for images on the way."""
    return gan.train(dataset, hyper, on_step=lambda g: gan.sample(g.generator, dataset, 1), **how)


def rehearsing(dataset, hyper, **how):
    """The images, then their negatives; a condensed memory is noise."""
    x_train, x_test = 255 - dataset.x_train, 255 - dataset.x_test
    tasks = [dataset, dataclasses.replace(dataset, name="other", x_train=x_train, x_test=x_test)]
    noise = torch.randn(2, 3, 2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return continual.learn(tasks, hyper, sets=list(noise) if hyper.memory == "condense" else None, **how)


CONDENSATION = Condensation(network=THIN, outer_steps=4, real_batch=4)
DISTILLATION = Distillation(network=MLP(width=6), ipc=2, steps=2, passes=2, epochs=2, batch=10, rate=0.1, crops=True)
GAN = GanTraining(steps=4, batch=6, generator_width=4, discriminator_width=3, latent=16)
WHOLE = WholeTraining("made", THIN, epochs=2, batch=8, lr=0.1)
REHEARSAL = Rehearsal("random", ipc=2, network=THIN, iterations=2, finetuning=2, batch=8, test_images=5)
WORKS = {
    "condensation": (condensing, CONDENSATION, {"image_lr": 0.2}),
    "distillation": (distill.distill, DISTILLATION, {"steps": 1}),
    "distillation in reverse": (distill.distill, dataclasses.replace(DISTILLATION, mode="reverse"), {"mode": "unrolled"}),
    "GAN": (drawing, GAN, {"latent": 17}),
    "full training": (training, WHOLE, {"lr": 0.2}),
    "full training, augmented": (training, dataclasses.replace(WHOLE, augment="crop+scale+rotate"), {"augment": "crop"}),
    "a random memory": (rehearsing, REHEARSAL, {"memory": "herding"}),
    "a herded memory": (rehearsing, dataclasses.replace(REHEARSAL, memory="herding"), {"lr": 0.2}),
    "a condensed memory": (rehearsing, dataclasses.replace(REHEARSAL, memory="condense"), {"temperature": 1.0}),
}


ASKED = {"condensation": 8}  # how often a step asks whether to stop, where it is more than once: here for each class, too


@pytest.mark.parametrize("stops", [(0,), (1, 2)], ids=str)
@pytest.mark.parametrize("what", WORKS)
def test_stopped_anywhere_it_continues_to_the_same_bits(made, make_dataset, tmp_path, what, stops):
    learn, hyper, change = WORKS[what]
    before, resumed, kept = torch.random.get_rng_state(), [], dict(checkpoint=tmp_path / "c", device="cpu")
    whole = learn(made, hyper, device="cpu")
    for steps in stops:
        with pytest.raises(Interrupted, match="stopped after"):
            learn(made, hyper, should_stop=stop_after(steps * ASKED.get(what, 1)), **kept)
    others = {"changed": (made, dataclasses.replace(hyper, **change), 0), "seed": (made, hyper, 1)}
    others["data"] = make_dataset(5, 9, 9, seed=1), hyper, 0
    for dataset, other, seed in others.values():
        with pytest.raises(FileError, match="belongs to another run"):
            learn(dataset, other, seed=seed, **kept)
    on = learn(made, hyper, on_resume=lambda work: resumed.append(work.k), **kept)
    assert resumed == [sum(stops)]
    assert same(on, whole)
    assert not same(learn(made, hyper, seed=1, device="cpu"), whole)
    assert torch.equal(torch.random.get_rng_state(), before), "torch's own generator is left alone"


@pytest.mark.parametrize("what", ["GAN", "full training"])
def test_what_is_finished_is_read_and_not_learnt_again(made, tmp_path, what):
    learn, hyper, _ = WORKS[what]
    kept = dict(checkpoint=tmp_path / "c", device="cpu")
    assert same(learn(made, hyper, **kept), learn(made, hyper, should_stop=lambda: True, **kept))


# --- a work of two numbers


class Descent(loop.Work):
    """Adam on a parabola whose slope depends on k."""

    def __init__(self):
        super().__init__()
        self.x = torch.tensor([1.0, -2.0])
        self.optimiser = torch.optim.Adam([self.x], lr=0.1)

    def step(self):
        self.x.grad = 2 * self.x + self.k
        self.optimiser.step()
        return float(self.x.square().sum())

    def tensors(self):
        return {"x": self.x, **loop.optimiser_tensors("adam", self.optimiser)}

    def restore(self, tensors):
        self.x.copy_(tensors["x"])
        loop.restore_optimiser("adam", self.optimiser, tensors)


def run(steps=7, identity=IDENTITY, **options):
    work = Descent()
    loop.run(work, steps, identity, what="steps", **options)
    return work


class Killed(BaseException):
    pass


def test_killed_it_continues_from_the_last_checkpoint(tmp_path, monkeypatch):
    whole, told, resumed = run(checkpoint=tmp_path / "none"), [], []
    assert not list(tmp_path.iterdir()), "no checkpoint sooner than after 20 seconds"
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)

    def die(work):
        told.append(work.k)
        if work.k == 4:
            raise Killed

    with pytest.raises(Killed):
        run(checkpoint=tmp_path / "c", on_step=die)
    assert [p.name for p in tmp_path.iterdir()] == ["c"]
    on = run(checkpoint=tmp_path / "c", on_resume=lambda w: resumed.append((w.k, w.seconds)))
    assert told == [1, 2, 3, 4]
    assert resumed[0][0] == 3
    assert on.seconds > resumed[0][1] > 0, "the seconds include those of the steps before"
    assert same(on, whole)


@pytest.mark.parametrize("name", IDENTITY)
def test_what_differs_from_a_checkpoint_is_named(tmp_path, name):
    with pytest.raises(Interrupted, match=r"^stopped after 2 of 7 steps"):
        run(checkpoint=tmp_path / "c", should_stop=stop_after(2))
    with pytest.raises(FileError, match=rf"another run \(its {name} differ\)"):
        run(identity=IDENTITY | {name: "else"}, checkpoint=tmp_path / "c")


@pytest.mark.parametrize("keep", [0, 7, 200, -1, None], ids=str)
def test_a_damaged_checkpoint_is_refused(tmp_path, keep):
    """Cut short, or without one of its tensors."""
    file = tmp_path / "c"
    loop.save_tensors(file, {"x" if keep is not None else "y": torch.zeros(2)}, {"k": 1, "losses": [0.0], "seconds": 0.0}, IDENTITY)
    damaged = file.read_bytes()[:keep]
    file.write_bytes(damaged)
    with pytest.raises(FileError, match=r"the checkpoint .* is damaged"):
        run(checkpoint=file)
    assert file.read_bytes() == damaged
