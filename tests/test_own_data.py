"""A folder of one's own images: uneven classes, many or few of them, images of any shape; and the page `own_data`."""

import numpy as np
import pytest
from pages import shown
from PIL import Image

import dclib
from dclib.errors import DataError, SpecError


def write(place, classes, channels=1):
    """Classes of one and two images, each of another shape."""
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for c in range(classes):
            (place / split / f"{c:03d}").mkdir(parents=True)
            for i in range(1 + c % 2):
                image = rng.integers(0, 256, (4 + i, 6, channels)).astype(np.uint8)
                Image.fromarray(image[..., 0] if channels == 1 else image).save(place / split / f"{c:03d}" / f"{i}.png")


@pytest.mark.parametrize(("classes", "channels"), [(2, 3), (200, 1)])
def test_from_two_to_two_hundred_classes_grey_or_in_colour(classes, channels, tmp_path):
    write(tmp_path, classes, channels)
    how = dict(device="cpu", engine="eager")
    small = dclib.condense(tmp_path, network=dclib.MLP(width=4, depth=1), outer_steps=1, real_batch=2, image_size=8, **how)
    assert small.images.shape == (classes, channels, 8, 8)
    assert len(small.class_names) == classes
    assert len(dclib.train(small, network=dclib.MLP(width=4, depth=1), epochs=1, **how)) == 1


def test_images_of_several_shapes_need_a_size(tmp_path):
    write(tmp_path, 2)
    with pytest.raises(DataError, match="4×6×1: give an image size"):
        dclib.load(tmp_path)


def test_the_page_makes_an_uneven_folder_and_counts_it():
    rows = shown("own_data", "329e65f3", "example", "585fc850")["585fc850"]
    assert rows[1] == ["1-one", "16", "12"]
    assert [row[1:] for row in rows] == [[str(12 + 4 * c), "12"] for c in range(10)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"images": "x"}, "images"),
        ({"ipc": 0}, "ipc must be a whole number of at least 1, not 0"),
        ({"image_size": -3}, "cannot resize images to -3 pixels"),
        ({"folder": "/none/such"}, "there is no folder"),
        ({"preset": "big"}, "unknown preset 'big'"),
    ],
)
def test_what_the_page_cannot_use_is_a_sentence(given, words):
    with pytest.raises((SpecError, DataError), match=words):
        shown("own_data", **given)
