"""dclib.cli.release: an archive's bytes depend on sets and records alone, its sums verify, the code on its card runs."""

import dataclasses
import hashlib
import re
import zipfile

import numpy as np
import pytest

from dclib.cli.release import release
from dclib.errors import FileError
from dclib.experiments import METHOD, PAPER
from dclib.results import CondensedSet, Store
from dclib.spec import full

CELLS = METHOD.cells(PAPER)


def add(store, cell, accuracies=()):
    """A recorded set of random pixels, and networks trained on it."""
    (run, *_), made = cell.runs(), cell.make_set(0)
    images = np.random.default_rng(0).standard_normal((10, 1, 8, 8)).astype(np.float32)
    small = CondensedSet(images + len(store.records), np.arange(10), cell.dataset, tuple("0123456789"), (0.1,), (0.3,), made.key)
    small.save(store.set_path("paper", made.key))
    about = dict(machine="a machine, 2 cores", device="cpu", engine="eager", commit="abcdef123456", dirty=False, seconds=1234.5)
    about |= dict(started="2026-01-01T00:00:00Z", set_hash=small.hash, data_hash="0123456789abcdef", versions={"torch": "2.9"})
    store.add("paper", {**about, "key": made.key, "kind": "MakeSet", "run": full(made)})
    for j, accuracy in enumerate(accuracies):
        values = {"key": run.key, "kind": "TrainNetworks", "run": full(run), "accuracies": {str(j): accuracy}}
        store.add("paper", {**about, **values})


@pytest.fixture
def store(tmp_path):
    found = Store(tmp_path / "results")
    add(found, CELLS[0], (90.0, 91.0))
    add(found, CELLS[1])
    return found


def unpack(path, folder):
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
    (inside,) = folder.iterdir()
    return inside


def test_made_twice_the_bytes_are_the_same_and_the_sums_cover_them(store, tmp_path):
    first = release(store, tmp_path / "a")
    for path in store.root.rglob("*.safetensors"):  # newer, with the same content
        path.write_bytes(path.read_bytes())
    assert first.read_bytes() == release(Store(store.root), tmp_path / "b").read_bytes()
    inside = unpack(first, tmp_path / "x")
    sums = dict(reversed(line.split("  ")) for line in (inside / "SHA256SUMS").read_text().splitlines())
    assert {str(p.relative_to(inside)) for p in inside.rglob("*") if p.is_file()} == {"SHA256SUMS", *sums}
    assert all(hashlib.sha256((inside / name).read_bytes()).hexdigest() == digest for name, digest in sums.items())
    assert sorted(name.rpartition(".")[2] for name in sums) == ["md", "png", "png", "safetensors", "safetensors"]
    assert all((inside / name).read_bytes().startswith(b"\x89PNG") for name in sums if name.endswith("png"))


def test_the_card_says_where_each_set_comes_from(store, tmp_path):
    card = (unpack(release(store, tmp_path), tmp_path / "x") / "CARD.md").read_text()
    mnist, fashion = (card.partition(f"### {c.dataset}, 1/class, condensed with ConvNet, seed 0")[2] for c in CELLS)
    for said in (CELLS[0].make_set(0).key, "abcdef123456", "a machine, 2 cores", "outer_steps 1000", "1,234 s"):
        assert said in mnist
    assert "- accuracy: ConvNet, 1001 epochs, augmentation crop+scale+rotate: 90.50 ± 0.50 % (90.00, 91.00)" in mnist
    shown = re.search("- hyper-parameters: (.+)", mnist)[1]
    assert not re.search(r"\b(bn|network_epochs|network_lr|network_momentum|network_batch) ", shown)  # no batch norm, T = 1
    assert "network ConvNet" in shown
    assert "- accuracy: not recorded" in fashion.partition("###")[0]
    assert "**FashionMNIST**: made by Zalando SE" in card
    assert "**SVHN**" not in card


def test_the_card_leaves_out_what_a_correction_has_changed(store, tmp_path):
    """Networks whose coloured images were rotated by an older rule are recorded, and answer for nothing."""
    cell = dataclasses.replace(CELLS[0], dataset="cifar10", network="AlexCifarNet", test_network="AlexCifarNet")
    add(store, cell, (80.0,))
    (record, *_) = store.records[cell.runs()[0].key]
    run = {name: value for name, value in record["run"].items() if name != "mended"}
    store.add("paper", {**record, "key": "0" * 16, "accuracies": {"0": 70.0}, "run": run})
    card = (unpack(release(store, tmp_path), tmp_path / "x") / "CARD.md").read_text()
    assert ("80.00" in card, "70.00" in card) == (True, False)


def test_the_cards_lines_read_a_set_without_dclib(store, tmp_path, monkeypatch):
    inside = unpack(release(store, tmp_path), tmp_path / "x")
    (code,) = re.findall(r"```python\n(.+?)```", (inside / "CARD.md").read_text(), re.S)
    assert "dclib" not in re.sub(r'"[^"]*"', "", code)
    monkeypatch.chdir(inside)
    names = {}
    exec(code, names)
    made = CondensedSet.load(re.search(r'safe_open\("(.+?)"', code)[1])
    assert np.array_equal(names["images"], made.images)
    assert np.array_equal(names["labels"], made.labels)
    assert names["about"]["class_names"] == list(made.class_names)
    mean, std = (np.reshape(names["about"][name], (-1, 1, 1)) for name in ("mean", "std"))
    unit = np.clip(names["images"] * std + mean, 0, 1)
    assert np.array_equal(np.rint(255 * unit[:, 0]), made.pixels())


@pytest.mark.parametrize("wrong", ["damaged", "another", "unrecorded", "none"])
def test_what_is_not_as_recorded_is_not_released(store, tmp_path, wrong):
    path = store.set_path("paper", CELLS[0].make_set(0).key)
    made = CondensedSet.load(path)
    if wrong == "damaged":
        path.write_bytes(path.read_bytes()[:-3])
    elif wrong == "another":
        dataclasses.replace(made, images=made.images + 1).save(path)
    elif wrong == "unrecorded":
        dataclasses.replace(made, key="0" * 16).save(path.with_stem("0" * 16))
    else:
        store = Store(tmp_path / "empty")
    sentence = {"damaged": "damaged", "another": "is not the recorded set", "unrecorded": "no recorded run"}
    with pytest.raises(FileError, match=sentence.get(wrong, "keeps no sets")):
        release(store, tmp_path / "x")
    assert not (tmp_path / "x").exists()
