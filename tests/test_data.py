"""Data sets: every source gives the same tensors in the same order, and what cannot be used is refused in one sentence."""

import bz2
import fcntl
import gzip
import hashlib
import io
import os
import pickle
import shutil
import socket
import struct
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image
from torchvision import datasets

from dclib.data import sources
from dclib.data.arrays import ARRAYS, canonical, grey, measure, resize
from dclib.data.dataset import Dataset, generator, hold_out, load
from dclib.data.formats import IDX
from dclib.errors import DataError
from dclib.reproduce import check_dataset

quick = settings(max_examples=20, deadline=None, derandomize=True)
seeds = st.integers(0, 2**31)


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """An empty data root, no Debian package, no network."""

    def offline(*_, **__):
        raise urllib.error.URLError(socket.gaierror(-3, "no network"))

    monkeypatch.setenv("DCLIB_DATA", str(tmp_path / "root"))
    monkeypatch.setattr(sources, "DEBIAN", tmp_path / "debian")
    monkeypatch.setattr(urllib.request, "urlopen", offline)
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def made(classes=10, train=30, test=20, size=(6, 6), channels=0, seed=0):
    """Random images, every class among them, as the four arrays of an .npz."""
    rng = np.random.default_rng(seed)
    shape = (*size, channels) if channels else size
    x = [rng.integers(0, 256, (n, *shape), dtype=np.uint8) for n in (train, test)]
    y = [rng.permutation(np.arange(n) % classes).astype(np.uint8) for n in (train, test)]
    return dict(zip(ARRAYS, (x[0], y[0], x[1], y[1]), strict=True))


def saved(path, **arrays):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)
    return path


def unread(*parts, name, call=load, **how):
    """Check that the data set is refused in a sentence that names these parts."""
    return refused(*parts, call=call, error=DataError, name=name, **how)


def same(a: Dataset, b: Dataset) -> bool:
    return a.hash == b.hash and all(torch.equal(getattr(a, key), getattr(b, key)) for key in ARRAYS)


def where():
    return {row.name: row.where for row in sources.available()}


# --- Dataset ---------------------------------------------------------------------------------------------------------


def tiny(**changes) -> Dataset:
    arrays = {key: torch.from_numpy(value.astype(np.int64 if key[0] == "y" else np.uint8)) for key, value in made(3).items()}
    arrays |= {key: arrays[key].unsqueeze(1) for key in ("x_train", "x_test")}
    return Dataset(**({"name": "tiny", "mean": (0.5,), "std": (0.25,), "class_names": ("a", "b", "c")} | arrays | changes))


def test_the_hash_sees_every_array_and_its_shape_and_moves_along():
    dataset = tiny()
    hashes = {dataset.hash, tiny(**{key: getattr(tiny(), key).reshape(-1, 1, 4, 9) for key in ("x_train", "x_test")}).hash}
    for key in ARRAYS:
        changed = getattr(dataset, key).clone()
        changed[-1] ^= 1
        hashes.add(tiny(**{key: changed}).hash)
    assert len(hashes) == 6
    assert dataset.to("meta").hash == dataset.hash  # the meta device holds no bytes to hash
    assert dataset.to("meta").x_train.device.type == "meta"
    assert same(dataset.to("cpu"), dataset)


def test_normalise(monkeypatch):
    doubled = {key: getattr(tiny(), key).repeat(1, 2, 1, 1) for key in ("x_train", "x_test")}
    dataset = tiny(**doubled, mean=(0.5, 0.1), std=(0.25, 2.0))
    before = dataset.x_train.clone()
    out = dataset.normalise(dataset.x_train)
    for c, (mean, std) in enumerate(zip(dataset.mean, dataset.std, strict=True)):
        torch.testing.assert_close(out[:, c], (before[:, c] / 255 - mean) / std)
    assert torch.equal(dataset.x_train, before)
    monkeypatch.setattr(torch, "tensor", None)  # a step that a GPU captures may make no tensor out of Python's numbers
    assert torch.equal(dataset.normalise(dataset.x_train), out)


@quick
@given(seed=seeds, count=st.integers(1, 12), c=st.integers(0, 2))
def test_draw_has_no_repeats_and_follows_the_generator(seed, count, c):
    dataset, whole = tiny(), tiny().draw(c, 99, generator(0))
    drawn = dataset.draw(c, count, generator(seed, "real", 1))
    assert torch.equal(whole, torch.nonzero(dataset.y_train == c).flatten())
    assert len(set(drawn.tolist())) == len(drawn) == min(count, 10)
    assert (dataset.y_train[drawn] == c).all()
    assert torch.equal(drawn, dataset.draw(c, count, generator(seed, "real", 1)))
    others = generator(seed, "real"), generator(seed, "noise"), generator(seed + 1, "real")
    assert len({torch.rand(1, generator=g).item() for g in others}) == 3


def test_held_out_images_are_no_longer_trained_on(make_dataset):
    whole = make_dataset(30, 40, channels=3)
    rest, validation = hold_out(whole, 20)
    assert (len(rest.y_train), len(validation.y_test)) == (50, 20)
    rows = lambda x, y: {(image.numpy().tobytes(), int(label)) for image, label in zip(x, y, strict=True)}  # noqa: E731
    kept, out = rows(rest.x_train, rest.y_train), rows(validation.x_test, validation.y_test)
    assert not kept & out
    assert kept | out == rows(whole.x_train, whole.y_train)
    assert torch.equal(rest.x_test, whole.x_test)
    assert torch.equal(validation.x_train, rest.x_train)
    assert torch.equal(hold_out(whole, 20)[1].x_test, validation.x_test)
    refused("70 images", "made", call=lambda: hold_out(whole, 70))
    refused("'a'", "10 images", "the 11 asked for: lower ipc", call=lambda: tiny().require(11, "lower ipc"))


# --- what happens to pixels ------------------------------------------------------------------------------------------

pictures = hnp.arrays(np.uint8, st.tuples(st.integers(1, 4), st.just(3), st.integers(1, 9), st.integers(1, 9)))


@quick
@given(images=pictures, side=st.integers(1, 20))
def test_resize_is_torchs_antialiased_bilinear(images, side):
    theirs = F.interpolate(torch.from_numpy(images).double(), (side, side), mode="bilinear", antialias=True).numpy()
    assert np.abs(resize(images, side) - theirs).max() <= 0.5 + 1e-5


@quick
@given(images=pictures)
def test_grey_is_pillows(images):
    for image, ours in zip(images.transpose(0, 2, 3, 1), grey(images)[:, 0], strict=True):
        assert np.array_equal(np.asarray(Image.fromarray(np.ascontiguousarray(image)).convert("L")), ours)


@quick
@given(
    images=hnp.arrays(np.uint8, st.tuples(st.integers(2, 12), st.just(1), st.just(1), st.integers(1, 4)), fill=st.just(0)),
    seed=seeds,
)
def test_the_order_is_by_label_then_bytes(images, seed):
    labels = np.random.default_rng(seed).integers(0, 3, len(images))
    pairs = [(label, image.tobytes()) for label, image in zip(labels, images, strict=True)]
    x, y = canonical(images, labels)
    assert [(label, image.tobytes()) for label, image in zip(y, x, strict=True)] == sorted(pairs)


@quick
@given(images=pictures.filter(lambda x: all(np.ptp(x[:, c]) for c in range(3))))
def test_measure_is_mean_and_std(images):
    mean, std = measure(images, "here")
    np.testing.assert_allclose(mean, (images / 255).mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(std, (images / 255).std((0, 2, 3)), rtol=1e-9)


def test_digits():
    digits = load("digits")
    assert digits.hash == "466950d6a4a3b84f"
    assert (digits.x_train.shape, digits.x_test.shape) == ((1000, 1, 28, 28), (797, 1, 28, 28))
    share = torch.bincount(digits.y_train) / (torch.bincount(digits.y_train) + torch.bincount(digits.y_test))
    assert ((share - 1000 / 1797).abs() < 1 / 174).all()  # stratified, to within one image
    pixels = digits.normalise(digits.x_train).double()
    assert (pixels.mean(), pixels.std(correction=0)) == pytest.approx((0, 1), abs=1e-6)


def test_a_view_has_the_same_labels_and_other_pixels():
    plain, inverted, turned, both = (load(f"digits{v}", image_size=8) for v in ("", "+inverted", "+turned", "+turned+inverted"))
    back = [(inverted, lambda x: 255 - x), (turned, lambda x: torch.rot90(x, -1, (2, 3)))]
    for seen, undo in [*back, (both, lambda x: torch.rot90(255 - x, -1, (2, 3)))]:
        assert seen.y_train.tolist() == plain.y_train.tolist()
        for name in ("x_train", "x_test"):
            images = (undo(getattr(seen, name)).contiguous(), getattr(plain, name))
            assert len({frozenset(image.numpy().tobytes() for image in x) for x in images}) == 1
        assert seen.normalise(seen.x_train).mean().item() == pytest.approx(0, abs=1e-5)
    assert len({d.hash for d in (plain, inverted, turned, both)}) == 4
    assert (inverted.name, both.source) == ("digits+inverted", "digits+turned+inverted")


# --- .npz ------------------------------------------------------------------------------------------------------------


def test_npz_by_path_with_labels_of_any_kind_of_whole_numbers_and_names(tmp_path):
    for channels in (0, 1, 3):
        arrays = made(4, channels=channels)
        dataset = load(saved(tmp_path / "mine.npz", **arrays))
        assert (dataset.name, dataset.class_names, dataset.channels) == ("mine", ("0", "1", "2", "3"), channels or 1)
        assert dataset.y_train.tolist() == sorted(arrays["y_train"].tolist())
        assert dataset.x_train.stride() == torch.empty(dataset.x_train.shape).stride()  # else torch takes it for channels last
        np.testing.assert_allclose(dataset.mean, arrays["x_train"].reshape(-1, channels or 1).mean(0) / 255)
    arrays = made(2)
    plain = load(saved(tmp_path / "plain.npz", **arrays))
    for kind in (bool, np.int8, np.uint64, np.float16, np.float64):
        for column in (False, True):  # as Keras keeps them
            labels = {key: arrays[key].astype(kind).reshape((-1, 1) if column else -1) for key in ("y_train", "y_test")}
            found = load(saved(tmp_path / "other.npz", **arrays | labels, class_names=np.array(["no", "yes"])))
            assert same(found, plain)
            assert found.class_names == ("no", "yes")


@pytest.mark.parametrize("name", sources.KNOWN.keys() - {"digits"})
def test_known_names_have_the_papers_constants_or_measure(root, name):
    known = sources.KNOWN[name]
    classes = len(known.classes)
    arrays = made(classes, train=classes, test=classes, channels=known.channels)
    saved(root / f"{name}.npz", **arrays)
    dataset, coloured, pale = load(name), load(name, channels=3), load(name, channels=1)
    assert (dataset.class_names, dataset.note) == (known.classes, known.note)
    assert dataset.mean == (known.mean or pytest.approx([arrays["x_train"].mean() / 255]))
    assert coloured.channels == len(coloured.mean) == 3
    assert pale.channels == len(pale.mean) == 1
    if known.channels == 1:
        assert coloured.mean == dataset.mean * 3
        assert torch.equal(coloured.x_train[:, 2:], dataset.x_train)
    else:
        assert abs(pale.normalise(pale.x_train).mean()) < 1e-5


def test_the_root_is_given_or_in_the_environment_or_in_the_cache_folder(tmp_path, monkeypatch):
    saved(tmp_path / "other" / "flowers.npz", **made(4))
    assert load("flowers", root=tmp_path / "other").classes == 4
    monkeypatch.setenv("DCLIB_DATA", str(tmp_path / "other"))
    assert same(load("flowers"), load(tmp_path / "other" / "flowers.npz"))
    monkeypatch.delenv("DCLIB_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert str(sources.data_root()) == "/somewhere/dclib"


def put(value, kind):
    """Change the last label."""
    return lambda y: np.append(y[:-1].astype(kind), kind(value))


BAD = [
    ("x_train", lambda x: np.zeros((30, 6, 32, 32), np.uint8), "(30, 6, 32, 32)", "(N, H, W, C)"),
    ("x_train", lambda x: np.zeros((30, 3, 32, 4), np.uint8), "(30, 3, 32, 4)", "(N, H, W, C)"),
    ("x_train", lambda x: x[:0], "x_train", "(0, 6, 6)"),
    ("x_test", lambda x: x[:, :5], "6×6×1", "5×6×1"),
    ("y_train", put(np.nan, np.float64), "y_train", "nan"),
    ("y_train", put(0.75, np.float32), "y_train", "label 0.75"),
    ("y_train", lambda y: y.astype("M8[D]"), "y_train", "1970-01-"),
    ("y_test", lambda y: np.array(["cat"] * 20), "y_test", "cat"),
    ("y_train", lambda y: np.eye(4, dtype=np.int64)[y], "y_train", "(30, 4)"),
    ("y_train", put(2**64 - 1, np.uint64), "y_train", 2**64 - 1),
    ("y_test", put(4, np.int64), "y_test", "label 4", "0 to 3"),
    ("y_train", lambda y: np.maximum(y, 1), "y_test", "label 0", "no training image"),
    ("class_names", lambda _: np.array(["a", "b", "a", "c"]), "class names", "a, b, a, c"),
    ("class_names", lambda _: np.array(["a", "b"]), "label", "0 to 1"),
    ("class_names", lambda _: np.array([*"abcde"]), "class 4", "no training image"),
]


def test_bad_arrays_are_refused(root, tmp_path):
    """Others are in mishaps.txt."""
    for key, change, *parts in BAD:
        arrays = made(4)
        path = saved(tmp_path / "bad.npz", **arrays | {key: change(arrays.get(key))})
        unread(path, *parts, name=path)
    given = made()
    for arrays, *parts in (
        (given | {"y_train": put(10, np.int64)(given["y_train"])}, "y_train", "label 10", "0 to 9"),
        (given | {"y_train": np.minimum(given["y_train"], 8)}, "class 9"),
        (made(channels=3), "3 channels", "not 1"),
    ):
        unread(saved(root / "mnist.npz", **arrays), *parts, name="mnist")


def test_a_file_of_another_kind_is_called_what_it_is(tmp_path, monkeypatch):
    """Whether it is given as a name or as a path, and even if it is called .npz; it is neither missing nor damaged."""
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.zeros(3))
    saved(tmp_path / "a.npz", **made(3)).rename("a.data")
    with zipfile.ZipFile("pets.zip", "w") as archive:
        archive.writestr("pets/train/cat/0.png", "x")
    Path("pets.gz").write_bytes(gzip.compress(b"x"))
    torch.save({"x": torch.zeros(3)}, "x.pt")
    Image.new("L", (2, 2)).save("cat.png")
    Path("table.csv").write_text("0,1")
    kinds = {
        "x.npy": ("a NumPy array (.npy)", *ARRAYS),
        "a.data": ("an .npz archive", "end in .npz"),
        "pets.zip": ("a zip archive", "unpack it"),
        "pets.gz": ("a gzip archive", "unpack it"),
        "x.pt": ("torch.save", "torch.load"),
        "cat.png": ("a picture", "train/<class>/"),
        "table.csv": ("neither an .npz nor a folder", *ARRAYS),
    }
    for name, parts in kinds.items():
        for path in (name, f"./{name}"):
            unread(tmp_path / name, *parts, name=path)
            unread(tmp_path / name, *parts, call=check_dataset, name=path)
        if name not in ("a.data", "table.csv"):
            Path(name).rename("it.npz")
            unread(tmp_path / "it.npz", *parts, name="it.npz")


def test_sizes_and_channels_that_cannot_be(tmp_path):
    for option in ({"image_size": True}, {"channels": 2}):
        unread(*option.values(), name="digits", **option)
    path = saved(tmp_path / "a.npz", **made(2, channels=2, size=(6, 8)))
    found = load(path), load(path, image_size=5)
    assert [(one.channels, one.size) for one in found] == [(2, (6, 8)), (2, (5, 5))]
    unread("2 channels", path, name=path, channels=3)


# --- names, paths and torchvision's files ----------------------------------------------------------------------------


def test_a_path_is_told_from_a_name_once(tmp_path, monkeypatch, root):
    """The data's source is a name, or a path that means the same in any folder, whatever lies in the data root."""
    for name in ("pets", "mnist", "pets+onblack"):
        lay_folder(tmp_path / name)
    saved(tmp_path / "mine.npz", **made(3)).rename(tmp_path / "MINE.NPZ")
    monkeypatch.chdir(tmp_path)
    for name in ("MINE.NPZ", "./MINE.NPZ", Path("MINE.NPZ"), tmp_path / "MINE.NPZ", f"../{tmp_path.name}/MINE.NPZ"):
        assert load(name).source == sources.spelled(name) == str(tmp_path / "MINE.NPZ")
        check_dataset(str(name))
    assert load("pets").source == load("./pets").source == str(tmp_path / "pets")
    for name in ("pets", "mnist"):  # a name in the data root goes first
        saved(root / f"{name}.npz", **made(10))
        assert (load(name).source, load(name).classes) == (name, 10)
        for path in (f"./{name}", Path(name)):
            assert (load(path).source, load(path).class_names) == (str(tmp_path / name), ("cat", "dog"))
    turned = load("./pets+turned")
    assert (turned.source, turned.name) == (f"{tmp_path / 'pets'}+turned", "pets+turned")
    assert sources.parted(load("./pets+onblack").source) == (str(tmp_path / "pets+onblack"), ())  # the folder of that name
    assert sources.spelled("nowhere") == "nowhere"
    assert sources.spelled("./nowhere") == str(tmp_path / "nowhere")


def test_the_users_data_is_told_from_known_data_and_stamped(tmp_path, root):
    folder, path = lay_folder(tmp_path / "pets"), saved(root / "flowers.npz", **made(4))
    assert sources.own_place("digits+turned") is None
    assert sources.own_place("nowhere") is None
    for name, place in ((str(folder), folder), (f"{folder}+onblack", folder), ("flowers", path)):
        assert sources.own_place(name) == place
        before, file = sources.stamp(name), place if place.is_file() else place / "train/cat/0.png"
        assert before == sources.stamp(name)
        os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))
        assert before != sources.stamp(name)


def idx(array):
    return struct.pack(f">BBBB{array.ndim}i", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def lay_idx(folder, arrays, suffix="", pack=bytes):
    folder.mkdir(parents=True)
    for part, key in zip(IDX, ARRAYS, strict=True):
        (folder / f"{part}{suffix}").write_bytes(pack(idx(arrays[key])))


def lay_usps(folder, arrays):
    folder.mkdir(exist_ok=True)
    for split, name in (("train", "usps.bz2"), ("test", "usps.t.bz2")):
        rows = zip(arrays[f"x_{split}"].reshape(-1, 256), arrays[f"y_{split}"], strict=True)
        lines = [f"{y + 1} " + " ".join(f"{i}:{(v + 0.5) / 255 * 2 - 1:.6f}" for i, v in enumerate(x, 1)) for x, y in rows]
        (folder / name).write_bytes(bz2.compress("\n".join(lines).encode()))


def md5(path):
    return hashlib.md5(path.read_bytes()).hexdigest()


def lay_svhn(folder, arrays, monkeypatch):
    from scipy.io import savemat

    lists = {}
    for split in ("train", "test"):
        x, y = arrays[f"x_{split}"], arrays[f"y_{split}"].astype(np.int64)
        file = folder / f"{split}_32x32.mat"
        savemat(file, {"X": x.transpose(1, 2, 3, 0), "y": np.where(y == 0, 10, y)[:, None]})
        lists[split] = ["https://nowhere", file.name, md5(file)]
    monkeypatch.setattr(datasets.SVHN, "split_list", lists)


def lay_cifar(folder, arrays, monkeypatch, kind):
    base = folder / kind.base_folder
    base.mkdir()
    label = "fine_labels" if kind is datasets.CIFAR100 else "labels"
    parts = np.array_split(np.arange(len(arrays["x_train"])), len(kind.train_list))
    files = [(name, "train", part) for (name, _), part in zip(kind.train_list, parts, strict=True)]
    for name, split, part in [*files, (kind.test_list[0][0], "test", slice(None))]:
        x, y = arrays[f"x_{split}"][part], arrays[f"y_{split}"][part]
        content = {"data": x.transpose(0, 3, 1, 2).reshape(len(x), -1), label: y.tolist()}
        (base / name).write_bytes(pickle.dumps(content))
    (base / kind.meta["filename"]).write_bytes(pickle.dumps({kind.meta["key"]: []}))
    monkeypatch.setattr(kind, "meta", kind.meta | {"md5": md5(base / kind.meta["filename"])})
    for names in ("train_list", "test_list"):
        monkeypatch.setattr(kind, names, [[name, md5(base / name)] for name, _ in getattr(kind, names)])


def lay(name, root, arrays, monkeypatch):
    if name in ("mnist", "fashionmnist"):
        lay_idx(root / sources.KNOWN[name].torchvision / "raw", arrays)
    elif name == "usps":
        lay_usps(root, arrays)
    elif name == "svhn":
        lay_svhn(root, arrays, monkeypatch)
    else:
        lay_cifar(root, arrays, monkeypatch, getattr(datasets, name.upper()))


SIZES = {"mnist": (28, 28), "fashionmnist": (28, 28), "usps": (16, 16)}


@pytest.mark.parametrize("name", ["mnist", "fashionmnist", "usps", "svhn", "cifar10", "cifar100"])
@pytest.mark.filterwarnings("ignore:dtype")  # NumPy on old CIFAR pickles
def test_torchvisions_files_give_what_the_npz_gives(root, tmp_path, monkeypatch, name):
    known = sources.KNOWN[name]
    classes = len(known.classes)
    arrays = made(classes, 2 * classes, classes, SIZES.get(name, (32, 32)), known.channels if known.channels == 3 else 0)
    lay(name, root, arrays, monkeypatch)
    assert where()[name] == "torchvision"
    saved(tmp_path / "npz" / f"{name}.npz", **arrays)
    for download in (False, True):  # neither needs the network
        assert same(load(name, download=download), load(name, root=tmp_path / "npz"))


def test_svhn10k_is_the_head_of_svhns_test_file(root, monkeypatch):
    arrays = made(train=10, test=10500, size=(2, 2), channels=3)
    lay_svhn(root, arrays, monkeypatch)
    (root / "train_32x32.mat").unlink()
    dataset = load("svhn10k")
    assert (len(dataset.x_train), len(dataset.x_test), dataset.note) == (8000, 2000, "a stand-in")
    labels = arrays["y_test"].astype(np.int64)
    for x, part in ((dataset.x_train, slice(8000)), (dataset.x_test, slice(8000, 10000))):
        assert np.array_equal(x.numpy(), canonical(arrays["x_test"][part].transpose(0, 3, 1, 2), labels[part])[0])


def test_debians_fashionmnist_and_damaged_files(root, tmp_path):
    arrays = made(size=(28, 28))
    lay_idx(tmp_path / "debian", arrays, ".gz", gzip.compress)
    saved(tmp_path / "npz" / "fashionmnist.npz", **arrays)
    assert where()["fashionmnist"] == "debian"
    assert same(load("fashionmnist"), load("fashionmnist", root=tmp_path / "npz"))
    file = tmp_path / "debian" / f"{IDX[2]}.gz"
    whole = file.read_bytes()
    for damaged in (whole[:50], b"text", b"", gzip.compress(gzip.decompress(whole)[:-1])):
        file.write_bytes(damaged)
        unread(file, "cannot read", name="fashionmnist")
    lay_idx(root / "MNIST" / "raw", arrays)
    (root / "MNIST" / "raw" / IDX[0]).write_bytes(b"\0\0")
    unread("mnist", root, "cannot read", "delete", name="mnist")
    assert (root / "MNIST" / "raw" / IDX[0]).exists()  # the user's file, not a download of ours


def test_without_network_and_files_three_ways_are_named(root):
    for name in ("mnist", "usps", "svhn10k"):
        text = unread(name, f"{name}.npz", *ARRAYS, root, sources.KNOWN[name].files[0], "network", name=name)
        assert "no network" in text or "Error downloading" in text
        assert "Error downloading" not in unread(name, "network", name=name, download=False)


class Response(io.BytesIO):
    """What `urlopen` returns."""

    def __init__(self, content, url):
        super().__init__(content)
        self.length, self.url = len(content), url


@pytest.fixture
def serve(root, tmp_path, monkeypatch):
    """A server of USPS in a folder, which looks at how it is asked."""

    def urlopen(request, *_, **__):
        assert socket.getdefaulttimeout() == sources.SILENCE
        folder = os.open(root, os.O_RDONLY)
        with pytest.raises(BlockingIOError):  # one process at a time downloads
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(folder)
        file = tmp_path / "server" / request.full_url.rsplit("/")[-1]
        if not file.exists():
            raise urllib.error.HTTPError(request.full_url, 404, "Not Found", {}, None)
        return Response(file.read_bytes(), request.full_url)

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    monkeypatch.setattr(datasets.USPS, "split_list", {k: [u, n, None] for k, (u, n, _) in datasets.USPS.split_list.items()})
    arrays = made(size=(16, 16))
    lay_usps(tmp_path / "server", arrays)
    saved(tmp_path / "npz" / "usps.npz", **arrays)
    return tmp_path / "server"


def test_a_download_shows_its_progress_and_leaves_no_half_file(root, tmp_path, serve, capsys):
    moved = (serve / "usps.t.bz2").rename(tmp_path / "usps.t.bz2")
    unread("Not Found", "usps.npz", name="usps")
    assert not list(root.iterdir())
    moved.rename(serve / "usps.t.bz2")
    expected = load("usps", root=tmp_path / "npz")
    assert same(load("usps"), expected)
    assert "100%" in capsys.readouterr().err
    assert socket.getdefaulttimeout() is None
    shutil.rmtree(serve)
    assert same(load("usps"), expected)


def test_available(root, tmp_path):
    rows = {row.name: row for row in sources.available()}
    assert list(rows) == list(sources.KNOWN)
    assert rows["digits"] == ("digits", "embedded", 1000, 797, "")
    assert rows["svhn10k"] == ("svhn10k", "downloadable", 8000, 2000, "a stand-in")
    saved(root / "mnist.npz", **made())
    saved(root / "flowers.npz", **made(4, train=12, test=8))
    (root / "broken.npz").write_bytes(b"PK")
    (root / "._flowers.npz").write_bytes(b"of macOS")
    rows = {row.name: row for row in sources.available()}
    assert rows.keys() - sources.KNOWN.keys() == {"flowers", "broken"}
    assert rows["mnist"][1:4] == ("npz", 30, 20)
    assert rows["flowers"][1:4] == ("npz", 12, 8)
    assert rows["broken"][1:4] == ("unreadable", 0, 0)
    assert len(sources.available(tmp_path / "none")) == len(sources.KNOWN)


def test_looking_up_needs_no_torch():
    code = "import sys, dclib.data.sources as s; s.available(); s.spelled('./x+turned'); s.stamp('digits')\n"
    code += "assert not {'torch', 'torchvision', 'sklearn', 'PIL'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- folders of pictures ---------------------------------------------------------------------------------------------


def lay_folder(folder, mode="RGB", size=(6, 6), per_class=3):
    rng = np.random.default_rng(0)
    shape = (*size, 3) if mode == "RGB" else size
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            (folder / split / name).mkdir(parents=True)
            for i in range(per_class):
                image = Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8))
                image.save(folder / split / name / f"{i}.png")
    return folder


def as_arrays(folder):
    arrays = {}
    for split in ("train", "test"):
        files = [(file, c) for c, name in enumerate(("cat", "dog")) for file in (folder / split / name).glob("*.png")]
        arrays[f"x_{split}"] = np.stack([np.asarray(Image.open(file)) for file, _ in files])
        arrays[f"y_{split}"] = np.array([c for _, c in files])
    return arrays


@pytest.mark.parametrize(("mode", "channels", "size"), [("RGB", 3, (6, 6)), ("L", 1, (6, 6)), ("RGB", 3, (6, 8))])
def test_folder_gives_what_the_npz_gives(tmp_path, mode, channels, size):
    folder = lay_folder(tmp_path / "pets", mode, size)
    dataset, path = load(folder), saved(tmp_path / "pets.npz", **as_arrays(folder))
    assert (dataset.name, dataset.class_names, dataset.channels) == ("pets", ("cat", "dog"), channels)
    for options in ({}, {"image_size": 4}, {"image_size": 9, "channels": 1}, {"channels": 3}):
        assert same(load(folder, **options), load(path, **options))
    for place in (folder, folder / "train", folder / "test" / "dog"):  # what systems leave is no image
        for name in (".DS_Store", "._0.png", "Thumbs.db", "Desktop.ini"):
            (place / name).write_bytes(b"x")
        (place / "__MACOSX").mkdir()
    assert same(load(folder), dataset)


def shorten(file, size):
    file.write_bytes(file.read_bytes()[:size])


SPOILT = {
    "cut short": (lambda f: shorten(f / "test/dog/0.png", 60), "test/dog/0.png"),
    "cut a little": (lambda f: shorten(f / "test/dog/1.jpg", -200), "test/dog/1.jpg"),
    "empty": (lambda f: shorten(f / "test/dog/0.png", 0), "test/dog/0.png"),
    "folder": (lambda f: (f / "train/dog/more").mkdir(), "train/dog/more", "folder within the class 'dog'"),
    "12 bits": (lambda f: Image.fromarray(np.full((6, 6), 4095, np.uint16)).save(f / "train/dog/0.png"), "train/dog/0.png", 4095),
    "class without test": (lambda f: (f / "test/dog").rename(f / "other"), "test", "'dog'"),
    "class outside": (lambda f: (f / "train/dog").rename(f / "other"), "train", "'dog'"),
    "empty class": (lambda f: [file.unlink() for file in (f / "train/cat").iterdir()], "class 'cat'", "no image"),
    "no class": (lambda f: [shutil.rmtree(f / "train" / c) for c in ("cat", "dog")], "train has no class"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_spoilt_folders_are_refused(tmp_path, case):
    """Others are in mishaps.txt."""
    folder = lay_folder(tmp_path / "pets", size=(32, 32))
    Image.open(folder / "test/dog/1.png").save(folder / "test/dog/1.jpg")
    spoil, *parts = SPOILT[case]
    spoil(folder)
    unread(folder, *parts, name=folder)
