"""Table T9's code path: a hundred classes, on small made data, from the call of its notebook to the records."""

import numpy as np
import pytest

from dclib import report
from dclib.reproduce import reproduce
from dclib.results import CondensedSet, Store
from dclib.spec import Network, WholeTraining

CLASSES, EACH = 100, 4
THIN = "ConvNet:width=4,depth=2"
METHODS = ("random", "herding", "k-center", "forgetting")


@pytest.fixture
def hundred(tmp_path):
    """The path of an .npz with four training images of each of a hundred classes, told apart by one bright pixel."""
    draw, path = np.random.default_rng(0), tmp_path / "hundred.npz"

    def images(each):
        y = np.arange(CLASSES).repeat(each)
        x = draw.integers(0, 100, (len(y), 12, 12), dtype=np.uint8)
        x[np.arange(len(y)), 1 + y // 10, 1 + y % 10] = 255
        return x, y

    (x_train, y_train), (x_test, y_test) = images(EACH), images(2)
    np.savez(path, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    return str(path)


@pytest.mark.slow
def test_a_table_of_a_hundred_classes(hundred, command, shorten_smoke, monkeypatch):
    thin = lambda cell, seed: WholeTraining(cell.dataset, Network.parse(THIN).resolve("train"), epochs=1, seed=seed)  # noqa: E731
    shorten_smoke(monkeypatch, 1, random_sets=2, whole=thin)
    given = dict(preset="smoke", datasets=hundred, ipc="1 2", test_networks=THIN)
    rows = reproduce("cifar100", networks=[*METHODS, THIN, "whole"], **given)
    assert len(rows[["ipc", "network"]].drop_duplicates()) == 2 * 5 + 1
    assert rows.sets.all()
    assert rows.paper.isna().all(), "the paper's numbers are CIFAR100's alone"
    records = {r["key"]: r for found in Store().records.values() for r in found}
    chosen = {(r["run"]["hyper"]["ipc"], r["run"]["method"]): r for r in records.values() if r["kind"] == "MakeSet"}
    for ipc in (1, 2):
        for method in METHODS:
            indices = chosen[ipc, method]["indices"]
            assert [i // EACH for found in indices for i in found] == np.arange(CLASSES).repeat(ipc).tolist()
            assert len({i for found in indices for i in found}) == ipc * CLASSES
        made = CondensedSet.load(Store().find_set(chosen[ipc, "condense"]["key"]))
        assert made.images.shape == (ipc * CLASSES, 1, 12, 12)
        assert made.labels.tolist() == np.arange(CLASSES).repeat(ipc).tolist()
    assert chosen[1, "herding"]["indices"] == chosen[1, "k-center"]["indices"]
    assert report.comparison_table(rows, "x", "tab-x")._repr_markdown_().count("href") == len(rows)


def test_more_images_than_a_class_has_are_refused_before_anything_is_trained(hundred, command, refused, tmp_path):
    for method in ("random", "herding", "ors"):
        request = ["run", "cifar100", "--datasets", hundred, "--ipc", "5", "--networks", method, "--test-networks", "MLP"]
        refused(command(*request), f"class '0' of hundred has {EACH} images, fewer than the 5 asked for: lower ipc")
    assert not [*tmp_path.rglob("*.jsonl"), *tmp_path.rglob("*.safetensors")]
