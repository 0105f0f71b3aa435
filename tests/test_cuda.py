"""On a GPU, the last where there are several: what is captured there is what the literal loop and the CPU compute."""

import dataclasses

import pytest
import torch
from helpers import assert_close

from dclib.core import condense, networks, reference, train
from dclib.core.stacked import train_together
from dclib.data.dataset import generator
from dclib.methods import continual, distill, full_training, nas
from dclib.spec import MLP, Condensation, ConvNet, Training, WholeTraining
from dclib.spec.applications import Rehearsal, ShortTraining
from dclib.spec.baselines import Distillation

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
LAST = f"cuda:{max(0, torch.cuda.device_count() - 1)}"
NETWORK = ConvNet(width=4, depth=2)


def test_images_are_normalised_to_the_same_bits(made):
    pixels = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    assert torch.equal(made.normalise(pixels.to(LAST)).cpu(), made.normalise(pixels))


@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of its own parts
@pytest.mark.parametrize("engine", ["captured", "eager", "compiled"])
def test_condensation_is_the_literal_algorithm(made, engine):
    hyper = Condensation(2, NETWORK, outer_steps=3, inner_steps=2, network_epochs=2, real_batch=4, precision="float64").resolve()
    found = condense.condense(made, hyper, seed=0, device=LAST, engine=engine)
    assert found.images.device == torch.device(LAST)
    torch.testing.assert_close(found.images.cpu(), reference.condense(made, hyper), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("engine", ["captured", "eager"])
@pytest.mark.parametrize(
    "changes",
    [
        dict(network=ConvNet(width=4, depth=2, norm="batch")),
        dict(network=ConvNet(width=4, depth=2, norm="batch"), bn="true"),
        dict(batches="mixed"),
        dict(distance="euclidean", init="real"),
        dict(distance="cosine"),
    ],
    ids=str,
)
def test_what_the_literal_algorithm_lacks_is_as_on_the_cpu(made, changes, engine):
    hyper = Condensation(2, **{"network": NETWORK, **changes}, outer_steps=2, inner_steps=2, real_batch=4, precision="float64")
    there = condense.condense(made, hyper.resolve(), device=LAST, engine=engine)
    here = condense.condense(made, hyper.resolve(), device="cpu", engine="eager")
    torch.testing.assert_close(there.images.cpu(), here.images, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
@pytest.mark.parametrize("engine", ["captured", "eager"])
def test_lower_precision_is_near(made, precision, engine):
    hyper = Condensation(2, NETWORK, outer_steps=2, inner_steps=2, network_epochs=1, real_batch=4, precision=precision).resolve()
    there = condense.condense(made, hyper, device=LAST, engine=engine)
    here = condense.condense(made, dataclasses.replace(hyper, precision="float32"), device="cpu", engine="eager")
    assert there.losses == pytest.approx(here.losses, rel=0.1)


@pytest.mark.parametrize("network", [NETWORK, ConvNet(width=4, depth=2, norm="batch")], ids=str)
def test_captured_training_moves_each_weight_as_alone(made, network):
    """Two sizes of batch, a change of rate, and nothing left of the warming up."""
    hyper, seeds = Training(network, epochs=4, batch=14, lr=0.1).resolve(), [3, 1]
    x, y = made.normalise(made.x_train).double(), made.y_train

    def drawn(device):
        built = [networks.build(network, **made.shape, seed=generator(s, "weights").initial_seed()) for s in seeds]
        return [one.double().to(device) for one in built]

    many = [t.expand(2, *t.shape).to(LAST) for t in (x, y)]
    stack = train_together(drawn(LAST), *many, hyper, train.schedule(hyper), seeds=seeds, capture=True)
    for j, (seed, alone) in enumerate(zip(seeds, drawn("cpu"), strict=True)):
        train.train(alone, x, y, hyper, seed=seed)
        for name, value in alone.state_dict().items():
            torch.testing.assert_close(stack.unstack(j)[name].cpu(), value, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("augment", ["none", "crop+scale+rotate"])
def test_networks_trained_together_are_those_trained_alone(made, augment):
    hyper = Training(NETWORK, epochs=4, augment=augment, precision="float64")
    x = made.normalise(made.x_train)
    alone = train.evaluate(x, made.y_train, made, hyper, seeds=[3, 1, 4], device="cpu", engine="eager")
    for engine in ("captured", "eager"):
        assert train.evaluate(x, made.y_train, made, hyper, seeds=[3, 1, 4], device=LAST, engine=engine) == alone


@pytest.mark.parametrize("engine", ["auto", "eager"])
def test_candidates_are_those_of_the_cpu(made, engine):
    x, how = made.normalise(made.x_train), dict(seeds=[5, 6])
    found = nas.evaluate(NETWORK, x, made.y_train, [made], ShortTraining(steps=4, batch=9), device=LAST, engine=engine, **how)
    assert found == nas.evaluate(NETWORK, x, made.y_train, [made], ShortTraining(steps=4, batch=9), device="cpu", **how)


@pytest.mark.parametrize("memory", ["random", "herding"])
def test_tasks_are_learnt_as_on_the_cpu(made, memory):
    tasks = [made, dataclasses.replace(made, name="other", x_train=255 - made.x_train)]
    hyper = Rehearsal(memory=memory, ipc=2, network=NETWORK, iterations=3, finetuning=2, batch=8, test_images=10)
    there, here = (continual.learn(tasks, hyper, device=device) for device in (LAST, "cpu"))
    torch.testing.assert_close(torch.tensor(there.losses), torch.tensor(here.losses), rtol=1e-3, atol=1e-4)


def test_the_whole_set_is_learnt_as_on_the_cpu(made):
    run = WholeTraining(made.name, NETWORK.resolve("train"), epochs=2, batch=8)
    there, here = (full_training.train(made, run, device=device) for device in (LAST, "cpu"))
    assert_close(there.network.cpu(), here.network, 1e-3, 1e-4)


@pytest.mark.parametrize("mode", ["unrolled", "reverse"])
def test_a_set_is_distilled_as_on_the_cpu(made, mode):
    hyper = Distillation(ipc=2, network=MLP(width=8).resolve("train"), steps=2, batch=10, epochs=1, mode=mode, precision="float64")
    there, here = distill.Distiller(made.to(torch.device(LAST)), hyper, 0), distill.Distiller(made, hyper, 0)
    for k in range(2):
        there.k = here.k = k
        assert there.step() == pytest.approx(here.step(), rel=1e-9)
    torch.testing.assert_close(there.images.cpu(), here.images, rtol=1e-8, atol=1e-8)
