"""The figure at the head of the page on Algorithm 1: its record, its pictures, and how it behaves in a browser."""

import hashlib
import json
import re
import time
from pathlib import Path

import bookcheck
import numpy as np
import pytest
from chromium import Chromium
from pages import shown
from PIL import Image

from dclib.results import CondensedSet, Store
from dclib.spec import MakeSet, TrainNetworks, variants

ROOT = Path(__file__).resolve().parents[1]
DATASETS = ("mnist", "cifar10")
each = pytest.mark.parametrize("dataset", DATASETS)
BRIGHTNESS = """(() => {
  const canvas = document.querySelector(".emergence canvas"), {width, height} = canvas;
  const pixels = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  return pixels.reduce((sum, x) => sum + x, 0) / pixels.length;
})()"""


def record(dataset):
    """The last line on a data set."""
    lines = [json.loads(line) for line in (Store().root / "emergence.jsonl").read_text().splitlines()]
    return [line for line in lines if line["dataset"] == dataset][-1]


@pytest.fixture(scope="module")
def figure():
    """The figure's HTML, as the page makes it."""
    return shown("method", "run")["run"].data


# --- the record


@each
def test_the_record_is_of_the_recipes_set_and_agrees_with_its_record(dataset):
    found, run = record(dataset), MakeSet(dataset, hyper=variants.recipe("fast"))
    assert found["key"] == run.key
    assert not found["dirty"]
    store = Store(preset="cpu")
    (made,) = store.records[run.key]
    assert found["data_hash"] == made["data_hash"]
    np.testing.assert_allclose(found["losses"], made["losses"], rtol=0.05)
    assert found["k"] == sorted({0, run.hyper.outer_steps, *found["k"]})
    assert len(found["accuracies"]) == len(found["k"])
    trained = store.accuracies(TrainNetworks(run, variants.stage_t(dataset)).key)
    assert found["accuracies"][-1] == pytest.approx(np.mean(list(trained.values())), abs=3)
    assert found["accuracies"][0] < 20


@each
def test_the_picture_is_the_records_and_ends_with_the_recorded_set(dataset):
    found, file = record(dataset), ROOT / f"book/_static/emergence-{dataset}.png"
    assert hashlib.sha256(file.read_bytes()).hexdigest() == found["picture"]
    rows = np.split(np.asarray(Image.open(file)), len(found["k"]))
    images = [np.split(row, len(found["classes"]), axis=1) for row in rows]
    recorded = CondensedSet.load(Store().find_set(found["key"])).pixels()
    assert np.abs(np.stack(images[-1]).astype(int) - recorded).mean() < 8


# --- the figure


def test_it_has_a_slider_a_button_and_strips_for_a_browser_without_scripts(figure):
    static = re.sub(r"<script>.*</script>", "", figure, flags=re.S)
    assert static.count('<input type="range"') == static.count("<button") == 1
    assert re.search(r'<input type="range"[^>]* aria-label="', static)
    pictures = re.findall(r'<img src="data:image/png;base64,[\w+/=]+" alt="([^"]+)">', static)
    assert len(pictures) == len(DATASETS)
    assert static.count("<li>k = ") == sum(len(record(dataset)["k"]) for dataset in DATASETS)
    assert len(figure) < 2**20
    assert not re.search(r'(?:src|href)="(?!data:)|https?://|url\(', figure), "nothing is fetched"


@pytest.mark.slow
@pytest.mark.skipif(bookcheck.browser() is None, reason="no Chromium is installed")
def test_slider_space_button_and_choice_move_it(figure, tmp_path):
    page, first, second = tmp_path / "page.html", *map(record, DATASETS)
    page.write_text(f"<!doctype html><meta charset=utf-8>{figure}")
    last = len(first["k"]) - 1

    def said(found, i):  # what the figure shows at its i-th step
        k = f"k = {found['k'][i]} of {found['k'][-1]}"
        losses, accuracies = found["losses"], found["accuracies"]
        return [i % len(found["k"]), k, f"{losses[min(found['k'][i], len(losses) - 1)]:,.0f}", f"{accuracies[i]:.1f} %"]

    with Chromium(bookcheck.browser(), tmp_path / "profile") as chromium:
        tab = chromium.open(page.as_uri())
        tell = """[+range.value, document.querySelector(".emergence .step").textContent,
            ...[...document.querySelectorAll(".emergence .curves b")].map(b => b.textContent)]"""
        tab.run(
            'const range = document.querySelector(".emergence input[type=range]"), button = document.querySelector("button"), '
            'start = () => { range.value = 0; range.dispatchEvent(new Event("input")); range.focus(); }'
        )
        tab.until('!document.querySelector(".emergence .live").hidden && range.max > 0')
        assert tab.run(tell) == said(first, -1)
        learned = tab.run(BRIGHTNESS)
        tab.run("start()")
        assert tab.run(tell) == said(first, 0)
        assert tab.run(BRIGHTNESS) != learned
        tab.press(" ")
        tab.until("range.value >= 2")
        tab.run("button.click()")
        paused = tab.run(tell)
        assert 2 <= paused[0] < last
        time.sleep(1)  # more than two of its steps
        assert tab.run(tell) == paused
        tab.run('document.querySelectorAll(".emergence input[type=radio]")[1].click()')
        tab.run("start(), button.click()")
        tab.until("range.value === range.max")
        assert tab.run(tell) == said(second, -1)
        assert not tab.problems


@pytest.mark.book
@pytest.mark.slow
def test_the_built_page_has_it(html, figure):
    page = (html / "notebooks/method.html").read_text()
    assert page.count('<figure class="emergence"') == 1
    assert page.count('<img src="data:image/png;base64,') >= len(DATASETS)
    assert page.count('id="alg-condense"') == page.count('id="equation-eq-distance"') == 1
