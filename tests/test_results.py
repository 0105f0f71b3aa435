"""Condensed sets and records on disk: what is written is read back, and what is damaged is refused."""

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from helpers import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

import dclib
from dclib.core.checkpoint import load_tensors, save_tensors
from dclib.errors import DataError, FileError
from dclib.experiments import CROSS_ARCH, SMOKE
from dclib.results import CondensedSet, Store
from dclib.spec import MakeSet, TrainNetworks

quick = settings(max_examples=40, deadline=None, derandomize=True)
thorough = settings(max_examples=80, deadline=None, derandomize=True)
floats = st.floats(-5, 5, width=32)
unread = partial(refused, error=FileError)


def small(n=4, channels=1, size=3, classes=2, seed=0, **changes) -> CondensedSet:
    rng = np.random.default_rng(seed)
    images = rng.standard_normal((n, channels, size, size)).astype(np.float32)
    given = dict(images=images, labels=np.arange(n) % classes, dataset="digits", key="ab12")
    given |= dict(class_names=tuple("abcdefghij"[:classes]), mean=(0.1,) * channels, std=(0.3,) * channels, about={"seed": 0})
    return CondensedSet(**given | changes)


def same(a: CondensedSet, b: CondensedSet) -> bool:
    rest = [(s.dataset, s.class_names, s.mean, s.std, s.key, s.about) for s in (a, b)]
    return rest[0] == rest[1] and a.images.tobytes() == b.images.tobytes() and np.array_equal(a.labels, b.labels)


# --- sets


@quick
@given(
    images=hnp.arrays(np.float32, st.tuples(*(st.integers(1, 5),) * 4), elements=floats),
    names=st.lists(st.text(max_size=8), min_size=1, max_size=4, unique=True),
    about=st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5) | st.none(), max_size=3),
    data=st.data(),
)
def test_a_set_is_read_back_as_it_was_and_by_whoever_knows_safetensors(tmp_path_factory, images, names, about, data):
    n, channels = images.shape[:2]
    labels = data.draw(hnp.arrays(np.int64, n, elements=st.integers(0, len(names) - 1)))
    mean, std = (tuple(data.draw(st.lists(st.floats(0.01, 1), min_size=channels, max_size=channels))) for _ in range(2))
    made = CondensedSet(images, labels, "mine", tuple(names), mean, std, "", about)
    path = tmp_path_factory.mktemp("sets") / "set"
    made.save(path)
    assert same(CondensedSet.load(path), made)
    tensors = safetensors.numpy.load_file(path)
    assert np.array_equal(tensors["images"], made.images)
    assert np.array_equal(tensors["labels"], made.labels)
    assert made.ipc == np.bincount(labels).max()


@pytest.mark.parametrize(("channels", "shape"), [(1, (4, 3, 3)), (3, (4, 3, 3, 3))])
def test_pixels_undo_the_normalisation_and_are_clamped(channels, shape):
    pixels = np.random.default_rng(0).integers(0, 256, (4, channels, 3, 3)).astype(np.float32)
    made = small(channels=channels, images=(pixels / 255 - np.float32(0.1)) / np.float32(0.3))
    assert (made.pixels().shape, made.pixels().dtype) == (shape, np.uint8)
    expected = pixels[:, 0] if channels == 1 else pixels.transpose(0, 2, 3, 1)
    assert np.array_equal(made.pixels(), expected.astype(np.uint8))
    wild = small(images=np.array([-9, 9, 0, -0.1 / 0.3] * 9, np.float32).reshape(4, 1, 3, 3)).pixels()
    assert (wild.min(), wild.max()) == (0, 255)


def test_arrays_and_tensors_of_any_such_type_make_the_same_set(tmp_path):
    plain = small(order=np.array([[0, 1], [2, 3]]), rates=np.array([0.1, 0.2], np.float32))
    for dtype in (torch.int64, torch.int32, torch.uint8):
        tensors = {name: torch.from_numpy(getattr(plain, name)) for name in ("images", "labels", "order", "rates")}
        tensors |= {name: tensors[name].to(dtype) for name in ("labels", "order")}
        made = small(**tensors, class_names=["a", "b"], mean=torch.tensor([0.1], dtype=torch.float64), std=[np.float64(0.3)])
        assert same(made, plain)
        assert made.hash == plain.hash
        made.save(tmp_path / "set")
        assert same(CondensedSet.load(tmp_path / "set"), plain)
    images, labels = small(images=plain.images[::-1].astype(np.float64), labels=np.arange(4, dtype=">i2") % 2).as_dataset()[:]
    assert torch.equal(images, tensors["images"].flip(0))
    assert (labels.dtype, labels.tolist()) == (torch.int64, [0, 1, 0, 1])


def test_soft_labels_are_kept_and_trained_on(tmp_path):
    soft = np.array([[0.9, 0.1], [0.2, 0.8], [1, 0], [0.5, 0.5]], np.float32)
    made = small(n=4, size=4, soft=torch.from_numpy(soft), factor=2)
    made.save(tmp_path / "set")
    found = CondensedSet.load(tmp_path / "set")
    assert np.array_equal(found.soft, soft)
    assert made.hash == found.hash != small(n=4, size=4, factor=2).hash
    images, labels = found.as_dataset().tensors
    assert images.shape == (16, 1, 4, 4)
    assert torch.equal(labels, torch.from_numpy(soft).repeat_interleave(4, 0))


def test_images_of_a_set_lie_plainly_wherever_they_come_from():
    """Of one channel, torch would take a transposed array for channels last, and `x.view(len(x), -1)` would fail."""
    transposed = np.zeros((4, 5, 5, 1), np.float32).transpose(0, 3, 1, 2)
    assert small(images=transposed).as_dataset().tensors[0].stride() == (25, 25, 5, 1)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"labels": np.array([1, 2, 1, 2])}, ["labels from 1 to 2 for 2 classes", "from 0 to 1"]),
        ({"labels": torch.tensor([0, 1, -1, 1])}, ["labels from -1 to 1"]),
        ({"labels": np.array([0, 1, 0, 2**63], np.uint64)}, [2**63]),
        ({"labels": np.array([0, 1, 0.7, 1])}, ["labels are float64", "whole numbers"]),
        ({"labels": [0, 1]}, ["labels", "(2,)", "4 images"]),
        ({"images": np.zeros((4, 1, 3, 3), np.uint8)}, ["images are uint8", "floats"]),
        ({"images": torch.zeros(4, 3, 3)}, ["images", "(4, 3, 3)"]),
        ({"images": [[0.0], [0.0, 1.0]]}, ["images make no array"]),
        ({"images": torch.full((4, 1, 3, 3), float("nan"))}, ["NaN"]),
        ({"class_names": "ab"}, ["class_names are 'ab'"]),
        ({"class_names": [0, 1]}, ["class_names are [0, 1]"]),
        ({"class_names": ("a", "a")}, ["two classes of a set are called 'a'"]),
        ({"mean": 0.1}, ["mean is 0.1"]),
        ({"mean": (0.1, 0.1, 0.1)}, ["3 means", "1 channels"]),
        ({"std": (0,)}, ["std", "0.0"]),
        ({"soft": np.ones(4, np.float32)}, ["soft labels", "(4,)", "2 classes"]),
        ({"soft": np.ones((4, 2), np.float32)}, ["no probabilities"]),
        ({"soft": np.array([[2, -1]] * 4, np.float32)}, ["no probabilities"]),
        ({"order": np.zeros((1, 2), np.int64)}, ["without a rate"]),
        ({"order": np.zeros((2, 2), np.int64), "rates": np.ones(1, np.float32)}, ["a rate for each"]),
        ({"order": np.full((1, 2), 4), "rates": np.ones(1, np.float32)}, ["other than its 4"]),
        ({"order": np.zeros((1, 2), np.int64), "rates": np.array([np.nan], np.float32)}, ["no positive numbers"]),
    ],
    ids=str,
)
def test_what_is_no_set_is_refused_when_it_is_made(changes, parts):
    with pytest.raises(DataError) as caught:
        small(**changes)
    assert "\n" not in str(caught.value)
    assert not [part for part in parts if str(part) not in str(caught.value)], caught.value


# --- files that are something else, or damaged


class Stranger:
    """What another program may have saved."""


def test_a_good_file_of_another_kind_is_called_what_it_is(tmp_path):
    small().save(tmp_path / "set")
    small().export(tmp_path / "set.npz", "npz")
    torch.save({"weights": torch.zeros(3)}, tmp_path / "model.pt")
    torch.save({"weights": torch.zeros(3)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(Stranger()))
    np.save(tmp_path / "x.npy", np.zeros(3))
    safetensors.numpy.save_file({"w": np.zeros(3)}, tmp_path / "model.safetensors")
    save_tensors(tmp_path / "set.checkpoint", {"images": torch.zeros(1)}, {"k": 0, "losses": [], "seconds": 0.0}, {"run": "ab"})
    Image.new("L", (2, 2)).save(tmp_path / "grid.png")
    kinds = {"set.npz": "an .npz archive", "model.pt": "torch.save", "old.pt": "torch.save", "model.pkl": "pickle"}
    kinds |= {"model.safetensors": "another program", "set.checkpoint": "a checkpoint of dclib's"}
    kinds |= {"x.npy": ".npy", "grid.png": "a picture"}
    for name, kind in kinds.items():
        unread(name, kind, "not a condensed set", call=CondensedSet.load, path=tmp_path / name)
        with pytest.raises(FileError) as caught:
            CondensedSet.load(tmp_path / name)
        assert not re.search("damaged|delete|remove", str(caught.value))
    for name, kind in {**kinds, "set": "a condensed set"}.items():
        if name != "set.checkpoint":
            unread(kind, "no checkpoint", call=lambda name=name: load_tensors(tmp_path / name, {"run": "ab"}, set()))


def load(content: bytes, folder) -> CondensedSet | None:
    """Read a set from bytes; None if they are refused, by a sentence and no other error."""
    (folder / "damaged").write_bytes(content)
    try:
        return CondensedSet.load(folder / "damaged")
    except FileError as error:
        assert "damaged" in str(error)
        assert "\n" not in str(error)
        return None


def written(folder) -> bytes:
    small(order=np.array([[0, 1], [2, 3]]), rates=np.array([0.1, 0.2], np.float32)).save(folder / "good")
    return (folder / "good").read_bytes()


def test_a_set_cut_short_anywhere_or_not_there_is_unread(tmp_path):
    whole = written(tmp_path)
    assert load(whole, tmp_path) is not None
    for length in range(0, len(whole), 7):
        assert load(whole[:length], tmp_path) is None, f"cut to {length} bytes"
    assert load(whole + b"more", tmp_path) is None
    unread("dclib condense", call=CondensedSet.load, path=tmp_path / "nowhere")
    unread("is a folder", "dclib condense", call=CondensedSet.load, path=tmp_path)
    unread("damaged", call=CondensedSet.load, path=tmp_path / ("x" * 300))


@thorough
@given(data=st.data())
def test_a_set_damaged_in_any_way_is_refused_or_reads_the_same(tmp_path_factory, data):
    """One wrong byte is always seen, also in a rate; junk is no set."""
    folder = tmp_path_factory.mktemp("any")
    whole = written(folder)
    wrong = bytearray(whole)
    wrong[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    found, good = load(bytes(wrong), folder), CondensedSet.load(folder / "good")
    assert found is None or (same(found, good) and found.hash == good.hash)
    start, length = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 40))
    found = load(whole[:start] + data.draw(st.binary(max_size=40)) + whole[start + length :], folder)
    assert found is None or found.pixels().shape[0] == len(found.labels)
    assert load(data.draw(st.binary(max_size=60)), folder) is None


ABOUT = {"dataset": "digits", "class_names": ["a", "b"], "mean": [0.1], "std": [0.3], "key": "", "about": {}}
IMAGES = np.zeros((2, 1, 3, 3), np.float32)
TENSORS = {"images": IMAGES, "labels": np.arange(2)}
NO_ABOUT = [{k: v for k, v in ABOUT.items() if k != "mean"}, [], "no json"]
NO_ABOUT += [ABOUT | {"class_names": names} for names in (["a"], [1, 2], 3)]
NO_ABOUT += [ABOUT | {"mean": mean} for mean in ([0.1, 0.1], "x", [float("nan")])]
NO_ABOUT += [ABOUT | change for change in ({"std": [0.0]}, {"std": []}, {"dataset": 3}, {"key": None}, {"about": []})]
NO_IMAGES = [IMAGES.astype(np.int32), IMAGES[0], IMAGES[:, :, :0], IMAGES + np.float32(np.nan), IMAGES + np.float32(np.inf)]
NO_LABELS = [np.arange(2.0), np.arange(3), np.array([0, 2]), np.array([0, -1]), np.arange(2).reshape(2, 1)]
NO_TENSORS = [{"images": IMAGES}, {"labels": np.arange(2)}, {"images": IMAGES[:0], "labels": np.arange(0)}]
NO_TENSORS += [TENSORS | {"images": x} for x in NO_IMAGES] + [TENSORS | {"labels": y} for y in NO_LABELS]


def test_metadata_and_arrays_that_no_set_has_are_unread(tmp_path):
    """A file without a checksum is read, as those that were recorded first have none."""

    def stored(tensors: dict, about: object, **more: str) -> bytes:
        return safetensors.numpy.save(tensors, {"dclib": about if isinstance(about, str) else json.dumps(about), **more})

    assert load(stored(TENSORS, ABOUT), tmp_path) is not None
    assert load(stored(TENSORS, ABOUT, crc="00000000"), tmp_path) is None
    assert [about for about in NO_ABOUT if load(stored(TENSORS, about), tmp_path)] == []
    assert [i for i, tensors in enumerate(NO_TENSORS) if load(stored(tensors, ABOUT), tmp_path)] == []


# --- records


TRAINED = {"key": "k1", "kind": "TrainNetworks", "accuracies": {"0": 90.5, "2": 91.0}, "started": "2026-01-02"}


def test_records_are_found_by_key_oldest_first(tmp_path):
    store = Store(tmp_path)
    store.add("cpu", TRAINED)
    store.add("paper", {**TRAINED, "accuracies": {"1": 92.0, "0": 1.0}, "started": "2026-01-03"})
    store.add("smoke", {**TRAINED, "accuracies": {"0": 88.0}, "started": "2026-01-01"})
    store.add("cpu", {"key": "k2", "kind": "MakeSet"})
    for found in (store, Store(tmp_path)):
        assert found.accuracies("k1") == {0: 88.0, 1: 92.0, 2: 91.0}
        assert sorted(r["preset"] for r in found.records["k1"]) == ["cpu", "paper", "smoke"]
    assert [r["started"][-1] for r in Store(tmp_path).records["k1"]] == ["1", "2", "3"]
    assert (tmp_path / "cpu" / "sets.jsonl").read_text().count("\n") == 1
    assert store.accuracies("nothing") == {}


def test_two_processes_that_have_done_the_same_record_it_once(tmp_path):
    code = """if True:
        import sys
        from dclib.results import Store
        store = Store(sys.argv[1])
        for i in range(60):
            store.add_once("cpu", {"key": f"k{i}", "kind": "MakeSet"})
    """
    both = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(2)]
    assert [process.wait(timeout=300) for process in both] == [0, 0]
    lines = (tmp_path / "cpu" / "sets.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["key"] for line in lines) == sorted(f"k{i}" for i in range(60))


def test_each_line_is_read_once_however_many_there_are(tmp_path, monkeypatch):
    """Two processes append in turn: each reads its own line and the other's, and none of those before."""
    stores, read, loads = [Store(tmp_path), Store(tmp_path)], [], json.loads
    monkeypatch.setattr(json, "loads", lambda text: read.append(text) or loads(text))
    counts = []
    for i in range(100):
        read.clear()
        assert stores[i % 2].add_once("cpu", {"key": f"k{i}", "kind": "MakeSet", "started": str(i)})
        counts.append(len(read))
    assert max(counts) <= counts[1] + 1 < 5
    assert [len(store.records) for store in stores] == [99, 100]
    assert not stores[0].add_once("cpu", {"key": "k99", "kind": "MakeSet"})


def test_files_that_were_replaced_are_read_anew(tmp_path):
    store = Store(tmp_path)
    for key in ("k1", "k2"):
        store.add("cpu", {**TRAINED, "key": key})
    (tmp_path / "cpu" / "networks.jsonl").write_text(json.dumps(TRAINED | {"accuracies": {"0": 1.0}}) + "\n")
    store.refresh()
    assert store.records.keys() == {"k1"}
    assert store.accuracies("k1") == {0: 1.0}


def test_what_is_missing_of_a_run_and_of_cells_and_where_a_set_is(tmp_path):
    records, run = Store(tmp_path), TrainNetworks(MakeSet("digits"), networks=4)
    records.add("cpu", {**TRAINED, "key": run.key})
    assert records.missing(run) == [1, 3]
    cells = [replace(c, networks=1) for c in CROSS_ARCH.cells(SMOKE, network="random", test_network=("LeNet", "MLP"))]
    for made in cells[0].runs():
        records.add("smoke", {**TRAINED, "key": made.key})
    assert records.incomplete(cells) == cells[1:]
    assert records.find_set("ab12") is None
    small().save(records.set_path("paper", "ab12"))
    assert records.find_set("ab12") == tmp_path / "paper" / "sets" / "ab12.safetensors"


@quick
@given(data=st.data())
def test_a_torn_last_record_is_left_out_with_a_warning_and_the_next_takes_its_place(tmp_path_factory, data):
    root = tmp_path_factory.mktemp("torn")
    Store(root).add("cpu", TRAINED)
    path, line = root / "cpu" / "networks.jsonl", json.dumps(TRAINED).encode()
    path.write_bytes(path.read_bytes() + line[: data.draw(st.integers(1, len(line) - 1))])
    with pytest.warns(UserWarning, match="the last line is torn and is left out"):
        assert len(Store(root).records["k1"]) == 1
    with pytest.warns(UserWarning, match="torn"):
        Store(root).add("cpu", {**TRAINED, "key": "k3"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(Store(root).records) == {"k1", "k3"}


NO_RECORDS = ["{", "3", "[]", "null", "{}", "\x00\xff", json.dumps({"key": "k1", "kind": "TrainNetworks"})]
NO_RECORDS += [json.dumps(TRAINED | change) for change in ({"kind": "Else"}, {"kind": []}, {"key": 3}, {"accuracies": [90.0]})]
NO_RECORDS += [json.dumps(TRAINED | {"accuracies": accuracies}) for accuracies in ({"first": 90.0}, {"0": None})]


@pytest.mark.parametrize("line", NO_RECORDS)
def test_a_line_that_is_no_record_is_refused_by_its_number(tmp_path, line):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "networks.jsonl").write_text(f"{json.dumps(TRAINED)}\n\n{line}\n{json.dumps(TRAINED)}\n")
    unread("networks.jsonl, line 3", "delete", call=lambda: Store(tmp_path).records)


def test_a_folder_or_a_file_in_the_records_place_is_unread(tmp_path):
    (tmp_path / "cpu" / "sets.jsonl").mkdir(parents=True)
    unread("sets.jsonl", "directory", call=lambda: Store(tmp_path).records)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "cpu").write_text("a file")
    unread("cannot append", "not a folder", call=lambda: Store(tmp_path / "other").add("cpu", TRAINED))
    assert (tmp_path / "other" / "cpu").read_text() == "a file"


def test_where_results_are_and_that_smokes_are_seen_at_smoke_alone(tmp_path):
    """In a checkout, in an installation, and where a variable says; so that no page depends on a demonstration."""
    code = f"""if True:
        from dclib.results import Store
        Store(preset="smoke").add("smoke", {TRAINED})
        assert set(Store(preset="smoke").records) == {{"k1"}}
        print(Store(preset="smoke").root, Store().root, *(len(Store(preset=name).records) for name in ("", "best", "cpu")))
    """
    home, package = tmp_path / "home", Path(dclib.__file__).parent
    for place in ("checkout", "site-packages"):
        shutil.copytree(package, tmp_path / place / "dclib", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "checkout" / "results").mkdir()

    def asked(place, **more):
        env = {name: value for name, value in os.environ.items() if name != "DCLIB_RESULTS"}
        env |= {"PYTHONPATH": str(tmp_path / place), "HOME": str(home), **more}
        return subprocess.check_output([sys.executable, "-c", code], env=env, text=True, cwd=tmp_path)

    assert asked("checkout").split() == [*(str(tmp_path / "checkout" / name) for name in ("_build/smoke", "results")), *"000"]
    assert not list((tmp_path / "checkout" / "results").iterdir())
    cache = home / ".cache" / "dclib"
    assert asked("site-packages").split()[:2] == [str(cache / name) for name in ("_build/smoke", "results")]
    assert asked("site-packages", DCLIB_RESULTS=str(tmp_path / "given")).split()[:2] == [str(tmp_path / "given")] * 2
