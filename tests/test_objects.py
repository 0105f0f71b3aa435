"""Data sets that are objects in Python: torchvision's, and whatever gives pairs of an image and a label."""

import re

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Subset, TensorDataset
from torchvision.datasets import FakeData, ImageFolder
from torchvision.transforms import ToTensor

import dclib
from dclib.data.objects import from_torchvision
from dclib.errors import DataError, SpecError


@pytest.fixture(scope="module")
def pairs():
    """Arrays of 12 RGB images of three classes."""
    rng = np.random.default_rng(0)
    return [(rng.integers(0, 256, (6, 6, 3)).astype(np.uint8), i % 3) for i in range(12)]


def test_every_form_of_an_image_gives_the_same_data(pairs):
    forms = {
        "arrays": pairs,
        "pictures": [(Image.fromarray(x), y) for x, y in pairs],
        "tensors": [(ToTensor()(Image.fromarray(x)), torch.tensor(y)) for x, y in pairs],
        "a TensorDataset": TensorDataset(
            torch.stack([torch.from_numpy(x).permute(2, 0, 1) for x, _ in pairs]), torch.tensor([y for _, y in pairs])
        ),
    }
    found = {name: from_torchvision(form, form) for name, form in forms.items()}
    assert len({one.hash for one in found.values()}) == 1
    assert found["arrays"].x_train.shape == (12, 3, 6, 6)


def test_every_form_of_a_label_gives_the_same_data(pairs):
    two = [(x, y % 2) for x, y in pairs]
    forms = [int, float, bool, np.uint8, np.float32, lambda y: np.array([y]), lambda y: torch.tensor([[y]]), lambda y: [y]]
    found = {from_torchvision(rows, rows).hash for rows in ([(x, form(y)) for x, y in two] for form in forms)}
    rows = [{"label": y, "image": Image.fromarray(x), "id": i} for i, (x, y) in enumerate(two)]
    assert found | {from_torchvision(rows, rows).hash} == {from_torchvision(two, two).hash}


@pytest.mark.parametrize("label", [0.7, float("nan"), float("inf"), 2**64, np.array([0, 1]), np.array([]), "cat", None])
def test_a_label_without_one_meaning_is_refused_with_its_value(pairs, label):
    odd = [*pairs, (pairs[0][0], label)]
    with pytest.raises(DataError, match=re.escape(f"the test data have the label {label!r}: ")):
        from_torchvision(pairs, odd)


def test_pictures_of_every_mode_are_grey_or_coloured():
    colours = Image.fromarray(np.arange(3 * 36, dtype=np.uint8).reshape(6, 6, 3))
    for mode, shape in {"P": (3, 6, 6), "RGBA": (3, 6, 6), "CMYK": (3, 6, 6), "LA": (1, 6, 6), "1": (1, 6, 6)}.items():
        some = [(colours.convert(mode), i % 2) for i in range(4)]
        assert from_torchvision(some, some).x_train.shape[1:] == shape
    palette = [(colours.convert("P"), i % 2) for i in range(4)]
    plain = [(colours.convert("P").convert("RGB"), i % 2) for i in range(4)]
    assert from_torchvision(palette, palette).hash == from_torchvision(plain, plain).hash
    deep = [(Image.new("I;16", (6, 6)), i % 2) for i in range(4)]
    with pytest.raises(DataError, match="uint16"):
        from_torchvision(deep, deep)


def test_torchvision_names_its_classes(tmp_path, pairs):
    for split in ("train", "test"):
        for i, (x, y) in enumerate(pairs):
            (tmp_path / split / "abc"[y]).mkdir(parents=True, exist_ok=True)
            Image.fromarray(x).save(tmp_path / split / "abc"[y] / f"{i}.png")
    found = from_torchvision(ImageFolder(tmp_path / "train"), ImageFolder(tmp_path / "test"))
    assert found.class_names == ("a", "b", "c")
    assert found.hash == dclib.load(str(tmp_path)).hash


def test_a_photograph_is_turned_upright(tmp_path, pairs):
    """A folder, torchvision's ImageFolder of it, with a transform or in parts, and the pictures themselves give the same data."""
    exif = Image.Exif()
    for split in ("train", "test"):
        for i, (x, y) in enumerate(pairs):
            exif[0x0112] = 1 + i % 8
            (tmp_path / split / "abc"[y]).mkdir(parents=True, exist_ok=True)
            Image.fromarray(x).save(tmp_path / split / "abc"[y] / f"{i}.png", exif=exif)
    found, parts = dclib.load(str(tmp_path)), (tmp_path / "train", tmp_path / "test")
    plain = [(ImageFolder(part), ImageFolder(part, ToTensor()), ImageFolder(part, loader=Image.open)) for part in parts]
    for train, test in zip(*plain, strict=True):
        assert from_torchvision(train, test).hash == found.hash
        assert from_torchvision(Subset(train, range(12)), Subset(test, range(12))).hash == found.hash
    assert found.hash != from_torchvision(pairs, pairs).hash
    assert plain[0][0].loader.__name__ == "default_loader"  # the user's object is left as it was


@pytest.mark.parametrize("background", ["white", "black"])
def test_what_is_transparent_lies_on_the_background(background, tmp_path, pairs):
    ground, rng = {"white": 255, "black": 0}[background], np.random.default_rng(1)
    alpha = [rng.integers(0, 256, (6, 6, 1)).astype(np.uint8) for _ in pairs]
    pictures = [(Image.fromarray(np.concatenate([x, a], -1)), y) for (x, y), a in zip(pairs, alpha, strict=True)]
    lie = lambda x, a: np.rint(x * (a / 255.0) + ground * (1 - a / 255.0)).astype(np.uint8)  # noqa: E731
    laid = [(lie(x, a), y) for (x, y), a in zip(pairs, alpha, strict=True)]
    expected = from_torchvision(laid, laid).hash
    assert from_torchvision(pictures, pictures, background=background).hash == expected
    for i, (picture, y) in enumerate(pictures):
        (tmp_path / "abc"[y]).mkdir(exist_ok=True)
        picture.save(tmp_path / "abc"[y] / f"{i}.png")
    folder = ImageFolder(tmp_path)
    assert from_torchvision(folder, folder, background=background).hash == expected
    assert (from_torchvision(pictures, pictures).hash == expected) == (background == "white")
    with pytest.raises(SpecError, match="unknown background 'grey'"):
        from_torchvision(pictures, pictures, background="grey")


def test_sizes_and_channels_change_as_asked(pairs):
    mixed = [(x[: 4 + i % 3], y) for i, (x, y) in enumerate(pairs)]
    with pytest.raises(DataError, match=r"training images have different shapes, 4×6×3 and 5×6×3: give an image_size"):
        from_torchvision(mixed, mixed)
    assert from_torchvision(mixed, mixed, image_size=8, channels=1).x_train.shape == (12, 1, 8, 8)


def test_a_set_is_learned_and_tested_from_an_object():
    train, test = FakeData(40, (3, 8, 8), 4), FakeData(20, (3, 8, 8), 4, random_offset=99)
    data = from_torchvision(train, test, name="fake")
    network = dclib.MLP(width=8)
    small = dclib.condense(data, network=network, outer_steps=2, real_batch=4, device="cpu", engine="eager")
    assert small.dataset == "fake"
    (accuracy,) = dclib.train(small, network=network, epochs=2, dataset=data, device="cpu")
    assert 0 <= accuracy <= 100


class Broken:
    def __len__(self):
        return 2

    def __getitem__(self, i):
        raise KeyError("no image")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (3, "the training data are no pairs (image, label) (TypeError: "),
        ([], "the training data are no pairs"),
        (Broken(), "(KeyError: 'no image')"),
        ([(np.zeros((4, 4)), 0), (np.full((4, 4), 2.0), 1)], "an image holds floats outside of [0, 1]"),
        ([(np.zeros((4, 4), np.int64), 0)], "an image is an array of int64 with shape (4, 4)"),
        ([{"img": np.zeros((4, 4)), "label": 0}], "the training data have 'img', 'label' and no 'image'"),
        ([(np.zeros((4, 4), np.uint8), i) for i in (0, 1)], "nothing can be learnt"),
    ],
)
def test_what_is_no_data_set_is_refused_in_a_sentence(data, sentence):
    with pytest.raises(DataError, match=re.escape(sentence)):
        from_torchvision(data, data)


# --- classes: what a label means


def write_classes(folder, colours):
    """A picture of one colour for each class of train/ and test/; colours by split and class."""
    for split, classes in colours.items():
        for name, colour in classes.items():
            (folder / split / name).mkdir(parents=True)
            for i in range(2):
                Image.new("RGB", (4, 4), (colour + i, colour, 7 * i)).save(folder / split / name / f"{i}.png")
    return [ImageFolder(folder / split) for split in colours]


def brightness(dataset):
    """The mean pixel of each class, in training and in testing."""
    both = (dataset.x_train, dataset.y_train), (dataset.x_test, dataset.y_test)
    return [[round(float(x[y == c].float().mean()), -1) for c in range(dataset.classes)] for x, y in both]


@pytest.mark.parametrize("test", [{"zcat": 0, "dog": 200}, {"cat": 0, "dog": 200, "eel": 9}, {"cat": 0}])
def test_other_classes_in_testing_are_refused(tmp_path, test):
    train, other = write_classes(tmp_path, {"train": {"cat": 0, "dog": 200}, "test": test})
    with pytest.raises(DataError, match=r"data have the class '(cat|zcat|eel|dog)' and the (test|training) data do not"):
        from_torchvision(train, other)


def test_labels_go_by_the_classes_names_whatever_their_order(tmp_path):
    composed, decomposed = "\u00e9", "e\u0301"  # torchvision sorts the one behind f, the other before it
    parts = write_classes(tmp_path, {"train": {decomposed: 0, "f": 200}, "test": {composed: 0, "f": 200}})
    found = from_torchvision(*parts)
    assert found.class_names == ("f", composed)
    assert brightness(found)[0] == brightness(found)[1] == brightness(dclib.load(tmp_path))[0]
    assert found.hash == dclib.load(tmp_path).hash


def test_parts_of_data_keep_names_loader_and_meaning(tmp_path):
    parts = write_classes(tmp_path / "one", {"train": {"cat": 0, "dog": 200}, "test": {"cat": 0, "dog": 200}})
    half = Image.linear_gradient("L").resize((4, 4)).point(lambda a: 255 * (a > 99))
    for file, _ in parts[0].samples + parts[1].samples:  # what lies under the transparent half must not be learnt
        Image.merge("RGBA", (*Image.open(file).split(), half)).save(file)
    whole = dclib.load(tmp_path / "one")
    wraps = [lambda d: Subset(d, range(4)), lambda d: ConcatDataset([d])]
    wraps += [lambda d: ConcatDataset([Subset(d, [0, 1]), Subset(d, [2, 3])])]
    for wrap in wraps:
        found = from_torchvision(*map(wrap, parts))
        assert (found.hash, found.class_names) == (whole.hash, ("cat", "dog"))
    (other, _) = write_classes(tmp_path / "two", {"train": {"ant": 0, "cat": 200}, "test": {"ant": 0, "cat": 200}})
    with pytest.raises(DataError, match="the parts of the data have different classes, ant, cat and cat, dog"):
        from_torchvision(ConcatDataset([parts[0], other]), parts[1])


def test_grey_pictures_are_grey_by_every_way(tmp_path):
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in ("a", "b"):
            (tmp_path / split / name).mkdir(parents=True)
            for i in range(2):
                Image.fromarray(rng.integers(0, 256, (6, 6)).astype(np.uint8)).save(tmp_path / split / name / f"{i}.png")
    found = from_torchvision(*(ImageFolder(tmp_path / split) for split in ("train", "test")))
    assert found.x_train.shape == (4, 1, 6, 6)
    assert found.hash == dclib.load(tmp_path).hash
