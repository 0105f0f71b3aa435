"""What came after the paper: siamese augmentation, several images in one, feature matching. Their literal forms: test_condense."""

import dataclasses

import numpy as np
import pytest
import torch
from helpers import refused, same, stop_after

from dclib.core import condense, formation, reference, siamese
from dclib.data.dataset import generator
from dclib.errors import DataError, Interrupted, SpecError
from dclib.results import CondensedSet
from dclib.run.sets import as_set, make_set
from dclib.spec import SIAMESE, Condensation, ConvNet, MakeSet, Network, Training, TrainNetworks, variants
from dclib.spec.methods import Formation

THIN = ConvNet(width=4, depth=2)
ALL = dict(network=THIN, objective="features", siamese="all", factor=2, init="real", real_batch=4, outer_steps=3)


# --- siamese augmentation


@pytest.mark.parametrize("operation", SIAMESE)
def test_an_operation_equals_its_literal_form_on_each_image(operation):
    drawn = siamese.draw(40, (operation,), generator(0, "test"))
    images = torch.randn(40, 3, 12, 9, generator=generator(1, "test"), dtype=torch.float64)
    literal = [reference.change(x, operation, u) for x, u in zip(images, drawn[1:].T.tolist(), strict=True)]
    torch.testing.assert_close(siamese.apply(images, drawn), torch.stack(literal), rtol=0, atol=1e-12)
    assert (siamese.apply(images, drawn) - images).abs().amax((1, 2, 3)).gt(0.01).float().mean() > 0.3, "images change"


def test_operations_are_differentiable():
    """Against central differences."""
    drawn = siamese.draw(12, SIAMESE, generator(0, "test"))
    images = torch.randn(12, 2, 6, 5, generator=generator(1, "test"), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: siamese.apply(x, drawn), images)


def test_operations_are_drawn_uniformly_and_only_those_named():
    drawn = siamese.draw(6000, SIAMESE, generator(0, "test"))
    assert drawn[0].long().bincount() == pytest.approx(torch.full((6,), 1000.0), abs=150)
    assert set(siamese.draw(50, ("crop", "scale"), generator(0, "test"))[0].tolist()) == {1.0, 4.0}


def test_digits_are_not_mirrored():
    hyper = Condensation(siamese="all")
    flips = {name: "flip" in MakeSet(name, hyper=hyper).hyper.operations for name in ("mnist", "svhn", "cifar10")}
    assert flips == {"mnist": False, "svhn": False, "cifar10": True}
    assert [variants.stage_t(name, augment="dsa").augment for name in ("usps", "fashionmnist")] == ["dsa-noflip", "dsa"]


# --- several images in one


def test_small_images_are_enlarged_in_their_order():
    quarters = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]).repeat_interleave(3, 2).repeat_interleave(3, 3)
    assert torch.equal(formation.enlarge(quarters, 2), torch.arange(1.0, 5)[:, None, None, None].expand(4, 1, 6, 6))
    assert torch.equal(formation.join(formation.enlarge(quarters, 2), 2), quarters)
    images = torch.randn(3, 2, 8, 6)
    assert torch.equal(formation.enlarge(images, 2), reference.enlarge(images, 2))
    assert formation.enlarge(images, 1) is images


def test_a_start_from_real_images_has_factor_squared_of_them_in_each(made):
    start = condense.initial_images(made, Condensation(init="real", factor=2), 0, torch.float32)
    chosen = made.normalise(made.x_train[made.draw(0, 4, generator(0, "init"))])
    assert torch.equal(start[0], formation.join(chosen, 2))
    given = dict(dataset=made, hyper=Condensation(ipc=2, init="real", factor=2), seed=0, dtype=torch.float32)
    refused("lower ipc", call=condense.initial_images, error=DataError, **given)


def test_a_factor_that_does_not_divide_is_refused(made):
    with pytest.raises(SpecError, match="factor 7 does not divide images of 8x8"):
        condense.initial_images(made, Condensation(factor=7), 0, torch.float32)


def test_a_set_knows_its_factor(made, tmp_path):
    run = MakeSet("made", "condense", 0, Condensation(**ALL).resolve())
    small = make_set(run, dataset=made, device="cpu", engine="eager")
    assert (small.factor, small.ipc, len(small.images)) == (2, 1, 3)
    small.save(tmp_path / "set.safetensors")
    found = CondensedSet.load(tmp_path / "set.safetensors")
    assert (found.factor, found.hash) == (2, small.hash) != (1, dataclasses.replace(small, factor=1).hash)
    images, labels = found.as_dataset().tensors
    assert torch.equal(images, formation.enlarge(torch.from_numpy(small.images), 2))
    assert labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    found.export(tmp_path / "set.npz")
    with np.load(tmp_path / "set.npz") as exported:
        assert exported["x_train"].shape == (12, 8, 8)
        assert np.array_equal(exported["images"], images.numpy())


def test_networks_are_trained_on_the_enlarged_images(made):
    from dclib import api

    run = MakeSet("made", "formed", 0, settings=Formation(2))
    small = make_set(run, dataset=made, device="cpu")
    how = dict(network=THIN, dataset=made, epochs=2, device="cpu", engine="eager")
    assert api.train(small, **how) == api.train(dataclasses.replace(small.enlarged(), key=small.key), **how)


# --- feature matching


def test_a_stopped_run_ends_with_the_identical_images(made, tmp_path):
    hyper, how = Condensation(**ALL | {"outer_steps": 4}), dict(device="cpu", engine="eager")
    whole = condense.condense(made, hyper, **how)
    with pytest.raises(Interrupted):
        condense.condense(made, hyper, checkpoint=tmp_path / "c", should_stop=stop_after(2), **how)
    assert same(condense.condense(made, hyper, checkpoint=tmp_path / "c", **how), whole)


def test_features_are_matched_without_an_inner_loop():
    resolved = Condensation(ipc=10, objective="features").resolve()
    assert (resolved.inner_steps, resolved.network_epochs) == (1, 1)
    with pytest.raises(SpecError, match="features are matched by class"):
        Condensation(objective="features", distance="cosine")


def test_a_network_of_the_users_own_needs_features(made):
    class Plain(torch.nn.Module):
        def __init__(self, channels, classes, size):
            super().__init__()
            self.body = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(channels * size[0] * size[1], classes))

        def forward(self, x):
            return self.body(x)

    hyper = Condensation(objective="features", network=Network.parse(Plain), outer_steps=1)
    with pytest.raises(SpecError, match="Plain has no `features`"):
        condense.condense(made, hyper, device="cpu")


# --- in declared runs


def test_defaults_change_no_key():
    from dclib.spec import spell

    spelled = str(spell(TrainNetworks(MakeSet("digits"), Training())))
    assert not any(word in spelled for word in ("objective", "siamese", "factor"))


def test_the_recipe_combines_all_three():
    hyper = variants.recipe("beyond")
    assert (hyper.objective, hyper.siamese, hyper.factor, hyper.init) == ("features", "all", 2, "real")
    with pytest.raises(SpecError, match="recipe 'beyond' is known for a ConvNet"):
        variants.recipe("beyond", network="MLP")


def test_as_set_takes_the_factor_of_the_run(made):
    run = MakeSet("made", hyper=Condensation(factor=2))
    assert as_set(torch.zeros(3, 1, *made.x_train.shape[1:]), made, run).factor == 2
