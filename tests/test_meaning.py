"""Data as other programs leave it: each form gives the images of dclib's own form and says how it was read, or is refused."""

import numpy as np
import pytest
import torch
from helpers import refused
from PIL import Image
from torch.utils.data import Subset

import dclib
from dclib.data.dataset import load
from dclib.data.objects import from_torchvision
from dclib.errors import DataError, SpecError


@pytest.fixture
def plain():
    """Images of 6 × 8 pixels, three classes, in dclib's own form."""
    rng = np.random.default_rng(0)
    images = {f"x_{s}": rng.integers(0, 256, (n, 6, 8, 3), dtype=np.uint8) for s, n in (("train", 12), ("test", 6))}
    images["x_test"][0, 0, 0] = images["x_train"][0, 0, 0] = 0, 255, 255
    return images | {"y_train": np.arange(12) % 3, "y_test": np.arange(6) % 3}


def saved(path, arrays):
    np.savez(path, **arrays)
    return load(path)


def changed(arrays, images=lambda x: x, labels=lambda y: y):
    return {key: images(value) if key[0] == "x" else labels(value) for key, value in arrays.items()}


def named(arrays, names):
    return {name: arrays[key] for name, key in zip(names, ("x_train", "y_train", "x_test", "y_test"), strict=True)}


FORMS = {
    "channels first": (lambda x: x.transpose(0, 3, 1, 2), "channels come before"),
    "floats of white": (lambda x: x.astype(np.float32) / 255, "float32 from 0 to 1: 1 is white"),
    "floats to 255": (lambda x: x.astype(np.float64), "float64 from 0 to 255: 255 is white"),
    "float16 to 255": (lambda x: x.astype(np.float16), "255 is white"),
    "whole numbers": (lambda x: x.astype(np.int64), "int64 from 0 to 255: 255 is white"),
    "uint16 of a byte": (lambda x: x.astype(np.uint16), "255 is white"),
    "16 bits": (lambda x: x.astype(np.uint16) * 257, "65535 is white"),
}


@pytest.mark.parametrize("form", FORMS)
def test_pixels_of_any_range_and_order_are_those_of_bytes(plain, tmp_path, form):
    change, words = FORMS[form]
    found, expected = saved(tmp_path / "own.npz", changed(plain, change)), saved(tmp_path / "plain.npz", plain)
    assert (found.hash, found.size) == (expected.hash, (6, 8))
    assert expected.understood == ()
    assert words in " ".join(found.understood)
    assert words in found.describe()


def test_truth_values_are_black_and_white(plain, tmp_path):
    found = saved(tmp_path / "own.npz", changed(plain, lambda x: x > 99))
    assert found.hash == saved(tmp_path / "plain.npz", changed(plain, lambda x: (x > 99).astype(np.uint8) * 255)).hash


NAMES = [
    ("train_images", "train_labels", "test_images", "test_labels"),
    ("X_train", "y_train", "X_test", "y_test"),
    ("images_train", "targets_train", "images_test", "targets_test"),
    ("x_train", "y_train", "val_images", "val_labels"),
    ("data", "labels", "valid_data", "valid_labels"),
]


@pytest.mark.parametrize("names", NAMES)
def test_arrays_by_the_names_that_others_give_them(plain, tmp_path, names):
    found = saved(tmp_path / "own.npz", named(plain, names))
    assert found.hash == saved(tmp_path / "plain.npz", plain).hash
    assert f"{names[2]} is taken as x_test" in found.understood


def test_validation_images_are_left_out_where_there_are_test_images(plain, tmp_path):
    medical = named(plain, NAMES[0]) | {"val_images": plain["x_test"] * 0, "val_labels": plain["y_test"]}
    found = saved(tmp_path / "own.npz", medical)
    assert found.hash == saved(tmp_path / "plain.npz", plain).hash
    assert "val_images is left out, for there are test images" in found.understood


LABELS = {
    "from 1": (lambda y: y + 1, ("1", "2", "3")),
    "gaps": (lambda y: y**2 + 4, ("4", "5", "8")),
    "texts": (lambda y: np.array(["ape", "bee", "cow"])[y], ("ape", "bee", "cow")),
    "bytes": (lambda y: np.array([b"ape", b"bee", b"cow"])[y], ("ape", "bee", "cow")),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_kind_are_classes_from_0(plain, tmp_path, kind):
    change, names = LABELS[kind]
    found, expected = saved(tmp_path / "own.npz", changed(plain, labels=change)), saved(tmp_path / "plain.npz", plain)
    assert (found.hash, found.class_names) == (expected.hash, names)
    assert f"the labels {', '.join(names)} are the classes 0 to 2" in " ".join(found.understood)
    called = saved(tmp_path / "own.npz", changed(plain, labels=lambda y: y + 1) | {"class_names": np.array([*"abc"])})
    assert (called.hash, called.class_names) == (expected.hash, (*"abc",))
    mixed = saved(
        tmp_path / "own.npz", changed(plain, labels=lambda y: np.array([*"cab"])[y]) | {"class_names": np.array([*"cab"])}
    )
    assert (mixed.hash, mixed.class_names) == (expected.hash, (*"cab",))


REFUSED = [
    (lambda d: changed(d, lambda x: x / 127.5 - 1), "-1 to 1"),
    (lambda d: changed(d, lambda x: x / 100), "2.55"),
    (lambda d: changed(d, lambda x: np.where(x == 0, np.nan, x)), "nan"),
    (lambda d: changed(d, lambda x: x.astype(np.uint16) * 16), "4080", "neither 8 bits nor 16"),
    (lambda d: changed(d, lambda x: x.astype(np.int32) * 300), "76500"),
    (lambda d: changed(d, lambda x: x.astype(complex)), "complex128"),
    (lambda d: d | {"x_test": d["x_test"] / 255}, "uint8", "float64"),
    (lambda d: d | {"X_train": d["x_train"]}, "x_train", "X_train", "the same"),
    (lambda d: d | {"y_test": np.array([*"abcabc"])}, "'a'", "numbers"),
    (lambda d: d | {"y_train": d["y_train"] + 3}, "label 0", "no training image"),
    (lambda d: changed(d, labels=lambda y: np.array([*"abc"])[y]) | {"class_names": np.array([*"abd"])}, "'c'", "class_names"),
    (lambda d: {key: value for key, value in d.items() if key != "y_test"}, "y_test"),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_what_can_mean_nothing_or_two_things_is_refused(plain, tmp_path, case):
    change, *parts = REFUSED[case]
    refused(*parts, call=saved, error=DataError, path=tmp_path / "own.npz", arrays=change(plain))


def lay(folder, splits, mode=np.uint8, size=(6, 8), per_class=5):
    rng = np.random.default_rng(0)
    for split in splits:
        for name in ("cat", "dog"):
            (folder / split / name).mkdir(parents=True)
            for i in range(per_class):
                picture = rng.integers(0, 256, size).astype(mode) * (257 if mode == np.uint16 else 1)
                Image.fromarray(picture).save(folder / split / name / f"{i}.{'tiff' if i % 2 else 'png'}")
    return folder


@pytest.mark.parametrize("name", ["val", "valid", "validation"])
def test_a_folder_without_test_is_tested_on_its_validation_images(tmp_path, name):
    found, expected = (load(lay(tmp_path / last, ("train", last))) for last in (name, "test"))
    assert found.hash == expected.hash
    assert f"{name}/ is tested on, for there is no test/" in found.understood


def test_pictures_of_16_bits(tmp_path):
    deep = load(lay(tmp_path / "deep", ("train", "test"), np.uint16))
    assert deep.hash == load(lay(tmp_path / "plain", ("train", "test"))).hash
    assert "16 bits" in deep.understood[0]
    assert (deep.size, load(tmp_path / "deep", image_size=4, channels=3).x_train.shape[1:]) == ((6, 8), (3, 4, 4))


def rows(*pairs):
    return {(image.numpy().tobytes(), int(label)) for x, y in pairs for image, label in zip(x, y, strict=True)}


def test_held_out_images_are_a_share_of_each_class_and_always_the_same(tmp_path, plain):
    folder = lay(tmp_path / "classes", ("",))
    lay(tmp_path / "train_only", ("train",))
    whole = load(lay(tmp_path / "whole", ("train", "test")))
    found = load(folder, hold_out=0.4)
    assert (found.y_train.tolist(), found.y_test.tolist()) == ([0] * 3 + [1] * 3, [0] * 2 + [1] * 2)
    parts = (found.x_train, found.y_train), (found.x_test, found.y_test)
    assert rows(*parts) == rows((whole.x_train, whole.y_train))
    assert not rows(parts[0]) & rows(parts[1])
    assert found.hash == load(f"{folder}+hold-out=0.4").hash == load(tmp_path / "train_only", hold_out=0.4).hash
    assert found.source == f"{folder}+hold-out=0.4"
    np.savez(tmp_path / "a.npz", images=plain["x_train"], labels=plain["y_train"])
    assert len(load(tmp_path / "a.npz", hold_out=0.25).y_test) == 3
    for name, share, *words in (
        (folder, 0.0, "train"),
        (folder, 1.5, "1.5", "0.2"),
        (folder, 0.01, "class cat", "5 images", "0.01"),
        (tmp_path / "whole", 0.2, "test images", "leave"),
        (tmp_path / "train_only", 0.0, "--hold-out"),
        (tmp_path / "a.npz", 0.0, "no test images"),
        ("digits", 0.2, "test images"),
    ):
        refused(*words, call=load, error=DataError, name=name, hold_out=share)


def test_only_some_classes(tmp_path):
    digits, found = load("digits", image_size=8), load("digits", image_size=8, classes=("7", "3"))
    assert (found.class_names, found.name, found.source) == (("3", "7"), "digits+classes=3,7", "digits+classes=3,7")
    assert found.hash == digits.only(["3", "7"]).hash == load("digits+classes=3,7", image_size=8).hash
    assert rows((found.x_train, found.y_train * 4 + 3)) == rows((digits.x_train, digits.y_train)) & rows(
        *((digits.x_train[digits.y_train == c], digits.y_train[digits.y_train == c]) for c in (3, 7))
    )
    assert found.mean == digits.mean
    assert load("digits+classes=3,7+inverted", image_size=8).class_names == ("3", "7")
    refused("unknown class", "0, 1", call=digits.only, error=SpecError, classes=["3", "x"])
    refused("one class only", call=digits.only, error=DataError, classes=["3"])


def test_a_subset_of_a_data_set_of_pairs_keeps_the_names_of_its_classes():
    class Pairs(list):
        classes = ("ape", "bee", "cow", "dog")

    draw = torch.Generator().manual_seed(0)
    pairs = Pairs((torch.rand(1, 4, 4, generator=draw), i % 4) for i in range(16))
    some = Subset(pairs, [i for i in range(16) if i % 4 in (1, 3)])
    found = from_torchvision(some, some)
    assert (found.class_names, found.y_train.tolist()) == (("bee", "dog"), [0] * 4 + [1] * 4)
    texts = from_torchvision(*[[(image, ("no", "yes")[y % 2]) for image, y in pairs]] * 2)
    assert texts.class_names == ("no", "yes")


def test_a_set_of_some_classes_is_tested_on_the_same_ones(command, tmp_path):
    folder = lay(tmp_path / "pets", ("",), size=(8, 8))
    short = ("-K", 1, "--real-batch", 4, "--network", "MLP:width=4,depth=1", "--device", "cpu", "--engine", "eager")
    status, out, err = command("condense", folder, "--hold-out", 0.4, "--classes", "cat dog", *short, "-o", "set")
    assert status == 0, err
    status, out, err = command("train", "set", "--network", "MLP:width=4,depth=1", "--epochs", 1, "--device", "cpu")
    assert status == 0, err
    assert dclib.CondensedSet.load(tmp_path / "set").source == f"{folder}+classes=cat,dog+hold-out=0.4"
    status, out, _ = command("data", folder, "--hold-out", 0.4)
    assert (status, "6 training and 4 test images, 8×8 pixels, grey" in out, "  cat: 3 + 2" in out) == (0, True, True)
