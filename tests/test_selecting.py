"""Choosing real images of any data set: the same as a declared run chooses, resumable, and refused before a network is trained."""

import pytest
import torch

import dclib
from dclib.errors import Interrupted
from dclib.methods import coresets, full_training
from dclib.results import CondensedSet
from dclib.run.sets import make_set
from dclib.spec import Network
from dclib.spec.variants import selection

TINY = Network.parse("ConvNet:width=4,depth=1")
HERE = dict(device="cpu", engine="eager")


@pytest.mark.parametrize("method", coresets.METHODS)
def test_it_chooses_what_the_method_chooses(made, method):
    run = selection("made", method, 2, *(() if method == "random" else (TINY, 2)))
    found = dclib.select(made, method, 2, **({} if method == "random" else dict(network=TINY, epochs=2)), **HERE)
    guide = {}
    if run.whole:
        trained = full_training.train(made, run.whole, **HERE)
        guide = {name: getattr(trained, name) for name in ("network", "events", "learned")}
    indices = coresets.select(method, made, 2, **guide)
    assert found.about["indices"] == indices.tolist()
    assert torch.equal(torch.from_numpy(found.images), made.normalise(made.x_train[indices.flatten()]))
    assert (found.key, found.about["data_hash"], found.ipc) == (run.key, made.hash, 2)


def test_stopped_it_goes_on(made, tmp_path):
    run, asked = selection("made", "herding", 2, TINY, 9), iter([False] * 4)
    whole = make_set(run, dataset=made, **HERE)
    with pytest.raises(Interrupted, match="4 of 9 steps"):
        make_set(run, dataset=made, checkpoint=tmp_path / "state", should_stop=lambda: next(asked, True), **HERE)
    assert make_set(run, dataset=made, checkpoint=tmp_path / "state", **HERE).about == whole.about


@pytest.mark.slow
def test_the_command_makes_a_set_once(command, refused, tmp_path):
    request = ["select", "digits", "--method", "herding", "--epochs", "1", "--network", "ConvNet:width=4", "-o", "set"]
    status, out, _ = command(*request)
    assert (status, "set is made (digits, 1/class, herding" in out) == (0, True)
    first = (tmp_path / "set").read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    in_python = dclib.select("digits", "herding", network="ConvNet:width=4", epochs=1)
    made = CondensedSet.load("set")
    assert (in_python.key, in_python.hash, made.about["method"]) == (made.key, made.hash, "herding")
    assert "is there already" in command(*request)[1]
    assert (tmp_path / "set").read_bytes() == first
    refused(command(*request, "--seed", "1"), "holds the set of another run")
