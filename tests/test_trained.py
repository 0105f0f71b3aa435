"""Saved networks: the file gives the same network again, and tests it on the images of any data with the same classes."""

import json

import numpy as np
import pytest
import torch
from helpers import refused
from PIL import Image

import dclib
from dclib.core import train
from dclib.errors import DataError, FileError, SpecError
from dclib.run import trained
from dclib.spec import ConvNet, Training

HERE = {"device": "cpu", "engine": "eager"}
BATCH = "ConvNet:width=4,depth=2,norm=batch"


@pytest.fixture
def small(own):
    """A set of three images of the user's own data."""
    return dclib.select("made", "random", ipc=2, device="cpu", engine="eager")


@pytest.mark.parametrize("network", ["ConvNet:width=4,depth=2", BATCH, "MLP:width=8"])
def test_a_saved_network_tells_what_it_told_when_it_was_trained(small, own, tmp_path, network):
    counts = []
    look = lambda module, tested: counts.append(train.confusion(module, tested))  # noqa: E731
    (accuracy,) = dclib.train(small, network, epochs=3, save=tmp_path / "net", look=look, **HERE)
    found = dclib.test(tmp_path / "net", device="cpu")
    assert found.accuracy == accuracy
    assert (found.confusion == counts[0].numpy()).all()
    assert found.confusion.sum(1).tolist() == [10, 10, 10]
    assert found.confusion.trace() == (found.labels == found.predicted).sum()
    assert dclib.test(tmp_path / "net", own).confusion.tolist() == found.confusion.tolist()


def test_a_network_is_tested_only_where_its_outputs_mean_the_same(small, tmp_path, make_dataset, save_own):
    dclib.train(small, "MLP:width=4", epochs=1, save=tmp_path / "net", **HERE)
    for other, words in ((make_dataset(5, 5), ("classes",)), (make_dataset(5, 5, 5), ("'a'", "'0'"))):
        refused(*words, call=lambda other=other: dclib.test(tmp_path / "net", other), error=DataError)
    save_own(tmp_path / "other" / "new.npz", seed=1)
    assert dclib.test(tmp_path / "net", tmp_path / "other" / "new.npz").dataset == "new"
    refused("one network", "2", call=lambda: dclib.train(small, networks=2, save=tmp_path / "x"), error=SpecError)


def test_a_file_that_is_no_network_is_called_what_it_is(small, tmp_path):
    small.save(tmp_path / "set")
    dclib.train(small, "MLP:width=4", epochs=1, save=tmp_path / "net", **HERE)
    content = (tmp_path / "net").read_bytes()
    (tmp_path / "hurt").write_bytes(content[:-3] + bytes(3))
    (tmp_path / "text").write_text("x")
    for name, words in (("none", "there is no network"), ("set", "a condensed set"), ("hurt", "damaged"), ("text", "no network")):
        refused(words, name, call=lambda name=name: dclib.test(tmp_path / name), error=FileError)
    refused("trained network", call=lambda: dclib.CondensedSet.load(tmp_path / "net"), error=FileError)


def test_adam_is_torchs(small, made):
    hyper = Training(ConvNet(width=4, depth=2), epochs=3, optimizer="adam", lr=0.002).resolve()
    images, labels = small.as_dataset().tensors
    ours, theirs = (train.draw(hyper.network, made, 0, images) for _ in range(2))
    train.train(ours, images, labels, hyper, seed=0)
    rates = train.schedule(hyper)
    for i, rate in enumerate(rates):
        if i == 0 or rate != rates[i - 1]:
            optimiser = torch.optim.Adam(theirs.parameters(), lr=rate, weight_decay=5e-4)
        loss = torch.nn.functional.cross_entropy(theirs(images), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_the_command_saves_tests_and_draws(command, refused, save_own, tmp_path):
    save_own(tmp_path / "data" / "mine.npz")
    assert command("select", "mine", "--method", "random", "-o", "set")[0] == 0
    quick = ("--network", "MLP:width=4", "--epochs", 1, "--engine", "eager", "--device", "cpu", "--optimizer", "adam")
    status, out, err = command("train", "set", *quick, "--save", "net", "--confusion", "c.png")
    assert status == 0, err
    assert "  2: " in out
    status, again, _ = command("test", "net", "--confusion", "d.png")
    assert status == 0
    assert [line for line in again.splitlines() if "% of 10" in line] == [line for line in out.splitlines() if "% of 10" in line]
    with Image.open(tmp_path / "d.png") as picture:
        assert np.asarray(picture).std() > 0
    assert json.loads(json.dumps(trained.read(tmp_path / "net")[1]))["dataset"] == "mine"
    refused(command("train", "set", *quick, "--networks", 2, "--save", "net"), "one network")
    refused(command("test", "net", "--confusion", "d.xyz"), "xyz", "png")
