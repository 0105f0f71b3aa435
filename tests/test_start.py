"""Going on from a set: from the images of any set, with more images per class, and with more outer steps than it took."""

import dataclasses

import numpy as np
import pytest
import torch
from helpers import refused

import dclib
from dclib.core import condense
from dclib.errors import DataError, Interrupted, SpecError
from dclib.results import CondensedSet
from dclib.spec import Condensation, ConvNet, MakeSet

THIN = ConvNet(width=4, depth=2)
HERE = {"device": "cpu", "engine": "eager"}
TINY = ("--real-batch", 4, "--network", "MLP:width=4,depth=1", "--engine", "eager", "--device", "cpu")


def small(**changes):
    return Condensation(**{"network": THIN, "outer_steps": 2, "real_batch": 6, **changes})


def learn(made, start=None, **changes):
    return dclib.condense(made, small(**changes), start=start, **HERE)


def test_images_start_from_a_set_and_the_others_as_without_it(made):
    hyper, start = small(ipc=3, network_epochs=1), torch.full((3, 2, 1, 8, 8), 0.5)
    first = condense.Condenser(made, hyper.resolve(), 0, start=start).images
    assert torch.equal(first[:, :2], start)
    assert torch.equal(first[:, 2:], condense.initial_images(made, hyper, 0, torch.float32)[:, 2:])
    whole = condense.condense(made, hyper, start=condense.initial_images(made, hyper, 0, torch.float32), **HERE)
    assert torch.equal(whole.images, condense.condense(made, hyper, **HERE).images)


def test_a_set_says_by_its_hash_which_set_it_started_from(made, tmp_path):
    first = learn(made)
    first.save(tmp_path / "set")
    more = learn(made, first, ipc=2, init="real")
    assert more.about["start"] == first.hash
    assert more.key == MakeSet("made", hyper=small(ipc=2, init="real").resolve(), start=first.hash).key
    assert more.key != MakeSet("made", hyper=small(ipc=2, init="real").resolve()).key
    assert learn(made, tmp_path / "set", ipc=2, init="real").hash == more.hash
    assert learn(made, more, ipc=2).hash not in (more.hash, first.hash)


def test_images_of_another_normalisation_are_the_same_images(made):
    first = learn(made)
    images = ((first.unit() - 0.2) / 0.7).astype(np.float32)
    other = dataclasses.replace(first, images=images, mean=(0.2,), std=(0.7,))
    np.testing.assert_allclose(learn(made, other).images, learn(made, first).images, atol=1e-3)


def test_a_set_that_does_not_fit_is_refused(made, make_dataset):
    first, double = learn(made), learn(made, factor=2)
    odd = dataclasses.replace(first, labels=np.array([0, 0, 1]))
    for start, words in (
        (double, ("2×2", "factor=2")),
        (odd, ("0 to 2 images per class",)),
        (learn(made, ipc=2), ("2 images per class", "ipc=2")),
        (learn(make_dataset(5, 5)), ("2 classes", "3")),
        (learn(make_dataset(5, 9, 9, size=12)), ("shape",)),
    ):
        refused(*words, call=learn, error=DataError, made=made, start=start)
    assert learn(made, double, factor=2).factor == 2
    refused("random", call=MakeSet, error=SpecError, dataset="made", method="random", start="0")


def test_a_stopped_run_goes_on_only_from_the_same_set(made, tmp_path):
    first, second = (torch.full((3, 1, 1, 8, 8), value) for value in (0.5, 0.6))
    done, how = [], dict(checkpoint=tmp_path / "c", **HERE)
    with pytest.raises(Interrupted):
        condense.condense(made, small(), start=first, on_step=lambda s: done.append(1), should_stop=lambda: bool(done), **how)
    for other in (None, second):
        refused("another run", "start", call=lambda other=other: condense.condense(made, small(), start=other, **how))
    assert torch.equal(
        condense.condense(made, small(), start=first, **how).images, condense.condense(made, small(), start=first, **HERE).images
    )


def test_a_finished_set_takes_more_outer_steps(command, refused, tmp_path):
    make = ("condense", "digits", *TINY)
    assert command(*make, "-K", 4, "-o", "whole")[0] == 0
    assert command(*make, "-K", 2, "--keep-state", "-o", "set")[0] == 0
    assert command(*make, "-K", 4, "-o", "set")[0] == 0
    sets = [CondensedSet.load(tmp_path / name) for name in ("whole", "set")]
    assert (sets[0].hash, sets[0].key) == (sets[1].hash, sets[1].key)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set", "whole"]
    refused(command(*make, "-K", 6, "-o", "set"), "K = 4", "--start set")
    refused(command(*make, "-K", 2, "-o", "set"), "another run")
    decays = ("--image-lr-end", 0.05)
    assert command(*make, *decays, "-K", 2, "--keep-state", "-o", "decayed")[0] == 0
    refused(command(*make, *decays, "-K", 4, "-o", "decayed"), "decayed over K = 2", "--start decayed")
    assert command(*make, "-K", 1, "--start", "set", "-o", "next")[0] == 0
    assert CondensedSet.load(tmp_path / "next").about["start"] == sets[1].hash


def test_a_time_limit_stops_at_a_point_to_go_on_from(command, tmp_path):
    make = ("condense", "digits", *TINY, "-K", 2, "-o", "set")
    status, _, err = command(*make, "--for", "0.001s")
    assert (status, "stopped after 0 of 2 outer steps" in err) == (130, True)
    assert command(*make)[0] == 0
