"""Pictures in folders and data sets that are objects in Python, torchvision's and other pairs: all ways give the same data."""

import numpy as np
import pytest
import torch
from helpers import refused
from PIL import Image
from torch.utils.data import ConcatDataset, Subset, TensorDataset
from torchvision.datasets import ImageFolder
from torchvision.transforms import ToTensor

import dclib
from dclib.data.objects import from_torchvision
from dclib.errors import DataError, SpecError


@pytest.fixture(scope="module")
def pairs():
    """Arrays of 12 RGB images of three classes."""
    rng = np.random.default_rng(0)
    return [(rng.integers(0, 256, (6, 6, 3)).astype(np.uint8), i % 3) for i in range(12)]


def lay(folder, pictures, classes=("cat", "dog"), splits=("train", "test"), **options):
    """Write the pictures, of one class after another, into train/ and test/; return torchvision's data sets of both."""
    for split in splits:
        for i, picture in enumerate(pictures):
            place = folder / split / classes[i % len(classes)]
            place.mkdir(parents=True, exist_ok=True)
            picture.save(place / f"{i}.png", **options)
    return [ImageFolder(folder / split) for split in splits]


def as_pairs(folder):
    """Pillow's pictures with their labels."""
    return [(Image.open(file), label) for file, label in folder.samples]


# --- pictures --------------------------------------------------------------------------------------------------------


def kinds():
    """Pictures of every mode of 6×6 pixels, each with what it is on white and on black."""
    rng = np.random.default_rng(0)
    colours, alpha = rng.integers(0, 256, (6, 6, 3)).astype(np.uint8), rng.integers(0, 256, (6, 6, 1)).astype(np.uint8)
    alpha[0] = 0
    alpha[1] = opaque = 255
    grey = colours[..., :1]
    marked, palette = Image.fromarray(grey[..., 0]), Image.frombytes("P", (6, 6), (grey[..., 0] % 4).tobytes())
    marked.info["transparency"] = int(grey[2, 2, 0])
    palette.putpalette([0, 0, 0, 250, 0, 0, 0, 240, 0, 0, 0, 230])
    palette.info["transparency"] = bytes([0, 255, 128, 255])
    table = np.array([[0, 0, 0, 0], [250, 0, 0, 255], [0, 240, 0, 128], [0, 0, 230, 255]])[grey[..., 0] % 4]
    for picture, under, a in (
        (Image.fromarray(colours), colours, opaque),
        (Image.fromarray(grey[..., 0]), grey, opaque),
        (Image.fromarray(grey[..., 0] > 99), 255 * (grey > 99), opaque),
        (Image.fromarray(np.concatenate([colours, alpha], -1)), colours, alpha),
        (Image.fromarray(np.concatenate([grey, alpha], -1)), grey, alpha),
        (marked, grey, np.where(grey == grey[2, 2], 0, 255)),
        (palette, table[..., :3], table[..., 3:]),
    ):
        on = [np.rint((under * (a / 255.0)) + ground * (1 - a / 255.0)).astype(np.uint8) for ground in (255, 0)]
        yield picture, *(np.broadcast_to(x, (6, 6, 3)) for x in on)


def test_pictures_of_every_mode_lie_on_their_background_by_every_way(tmp_path):
    """A folder, torchvision's data set of it, with a transform, in parts, and the pictures themselves give the same data."""
    pictures, *laid = zip(*kinds(), strict=True)
    both = lay(tmp_path / "icons", pictures)
    whole, inner = len(both[0]), [range(3), range(3, 7)]
    for view, background, expected in zip(("", "+onblack"), ("white", "black"), laid, strict=True):
        plain = [(x, i % 2) for i, x in enumerate(expected)]
        found = dclib.load(f"{tmp_path}/icons{view}")
        assert found.hash == from_torchvision(plain, plain).hash
        assert (found.name, found.source) == (f"icons{view}", f"{tmp_path}/icons{view}")
        ways = [lambda d: d, as_pairs, lambda d: ImageFolder(d.root, ToTensor()), lambda d: ImageFolder(d.root, loader=Image.open)]
        ways += [lambda d: Subset(d, range(whole)), lambda d: ConcatDataset([Subset(d, part) for part in inner])]
        for way in ways:
            assert from_torchvision(*map(way, both), background=background).hash == found.hash
    assert both[0].loader.__name__ == "default_loader"  # the user's object is left as it was
    assert dclib.load(tmp_path / "icons", channels=1).channels == 1
    refused("unknown background 'grey'", call=lambda: from_torchvision(*both, background="grey"), error=SpecError)


def test_photographs_are_turned_upright_and_grey_ones_stay_grey(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 3  # turned by 180°
    half = [Image.fromarray(np.repeat(np.uint8([255 - i, i]), 18).reshape(6, 6)) for i in range(4)]
    both = lay(tmp_path, half, exif=exif)
    found = dclib.load(tmp_path)
    assert found.x_train[0, 0, :, 0].tolist() == [0, 0, 0, 255, 255, 255]
    assert found.x_train.shape == (4, 1, 6, 6)
    for way in (lambda d: d, as_pairs):
        assert from_torchvision(*map(way, both)).hash == found.hash


def test_labels_go_by_the_classes_names_whatever_their_order(tmp_path):
    """é is one letter, or e and an accent, by the system that wrote the folder; torchvision sorts one behind f, one before it."""
    composed, decomposed = "\u00e9", "e\u0301"
    pictures = [Image.new("RGB", (4, 4), (colour + i, colour, 7 * i)) for i in range(2) for colour in (0, 200)]
    parts = [lay(tmp_path, pictures, (accent, "f"), (split,))[0] for split, accent in (("train", decomposed), ("test", composed))]
    for found in (from_torchvision(*parts), dclib.load(tmp_path)):
        assert found.class_names == ("f", composed)
        for x, y in ((found.x_train, found.y_train), (found.x_test, found.y_test)):
            assert x[y == 0].float().mean() > 100 > x[y == 1].float().mean()
    (tmp_path / "train" / composed).mkdir()
    (tmp_path / "train" / decomposed / "0.png").rename(tmp_path / "train" / composed / "0.png")
    assert dclib.load(tmp_path).hash == found.hash  # both in one folder, too


def test_other_classes_in_testing_are_refused(tmp_path, pairs):
    pictures = [Image.fromarray(x) for x, _ in pairs]
    (train,) = lay(tmp_path, pictures, splits=("train",))
    for i, names in enumerate((("zcat", "dog"), ("cat", "dog", "eel"), ("cat",))):
        (test,) = lay(tmp_path / str(i), pictures, names, ("test",))
        refused("have the class", "data do not", call=from_torchvision, error=DataError, train=train, test=test)
        refused("parts of the data", call=from_torchvision, error=DataError, train=ConcatDataset([train, test]), test=train)


# --- objects ---------------------------------------------------------------------------------------------------------


def test_every_form_of_an_image_and_of_a_label_gives_the_same_data(pairs):
    forms = [
        pairs,
        [(Image.fromarray(x), y) for x, y in pairs],
        [(ToTensor()(Image.fromarray(x)), torch.tensor(y)) for x, y in pairs],
        TensorDataset(torch.stack([torch.from_numpy(x).permute(2, 0, 1) for x, _ in pairs]), torch.tensor([y for _, y in pairs])),
    ]
    found = [from_torchvision(form, form) for form in forms]
    assert len({one.hash for one in found}) == 1
    assert found[0].x_train.shape == (12, 3, 6, 6)
    two = [(x, y % 2) for x, y in pairs]
    forms = [int, float, bool, np.uint8, np.float32, lambda y: np.array([y]), lambda y: torch.tensor([[y]]), lambda y: [y]]
    found = {from_torchvision(rows, rows).hash for rows in ([(x, form(y)) for x, y in two] for form in forms)}
    rows = [{"label": y, "image": Image.fromarray(x), "id": i} for i, (x, y) in enumerate(two)]
    assert found | {from_torchvision(rows, rows).hash} == {from_torchvision(two, two).hash}


def test_a_label_without_one_meaning_is_refused_with_its_value(pairs):
    for label in (0.7, -1, float("nan"), float("inf"), 2**64, np.array([0, 1]), np.array([]), "cat", None):
        rows = [*pairs, (pairs[0][0], label)]
        refused(f"test image 12 has the label {label!r}", call=from_torchvision, error=DataError, train=pairs, test=rows)


def test_sizes_and_channels_change_as_asked(pairs):
    mixed = [(x[: 4 + i % 3], y) for i, (x, y) in enumerate(pairs)]
    refused("image 1", "5×6×3", "4×6×3", "image size", call=from_torchvision, error=DataError, train=mixed, test=mixed)
    assert from_torchvision(mixed, mixed, image_size=8, channels=1).x_train.shape == (12, 1, 8, 8)


class Broken:
    def __len__(self):
        return 2

    def __getitem__(self, i):
        raise KeyError("no image")


def test_what_is_no_data_set_is_refused_in_a_sentence():
    for data, part in (
        (3, "no pairs (image, label) (TypeError"),
        ([], "empty"),
        (Broken(), "KeyError: 'no image'"),
        ([(np.zeros((4, 4)), 0), (np.full((4, 4), 2.0), 1)], "image 1 holds floats outside of [0, 1]"),
        ([(np.zeros((4, 4), np.int64), 0)], "int64"),
        ([(Image.new("I", (6, 6)), 0)], "the kind I"),
        ([{"img": np.zeros((4, 4)), "label": 0}], "'image' and 'label'"),
        ([(np.zeros((4, 4), np.uint8), i) for i in (0, 1)], "nothing can be learnt"),
    ):
        refused(part, call=from_torchvision, error=DataError, train=data, test=data)
