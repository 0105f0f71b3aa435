"""What a set is worth: trained as stage T trains, beside as many real images, recorded, and told with intervals."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from pages import shown

import dclib
from dclib import report
from dclib.core import train
from dclib.errors import Interrupted
from dclib.results import CondensedSet, Store, judged
from dclib.results.claims import HOLDS, REFUTED, Claim, Estimate, between, interval
from dclib.run import judging
from dclib.run.sets import make_set
from dclib.spec import Condensation, MakeSet, derive, variants

SHORT = dict(networks="MLP:width=8", augment=("none", "crop"), repeats=2, epochs=3, guide_epochs=1, device="cpu", engine="eager")
NONE = SHORT | dict(augment=("none",))
OPTIONS = ["--repeats", "2", "--guide-epochs", "1", "--engine", "eager", "--device", "cpu"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The path of three classes of small images, each bright in another row."""
    draw, path = np.random.default_rng(0), tmp_path_factory.mktemp("data") / "rows.npz"
    arrays = {}
    for split in ("train", "test"):
        labels = np.arange(3).repeat(10)
        images = draw.integers(0, 60, (30, 8, 8), dtype=np.uint8)
        images[np.arange(30), 2 * labels + 1] += 150
        arrays |= {f"x_{split}": images, f"y_{split}": labels}
    np.savez(path, **arrays)
    return str(path)


@pytest.fixture(scope="module")
def real(data):
    """Two real images of each class."""
    return dclib.select(data, "random", ipc=2, seed=7)


def row(found, augment, images):
    return found[(found.augment == augment) & (found.images == images)].iloc[0]


def test_a_set_is_judged_beside_as_many_real_images(real):
    found = dclib.judge(real, **SHORT)
    assert list(zip(found.augment, found.images, strict=True)) == [(a, i) for a in ("none", "crop") for i in judged.IMAGES]
    one, herded = row(found, "crop", "set"), row(found, "crop", "herding")
    assert herded.gain == pytest.approx(one.accuracy - herded.accuracy)
    assert one.augmented == pytest.approx(one.accuracy - row(found, "none", "set").accuracy)
    assert (one.accuracy, one.low, one.high) == pytest.approx(tuple(interval(one.accuracies)))


def test_networks_are_trained_as_stage_t_trains(real, data):
    """Each on the set, on herded images, and on a draw of its own, by seeds that the images' keys give."""
    found, dataset = dclib.judge(real, **NONE), dclib.load(data)
    hyper = variants.stage_t(data, network="MLP:width=8", augment="none", epochs=3)
    herding = variants.selection(data, "herding", 2, epochs=1)
    draws = [MakeSet(data, "random", j, Condensation(ipc=2)) for j in range(2)]
    made = {"set": [real] * 2, "herding": [make_set(herding, dataset=dataset)] * 2, "random": [make_set(run) for run in draws]}
    keys = {"set": real.hash, "herding": herding.key, "random": draws[0].key}
    for images, several in made.items():
        small = [one.as_dataset().tensors for one in several]
        seeds = [derive(j, keys[images]) for j in range(2)]
        expected = [train.evaluate(*one, dataset, hyper, seeds=[seed])[0] for one, seed in zip(small, seeds, strict=True)]
        assert row(found, "none", images).accuracies == pytest.approx(expected, abs=1e-4)


def test_real_images_are_as_many_of_each_class(real, data):
    """The only image of a class is the first that was chosen."""
    short = dataclasses.replace(real, images=real.images[:-1], labels=real.labels[:-1])
    images = judging.of(short, dclib.load(data), 1, device="cpu")
    for on in images:
        assert on.make(0).labels.tolist() == [0, 0, 1, 1, 2]
    whole = judging.of(real, dclib.load(data), 1, device="cpu")
    assert all(np.array_equal(one.make(0).images[:5], other.make(0).images) for one, other in zip(whole, images, strict=True))


def test_soft_labels_are_used(real):
    """Those that say nothing teach nothing."""
    blurred = dataclasses.replace(real, soft=np.full((6, 3), 1 / 3, np.float32))
    how = NONE | dict(epochs=60)
    assert row(dclib.judge(real, **how), "none", "set").accuracy > row(dclib.judge(blurred, **how), "none", "set").accuracy + 20


def test_what_is_recorded_is_not_computed_again(real, tmp_path):
    record, times = tmp_path / "judged.jsonl", iter(range(1000))
    with pytest.raises(Interrupted):
        dclib.judge(real, record=record, should_stop=lambda: next(times) > 14, **SHORT)
    partial = record.read_text()
    assert 0 < len(partial.splitlines()) < 6
    found = dclib.judge(real, record=record, **SHORT)
    assert record.read_text().startswith(partial)
    assert found.equals(dclib.judge(real, **SHORT))
    before = record.read_text()
    again = dclib.judge(real, record=record, should_stop=lambda: True, **SHORT)
    assert again.equals(found)
    assert record.read_text() == before
    lines = judged.read_lines(record)
    read = judged.frame(judged.of_set(lines, real.hash, epochs=3))
    assert np.allclose(read.accuracy, found.accuracy)
    assert list(read.images) == list(found.images)
    assert judged.of_set(lines, "another", epochs=3) == judged.of_set(lines, real.hash) == {}
    assert {"machine", "commit", "seconds", "training"} <= lines[0].keys()


def test_a_file_that_is_no_record_is_refused(tmp_path):
    for text in ("{}\n", "[1]\n", "no json\n", b"\xff\xff\n".decode("latin1")):
        (tmp_path / "x").write_text(text)
        with pytest.raises(dclib.FileError, match="line 1"):
            judged.read_lines(tmp_path / "x")
    (tmp_path / "x").write_text('{"torn": ')
    assert judged.read_lines(tmp_path / "x") == []


def test_the_table_is_printed_with_intervals(real, command):
    real.save("set")
    status, out, _ = command("judge", "set", "--networks", "MLP:width=8", "--augment", "none,crop", "--epochs", "3", *OPTIONS)
    assert status == 0
    head, *lines = out.splitlines()
    assert head == "6 images of rows; 2 networks each; E = 3"
    assert [line.split("|")[2].strip() for line in lines[2:]] == ["none", "crop"]
    assert all(line.count("±") == (5 if "none" in line else 6) for line in lines[2:])
    assert not Path("set.herding.checkpoint").exists()


def test_a_single_network_has_no_interval():
    found = judged.frame({("MLP", "none", "set"): [80.0], ("MLP", "none", "random"): [60.0]})
    assert math.isinf(found.high[0])
    assert report.judged_table(found).splitlines()[2].split() == [
        "|",
        "MLP",
        "|",
        "none",
        "|",
        "80.0",
        "|",
        "—",
        "|",
        "60.0",
        "|",
        "—",
        "|",
        "+20.0",
        "|",
        "—",
        "|",
    ]


def test_what_is_finished_is_printed_when_it_is_stopped(real, command, monkeypatch):
    """Ctrl-C while a later group is trained: the eighth time that the network is built."""
    real.save("set")
    monkeypatch.setenv("LEFT", "8")
    Path("net.py").write_text(
        "import os, signal\nfrom torch import nn\n"
        "def Net(channels, classes, size):\n"
        "    os.environ['LEFT'] = str(int(os.environ['LEFT']) - 1)\n"
        "    if os.environ['LEFT'] == '0':\n        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(channels * size[0] * size[1], classes))\n"
    )
    more = ["--networks", "net.py:Net", "--augment", "none", "--epochs", "50", "--record", "judged.jsonl"]
    status, out, err = command("judge", "set", *more, *OPTIONS)
    assert status == 130, err
    assert out.startswith("6 images of rows; 2 networks each")
    assert "net.py:Net" in out
    assert 0 < len(judged.read_lines("judged.jsonl")) < 3


# --- the record that the page shows


def test_the_record_is_of_recorded_sets_and_the_claim_holds():
    """For a ConvNet with the paper's own augmentation, as it was claimed: the set above herding, herding above random."""
    store, lines = Store(), judged.read_lines(Store().root / "judged.jsonl")
    made = CondensedSet.load(store.find_set(MakeSet("mnist", hyper=variants.recipe("fast")).key))
    assert {line["data_hash"] for line in lines} == {made.data_hash}
    assert not any(line["dirty"] for line in lines)
    found = judged.of_set(lines, made.hash)
    own, herded, drawn = (Estimate.over(found["ConvNet", "crop+scale+rotate", images]) for images in judged.IMAGES)
    assert Claim((between(own, herded), between(herded, drawn))).verdict == HOLDS
    assert Claim((between(herded, own), between(drawn, herded))).verdict == REFUTED


def test_the_page_imports_the_set_that_is_recorded():
    """The set that it writes in the authors' format and reads again is one that the record has."""
    found = shown("judge", preset="best")
    assert found["authors"]["the same images"]
    assert all(len(rows) >= 4 for name, rows in found.items() if name in ("judge", "augmentations", "theirs"))
