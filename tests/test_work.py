"""dclib.experiments.work counts what torch counts, and what a run's hyper-parameters say."""

import dataclasses

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from dclib import experiments
from dclib.core import networks
from dclib.experiments.work import SECOND, TRAINING, about, flop, forward, gan_forward
from dclib.methods import gan
from dclib.spec import Condensation, MakeSet, Training, TrainNetworks, WholeTraining
from dclib.spec.applications import LearnTasks, Rehearsal
from dclib.spec.architectures import FAMILIES, ConvNet, Network
from dclib.spec.baselines import GanTraining

NAMES = [*FAMILIES, "ConvNet:width=32,depth=2,pooling=none", "ConvNet:depth=1,norm=none", "MLP:width=64,depth=3"]
TINY = ConvNet(width=8, depth=1)
F = forward(TINY, 1, 28, 10)


def counted(*calls):
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        for module, *inputs in calls:
            module.eval()(*inputs)
    return counter.get_total_flops()


@pytest.mark.parametrize(("stage", "channels", "size"), [("condense", 1, 28), ("train", 3, 32)])
@pytest.mark.parametrize("name", NAMES)
def test_a_forward_pass_has_the_operations_that_torch_counts(name, stage, channels, size):
    net = Network.parse(name).resolve(stage)
    model = networks.build(net, channels=channels, classes=10, size=(size, size), seed=0, stage=stage)
    assert forward(net, channels, size, 10) == counted((model, torch.zeros(1, channels, size, size)))


def test_so_do_the_gans_two_networks():
    h, y = GanTraining(generator_width=8, discriminator_width=4), torch.zeros(1, dtype=torch.int64)
    generator, discriminator = gan.Generator(h, 1, 10, (28, 28)), gan.Discriminator(h, 1, 10, (28, 28))
    calls = (generator, torch.zeros(1, h.latent), y), (discriminator, torch.zeros(1, 1, 28, 28), y)
    assert gan_forward(h, 1, 28, 10) == tuple(counted(call) for call in calls)


def test_a_condensation_counts_real_and_synthetic_images_and_the_networks_steps():
    h = Condensation(ipc=2, network=TINY, outer_steps=7, inner_steps=3, network_epochs=5, real_batch=16)
    passes = 7 * (3 * (TRAINING * 160 + SECOND * 20) + 2 * 5 * TRAINING * 20)
    assert flop(MakeSet("digits", hyper=h)) == passes * F
    few = dataclasses.replace(h, real_batch=10**6)
    assert flop(MakeSet("digits", hyper=few)) < flop(MakeSet("mnist", hyper=few))


def test_a_training_counts_its_epochs_and_the_test():
    made = MakeSet("digits", "random", hyper=Condensation(ipc=2))
    assert flop(made) == 0
    assert flop(TrainNetworks(made, Training(TINY, epochs=9))) == (10 * TRAINING * 20 + 797) * F
    whole = WholeTraining("digits", TINY, epochs=4)
    assert flop(whole) == 4 * (TRAINING * 1000 + 797) * F
    assert flop(MakeSet("digits", "herding", whole=whole)) == 1000 * F


def test_the_first_task_that_all_memories_share_is_counted_once():
    h = Rehearsal(network=TINY, iterations=100, finetuning=20, batch=8, test_images=50)
    tests, first = 50 * 3, 100 * TRAINING * 8
    counts = {}
    for memory in ("random", "herding"):
        for held in (0.0, 1.0):
            hyper = dataclasses.replace(h, memory=memory, distillation=held)
            counts[memory, held] = flop(LearnTasks(("digits", "digits+turned"), hyper, image_size=28, channels=1)) / F
    without = (100 + 20) * TRAINING * 8 + tests
    assert counts["random", 0.0] == first + without
    assert counts["herding", 0.0] == without
    assert counts["random", 1.0] == counts["herding", 1.0] == (100 + 20) * (TRAINING + 1) * 8 + tests


@pytest.mark.slow
@pytest.mark.parametrize("preset", experiments.PRESETS.values(), ids=experiments.PRESETS)
def test_every_declared_run_is_counted(preset):
    runs = {run for e in experiments.ALL.values() for cell in e.cells(preset)[::4] for run in cell.runs()[0].behind()}
    free = {about(run)["kind"] for run in runs if not flop(run)}
    assert free == {about(run)["kind"] for run in runs} & {"random", "formed", "forgetting", "gan"}
