"""Data sets: every source gives the same tensors in the same order, and what cannot be used is refused in one sentence."""

import bz2
import contextlib
import fcntl
import gzip
import hashlib
import io
import os
import pickle
import re
import socket
import struct
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image
from torchvision import datasets

from dclib.data import dataset as data
from dclib.data import sources
from dclib.data.dataset import Dataset, generator, load
from dclib.data.formats import ARRAYS, IDX
from dclib.data.arrays import canonical, grey, measure, resize
from dclib.errors import DataError
from dclib.reproduce import check_dataset

quick = settings(max_examples=30, deadline=None, derandomize=True)
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


def refused(*parts, call=load, **given):
    """Check that the call is refused with one sentence that names `parts`."""
    with pytest.raises(DataError) as caught:
        call(**given)
    text = str(caught.value)
    assert "\n" not in text
    assert not re.search(r"\. [A-Z]|\.$", text), f"more than one sentence: {text}"
    for part in parts:
        assert str(part) in text, f"{part!r} is not named in: {text}"
    return text


def same(a: Dataset, b: Dataset) -> bool:
    return a.hash == b.hash and all(torch.equal(getattr(a, key), getattr(b, key)) for key in ARRAYS)


# --- Dataset ---------------------------------------------------------------------------------------------------------


def tiny(**changes) -> Dataset:
    arrays = {key: torch.from_numpy(value.astype(np.int64 if key[0] == "y" else np.uint8)) for key, value in made(3).items()}
    arrays |= {key: arrays[key].unsqueeze(1) for key in ("x_train", "x_test")}
    return Dataset(**({"name": "tiny", "mean": (0.5,), "std": (0.25,), "class_names": ("a", "b", "c")} | arrays | changes))


def test_properties():
    dataset = tiny()
    assert (dataset.channels, dataset.classes, dataset.size, dataset.note) == (1, 3, (6, 6), "")
    assert re.fullmatch("[0-9a-f]{16}", dataset.hash)


@pytest.mark.parametrize("key", ARRAYS)
def test_the_hash_sees_every_array(key):
    dataset = tiny()
    changed = getattr(dataset, key).clone()
    changed[-1] = changed[-1] ^ 1
    assert tiny(**{key: changed}).hash != dataset.hash


def test_the_hash_sees_the_shape():
    wide = {key: getattr(tiny(), key).reshape(-1, 1, 4, 9) for key in ("x_train", "x_test")}
    assert tiny(**wide).hash != tiny().hash


def test_moving_keeps_images_and_hash():
    dataset = tiny()
    known = dataset.hash
    assert dataset.to("meta").hash == known  # carried over: the meta device holds no bytes to hash
    assert same(dataset.to("cpu"), dataset)
    assert dataset.to("meta").x_train.device.type == "meta"


def test_normalise():
    doubled = {key: getattr(tiny(), key).repeat(1, 2, 1, 1) for key in ("x_train", "x_test")}
    dataset = tiny(**doubled, mean=(0.5, 0.1), std=(0.25, 2.0))
    before = dataset.x_train.clone()
    out = dataset.normalise(dataset.x_train)
    for c, (mean, std) in enumerate(zip(dataset.mean, dataset.std, strict=True)):
        torch.testing.assert_close(out[:, c], (before[:, c] / 255 - mean) / std)
    assert out.dtype == torch.float32
    assert torch.equal(dataset.x_train, before)


def test_class_indices_are_the_class():
    dataset = tiny()
    parts = [dataset.class_indices(c) for c in range(3)]
    assert all((dataset.y_train[part] == c).all() for c, part in enumerate(parts))
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(30))


@quick
@given(seed=seeds, count=st.integers(1, 12), c=st.integers(0, 2))
def test_draw_has_no_repeats_and_follows_the_generator(seed, count, c):
    dataset = tiny()
    drawn = dataset.draw(c, count, generator(seed, "real", 1))
    assert len(drawn) == min(count, 10)
    assert len(set(drawn.tolist())) == len(drawn)
    assert (dataset.y_train[drawn] == c).all()
    assert torch.equal(drawn, dataset.draw(c, count, generator(seed, "real", 1)))


def test_draw_takes_a_smaller_class_whole():
    dataset = tiny()
    assert torch.equal(dataset.draw(1, 256, generator(0)), dataset.class_indices(1))


def test_every_image_is_drawn_sometimes():
    dataset, rng = tiny(), generator(0)
    assert set(torch.cat([dataset.draw(0, 3, rng) for _ in range(60)]).tolist()) == set(dataset.class_indices(0).tolist())


def test_generators_differ_by_purpose():
    draws = [torch.rand(4, generator=g).tolist() for g in (generator(0, "real"), generator(0, "noise"), generator(1, "real"))]
    assert draws[0] != draws[1] != draws[2] != draws[0]
    assert draws[0] == torch.rand(4, generator=generator(0, "real")).tolist()


def test_a_generator_is_told_by_32_bits_of_its_seed():
    """As `generator` and the protocol say: what two purposes share with a probability of 2⁻³² is all of their numbers."""
    seed = generator(0, "real", 1, 2, 3).initial_seed()
    alike, other = (torch.Generator().manual_seed(s) for s in (seed % 2**32 + 7 * 2**32, (seed + 1) % 2**32))
    drawn, same, different = (torch.rand(4, generator=g).tolist() for g in (generator(0, "real", 1, 2, 3), alike, other))
    assert drawn == same != different
    assert "32 of 63 bits" in " ".join(generator.__doc__.split())
    batches = 1000 * 10 * 10
    assert round(batches * (batches - 1) / 2 / 2**32) == 1  # "one such pair is to be expected"


@pytest.mark.parametrize("c", [-1, 3])
def test_no_such_class(c):
    refused(c, "0 to 2", call=lambda: tiny().class_indices(c))


def test_draw_at_least_one():
    refused("0 images", call=lambda: tiny().draw(0, 0, generator(0)))


# --- pixels ----------------------------------------------------------------------------------------------------------

pictures = hnp.arrays(np.uint8, st.tuples(st.integers(1, 4), st.just(3), st.integers(1, 9), st.integers(1, 9)))


@quick
@given(images=pictures, side=st.integers(1, 20))
def test_resize_is_torchs_antialiased_bilinear(images, side):
    theirs = F.interpolate(torch.from_numpy(images).double(), (side, side), mode="bilinear", antialias=True).numpy()
    ours = resize(images, side)
    assert ours.shape == (*images.shape[:2], side, side)
    assert np.abs(ours - theirs).max() <= 0.5 + 1e-5


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
def test_the_order_does_not_depend_on_the_source(images, seed):
    rng = np.random.default_rng(seed)
    labels, order = rng.integers(0, 3, len(images)), rng.permutation(len(images))
    x, y = canonical(images, labels)
    x2, y2 = canonical(images[order], labels[order])
    assert np.array_equal(x, x2)
    assert np.array_equal(y, y2)
    pairs = [(label, image.tobytes()) for label, image in zip(labels, images, strict=True)]
    assert [(label, image.tobytes()) for label, image in zip(y, x, strict=True)] == sorted(pairs)


@quick
@given(images=pictures.filter(lambda x: all(np.ptp(x[:, c]) for c in range(3))))
def test_measure_is_mean_and_std(images):
    mean, std = measure(images, "here")
    np.testing.assert_allclose(mean, (images / 255).mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(std, (images / 255).std((0, 2, 3)), rtol=1e-9)


# --- digits ----------------------------------------------------------------------------------------------------------


def test_digits():
    digits = load("digits")
    assert digits.x_train.shape == (1000, 1, 28, 28)
    assert digits.x_test.shape == (797, 1, 28, 28)
    share = torch.bincount(digits.y_train) / (torch.bincount(digits.y_train) + torch.bincount(digits.y_test))
    assert ((share - 1000 / 1797).abs() < 1 / 174).all()  # stratified, to within one image
    normal = (digits.x_train.double() / 255 - digits.mean[0]) / digits.std[0]
    assert abs(normal.mean()) < 1e-9
    assert abs(normal.std(correction=0) - 1) < 1e-9


def test_digits_never_change():
    assert load("digits").hash == "466950d6a4a3b84f"


def test_digits_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sklearn.datasets", None)
    refused("scikit-learn", "pip install", name="digits")


# --- .npz ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [0, 1, 3])
def test_npz_by_path(tmp_path, channels):
    arrays = made(4, channels=channels)
    dataset = load(saved(tmp_path / "mine.npz", **arrays))
    assert (dataset.name, dataset.class_names, dataset.channels) == ("mine", ("0", "1", "2", "3"), channels or 1)
    assert dataset.y_train.tolist() == sorted(arrays["y_train"].tolist())
    assert dataset.x_train.is_contiguous()
    np.testing.assert_allclose(dataset.mean, arrays["x_train"].reshape(-1, channels or 1).mean(0) / 255)


def test_npz_by_name(root):
    saved(root / "flowers.npz", **made(4))
    assert load("flowers").name == "flowers"
    assert same(load("flowers"), load(root / "flowers.npz"))


def test_npz_with_labels_as_keras_keeps_them(tmp_path):
    arrays = made(4)
    column = arrays | {key: arrays[key][:, None].astype(np.int32) for key in ("y_train", "y_test")}
    assert same(load(saved(tmp_path / "a.npz", **arrays)), load(saved(tmp_path / "b.npz", **column)))


def test_npz_with_labels_of_any_kind_of_whole_numbers(tmp_path):
    arrays = made(2)
    plain = load(saved(tmp_path / "plain.npz", **arrays))
    for kind in (bool, np.int8, np.uint64, np.float16, np.float64):
        other = arrays | {key: arrays[key].astype(kind) for key in ("y_train", "y_test")}
        other["class_names"] = np.array(["no", "yes"])
        found = load(saved(tmp_path / "other.npz", **other))
        assert same(found, plain)
        assert found.class_names == ("no", "yes")


@pytest.mark.parametrize("names", [["a", "a"], ["a"], ["a", "b", "c"]])
def test_an_npz_has_one_name_for_each_class(tmp_path, names):
    with pytest.raises(DataError, match=r"class_names has .* for labels from 0 to 1: give each class one name of its own"):
        load(saved(tmp_path / "a.npz", **made(2), class_names=np.array(names)))


def test_images_need_not_be_square(tmp_path):
    path = saved(tmp_path / "a.npz", **made(2, size=(6, 8)))
    assert load(path).size == (6, 8)
    assert load(path, image_size=5).size == (5, 5)


@pytest.mark.parametrize("name", [name for name, known in sources.KNOWN.items() if known.mean])
def test_known_names_have_the_papers_constants(root, name):
    known = sources.KNOWN[name]
    classes = len(known.classes)
    saved(root / f"{name}.npz", **made(classes, train=classes, test=classes, channels=known.channels))
    dataset = load(name)
    assert (dataset.mean, dataset.std, dataset.class_names, dataset.note) == (known.mean, known.std, known.classes, known.note)
    assert len(dataset.mean) == dataset.channels
    coloured = load(name, channels=3)
    assert coloured.channels == len(coloured.mean) == 3
    if known.channels == 1:
        assert coloured.mean == known.mean * 3
        assert torch.equal(coloured.x_train[:, 2:], dataset.x_train)
    else:
        pale = load(name, channels=1)
        assert pale.channels == len(pale.mean) == 1
        assert abs(pale.normalise(pale.x_train).mean()) < 1e-5


def test_usps_is_measured(root):
    arrays = made(10)
    saved(root / "usps.npz", **arrays)
    assert load("usps").mean == pytest.approx([arrays["x_train"].mean() / 255])


def test_the_root_may_be_given(tmp_path):
    saved(tmp_path / "other" / "usps.npz", **made(10))
    assert load("usps", root=tmp_path / "other").classes == 10


def test_the_default_root_is_in_the_cache_folder(monkeypatch):
    monkeypatch.delenv("DCLIB_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert str(sources.data_root()) == "/somewhere/dclib"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert str(sources.data_root()).endswith(".cache/dclib")


def test_cifar100_names():
    names = sources.KNOWN["cifar100"].classes
    assert len(set(names)) == 100
    assert list(names) == sorted(names)


def bad(key, change):
    return lambda arrays: arrays | {key: change(arrays[key].copy())}


def put(value, dtype=None):
    def change(array):
        array = array.astype(dtype or array.dtype)
        array[(3,) + (0,) * (array.ndim - 1)] = value
        return array

    return change


BAD = {
    "missing key": (lambda arrays: {k: v for k, v in arrays.items() if k != "y_test"}, ("y_test", "x_train")),
    "float images": (bad("x_train", lambda x: x / np.float32(255)), ("x_train", "float32", "uint8")),
    "int images": (bad("x_test", lambda x: x.astype(np.int64)), ("x_test", "int64", "uint8")),
    "NaN": (bad("x_train", put(np.nan, np.float32)), ("x_train", "nan", "[3, 0, 0]")),
    "infinity": (bad("x_test", put(np.inf, np.float64)), ("x_test", "inf")),
    "NaN label": (bad("y_train", put(np.nan, np.float64)), ("y_train", "nan", "[3]")),
    "flat images": (bad("x_train", lambda x: x.reshape(30, 36)), ("x_train", "(30, 36)")),
    "channels first": (
        bad("x_train", lambda x: np.zeros((30, 3, 32, 32), np.uint8)),
        ("x_train", "(30, 3, 32, 32)", "(N, H, W, C)"),
    ),
    "no images": (bad("x_train", lambda x: x[:0]), ("x_train", "(0, 6, 6)")),
    "different sizes": (bad("x_test", lambda x: x[:, :5]), ("6×6×1", "5×6×1")),
    "labels between": (bad("y_train", put(0.75, np.float32)), ("y_train", "label 0.75")),
    "dates as labels": (bad("y_train", lambda y: y.astype("M8[D]")), ("y_train", "datetime64")),
    "text labels": (bad("y_test", lambda y: y.astype(str)), ("y_test", "<U")),
    "one-hot labels": (bad("y_train", lambda y: np.eye(4, dtype=np.int64)[y]), ("y_train", "(30, 4)")),
    "fewer labels": (bad("y_train", lambda y: y[:-1]), ("30 images", "29 labels", "y_train")),
    "more labels": (bad("y_test", lambda y: np.append(y, 0)), ("20 images", "21 labels", "y_test")),
    "negative label": (bad("y_train", put(-1, np.int64)), ("y_train", "-1")),
    "label outside": (bad("y_test", put(4)), ("y_test", "label 4", "0 to 3")),
    "huge label": (bad("y_train", put(2**64 - 1, np.uint64)), ("y_train", 2**64 - 1)),
    "empty class": (bad("y_train", lambda y: np.where(y == 2, 3, y)), ("class 2", "no training image")),
    "empty first class": (bad("y_train", lambda y: np.maximum(y, 1)), ("class 0", "no training image")),
    "one class": (lambda arrays: arrays | {k: arrays[k] * 0 for k in ("y_train", "y_test")}, ("one class",)),
    "nothing to see": (bad("x_train", lambda x: x * 0 + 7), ("channel 0", "7")),
    "pickled objects": (bad("y_train", lambda y: y.astype(object)), ("bad.npz", "Object arrays")),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arrays_are_refused(tmp_path, case):
    change, parts = BAD[case]
    path = saved(tmp_path / "bad.npz", **change(made(4)))
    refused(path, *parts, name=path)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (bad("y_train", put(10)), ("y_train", "label 10", "0 to 9")),
        (bad("y_train", lambda y: np.minimum(y, 8)), ("class 9",)),
        (bad("x_train", lambda x: np.stack([x] * 3, -1)), ("different shapes",)),
    ],
)
def test_known_names_have_their_classes(root, change, parts):
    refused(root / "mnist.npz", *parts, name=(saved(root / "mnist.npz", **change(made())) and "mnist"))


def test_known_names_have_their_channels(root):
    saved(root / "mnist.npz", **made(channels=3))
    refused("3 channels", "not 1", name="mnist")


@quick
@given(part=st.floats(0, 0.99), damage=st.booleans(), seed=seeds)
def test_damaged_files_are_refused(tmp_path_factory, part, damage, seed):
    path = saved(tmp_path_factory.mktemp("damaged") / "a.npz", **made(4))
    whole = path.read_bytes()
    content = bytearray(whole[: int(part * len(whole))])
    if damage:
        content = bytearray(whole)
        content[int(part * len(whole))] ^= 1 + seed % 255
    path.write_bytes(content)
    if damage and loads(path):  # a byte of the archive's own bookkeeping, such as a date
        assert load(path).classes == 4
    else:
        refused(path, name=path)


def loads(path):
    with contextlib.suppress(DataError):
        return bool(load(path))
    return False


def test_neither_zip_nor_there(tmp_path):
    (tmp_path / "text.npz").write_text("x_train\ny_train")
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    with zipfile.ZipFile(tmp_path / "zip.npz", "w") as archive:
        for key in ARRAYS:
            archive.writestr(f"{key}.npy", "text")
    for stem, part in (("text", "cannot read"), ("one", "a NumPy array (.npy)"), ("zip", "no array 'x_train'")):
        refused(tmp_path / f"{stem}.npz", part, name=tmp_path / f"{stem}.npz")
    refused(tmp_path / "none.npz", "there is no file", *ARRAYS, name=str(tmp_path / "none.npz"))


def test_a_name_in_capitals_is_an_npz(tmp_path, monkeypatch):
    plain = load(saved(tmp_path / "plain.npz", **made(3)))
    (tmp_path / "plain.npz").rename(tmp_path / "UPPER.NPZ")
    monkeypatch.chdir(tmp_path)
    for name in ("UPPER.NPZ", "./UPPER.NPZ", tmp_path / "UPPER.NPZ"):
        check_dataset(str(name))
        assert same(load(name), plain)
        assert load(name).source == str(tmp_path / "UPPER.NPZ")


def test_a_file_of_another_kind_is_called_what_it_is(tmp_path, monkeypatch):
    """Whether it is given as a name or as a path, and even if it is called .npz; it is neither missing nor damaged."""
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "x.npy", np.zeros(3))
    saved(tmp_path / "a.npz", **made(3)).rename(tmp_path / "a.data")
    with zipfile.ZipFile(tmp_path / "pets.zip", "w") as archive:
        archive.writestr("pets/train/cat/0.png", "x")
    (tmp_path / "pets.gz").write_bytes(gzip.compress(b"x"))
    torch.save({"x": torch.zeros(3)}, tmp_path / "x.pt")
    Image.new("L", (2, 2)).save(tmp_path / "cat.png")
    (tmp_path / "table.csv").write_text("0,1")
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
        for call in (load, check_dataset):
            for path in (name, f"./{name}"):
                text = refused(tmp_path / name, *parts, call=call, name=path)
                assert not re.search("no folder|no file|damaged|again", text)
        if name not in ("a.data", "table.csv"):
            (tmp_path / name).rename(tmp_path / "it.npz")
            refused(tmp_path / "it.npz", *parts, name="it.npz")


@pytest.mark.parametrize(("option", "value"), [("image_size", -1), ("image_size", True), ("channels", 2)])
def test_bad_requests(option, value):
    refused(value, name="digits", **{option: value})


def test_two_channels_cannot_be_made_rgb(tmp_path):
    path = saved(tmp_path / "a.npz", **made(2, channels=2))
    assert load(path).channels == 2
    refused("2 channels", path, name=path, channels=3)


# --- names and torchvision's files -----------------------------------------------------------------------------------


def test_unknown_names(root):
    saved(root / "flowers.npz", **made(4))
    refused("'mnits'", "did you mean 'mnist'?", "cifar100", "flowers", ".npz", name="mnits")
    refused("''", "mnist", name="")


def idx(array):
    return struct.pack(f">BBBB{array.ndim}i", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def lay_idx(folder, arrays, suffix="", pack=bytes):
    folder.mkdir(parents=True)
    for part, key in zip(IDX, ARRAYS, strict=True):
        (folder / f"{part}{suffix}").write_bytes(pack(idx(arrays[key])))


def lay_usps(folder, arrays):
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
        return lay_idx(root / sources.KNOWN[name].torchvision / "raw", arrays)
    if name == "usps":
        return lay_usps(root, arrays)
    if name == "svhn":
        return lay_svhn(root, arrays, monkeypatch)
    return lay_cifar(root, arrays, monkeypatch, getattr(datasets, name.upper()))


SIZES = {"mnist": (28, 28), "fashionmnist": (28, 28), "usps": (16, 16)}


@pytest.mark.parametrize("name", ["mnist", "fashionmnist", "usps", "svhn", "cifar10", "cifar100"])
@pytest.mark.filterwarnings("ignore:dtype")  # NumPy on old CIFAR pickles
def test_torchvisions_files_give_what_the_npz_gives(root, tmp_path, monkeypatch, name):
    known = sources.KNOWN[name]
    classes = len(known.classes)
    arrays = made(classes, 2 * classes, classes, SIZES.get(name, (32, 32)), known.channels if known.channels == 3 else 0)
    lay(name, root, arrays, monkeypatch)
    assert {row.name: row.where for row in data.available()}[name] == "torchvision"
    saved(tmp_path / "npz" / f"{name}.npz", **arrays)
    for download in (False, True):  # neither needs the network
        assert same(load(name, download=download), load(name, root=tmp_path / "npz"))


def test_svhn10k_is_the_head_of_svhns_test_file(root, monkeypatch):
    class SVHN:
        def __init__(self, root, split, download):
            assert split == "test"
            rng = np.random.default_rng(0)
            self.data = rng.integers(0, 256, (10500, 3, 2, 2), dtype=np.uint8)
            self.labels = np.arange(10500) % 10

    monkeypatch.setattr(datasets, "SVHN", SVHN)
    dataset = load("svhn10k")
    assert (len(dataset.x_train), len(dataset.x_test), dataset.note) == (8000, 2000, "a stand-in")
    whole = SVHN(root, "test", False)
    expected, _ = canonical(whole.data[:8000], whole.labels[:8000])
    assert np.array_equal(dataset.x_train.numpy(), expected)


def test_debians_fashionmnist(tmp_path):
    arrays = made(size=(28, 28))
    lay_idx(tmp_path / "debian", arrays, ".gz", gzip.compress)
    saved(tmp_path / "npz" / "fashionmnist.npz", **arrays)
    assert {row.name: row.where for row in data.available()}["fashionmnist"] == "debian"
    assert same(load("fashionmnist"), load("fashionmnist", root=tmp_path / "npz"))


@pytest.mark.parametrize(
    "damage", [lambda b: b[:50], lambda b: b"text", lambda b: b"", lambda b: gzip.compress(gzip.decompress(b)[:-1])]
)
def test_damaged_idx_files(tmp_path, damage):
    lay_idx(tmp_path / "debian", made(size=(28, 28)), ".gz", gzip.compress)
    file = tmp_path / "debian" / f"{IDX[2]}.gz"
    file.write_bytes(damage(file.read_bytes()))
    refused(file, "cannot read", name="fashionmnist")


def test_damaged_torchvision_files(root):
    lay_idx(root / "MNIST" / "raw", made(size=(28, 28)))
    (root / "MNIST" / "raw" / IDX[0]).write_bytes(b"\0\0")
    refused("mnist", root, "cannot read", "delete", name="mnist")
    assert (root / "MNIST" / "raw" / IDX[0]).exists()  # the user's file, not a download of ours


@pytest.mark.parametrize("download", [True, False])
@pytest.mark.parametrize("name", [name for name in sources.KNOWN if name != "digits"])
def test_without_network_and_files_three_ways_are_named(root, name, download):
    text = refused(name, f"{name}.npz", *ARRAYS, root, sources.KNOWN[name].files[0], "network", name=name, download=download)
    assert ("no network" in text or "Error downloading" in text) == download


class Response(io.BytesIO):
    """What `urlopen` returns."""

    def __init__(self, content, url):
        super().__init__(content)
        self.length, self.url = len(content), url


def serve(monkeypatch, folder):
    def urlopen(request, *_, **__):
        assert socket.getdefaulttimeout() == sources.SILENCE
        name = request.full_url.rsplit("/")[-1]
        if not (folder / name).exists():
            raise urllib.error.HTTPError(request.full_url, 404, "Not Found", {}, None)
        return Response((folder / name).read_bytes(), request.full_url)

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    monkeypatch.setattr(datasets.USPS, "split_list", {k: [u, n, None] for k, (u, n, _) in datasets.USPS.split_list.items()})


def test_download_with_a_progress_bar(root, tmp_path, monkeypatch, capsys):
    arrays = made(size=(16, 16))
    (tmp_path / "server").mkdir()
    lay_usps(tmp_path / "server", arrays)
    serve(monkeypatch, tmp_path / "server")
    saved(tmp_path / "npz" / "usps.npz", **arrays)
    assert same(load("usps"), load("usps", root=tmp_path / "npz"))
    assert "100%" in capsys.readouterr().err
    assert socket.getdefaulttimeout() is None
    monkeypatch.undo()
    assert same(load("usps", root=root, download=False), load("usps", root=tmp_path / "npz"))


def test_a_failed_download_leaves_no_half_file(root, tmp_path, monkeypatch):
    (tmp_path / "server").mkdir()
    lay_usps(tmp_path / "server", made(size=(16, 16)))
    (tmp_path / "server" / "usps.t.bz2").unlink()
    serve(monkeypatch, tmp_path / "server")
    refused("Not Found", "usps.npz", name="usps")
    assert not list(root.iterdir())


def test_one_process_at_a_time_downloads(root, tmp_path, monkeypatch):
    (tmp_path / "server").mkdir()
    lay_usps(tmp_path / "server", made(size=(16, 16)))
    serve(monkeypatch, tmp_path / "server")
    split, tried = sources._split, []

    def watched(*words):
        folder = os.open(root, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(folder)
        tried.append(words)
        return split(*words)

    monkeypatch.setattr(sources, "_split", watched)
    load("usps")
    assert len(tried) == 2
    monkeypatch.setattr(sources, "locked", lambda root: pytest.fail("what is there needs no lock"))
    monkeypatch.setattr(sources, "_split", split)
    load("usps")


@pytest.mark.parametrize("package", ["torchvision", "scipy.io"])
def test_a_package_is_missing(root, monkeypatch, package):
    lay_svhn(root, made(size=(32, 32), channels=3), monkeypatch)
    monkeypatch.setitem(__import__("sys").modules, package, None)
    refused("svhn", f"needs {package}", "pip install", "svhn.npz", name="svhn")


# --- image folders ---------------------------------------------------------------------------------------------------


def lay_folder(folder, mode="RGB", size=(6, 6), per_class=3, suffix="png"):
    rng = np.random.default_rng(0)
    shape = (*size, 3) if mode == "RGB" else size
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            (folder / split / name).mkdir(parents=True)
            for i in range(per_class):
                image = Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8))
                image.save(folder / split / name / f"{i}.{suffix}")
    return folder


def as_arrays(folder):
    arrays = {}
    for split in ("train", "test"):
        files = [(file, c) for c, name in enumerate(("cat", "dog")) for file in (folder / split / name).glob("*.png")]
        arrays[f"x_{split}"] = np.stack([np.asarray(Image.open(file)) for file, _ in files])
        arrays[f"y_{split}"] = np.array([c for _, c in files])
    return arrays


@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("L", 1)])
def test_folder_gives_what_the_npz_gives(tmp_path, mode, channels):
    folder = lay_folder(tmp_path / "pets", mode)
    (folder / "train" / ".DS_Store").write_bytes(b"")
    (folder / "train" / "cat" / ".hidden").write_bytes(b"")
    dataset = load(folder)
    assert (dataset.name, dataset.class_names, dataset.channels) == ("pets", ("cat", "dog"), channels)
    path = saved(tmp_path / "pets.npz", **as_arrays(folder))
    assert same(dataset, load(path))
    for options in ({"image_size": 4}, {"image_size": 9, "channels": 1}, {"channels": 3}):
        assert same(load(folder, **options), load(path, **options))


def test_folder_by_name_in_the_working_directory(tmp_path, monkeypatch, root):
    lay_folder(tmp_path / "pets")
    monkeypatch.chdir(tmp_path)
    assert load("pets").name == load("./pets").name == "pets"
    saved(root / "pets.npz", **made(4))
    assert load("pets").classes == 4  # a name in the data root goes first


def test_a_path_is_told_from_a_name_once(tmp_path, monkeypatch, root):
    """The data's source is a name, or a path that means the same in any folder, whatever lies in the data root."""
    lay_folder(tmp_path / "pets")
    lay_folder(tmp_path / "mnist")
    saved(tmp_path / "mine.npz", **made(3))
    monkeypatch.chdir(tmp_path)
    for name in ("mine.npz", "./mine.npz", Path("mine.npz"), tmp_path / "mine.npz", f"../{tmp_path.name}/mine.npz"):
        assert load(name).source == sources.spelled(name) == str(tmp_path / "mine.npz")
    assert load("pets").source == load("./pets").source == str(tmp_path / "pets")
    for name in ("pets", "mnist"):
        saved(root / f"{name}.npz", **made(10))
        assert load(name).source == name
        for path in (f"./{name}", Path(name)):
            found = load(path)
            assert (found.source, found.class_names) == (str(tmp_path / name), ("cat", "dog"))
    assert load("./pets+turned").source == f"{tmp_path / 'pets'}+turned"
    assert load("./pets+turned").name == "pets+turned"
    assert load("digits+turned").source == "digits+turned"
    assert sources.spelled("nowhere") == "nowhere"
    assert sources.spelled("./nowhere") == str(tmp_path / "nowhere")


def test_folder_of_grey_and_colour_is_rgb(tmp_path):
    folder = lay_folder(tmp_path / "pets", "L")
    image = Image.fromarray(np.arange(36, dtype=np.uint8).reshape(6, 6))
    image.convert("P").save(folder / "train" / "cat" / "9.png")
    image.convert("RGBA").save(folder / "train" / "dog" / "9.png")
    image.convert("1").save(folder / "test" / "dog" / "9.png")
    assert load(folder).channels == 3
    assert load(folder, channels=1).channels == 1


def test_folder_turns_photographs_upright(tmp_path):
    folder = lay_folder(tmp_path / "pets", "L")
    half = np.zeros((6, 6), np.uint8)
    half[:3] = 255
    exif = Image.Exif()
    exif[0x0112] = 3  # turned by 180°
    for file in (folder / "train" / "cat").iterdir():
        Image.fromarray(half).save(file, exif=exif)
    assert load(folder).x_train[0, 0, :, 0].tolist() == [0, 0, 0, 255, 255, 255]


def lay_pictures(folder, pictures):
    """The pictures as files of two classes in train/ and test/."""
    for split in ("train", "test"):
        for c, name in enumerate(("cat", "dog")):
            (folder / split / name).mkdir(parents=True)
            for i, picture in enumerate(pictures[c::2]):
                picture.save(folder / split / name / f"{i}.png")
    return folder


def see_through():
    """Pictures of every transparent mode of 6×6 pixels, each with what it is on white and on black."""
    rng = np.random.default_rng(0)
    colours, alpha = rng.integers(0, 256, (6, 6, 3)).astype(np.uint8), rng.integers(0, 256, (6, 6, 1)).astype(np.uint8)
    alpha[0] = 0
    alpha[1] = 255
    grey = colours[..., :1]
    marked = Image.fromarray(grey[..., 0])
    marked.info["transparency"] = int(grey[2, 2, 0])
    palette = Image.fromarray(grey[..., 0] % 4).convert("L")
    palette = Image.frombytes("P", (6, 6), palette.tobytes())
    palette.putpalette([0, 0, 0, 250, 0, 0, 0, 240, 0, 0, 0, 230])
    palette.info["transparency"] = bytes([0, 255, 128, 255])
    table = np.array([[0, 0, 0, 0], [250, 0, 0, 255], [0, 240, 0, 128], [0, 0, 230, 255]])[grey[..., 0] % 4]
    sources = [
        (Image.fromarray(np.concatenate([colours, alpha], -1)), colours, alpha),
        (Image.fromarray(np.concatenate([grey, alpha], -1)), np.repeat(grey, 3, -1), alpha),
        (marked, np.repeat(grey, 3, -1), np.where(grey == grey[2, 2], 0, 255)),
        (palette, table[..., :3], table[..., 3:]),
    ]
    for picture, under, a in sources:
        on = {name: np.rint((under * (a / 255.0)) + ground * (1 - a / 255.0)) for name, ground in (("white", 255), ("black", 0))}
        yield picture, on["white"].astype(np.uint8), on["black"].astype(np.uint8)


def test_what_is_transparent_lies_on_white_or_on_black(tmp_path):
    pictures, white, black = zip(*see_through(), strict=True)
    folder = lay_pictures(tmp_path / "icons", pictures)
    for name, expected in (("", white), ("+onblack", black)):
        plain = load(lay_pictures(tmp_path / f"plain-{name[1:]}", [Image.fromarray(x) for x in expected]))
        for path in (f"{folder}{name}", Path(f"{folder}{name}")):
            found = load(path)
            assert same(found, plain)
            assert (found.name, found.source) == (f"icons{name}", f"{folder}{name}")
        assert same(load(f"{folder}{name}+turned"), load(f"{tmp_path / f'plain-{name[1:]}'}+turned"))


def test_what_is_drawn_in_alpha_alone_is_seen(tmp_path):
    alpha = [np.random.default_rng(i).integers(0, 256, (6, 6)).astype(np.uint8) for i in range(4)]
    ink = [Image.merge("RGBA", [Image.new("L", (6, 6))] * 3 + [Image.fromarray(a)]) for a in alpha]
    folder = lay_pictures(tmp_path / "ink", ink)
    assert torch.equal(load(folder).x_train[0, 0], 255 - torch.from_numpy(min(alpha[::2], key=lambda a: (255 - a).tobytes())))
    refused("every pixel", "is 0", name=f"{folder}+onblack")


def test_only_a_folder_can_be_laid_on_black(tmp_path):
    path = saved(tmp_path / "a.npz", **made(3))
    for name in ("digits+onblack", f"{path}+onblack", f"{tmp_path}/none+onblack"):
        refused("+onblack", "leave out", name=name)


@pytest.mark.parametrize(("size", "parts"), [((6, 8), ("8×6", "not square")), ((7, 7), ("7×7", "6×6"))])
def test_folder_of_mixed_sizes_needs_a_size(tmp_path, size, parts):
    folder = lay_folder(tmp_path / "pets")
    file = folder / "test" / "dog" / "0.png"
    Image.fromarray(np.zeros((*size, 3), np.uint8)).save(file)
    refused(file, "image size", *parts, name=folder)
    assert load(folder, image_size=5).size == (5, 5)


def spoil(do, *parts):
    return do, parts


def clear(path):
    for file in path.iterdir():
        file.unlink()


def declass(path):
    for folder in path.iterdir():
        clear(folder)
        folder.rmdir()


SPOILT = {
    "text": spoil(lambda f: (f / "train/cat/notes.txt").write_text("x"), "train/cat/notes.txt", "no known format"),
    "cut short": spoil(lambda f: (f / "test/dog/0.png").write_bytes((f / "test/dog/0.png").read_bytes()[:60]), "test/dog/0.png"),
    "empty": spoil(lambda f: (f / "test/dog/0.png").write_bytes(b""), "test/dog/0.png"),
    "folder": spoil(lambda f: (f / "train/dog/more").mkdir(), "train/dog/more is a folder within the class 'dog'"),
    "16 bits": spoil(lambda f: Image.fromarray(np.zeros((6, 6), np.uint16)).save(f / "train/dog/0.png"), "train/dog/0.png", "I;16"),
    "stray": spoil(lambda f: (f / "train/cat/0.png").rename(f / "train/0.png"), "train/0.png", "class"),
    "no test": spoil(lambda f: (f / "test").rename(f / "val"), "test"),
    "class without test": spoil(lambda f: (f / "test/dog").rename(f / "other"), "test has no folder 'dog'"),
    "class outside": spoil(lambda f: (f / "train/dog").rename(f / "other"), "train has no folder 'dog'"),
    "empty class": spoil(lambda f: clear(f / "train/cat"), "class 'cat'", "no image"),
    "empty test class": spoil(lambda f: clear(f / "test/cat"), "class 'cat'", "test"),
    "no class": spoil(
        lambda f: [(clear(f / "train" / c), (f / "train" / c).rmdir()) for c in ("cat", "dog")], "train has no class"
    ),
}


def test_what_systems_leave_in_folders_is_no_image(tmp_path):
    folder = lay_folder(tmp_path / "pets")
    before = load(folder)
    for place in (folder, folder / "train", folder / "test" / "dog"):
        for name in (".DS_Store", "Thumbs.db", "desktop.ini", "Desktop.ini"):
            (place / name).write_bytes(b"x")
        (place / "__MACOSX").mkdir()
        (place / "__MACOSX" / "._0.png").write_bytes(b"x")
    assert same(load(folder), before)
    assert load(folder).class_names == ("cat", "dog")


def test_names_of_different_normal_forms_are_one_class(tmp_path):
    """é is one letter, or e and an accent, by the system that wrote the folder; the order is the same on each."""
    plain = load(lay_folder(tmp_path / "pets"))
    forms = {"train": "caf\u00e9", "test": "cafe\u0301"}
    folder = lay_folder(tmp_path / "mixed")
    for split, name in forms.items():
        (folder / split / "cat").rename(folder / split / name)
        (folder / split / "dog").rename(folder / split / "cafz")
    found = load(folder)
    assert found.class_names == ("cafz", "caf\u00e9")
    assert found.y_test.tolist() == plain.y_test.tolist()
    assert torch.equal(found.x_test[found.y_test == 1], plain.x_test[plain.y_test == 0])
    other = folder / "train" / forms["test"]
    other.mkdir()
    (folder / "train" / forms["train"] / "0.png").rename(other / "0.png")
    assert same(load(folder), found)  # in one folder, too


@pytest.mark.parametrize("case", SPOILT)
def test_spoilt_folders_are_refused(tmp_path, case):
    do, parts = SPOILT[case]
    folder = lay_folder(tmp_path / "pets")
    do(folder)
    refused(folder, *parts, name=folder)


def test_cut_jpeg_is_refused(tmp_path):
    folder = lay_folder(tmp_path / "pets", size=(32, 32), suffix="jpg")
    file = folder / "train" / "cat" / "1.jpg"
    file.write_bytes(file.read_bytes()[:-200])
    refused(file, "cannot read", name=folder)


def test_no_such_folder(tmp_path):
    refused(tmp_path / "none", "train/<class>/", name=tmp_path / "none")


def test_no_pillow(tmp_path, monkeypatch):
    folder = lay_folder(tmp_path / "pets")
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    refused("Pillow", "pip install", name=folder)


# --- what there is ---------------------------------------------------------------------------------------------------


def test_available(root):
    rows = {row.name: row for row in data.available()}
    assert list(rows) == list(sources.KNOWN)
    assert rows["digits"] == ("digits", "embedded", 1000, 797, "")
    assert rows["svhn10k"] == ("svhn10k", "downloadable", 8000, 2000, "a stand-in")
    saved(root / "mnist.npz", **made())
    saved(root / "flowers.npz", **made(4, train=12, test=8))
    (root / "broken.npz").write_bytes(b"PK")
    rows = {row.name: row for row in data.available()}
    assert rows["mnist"][1:4] == ("npz", 30, 20)
    assert rows["flowers"][1:4] == ("npz", 12, 8)
    assert rows["broken"][1:4] == ("unreadable", 0, 0)


def test_available_without_a_root(tmp_path):
    assert len(data.available(tmp_path / "none")) == len(sources.KNOWN)


def test_looking_up_needs_no_torch():
    import subprocess
    import sys

    code = "import sys, dclib.data.sources as s; s.available()\n"
    code += "assert not {'torch', 'torchvision', 'sklearn', 'PIL'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_normalising_again_copies_nothing_from_the_cpu(make_dataset, monkeypatch):
    """A step that a GPU captures may make no tensor out of Python's numbers."""
    made = make_dataset(3, 3)
    first = made.normalise(made.x_train)
    monkeypatch.setattr(torch, "tensor", None)
    assert torch.equal(made.normalise(made.x_train), first)


# --- other domains, and images held out


def test_a_view_has_the_same_labels_and_other_pixels():
    plain, inverted, turned = (data.load(f"digits{view}", image_size=8) for view in ("", "+inverted", "+turned"))
    for seen, back in ((inverted, lambda x: 255 - x), (turned, lambda x: torch.rot90(x, -1, (2, 3)))):
        assert seen.y_train.tolist() == plain.y_train.tolist()
        for name in ("x_train", "x_test"):
            rows = [
                {image.numpy().tobytes() for image in x} for x in (back(getattr(seen, name)).contiguous(), getattr(plain, name))
            ]
            assert rows[0] == rows[1]
        pixels = seen.x_train.double() / 255
        assert (seen.mean[0], seen.std[0]) == pytest.approx((pixels.mean().item(), pixels.std(correction=0).item()))
    assert len({d.hash for d in (plain, inverted, turned)}) == 3
    assert inverted.name == "digits+inverted"


def test_a_view_of_what_is_not_there_is_refused():
    with pytest.raises(DataError, match="unknown data set 'digit'"):
        data.load("digit+inverted")
    with pytest.raises(DataError, match="unknown data set 'digits\\+mirrored'"):
        data.load("digits+mirrored")


def test_held_out_images_are_no_longer_trained_on(make_dataset):
    whole = make_dataset(30, 40, channels=3)
    rest, validation = data.hold_out(whole, 20)
    assert (len(rest.y_train), len(validation.y_test)) == (50, 20)
    rows = lambda x, y: {(image.numpy().tobytes(), int(label)) for image, label in zip(x, y, strict=True)}  # noqa: E731
    kept, out = rows(rest.x_train, rest.y_train), rows(validation.x_test, validation.y_test)
    assert not kept & out
    assert kept | out == rows(whole.x_train, whole.y_train)
    assert torch.equal(rest.x_test, whole.x_test)
    assert torch.equal(validation.x_train, rest.x_train)
    assert torch.equal(data.hold_out(whole, 20)[1].x_test, validation.x_test)
    assert rest.hash != whole.hash
    assert sum(len(rest.class_indices(c)) for c in range(2)) == 50
    with pytest.raises(DataError, match=r"^cannot hold 70 images out of made, which has 70 to train on: hold out fewer$"):
        data.hold_out(whole, 70)
