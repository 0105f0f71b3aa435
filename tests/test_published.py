"""Sets that others publish: each form is written as its authors' code writes it, and read without running any code of the file."""

import pickle
import re

import numpy as np
import pytest
import torch
from PIL import Image

import dclib
from dclib.errors import DclibError
from dclib.results import CondensedSet

MEAN, STD = 0.1307, 0.3081  # of MNIST


@pytest.fixture
def made():
    """Ten images of MNIST's shape, standardised, and their labels, as the authors' code holds them."""
    images = torch.randn(10, 1, 28, 28, generator=torch.Generator().manual_seed(0), requires_grad=True).detach()
    return images, torch.arange(10)


def authors(path, images, labels, experiments=3):
    """What `main.py` of the authors saves, whose accuracies are NumPy's numbers."""
    data = [[images + i, labels] for i in range(experiments)]
    torch.save({"data": data, "accs_all_exps": {"ConvNet": [np.float64(0.9), np.float64(0.91)]}}, path)


def test_the_authors_file_is_read_by_experiment(made, tmp_path, command):
    images, labels = made
    authors(tmp_path / "res_DC_MNIST_ConvNet_1ipc.pt", images, labels)
    status, out, _ = command("import", tmp_path / "res_DC_MNIST_ConvNet_1ipc.pt", "--dataset", "mnist", "--index", "2", "-o", "set")
    assert status == 0
    assert "experiment 2 of 3" in out
    assert "standardised by mean 0.1307 and std 0.3081" in out
    found = CondensedSet.load("set")
    assert np.array_equal(found.images, (images + 2).numpy())
    assert np.array_equal(found.labels, labels)
    assert (found.mean, found.std, found.source, found.class_names) == ((MEAN,), (STD,), "mnist", tuple("0123456789"))


def test_a_pair_of_files_is_read(made, tmp_path):
    images, labels = made
    torch.save(images.half(), tmp_path / "images_best.pt")
    torch.save(labels.float(), tmp_path / "labels_best.pt")
    torch.save(labels.flip(0), tmp_path / "other.pt")
    found = dclib.import_set(tmp_path / "images_best.pt", "mnist")
    assert np.allclose(found.images, images, atol=1e-2)
    assert found.labels.tolist() == list(range(10))
    assert dclib.import_set(tmp_path / "images_best.pt", "mnist", labels=tmp_path / "other.pt").labels[0] == 9


@pytest.mark.parametrize(("scale", "dtype", "said"), [(1, torch.float32, "in [0, 1]"), (255, torch.uint8, "0 to 255")])
def test_pixels_are_standardised_and_a_factor_is_kept(made, scale, dtype, said, tmp_path):
    """As IDC saves them: not standardised, several images in one."""
    unit = torch.rand(10, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    torch.save([(unit * scale).to(dtype), made[1]], tmp_path / "data.pt")
    found = dclib.import_set(tmp_path / "data.pt", "mnist", factor=2)
    assert found.about["imported"]["pixels"].startswith(said)
    assert np.allclose(found.unit(), unit, atol=1 / 255)
    assert len(found.as_dataset()) == 40


def test_a_named_normalisation_goes_before_what_is_found(made, tmp_path):
    torch.save(list(made), tmp_path / "data.pt")
    found = dclib.import_set(tmp_path / "data.pt", "mnist", mean=(0.5,), std=(0.25,))
    assert (found.mean, found.std) == ((0.5,), (0.25,))
    assert np.array_equal(found.images, made[0])


def test_soft_labels_are_kept_and_logits_named(made, tmp_path):
    logits = torch.randn(10, 10, generator=torch.Generator().manual_seed(2))
    torch.save([made[0], logits], tmp_path / "logits.pt")
    torch.save([made[0], logits.softmax(1)], tmp_path / "soft.pt")
    soft, found = dclib.import_set(tmp_path / "soft.pt", "mnist"), dclib.import_set(tmp_path / "logits.pt", "mnist", logits=True)
    assert np.allclose(soft.soft, logits.softmax(1), atol=1e-6)
    assert np.allclose(soft.soft, found.soft, atol=1e-6)
    assert found.labels.tolist() == logits.argmax(1).tolist()
    assert "softmax" in found.about["imported"]["labels"]
    with pytest.raises(DclibError, match="logits"):
        dclib.import_set(tmp_path / "logits.pt", "mnist")


def test_what_is_exported_is_imported(made, tmp_path):
    digits = dclib.select("digits", "random", ipc=2)
    digits.export(tmp_path / "set.npz")
    exact = dclib.import_set(tmp_path / "set.npz", "digits")
    assert exact.hash == digits.hash
    assert np.allclose((exact.mean, exact.std), (digits.mean, digits.std))
    digits.export(tmp_path / "pictures", "png")
    pictures = dclib.import_set(tmp_path / "pictures", "digits")
    assert np.array_equal(pictures.labels, digits.labels)
    assert np.array_equal(pictures.pixels(), digits.pixels())


def test_arrays_and_folders_of_others_are_read(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (10, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "others.npz", images=pixels / 255.0, labels=np.arange(10))
    for name, shown in zip(("airplane", "ship"), pixels, strict=False):
        (tmp_path / "folder" / name).mkdir(parents=True)
        Image.fromarray(shown).save(tmp_path / "folder" / name / "0.png")
    assert np.array_equal(dclib.import_set(tmp_path / "others.npz", "cifar10").pixels(), pixels)
    folder = dclib.import_set(tmp_path / "folder", "cifar10")
    assert folder.labels.tolist() == [0, 8]
    assert np.array_equal(folder.pixels(), pixels[:2])


class Code:
    """Would call `print` when it is read."""

    def __reduce__(self):
        return print, ("this code ran",)


def test_code_of_a_file_is_never_run(tmp_path, capsys):
    torch.save({"data": [Code()]}, tmp_path / "code.pt")
    (tmp_path / "pickle.pt").write_bytes(pickle.dumps(Code()))
    for name in ("code.pt", "pickle.pt"):
        with pytest.raises(DclibError, match="no code of a file is run"):
            dclib.import_set(tmp_path / name, "mnist")
    assert "ran" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "given", "said"),
    [
        ({"data": [[torch.zeros(1, 1, 4, 4), torch.zeros(1).long()]]}, {"index": 1}, "experiments 0 to 0, not 1"),
        ({"weights": torch.zeros(3)}, {}, "known form"),
        (torch.zeros(1, 1, 4, 4), {}, "labels"),
        ([torch.full((1, 1, 4, 4), 1.2), torch.zeros(1).long()], {}, "1.2"),
        ([torch.full((1, 1, 4, 4), 200.0), torch.zeros(1).long()], {}, "200"),
        ([torch.zeros(1, 1, 4, 4), torch.zeros(1).long()], {"pixels": "byte"}, "did you mean 'bytes'"),
        ([torch.zeros(1, 1, 4, 4), torch.zeros(1).long()], {"mean": (0.5,)}, "neither"),
        ([torch.zeros(1, 1, 4, 4), torch.zeros(1).long()], {"logits": True}, "logits"),
        ([torch.zeros(1, 3, 4, 4), torch.zeros(1).long()], {}, "3 channels"),
        ([torch.zeros(1, 1, 4, 4), torch.zeros(1).long() + 10], {}, "labels from 10"),
        ([torch.zeros(1, 1, 4, 4), torch.zeros(1).long()], {"factor": 3}, "factor is 3"),
    ],
    ids=range(11),
)
def test_what_cannot_be_understood_is_refused(content, given, said, tmp_path):
    torch.save(content, tmp_path / "x.pt")
    with pytest.raises(DclibError, match=re.escape(said)) as caught:
        dclib.import_set(tmp_path / "x.pt", "mnist", **given)
    assert "\n" not in str(caught.value)
