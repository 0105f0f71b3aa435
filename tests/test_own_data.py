"""A folder of one's own images: uneven classes, many or few of them, images of any shape; and the notebook's functions."""

import numpy as np
import pytest
import torch
from PIL import Image

import dclib
from dclib.data import dataset as data
from dclib.errors import DataError, SpecError
from dclib.report import own_data
from dclib.results import CondensedSet


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("own")
    own_data.example(place, per_class=3)
    return place


def test_the_example_is_uneven_and_of_many_shapes(folder):
    sizes = set()
    for path in folder.rglob("*.png"):
        with Image.open(path) as image:
            sizes.add(image.size)
    assert len(sizes) == 6
    assert any(width != height for width, height in sizes)
    found = data.load(folder, image_size=12)
    assert found.x_train.shape[1:] == (1, 12, 12)
    assert found.y_train.bincount().tolist() == [3 + 4 * c for c in range(10)]
    assert found.y_test.bincount().tolist() == [3] * 10
    assert found.class_names[:2] == ("0-zero", "1-one")
    with pytest.raises(DataError, match="give an image size"):
        data.load(folder)


def test_a_folder_is_learned_and_tested(folder, monkeypatch):
    monkeypatch.setattr(own_data, "LIVE", dclib.MLP(width=8))
    monkeypatch.setitem(own_data.STEPS, "smoke", 2)
    found = own_data.learn(preset="smoke", device="cpu", folder=str(folder), image_size="8", ipc=2)
    assert list(found.sets) == ["chosen at random", "learned"]
    assert all(made.images.shape == (20, 1, 8, 8) for made in found.sets.values())
    real = found.sets["chosen at random"]
    assert isinstance(real, CondensedSet)
    pixels = torch.from_numpy(real.pixels())
    assert all((found.dataset.x_train[:, 0] == image).flatten(1).all(1).any() for image in pixels)
    assert own_data.folder_table(found).splitlines()[3].split() == ["|", "1-one", "|", "7", "|", "3", "|"]
    assert f"learned from all {210} reaches {found.accuracies['learned']:.0f} %" in own_data.sentence(found)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"images": "x"}, "images"),
        ({"ipc": "many"}, "ipc must be a whole number, not 'many'"),
        ({"ipc": 0}, "ipc must be a whole number of at least 1"),
        ({"image_size": -3}, "cannot resize images to -3 pixels"),
        ({"folder": "/none/such"}, "there is no folder"),
        ({"preset": "big"}, "unknown preset 'big'"),
    ],
)
def test_what_the_notebook_cannot_use_is_a_sentence(given, words):
    with pytest.raises((SpecError, DataError), match=words):
        own_data.learn(**{"device": "cpu", **given})


@pytest.mark.parametrize(("classes", "channels"), [(2, 3), (200, 1)])
def test_from_two_to_two_hundred_classes_grey_or_in_colour(classes, channels, tmp_path):
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for c in range(classes):
            (tmp_path / split / f"{c:03d}").mkdir(parents=True)
            for i in range(1 + c % 2):
                image = rng.integers(0, 256, (4 + i, 6, channels)).astype(np.uint8)
                Image.fromarray(image[..., 0] if channels == 1 else image).save(tmp_path / split / f"{c:03d}" / f"{i}.png")
    network = dclib.MLP(width=4, depth=1)
    small = dclib.condense(tmp_path, network=network, outer_steps=1, real_batch=2, image_size=8, device="cpu", engine="eager")
    assert small.images.shape == (classes, channels, 8, 8)
    assert len(small.class_names) == classes
    assert len(dclib.train(small, network=network, epochs=1, device="cpu", engine="eager")) == 1
