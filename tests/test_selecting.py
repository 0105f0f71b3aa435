"""Choosing real images of any data set: the same as a declared run chooses, resumable, and refused before a network is trained."""

import pytest
import torch

from dclib.cli.main import main
from dclib.errors import DataError, Interrupted, SpecError
from dclib.methods import coresets
from dclib.methods import full_training as whole
from dclib.results import CondensedSet
from dclib.run import sets
from dclib.run.selecting import select_set, selection
from dclib.spec import LeNet, Network, OwnNetwork

TINY = Network.parse("ConvNet:width=4,depth=1")


@pytest.mark.parametrize("method", coresets.METHODS)
def test_it_chooses_what_the_method_chooses(made, method):
    run = selection("made", method, 2, *(() if method == "random" else (TINY, 2)))
    found = select_set(run, dataset=made, device="cpu", engine="eager")
    guide = {}
    if run.whole:
        trained = whole.train(made, run.whole, device="cpu", engine="eager")
        guide = {name: getattr(trained, name) for name in ("network", "events", "learned")}
    indices = coresets.select(method, made, 2, **guide)
    assert found.about["indices"] == indices.tolist()
    assert torch.equal(torch.from_numpy(found.images), sets.pick(made, indices).flatten(0, 1))
    assert (found.key, found.about["data_hash"], found.ipc) == (run.key, made.hash, 2)


def test_stopped_it_goes_on(made, tmp_path):
    run, asked, how = selection("made", "herding", 2, TINY, 9), iter([False] * 4), dict(device="cpu", engine="eager")
    whole_run = select_set(run, dataset=made, **how)
    with pytest.raises(Interrupted, match="4 of 9 steps"):
        select_set(run, dataset=made, checkpoint=tmp_path / "state", should_stop=lambda: next(asked, True), **how)
    assert select_set(run, dataset=made, checkpoint=tmp_path / "state", **how).about == whole_run.about


def test_too_many_images_are_refused_before_a_network_is_trained(made, monkeypatch):
    monkeypatch.setattr(whole, "train", None)
    with pytest.raises(DataError, match="class 'a' of made has 5 images, fewer than the 6"):
        select_set(selection("made", "herding", 6), dataset=made, device="cpu")


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (dict(method="best"), "unknown method 'best'"),
        (dict(ipc=0), "ipc must be a whole number of at least 1, not 0"),
        (dict(epochs=-1), "epochs must be a whole number of at least 1, not -1"),
        (dict(method="random", network=LeNet()), "trains no network: leave out network and epochs"),
        (dict(method="random", epochs=3), "trains no network"),
        (dict(network=OwnNetwork.of(lambda **shape: None, "mine")), "penultimate features of one of dclib's networks, not mine's"),
    ],
)
def test_requests_that_make_no_sense(request_, sentence):
    with pytest.raises(SpecError, match=sentence):
        selection("digits", **request_)


def test_the_command_makes_a_set_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    request = ["select", "digits", "--method", "herding", "--epochs", "1", "--network", "ConvNet:width=4", "-o", "set"]
    assert main(request) == 0
    first = (tmp_path / "set").read_bytes()
    assert "set is made (digits, 1/class, herding" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    assert main(request) == 0
    assert "is there already" in capsys.readouterr().out
    assert (tmp_path / "set").read_bytes() == first
    assert main([*request, "--seed", "1"]) == 1
    assert "holds the set of another run" in capsys.readouterr().err
    assert CondensedSet.load("set").about["method"] == "herding"
