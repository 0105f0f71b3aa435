"""Networks trained side by side are those trained alone, step for step; on a CPU, through the code that a GPU captures."""

import pytest
import torch

from dclib.core import networks, train
from dclib.core.augment import augment, augment_each
from dclib.core.stacked import Stack, train_together
from dclib.data.dataset import generator
from dclib.spec import MLP, ConvNet, Training

SHAPE = dict(channels=1, classes=3, size=(8, 8))
ALL = ("crop", "scale", "rotate", "noise", "flip")
CASES = [
    Training(ConvNet(width=4, depth=2), epochs=6),
    Training(ConvNet(width=4, depth=2, norm="batch"), epochs=4, augment="crop+noise", lr=0.1),
    Training(ConvNet(width=4, depth=1, norm="layer"), epochs=3, batch=7, weight_decay=0.1, momentum=0.5),
    Training(MLP(width=8), epochs=3, augment="crop+scale+rotate", batch=7),
]


def drawn(hyper, seeds):
    return [networks.build(hyper.network, **SHAPE, seed=generator(s, "weights").initial_seed()).double() for s in seeds]


def three_sets(made, dtype=torch.float64):
    x, y = made.normalise(made.x_train).to(dtype), made.y_train
    return [(x[i::2][:9], y[i::2][:9]) for i in range(3)]


@pytest.mark.parametrize("hyper", CASES, ids=lambda hyper: f"{hyper.network}-{hyper.augment}")
def test_together_on_different_sets_as_alone(made, hyper):
    """As in optimal random selection: a set for each network."""
    hyper, seeds, small = hyper.resolve(), [3, 1, 4], three_sets(made)
    images, labels = (torch.stack(tensors) for tensors in zip(*small, strict=True))
    stack = train_together(drawn(hyper, seeds), images, labels, hyper, train.schedule(hyper), seeds=seeds)
    for j, (seed, (x, y), alone) in enumerate(zip(seeds, small, drawn(hyper, seeds), strict=True)):
        train.train(alone, x, y, hyper, seed=seed)
        for name, value in alone.state_dict().items():
            torch.testing.assert_close(stack.unstack(j)[name], value, rtol=1e-8, atol=1e-10)


def test_evaluate_gives_each_network_its_own_set(made, monkeypatch):
    """The accuracies of a set and a seed alone, in order, one by one as well as in groups that do not divide their number."""
    monkeypatch.setattr(train, "TOGETHER", 2)
    monkeypatch.setattr(train.engines, "choose", lambda engine, *rest: engine)
    hyper, seeds, small, seen = Training(ConvNet(width=4, depth=1), epochs=2, lr=0.1, precision="float64"), [5, 6, 7], [], []
    small = three_sets(made, torch.float32)
    more = dict(device="cpu", engine="eager")
    alone = [train.evaluate(*one, made, hyper, seeds=[s], **more)[0] for one, s in zip(small, seeds, strict=True)]
    for engine in ("captured", "eager"):
        more = dict(seeds=seeds, device="cpu", engine=engine, on_network=lambda *told: seen.append(told[:2]))
        assert train.evaluate(*map(torch.stack, zip(*small, strict=True)), made, hyper, **more) == alone
    assert seen == 2 * list(zip(seeds, alone, strict=True))
    assert train.evaluate(*map(torch.stack, zip(*small[::-1], strict=True)), made, hyper, **more) != alone


def test_bfloat16_stays_close(made):
    hyper = Training(ConvNet(width=8, depth=1), precision="bfloat16").resolve()
    networks_, x = [n.float() for n in drawn(hyper, [0, 1])], made.normalise(made.x_train[:4]).expand(2, 4, 1, 8, 8)
    exact, rough = Stack(networks_)(x), Stack(networks_, "bfloat16")(x)
    assert rough.dtype == torch.float32
    assert not torch.equal(exact, rough)
    torch.testing.assert_close(rough, exact, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("operations", [("crop",), ("noise",), ALL])
def test_batches_are_augmented_as_each_alone(made, operations):
    x = made.normalise(made.x_train)
    batches = torch.stack([x, x.flip(0), x * 2])
    together = augment_each(batches, operations, [generator(s, "augment") for s in range(3)])
    for s, batch in enumerate(batches):
        torch.testing.assert_close(together[s], augment(batch, operations, generator(s, "augment")), rtol=1e-5, atol=1e-6)
    assert augment_each(batches, (), []) is batches
