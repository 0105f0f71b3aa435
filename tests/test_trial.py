"""A user's own network: built from Python or from a file, tried once, and refused where gradient matching cannot use it."""

import itertools
import re

import numpy as np
import pytest
import torch
from helpers import refused, stop_after
from torch import nn

from dclib.cli.main import main
from dclib.core import condense, networks, train, trial
from dclib.data.dataset import Dataset, assemble
from dclib.data.formats import Raw
from dclib.errors import Interrupted, SpecError
from dclib.results import CondensedSet
from dclib.spec import Condensation, MakeSet, Network, Training, full
from dclib.spec.architectures import OwnNetwork

SHAPE = dict(channels=1, classes=3, size=(8, 8))


def net(*layers, channels, classes, size, width=4):
    """Two convolutions with these layers between them."""
    first, last = nn.Conv2d(channels, width, 3, padding=1), nn.Conv2d(width, 2, 3, padding=1)
    return nn.Sequential(first, *layers, last, nn.Flatten(), nn.Linear(2 * size[0] * size[1], classes))


def with_layers(*layers):
    """A factory of such networks; layers are made anew each time."""
    return OwnNetwork.of(lambda **shape: net(*(layer() for layer in layers), **shape), "mine")


def data_of(channels, classes, size, pixels=None):
    """A data set of random pixels, or of those given."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(256, (2 * classes, channels, *size), dtype=torch.uint8, generator=draw) if pixels is None else pixels
    y = torch.arange(classes).repeat_interleave(2)
    return Dataset("made", x, y, x, y, (0.5,) * channels, (0.3,) * channels, tuple(map(str, range(classes))))


class Residual(nn.Module):
    def __init__(self, channels, classes, size):
        super().__init__()
        self.first, self.head = nn.Conv2d(channels, 4, 3, padding=1), nn.Linear(4 * size[0] * size[1], classes)
        self.second = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        x = self.first(x)
        y = self.second(torch.relu(x))
        y += x
        return self.head(y.flatten(1))


FIT = {
    "batch norm": with_layers(lambda: nn.BatchNorm2d(4), nn.ReLU),
    "in place": with_layers(lambda: nn.ReLU(inplace=True)),
    "group norm": with_layers(lambda: nn.GroupNorm(2, 4), nn.SiLU),
    "our layer norm": with_layers(lambda: networks.LayerNorm((4, 8, 8))),
    "a dropout of nothing": with_layers(lambda: nn.Dropout(0.0)),
    "residual, in place": OwnNetwork.of(Residual),
}


@pytest.mark.parametrize("what", FIT)
def test_it_condenses_and_resumes_to_the_same_images(what, made, tmp_path):
    hyper = Condensation(ipc=2, network=FIT[what], outer_steps=3, inner_steps=2, network_epochs=1, real_batch=4)
    how = dict(device="cpu", engine="eager")
    whole = condense.condense(made, hyper, **how).images
    with pytest.raises(Interrupted):
        condense.condense(made, hyper, checkpoint=tmp_path / "state", should_stop=stop_after(3), **how)
    assert torch.equal(whole, condense.condense(made, hyper, checkpoint=tmp_path / "state", **how).images)
    labels = torch.arange(3).repeat_interleave(2)
    hyper = Training(network=FIT[what], epochs=2)
    (accuracy,) = train.evaluate(whole.flatten(0, 1), labels, made, hyper, seeds=[0], **how)
    assert 0 <= accuracy <= 100


class Viewing(nn.Module):
    """Flattens as the authors' own networks do, which takes memory in the usual order."""

    def __init__(self, channels, classes, size):
        super().__init__()
        self.conv, self.head = nn.Conv2d(channels, 4, 3, padding=1), nn.Linear(4 * size[0] * size[1], classes)

    def forward(self, x):
        x = torch.relu(self.conv(x))
        return self.head(x.view(x.shape[0], -1))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("augment", ["none", "crop+scale+rotate+noise+flip"])
def test_a_network_that_views_its_images_is_condensed_with_and_trained(channels, augment):
    """On arrays as files have them, channels last."""
    x, y = np.random.default_rng(0).integers(0, 256, (30, 28, 28, channels), np.uint8), np.arange(30) % 3
    dataset, viewing = assemble("made", Raw(x, y, x, y, where="here"), 0, 0, None), OwnNetwork.of(Viewing)
    assert {x.stride() for x in (dataset.x_train, dataset.x_test)} == {(channels * 784, 784, 28, 1)}
    hyper = Condensation(ipc=2, network=viewing, outer_steps=2, inner_steps=2, network_epochs=1, real_batch=4, init="real")
    images = condense.condense(dataset, hyper, device="cpu", engine="eager").images.flatten(0, 1)
    labels, training = torch.arange(3).repeat_interleave(2), Training(network=viewing, epochs=2, augment=augment)
    (accuracy,) = train.evaluate(images, labels, dataset, training, seeds=[0], device="cpu", engine="eager")
    assert 0 <= accuracy <= 100


@pytest.mark.filterwarnings("ignore:.*bfloat16")
def test_in_bfloat16_it_is_tried_as_it_computes_there():
    viewing, dataset = OwnNetwork.of(Viewing), data_of(**SHAPE | {"channels": 3})
    trial.check(viewing, dataset)
    with pytest.raises(SpecError, match=r"Viewing .* bfloat16.* view"):
        trial.check(viewing, dataset, "bfloat16")


def test_it_is_tried_on_images_of_the_data_set():
    """What fails on real images alone fails before the run, not in the middle of it."""

    class Fussy(Residual):
        def forward(self, x):
            if self.training and len(torch.unique(x)) == 2:  # as no noise is
                raise ValueError("two colours")
            return super().forward(x)

    black_and_white = torch.randint(2, (6, 1, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8) * 255
    trial.check(OwnNetwork.of(Fussy), data_of(**SHAPE))
    given = dict(network=OwnNetwork.of(Fussy), dataset=data_of(**SHAPE, pixels=black_and_white))
    refused("Fussy", "ValueError: two colours", call=trial.check, error=SpecError, **given)


def counted():
    drawn = itertools.count()

    def make(**shape):
        made = net(**shape)
        nn.init.constant_(made[0].weight, float(next(drawn)))
        return made

    return make


def frozen(**shape):
    made = net(**shape)
    made[0].weight.requires_grad_(False)
    return made


class Idle(Residual):
    def __init__(self, **shape):
        super().__init__(**shape)
        self.unused = nn.Linear(2, 2)


class Once(nn.Module):
    """Differentiable once: the product hides from autograd."""

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, gradient):
            return 2 * ctx.saved_tensors[0] * gradient

    def forward(self, x):
        return self.Square.apply(x)


class Apply(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.forward = function


REFUSED = {
    "dropout": (with_layers(nn.Dropout), "random in training"),
    "torch's layer norm": (with_layers(lambda: nn.LayerNorm((4, 8, 8))), "dclib.core.networks.LayerNorm"),
    "batch norm of the batch": (with_layers(lambda: nn.BatchNorm2d(4, track_running_stats=False)), "in evaluation"),
    "centred by the batch": (with_layers(lambda: Apply(lambda x: x - x.mean(0))), "see each other in training"),
    "differentiable once": (with_layers(Once), "RuntimeError"),
    "decides by its input": (with_layers(lambda: Apply(lambda x: x if x.sum() > 0 else 2 * x)), "torch.func.vmap"),
    "NaN": (with_layers(lambda: Apply(torch.sqrt)), "NaN"),
    "other weights each time": (counted(), "other weights each time"),
    "frozen": (frozen, "'0.weight'"),
    "idle": (Idle, "'unused.weight'"),
    "features in place of logits": (lambda **shape: nn.Sequential(nn.Flatten(), nn.Linear(64, 9)), "(6, 9) for 6 images"),
    "no weights": (lambda **shape: nn.Flatten(), "(6, 64)"),
    "no module": (lambda **shape: "a network", "nn.Module"),
    "other arguments": (lambda width: None, "TypeError"),
    "other sizes": (lambda **shape: nn.Sequential(nn.Flatten(), nn.Linear(9, 3)), "1x8x8 pixels"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_gradient_matching_cannot_use_is_refused_in_a_sentence(what):
    factory, part = REFUSED[what]
    network = factory if isinstance(factory, OwnNetwork) else OwnNetwork.of(factory, "mine")
    with pytest.raises(SpecError, match=re.escape(part)) as found:
        trial.check(network, data_of(**SHAPE))
    assert "\n" not in str(found.value)


FILE = """
from torch import nn

def Mine(channels, classes, size):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * size[0] * size[1], {width}), nn.ReLU(), nn.Linear({width}, classes))

twice = 2
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FILE.format(width=8))
    return tmp_path / "mine.py"


def test_its_text_is_that_of_its_file_and_of_its_contents(file):
    network = Network.parse("mine.py:Mine")
    assert re.fullmatch("mine.py:Mine:code=[0-9a-f]{8}", str(network))
    assert Network.parse(str(network)) == network
    assert network.resolve("train") is network
    before = MakeSet("digits", hyper=Condensation(network=network).resolve())
    assert full(before)["hyper"]["network"] == str(network)
    file.write_text(FILE.format(width=9))
    refused("mine.py has changed since", call=lambda: Network.parse(str(network)), error=SpecError)
    assert MakeSet("digits", hyper=Condensation(network=Network.parse("mine.py:Mine")).resolve()).key != before.key


def test_the_command_takes_it(file, capsys):
    assert main(["condense", "digits", "-o", "set", "-K", "2", "--real-batch", "8", "--network", "mine.py:Mine"]) == 0
    assert "dclib train set --network mine.py:Mine --networks 5" in capsys.readouterr().out
    assert CondensedSet.load("set").about["hyper"]["network"].startswith("mine.py:Mine:code=")
    assert main(["train", "set", "--network", "mine.py:Mine", "--epochs", "2"]) == 0
