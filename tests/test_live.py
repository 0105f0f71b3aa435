"""The page that trains in the reader's browser: its network against PyTorch's, its record, and how it behaves in a browser."""

import json
import shutil
import subprocess
import textwrap
from pathlib import Path

import bookcheck
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from chromium import Chromium

from dclib.core import augment as augmentation
from dclib.core import networks, train
from dclib.spec import Network, Training

ROOT = Path(__file__).resolve().parents[1]
STATIC = ROOT / "book/_static"
WIDTH = 16
pytestmark = pytest.mark.skipif(not (shutil.which("node") or bookcheck.browser()), reason="neither node nor Chromium is installed")


@pytest.fixture(scope="module")
def javascript(tmp_path_factory):
    """Return a function that runs the body of a function on the Worker's script, in node or else in Chromium."""
    worker = (STATIC / "live-worker.js").read_text()

    def run(body: str, **given):
        constants = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in given.items())
        whole = f"(() => {{\n{worker}\n{constants}{textwrap.dedent(body)}\n}})()"
        folder = tmp_path_factory.mktemp("javascript")
        if node := shutil.which("node"):
            (folder / "run.js").write_text(f"console.log(JSON.stringify({whole}))")
            done = subprocess.run([node, folder / "run.js"], capture_output=True, text=True, timeout=300)
            assert not done.returncode, done.stderr
            return json.loads(done.stdout)
        with Chromium(bookcheck.browser(), folder) as chromium:
            return chromium.open("about:blank#").run(whole)

    return run


@pytest.fixture
def images():
    draw = torch.Generator().manual_seed(3)
    return torch.randn(10, 1, 28, 28, dtype=torch.float64, generator=draw)


def ours(values: dict[str, torch.Tensor]) -> list[list[float]]:
    """PyTorch's parameters or gradients in the order and layout of the page's network, which has no biases before a norm."""
    found = []
    for layer in (0, 4, 8):
        weight = values[f"features.{layer}.weight"].permute(2, 3, 1, 0).flatten(0, 2)  # 3 · 3 · from, to
        weight = F.pad(weight, (0, 0, 0, -len(weight) % 4))
        found += [weight, values[f"features.{layer + 1}.weight"], values[f"features.{layer + 1}.bias"]]
    linear = values["classifier.weight"].view(10, WIDTH, 16).transpose(1, 2)
    return [x.flatten().tolist() for x in (*found, linear, values["classifier.bias"])]


SET = "network.parameters.forEach(({value}, i) => value.set(weights[i]));"
MAKE = f"const network = new Network({WIDTH}, 0, fast), x = images.map(image => Float32Array.from(image)); {SET}"


@pytest.fixture
def pair(images):
    """A network in float64, and what the page's network is given."""
    network = networks.build(Network.make("ConvNet", width=WIDTH), channels=1, classes=10, size=(28, 28), seed=5).double()
    with torch.no_grad():
        for norm in (network.features[i] for i in (1, 5, 9)):
            norm.weight += torch.linspace(-0.5, 0.5, WIDTH)
            norm.bias += torch.linspace(0.3, -0.3, WIDTH)
    weights = ours({k: v.detach() for k, v in network.state_dict().items()})
    return network, dict(weights=weights, images=images.flatten(1).tolist(), labels=list(range(10)))


@pytest.mark.parametrize("fast", [True, False])
def test_gradients_are_pytorchs(pair, images, javascript, fast):
    network, given = pair
    loss = F.cross_entropy(network(images), torch.arange(10))
    loss.backward()
    expected = ours({name: p.grad for name, p in network.named_parameters()})
    body = MAKE + """const loss = network.gradients(x, labels);
        return [loss, network.parameters.map(p => [...p.gradient]), network.fast];"""
    found, gradients, used = javascript(body, fast=fast, **given)
    assert used == fast
    assert found == pytest.approx(loss.item(), rel=1e-5)
    for one, other in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * np.abs(other).max())


def test_a_training_step_by_step(pair, images, javascript):
    network, given = pair
    hyper = Training(Network.make("ConvNet", width=WIDTH), epochs=6).resolve()
    expected = train.train(network, images, torch.arange(10), hyper, seed=0)
    body = MAKE + "return [0, 1, 2, 3, 4, 5, 6].map(e => network.epoch(e, 6, x, labels, null));"
    assert javascript(body, fast=True, **given) == pytest.approx(expected, rel=1e-4)


def test_augmentation_is_the_librarys(images, javascript):
    one, mean = images[:1], torch.full((1, 1, 1, 1), 0.25, dtype=torch.float64)
    numbers = [(0, 7), (4, 3)], [(0.8, 1.19), (1.2, 0.93), (1.0, 1.0)], [-45, -30, 0, 7, 44]
    crops, scales, degrees = numbers
    expected = [augmentation.crop(one, mean, torch.tensor([[a], [b]])) for a, b in crops]
    expected += [augmentation.scale(one, torch.tensor([[a], [b]], dtype=torch.float64)) for a, b in scales]
    expected += [augmentation.rotate(one, mean, torch.tensor([d])) for d in degrees]
    body = """const x = Float32Array.from(image);
        return [...crops.map(n => crop(x, 0.25, ...n)), ...scales.map(n => scale(x, ...n)), ...degrees.map(n => rotate(x, 0.25, n))]
            .map(out => [...out]);"""
    found = javascript(body, image=one.flatten().tolist(), crops=crops, scales=scales, degrees=degrees)
    np.testing.assert_allclose(found, torch.stack(expected).flatten(1), atol=1e-5)
