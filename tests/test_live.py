"""The page that trains in the reader's browser: its network against PyTorch's, its record, and how it behaves in a browser."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
import textwrap
from io import BytesIO
from pathlib import Path

import bookcheck
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from chromium import Chromium
from PIL import Image

from dclib.core import augment as augmentation
from dclib.core import networks, train
from dclib.results import CondensedSet, Store
from dclib.spec import MakeSet, Network, Training, variants

ROOT = Path(__file__).resolve().parents[1]
STATIC = ROOT / "book/_static"
WIDTH = 16
DATASETS = ("mnist", "fashionmnist")
each = pytest.mark.parametrize("dataset", DATASETS)
runs = pytest.mark.skipif(not (shutil.which("node") or bookcheck.browser()), reason="neither node nor Chromium is installed")
browses = pytest.mark.skipif(bookcheck.browser() is None, reason="no Chromium is installed")


# --- the trainer


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


@runs
@pytest.mark.parametrize("fast", [True, False])
def test_gradients_are_pytorchs(pair, images, javascript, fast):
    network, given = pair
    loss = F.cross_entropy(network(images), torch.arange(10))
    loss.backward()
    expected = ours({name: p.grad for name, p in network.named_parameters()})
    body = (
        MAKE
        + """const loss = network.gradients(x, labels);
        return [loss, network.parameters.map(p => [...p.gradient]), network.fast];"""
    )
    found, gradients, used = javascript(body, fast=fast, **given)
    assert used == fast
    assert found == pytest.approx(loss.item(), rel=1e-5)
    for one, other in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * np.abs(other).max())


@runs
def test_a_training_step_by_step(pair, images, javascript):
    network, given = pair
    hyper = Training(Network.make("ConvNet", width=WIDTH), epochs=6).resolve()
    expected = train.train(network, images, torch.arange(10), hyper, seed=0)
    body = MAKE + "return [0, 1, 2, 3, 4, 5, 6].map(e => network.epoch(e, 6, x, labels, null));"
    assert javascript(body, fast=True, **given) == pytest.approx(expected, rel=1e-4)


@runs
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


# --- the record and the picture


def record(dataset):
    """The last line on a data set."""
    lines = [json.loads(line) for line in (Store().root / "live.jsonl").read_text().splitlines()]
    return [line for line in lines if line["dataset"] == dataset][-1]


@each
def test_the_record_is_of_recorded_sets_and_learned_images_win(dataset):
    found, store = record(dataset), Store(preset="cpu")
    learned = MakeSet(dataset, hyper=variants.recipe("fast"))
    assert found["key"] == learned.key
    assert not found["dirty"]
    assert found["set_hash"] == CondensedSet.load(store.find_set(learned.key)).hash
    draws = [variants.selection(dataset, "random", seed=seed) for seed in range(len(found["random"]))]
    assert found["random"] == [run.key for run in draws]
    assert {store.records[run.key][0]["data_hash"] for run in (learned, *draws)} == {found["data_hash"]}
    accuracies = found["accuracies"]
    assert np.mean(accuracies["learned"]) > np.mean(accuracies["random"]) + 15


@each
def test_the_picture_is_the_records_and_has_at_most_200_test_images(dataset):
    found, file = record(dataset), STATIC / f"live-{dataset}.png"
    assert hashlib.sha256(file.read_bytes()).hexdigest() == found["picture"]
    assert np.size(found["tests"]) <= 200
    with Image.open(file) as picture:
        assert picture.size == (280, 28 * (len(found["random"]) + len(found["tests"])))


# --- the page


@pytest.fixture(scope="module")
def figure():
    """The figure's HTML, as the page makes it."""
    (cell,) = re.findall(r"```\{code-cell\} ipython3\n---\n.*?---\n(.*?)```", (ROOT / "book/live.md").read_text(), re.S)
    source, _, last = cell.rstrip().rpartition("\n")
    namespace: dict = {}
    exec(compile(source, "live.md", "exec"), namespace)
    return eval(last, namespace).data


def test_it_is_small_fetches_nothing_and_has_the_recorded_images(figure):
    assert len(figure.encode()) < 200_000
    assert not re.search(r'(?:src|href)="(?!data:)|https?://|url\(', figure)
    sets = json.loads(re.search(r"const all = (\[.*?\]), SIDE", figure)[1])
    assert len(sets) == len(DATASETS)
    for one, dataset in zip(sets, DATASETS, strict=True):
        made = CondensedSet.load(Store(preset="cpu").find_set(record(dataset)["key"]))
        learned = np.frombuffer(base64.b64decode(one["learned"]), "<i2").reshape(made.images.shape) / one["unit"]
        np.testing.assert_allclose(learned, made.images, atol=0.51 / one["unit"])
        assert made.hash in one["about"]
        assert Image.open(BytesIO(base64.b64decode(one["real"].split(",")[1]))).mode == "L"


@pytest.fixture
def opened(figure, tmp_path):
    """Return a function that opens the figure, alone on a page."""
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><meta charset=utf-8><body style='margin: 1rem'>{figure}")
    with Chromium(bookcheck.browser(), tmp_path / "profile") as chromium:

        def open_page(width: int = 1280, **media: str):
            tab = chromium.open(page.as_uri(), width=width, **media)
            tab.until("!document.querySelector('.works').hidden")
            tab.run("const all = what => [...document.querySelectorAll('.trainer ' + what)], find = what => all(what)[0];")
            return tab

        yield open_page


def trained(tab):
    """Train both networks, and return the accuracies of the learned and of the random images."""
    tab.run("find('.train').click()")
    tab.until("/both trained/.test(find('.state').textContent)", seconds=800)  # ten by itself, minutes beside others
    return [int(text.removesuffix(" %")) for text in tab.run("all('.live').map(x => x.textContent)")]


SEVEN = [(0.3, 0.2), (0.5, 0.2), (0.7, 0.2), (0.6, 0.5), (0.45, 0.85)]  # the corners of strokes, in parts of the square's side


@browses
@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_it_trains_and_reads_a_drawn_digit(opened, width):
    tab = opened(width)
    learned, random = trained(tab)
    assert learned >= random + 15
    assert tab.run("all('.plots path[d*=L]').length") == 4, "two curves in each plot"
    tab.run("find('.pad').scrollIntoView({block: 'center', behavior: 'instant'})")
    left, top, side = tab.run("(({left, top, width}) => [left, top, width])(find('.pad').getBoundingClientRect())")
    tab.drag([(left + x * side, top + y * side) for x, y in SEVEN])
    tab.until("/learned images: 7/.test(find('.said').textContent)")
    assert tab.run("all('.chances tbody tr').findIndex(row => row.querySelector('.learned.first'))") == 7
    tab.run("find('.clear').click()")
    assert tab.run("all('.chances .first').length") == 0
    assert tab.run("document.documentElement.scrollWidth") <= width
    assert not tab.problems
    assert [address for address in tab.requests if not address.startswith(("data:", "blob:"))] == tab.requests[:1]


@browses
@pytest.mark.slow
def test_keyboard_gallery_seed_and_reset(opened):
    tab = opened(prefers_reduced_motion="reduce")
    tab.run("find('.width').value = '16'; find('.epochs').value = '100'; find('.pad').focus()")
    trained(tab)
    tab.run("find('.pad').focus()")
    for key in (*["ArrowUp"] * 6, " ", *["ArrowDown"] * 13, " "):  # a stroke from top to bottom
        tab.press(key)
    tab.until("/learned images: 1/.test(find('.said').textContent)")
    tab.run("find('.seed').click()")
    assert tab.run("[find('.state').textContent, find('.random .name').textContent, find('.learned .live').textContent]") == [
        "Seed 1",
        "Ten real images, random draw 2 of 5",
        "–",
    ]
    tab.run("find('.reset').click()")
    assert tab.run("find('.state').textContent") == "Seed 0"
    tab.run("all('.tabs input')[1].click()")
    trained(tab)
    tab.run("all('.gallery button')[1].click()")
    tab.until("/It is: trouser/.test(find('.said').textContent) && find('.chances .learned.first')")
    assert not tab.problems


@browses
def test_a_browser_without_workers_says_so(figure, tmp_path):
    (tmp_path / "page.html").write_text(f"<!doctype html><meta charset=utf-8><script>delete window.Worker</script>{figure}")
    with Chromium(bookcheck.browser(), tmp_path / "profile") as chromium:
        tab = chromium.open((tmp_path / "page.html").as_uri())
        tab.until("!document.querySelector('.trainer .works').hidden")
        assert "no Workers" in tab.run("document.querySelector('.trainer .missing').innerText")
        assert tab.run("document.querySelector('.trainer .train').disabled")
