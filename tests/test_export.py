"""A set for other programs: the arrays and pictures hold what the set does, in data colours, and dclib reads them as a data set."""

import csv
import dataclasses
import re
import shlex

import numpy as np
import pytest
import torch
from PIL import Image

from dclib.data import dataset as data
from dclib.results.sets import CondensedSet


@pytest.fixture(params=[1, 3], ids=["grey", "RGB"])
def small(request):
    """Two images of three classes, whose pixels are known, a few of them out of the colours."""
    channels = request.param
    mean, std = (0.4, 0.5, 0.6)[:channels], (0.2, 0.25, 0.3)[:channels]
    pixels = np.random.default_rng(0).integers(0, 256, (6, channels, 5, 4)).astype(np.float64)
    pixels[0, 0, 0, :2] = 300, -20
    unit = (pixels / 255 - np.reshape(mean, (1, -1, 1, 1))) / np.reshape(std, (1, -1, 1, 1))
    labels = np.array([0, 0, 1, 1, 2, 2])
    made = CondensedSet(unit.astype(np.float32), labels, "made", ("T-shirt/top", "dog", "ape"), mean, std)
    shown = pixels.clip(0, 255).astype(np.uint8).transpose(0, 2, 3, 1)
    return made, shown[..., 0] if channels == 1 else shown


def test_the_npz_has_the_colours_and_the_exact_values(small, tmp_path):
    made, shown = small
    steps = dataclasses.replace(made, order=np.array([[0, 2], [1, 3]]), rates=np.array([0.1, 0.2], np.float32))
    for one, more in ((made, []), (steps, ["order", "rates"])):
        one.export(tmp_path / "set.npz", "npz")
        with np.load(tmp_path / "set.npz", allow_pickle=False) as found:
            assert sorted(found.files) == sorted(["class_names", "images", "mean", "std", "x_train", "y_train", *more])
            assert found["x_train"].dtype == np.uint8
            assert np.array_equal(found["x_train"], shown)
            assert all(np.array_equal(found[name], getattr(one, name)) for name in ("images", "class_names", *more))
            assert np.array_equal(found["y_train"], made.labels)
            back = found["images"] * found["std"].reshape(1, -1, 1, 1) + found["mean"].reshape(1, -1, 1, 1)
        assert back[0].max() == pytest.approx(300 / 255, abs=1e-5), "beyond the colours"


def test_the_pictures_are_the_images_with_their_labels(small, tmp_path):
    made, shown = small
    made.export(tmp_path / "pictures", "png")
    with open(tmp_path / "pictures" / "labels.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["label"]) for row in rows] == made.labels.tolist()
    assert rows[0] == {"file": "train/0-T-shirt_top/00000.png", "label": "0", "class": "T-shirt/top"}
    for row, pixels in zip(rows, shown, strict=True):
        assert np.array_equal(np.asarray(Image.open(tmp_path / "pictures" / row["file"])), pixels)


def test_class_folders_keep_the_order_of_labels(tmp_path):
    names = tuple(f"z{i}" if i % 2 else f"a/{i}" for i in range(101))
    made = CondensedSet(np.zeros((101, 1, 2, 2), np.float32), np.arange(101), "made", names, (0.5,), (0.5,))
    made.export(tmp_path / "out", "png")
    folders = sorted(path.name for path in (tmp_path / "out" / "train").iterdir())
    assert [name.partition("-")[2] for name in folders] == [name.replace("/", "_") for name in names]
    assert folders[2] == "002-a_2"


@pytest.fixture
def chosen(command):
    assert command("select", "digits", "--method", "random", "--ipc", "2", "-o", "set.safetensors")[0] == 0
    return CondensedSet.load("set.safetensors")


@pytest.mark.parametrize(("form", "test"), [("npz", []), pytest.param("png", ["--test"], marks=pytest.mark.slow)])
def test_dclib_reads_what_it_exports(form, test, chosen, command):
    out = command("export", "set.safetensors", "--to", form, "-o", f"out.{form}", *test)[1]
    assert out.startswith(f"out.{form} is made (20 images, 797 test images)\n")
    found, digits = data.load(f"out.{form}" if form == "npz" else "./out.png"), data.load("digits")
    assert torch.equal(found.x_train.sort(0).values, digits.x_train[torch.tensor(chosen.about["indices"]).flatten()].sort(0).values)
    assert torch.equal(found.y_train, torch.from_numpy(chosen.labels))
    assert torch.equal(found.x_test, digits.x_test)
    assert found.class_names == (digits.class_names if form == "npz" else tuple(f"{c}-{c}" for c in range(10)))


def test_what_is_clamped_is_counted(small, command):
    made, _ = small
    inside = (np.full_like(made.images, 0.5) - np.reshape(made.mean, (1, -1, 1, 1))) / np.reshape(made.std, (1, -1, 1, 1))
    inside[0, 0, 0, :2] = 9, -9
    dataclasses.replace(made, images=inside).save("wild")
    assert command("export", "wild", "--to", "npz", "--no-test")[1].splitlines()[1].startswith(f"{200 / inside.size:.1f} % ")


def test_any_training_loop_takes_a_set(chosen):
    images, labels = next(iter(torch.utils.data.DataLoader(chosen.as_dataset(), batch_size=20)))
    assert torch.equal(images, torch.from_numpy(chosen.images))
    assert torch.equal(labels, torch.from_numpy(chosen.labels))


# --- the card


def head(folder):
    """The YAML of a card."""
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((folder / "README.md").read_text().split("---\n")[1])


def made_by(folder):
    """The command in a card."""
    return shlex.split(re.search(r"^- Made by: `dclib (.+)`$", (folder / "README.md").read_text(), re.M)[1])


def test_an_image_folder_has_a_card_that_hubs_read(small, tmp_path):
    made, shown = small
    made = dataclasses.replace(made, about={"source": "fashionmnist"})
    made.export(tmp_path / "out", "imagefolder")
    found = head(tmp_path / "out")
    assert found["license"] == "mit"
    assert found["task_categories"] == ["image-classification"]
    assert found["size_categories"] == ["n<1K"]
    assert found["configs"] == [{"config_name": "default", "data_files": [{"split": "train", "path": "train/**"}]}]
    pictures = sorted((tmp_path / "out").glob("train/**/*.png"))
    assert all(np.array_equal(np.asarray(Image.open(file)), pixels) for file, pixels in zip(pictures, shown, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["select digits --method herding --ipc 2 --epochs 1 --seed 3", "select digits --method random"])
def test_the_command_of_the_card_makes_the_set(how, command, tmp_path):
    assert command(*how.split(), "-o", "set")[0] == 0
    assert command("export", "set", "--to", "imagefolder", "-o", "out", "--test")[0] == 0
    assert [part["split"] for part in head(tmp_path / "out")["configs"][0]["data_files"]] == ["train", "test"]
    assert command(*made_by(tmp_path / "out"), "-o", "set")[1].startswith("set is there already")


@pytest.mark.slow
def test_the_command_of_a_condensed_set_has_its_hyper_parameters(command, tmp_path):
    given = "-K 2 --real-batch 4 --network MLP:width=4,depth=1 --image-lr 0.3 --storage float16 --siamese crop+scale --factor 2"
    assert command("condense", "digits", *given.split(), "--engine", "eager", "-o", "set")[0] == 0
    assert command("export", "set", "--to", "imagefolder", "-o", "out")[0] == 0
    assert command(*made_by(tmp_path / "out"), "-o", "set")[1].startswith("set is there already")


def test_a_card_names_no_folder_of_this_machine(save_own, command, tmp_path):
    save_own(tmp_path / "here" / "mine.npz")
    assert command("select", "here/mine.npz", "--method", "random", "-o", "set")[0] == 0
    assert command("export", "set", "--to", "imagefolder", "-o", "out")[0] == 0
    assert str(tmp_path) not in (tmp_path / "out" / "README.md").read_text()
    assert head(tmp_path / "out")["license"] == "unknown"
