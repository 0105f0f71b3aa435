"""Condensed sets and records on disk: what is written is read back, and what is damaged is refused."""

import json
import pickle
import re
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from dclib.core.checkpoint import load_tensors, save_tensors
from dclib.errors import DataError, FileError
from dclib.experiments import CROSS_ARCH, SMOKE
from dclib.results import CondensedSet, Store, export, results_root, store
from dclib.results.lines import RecordFile
from dclib.spec import MakeSet, TrainNetworks

quick = settings(max_examples=40, deadline=None, derandomize=True)
thorough = settings(max_examples=300, deadline=None, derandomize=True)
floats = st.floats(-5, 5, width=32)


def refused(*parts, call, **given):
    """Check that the call is refused with one sentence that names `parts`."""
    with pytest.raises(FileError) as caught:
        call(**given)
    text = str(caught.value)
    assert "\n" not in text
    for part in parts:
        assert str(part) in text, f"{part!r} is not named in: {text}"


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
def test_a_set_is_read_back_as_it_was(tmp_path_factory, images, names, about, data):
    n, channels = images.shape[:2]
    labels = data.draw(hnp.arrays(np.int64, n, elements=st.integers(0, len(names) - 1)))
    mean, std = (tuple(data.draw(st.lists(st.floats(0.01, 1), min_size=channels, max_size=channels))) for _ in range(2))
    made = CondensedSet(images, labels, "mine", tuple(names), mean, std, "", about)
    path = tmp_path_factory.mktemp("sets") / "set"
    made.save(path)
    assert same(CondensedSet.load(path), made)


def test_a_set_is_read_by_whoever_knows_safetensors(tmp_path):
    made = small()
    made.save(tmp_path / "set")
    tensors = safetensors.numpy.load_file(tmp_path / "set")
    assert np.array_equal(tensors["images"], made.images)
    assert np.array_equal(tensors["labels"], made.labels)


@pytest.mark.parametrize(("channels", "shape"), [(1, (4, 3, 3)), (3, (4, 3, 3, 3))])
def test_pixels_undo_the_normalisation(channels, shape):
    pixels = np.random.default_rng(0).integers(0, 256, (4, channels, 3, 3)).astype(np.float32)
    made = small(channels=channels, images=(pixels / 255 - np.float32(0.1)) / np.float32(0.3))
    assert made.pixels().shape == shape
    assert made.pixels().dtype == np.uint8
    expected = pixels[:, 0] if channels == 1 else pixels.transpose(0, 2, 3, 1)
    assert np.array_equal(made.pixels(), expected.astype(np.uint8))


def test_pixels_are_clamped():
    wild = small(images=np.array([-9, 9, 0, -0.1 / 0.3] * 9, np.float32).reshape(4, 1, 3, 3))
    assert wild.pixels().min() == 0
    assert wild.pixels().max() == 255


def test_images_per_class_are_those_of_the_largest():
    assert small(n=5, classes=2).ipc == 3


# --- sets made by hand


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


def test_two_classes_of_one_name_are_refused():
    with pytest.raises(DataError, match="two classes of a set are called 'a'"):
        small(class_names=("a", "a"))


def test_a_folder_is_no_set_and_is_called_a_folder(tmp_path):
    refused("is a folder", call=CondensedSet.load, path=tmp_path)


def test_images_of_a_set_lie_plainly_wherever_they_come_from():
    """Of one channel, torch would take a transposed array for channels last, and `x.view(len(x), -1)` would fail."""
    transposed = np.zeros((4, 5, 5, 1), np.float32).transpose(0, 3, 1, 2)
    made = small(images=transposed)
    assert made.as_dataset().tensors[0].stride() == (25, 25, 5, 1)


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
        ({"mean": 0.1}, ["mean is 0.1"]),
        ({"mean": (0.1, 0.1, 0.1)}, ["3 means", "1 channels"]),
        ({"std": (0,)}, ["std", "0.0"]),
        ({"order": np.zeros((1, 2), np.int64)}, ["without a rate"]),
    ],
    ids=str,
)
def test_what_is_no_set_is_refused_when_it_is_made(changes, parts):
    with pytest.raises(DataError) as caught:
        small(**changes)
    assert "\n" not in str(caught.value)
    assert all(str(part) in str(caught.value) for part in parts), caught.value


# --- files that are something else


class Stranger:
    """What another program may have saved."""


def save_others(folder: Path) -> dict[str, str]:
    """Good files of other kinds, and for each a word that says what it is."""
    small().save(folder / "set")
    export.to_npz(small(), folder / "set.npz")
    torch.save({"weights": torch.zeros(3)}, folder / "model.pt")
    torch.save({"weights": torch.zeros(3)}, folder / "old.pt", _use_new_zipfile_serialization=False)
    (folder / "model.pkl").write_bytes(pickle.dumps(Stranger()))
    np.save(folder / "x.npy", np.zeros(3))
    safetensors.numpy.save_file({"w": np.zeros(3)}, folder / "model.safetensors")
    save_tensors(folder / "set.checkpoint", {"images": torch.zeros(1)}, {"k": 0, "losses": [], "seconds": 0.0}, {"run": "ab"})
    Image.new("L", (2, 2)).save(folder / "grid.png")
    kinds = {"set.npz": "an .npz archive", "model.pt": "torch.save", "old.pt": "torch.save", "model.pkl": "pickle"}
    kinds |= {"model.safetensors": "another program", "set.checkpoint": "a checkpoint of dclib's"}
    return kinds | {"x.npy": ".npy", "grid.png": "a picture"}


def test_a_good_file_of_another_kind_is_called_what_it_is(tmp_path):
    kinds, read = save_others(tmp_path), lambda path: load_tensors(path, {"run": "ab"}, set())
    for name, kind in kinds.items():
        refused(name, kind, "not a condensed set", call=CondensedSet.load, path=tmp_path / name)
        with pytest.raises(FileError) as caught:
            CondensedSet.load(tmp_path / name)
        assert not re.search("damaged|delete|remove", str(caught.value))
        if kind != "a checkpoint of dclib's":
            refused(name, kind, "no checkpoint", call=read, path=tmp_path / name)
    refused("a condensed set", "no checkpoint", call=read, path=tmp_path / "set")


# --- damaged sets


def written(tmp_path, **changes) -> bytes:
    small(**changes).save(tmp_path / "good")
    return (tmp_path / "good").read_bytes()


def load(content: bytes, folder) -> CondensedSet | None:
    """Read a set from bytes; None if they are refused, by a sentence and no other error."""
    (folder / "damaged").write_bytes(content)
    try:
        return CondensedSet.load(folder / "damaged")
    except FileError as error:
        assert "damaged" in str(error)
        assert "\n" not in str(error)
        return None


def test_a_set_cut_short_anywhere_is_refused(tmp_path):
    whole = written(tmp_path)
    assert load(whole, tmp_path) is not None
    for length in range(0, len(whole), 7):
        assert load(whole[:length], tmp_path) is None, f"cut to {length} bytes"
    assert load(whole + b"more", tmp_path) is None


@thorough
@given(data=st.data())
def test_a_set_with_one_wrong_byte_is_refused_or_reads_the_same(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("byte")
    whole = bytearray(written(folder))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    found = load(bytes(whole), folder)
    assert found is None or same(found, small())


@thorough
@given(data=st.data())
def test_a_set_damaged_in_any_way_is_refused_or_usable(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("any")
    whole = written(folder)
    start, length = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 40))
    found = load(whole[:start] + data.draw(st.binary(max_size=40)) + whole[start + length :], folder)
    assert found is None or found.pixels().shape[0] == len(found.labels)


@quick
@given(junk=st.binary(max_size=60))
def test_junk_is_refused(tmp_path_factory, junk):
    assert load(junk, tmp_path_factory.mktemp("junk")) is None


def stored(tensors: dict, about: object, **more: str) -> bytes:
    text = about if isinstance(about, str) else json.dumps(about)
    return safetensors.numpy.save(tensors, {"dclib": text, **more})


ABOUT = {"dataset": "digits", "class_names": ["a", "b"], "mean": [0.1], "std": [0.3], "key": "", "about": {}}
IMAGES = np.zeros((2, 1, 3, 3), np.float32)
TENSORS = {"images": IMAGES, "labels": np.arange(2)}


def test_a_file_without_checksum_is_read_as_those_first_recorded_have_none(tmp_path):
    assert load(stored(TENSORS, ABOUT), tmp_path) is not None
    assert load(stored(TENSORS, ABOUT, crc="00000000"), tmp_path) is None


@pytest.mark.parametrize(
    "about",
    [
        {k: v for k, v in ABOUT.items() if k != "mean"},
        [],
        "no json",
        ABOUT | {"class_names": ["a"]},
        ABOUT | {"class_names": [1, 2]},
        ABOUT | {"class_names": 3},
        ABOUT | {"mean": [0.1, 0.1]},
        ABOUT | {"mean": "x"},
        ABOUT | {"mean": [float("nan")]},
        ABOUT | {"std": [0.0]},
        ABOUT | {"std": []},
        ABOUT | {"dataset": 3},
        ABOUT | {"key": None},
        ABOUT | {"about": []},
    ],
    ids=str,
)
def test_metadata_that_no_set_has_are_refused(tmp_path, about):
    assert load(stored(TENSORS, about), tmp_path) is None


@pytest.mark.parametrize(
    "tensors",
    [
        {"images": IMAGES},
        {"labels": np.arange(2)},
        TENSORS | {"images": IMAGES.astype(np.int32)},
        TENSORS | {"labels": np.arange(2.0)},
        TENSORS | {"labels": np.arange(3)},
        TENSORS | {"labels": np.array([0, 2])},
        TENSORS | {"labels": np.array([0, -1])},
        TENSORS | {"labels": np.arange(2).reshape(2, 1)},
        TENSORS | {"images": IMAGES[0]},
        TENSORS | {"images": IMAGES[:, :, :0]},
        TENSORS | {"images": IMAGES + np.float32(np.nan)},
        TENSORS | {"images": IMAGES + np.float32(np.inf)},
        {"images": IMAGES[:0], "labels": np.arange(0)},
    ],
    ids=lambda t: "-".join(f"{name}{a.shape}{a.dtype}" for name, a in t.items()),
)
def test_arrays_that_no_set_has_are_refused(tmp_path, tensors):
    assert load(stored(tensors, ABOUT), tmp_path) is None


def test_a_set_that_is_not_there(tmp_path):
    for path in (tmp_path / "nowhere", tmp_path):
        refused(path, "dclib condense", call=CondensedSet.load, path=path)
    refused("damaged", call=CondensedSet.load, path=tmp_path / ("x" * 300))


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


def test_what_is_missing_of_a_run_and_of_cells(tmp_path):
    records, run = Store(tmp_path), TrainNetworks(MakeSet("digits"), networks=4)
    records.add("cpu", {**TRAINED, "key": run.key})
    assert records.missing(run) == [1, 3]
    cells = [replace(c, networks=1) for c in CROSS_ARCH.cells(SMOKE, network="random", test_network=("LeNet", "MLP"))]
    for made in cells[0].runs():
        records.add("smoke", {**TRAINED, "key": made.key})
    assert records.incomplete(cells) == cells[1:]


def test_a_set_is_found_whatever_its_preset(tmp_path):
    store = Store(tmp_path)
    assert store.find_set("ab12") is None
    small().save(store.set_path("paper", "ab12"))
    assert store.find_set("ab12") == tmp_path / "paper" / "sets" / "ab12.safetensors"


@quick
@given(data=st.data())
def test_a_torn_last_record_is_left_out_with_a_warning(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("torn") / "networks.jsonl"
    line = json.dumps(TRAINED).encode()
    cut = data.draw(st.integers(1, len(line) - 1))
    path.write_bytes(line + b"\n" + line[:cut])
    with pytest.warns(UserWarning, match="the last line is torn and is left out"):
        assert list(RecordFile(path).appended()) == [TRAINED]


def test_the_next_record_takes_the_torn_ones_place(tmp_path):
    path = tmp_path / "cpu" / "networks.jsonl"
    Store(tmp_path).add("cpu", TRAINED)
    path.write_bytes(path.read_bytes() + b'{"key": "k1", "ki')
    with pytest.warns(UserWarning, match="torn"):
        Store(tmp_path).add("cpu", {**TRAINED, "key": "k3"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(Store(tmp_path).records) == {"k1", "k3"}


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "3",
        "[]",
        "null",
        "{}",
        json.dumps(TRAINED | {"kind": "Else"}),
        json.dumps(TRAINED | {"kind": []}),
        json.dumps(TRAINED | {"key": 3}),
        json.dumps(TRAINED | {"accuracies": [90.0]}),
        json.dumps(TRAINED | {"accuracies": {"first": 90.0}}),
        json.dumps(TRAINED | {"accuracies": {"0": None}}),
        json.dumps({"key": "k1", "kind": "TrainNetworks"}),
        "\x00\xff",
    ],
)
def test_a_line_that_is_no_record_is_refused_by_its_number(tmp_path, line):
    (tmp_path / "networks.jsonl").write_text(f"{json.dumps(TRAINED)}\n\n{line}\n{json.dumps(TRAINED)}\n")
    refused("networks.jsonl, line 3", "delete", call=lambda: list(RecordFile(tmp_path / "networks.jsonl").appended()))


def test_a_folder_in_the_records_place_is_refused(tmp_path):
    (tmp_path / "cpu" / "sets.jsonl").mkdir(parents=True)
    refused("sets.jsonl", "directory", call=lambda: Store(tmp_path).records)


def test_a_record_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "cpu").write_text("a file")
    refused("cannot append", "not a folder", call=lambda: Store(tmp_path).add("cpu", TRAINED))
    assert (tmp_path / "cpu").read_text() == "a file"


def test_where_the_results_are(tmp_path, monkeypatch):
    monkeypatch.setenv("DCLIB_RESULTS", str(tmp_path))
    assert results_root() == Store().root == tmp_path
    assert results_root("smoke") == tmp_path
    monkeypatch.delenv("DCLIB_RESULTS")
    assert results_root() == Path(store.__file__).resolve().parents[2] / "results"
    monkeypatch.setattr(store, "__file__", str(tmp_path / "site-packages" / "dclib" / "results" / "store.py"))
    assert results_root() == Path.home() / ".cache" / "dclib" / "results"


def test_what_smoke_records_is_seen_at_smoke_alone(tmp_path, monkeypatch):
    """So that no page, and no test of one, depends on a demonstration that somebody has run."""
    monkeypatch.delenv("DCLIB_RESULTS")
    (tmp_path / "results").mkdir()
    monkeypatch.setattr(store, "__file__", str(tmp_path / "dclib" / "results" / "store.py"))
    Store(preset="smoke").add("smoke", TRAINED)
    assert Store(preset="smoke").records.keys() == {TRAINED["key"]}
    assert Store().records == Store(preset="best").records == Store(preset="cpu").records == {}
    assert not list((tmp_path / "results").iterdir())


def test_every_record_of_the_repository_can_be_read():
    assert {r["preset"] for found in Store().records.values() for r in found} <= {"cpu", "paper"}
