"""Specs: networks by name, hyper-parameters and what they refuse, recipes and variants, and keys that must never change."""

import dataclasses
import hashlib
import math
import subprocess
import sys
from itertools import chain

import pytest
from helpers import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from dclib import spec
from dclib.data.sources import KNOWN
from dclib.errors import SpecError, one_of
from dclib.experiments import ALL, CPU, CROSS_ARCH, METHOD, PAPER, PRESETS, RANDOM
from dclib.results import Store
from dclib.spec import (
    Condensation,
    MakeSet,
    Network,
    Training,
    TrainNetworks,
    WholeTraining,
    architectures,
    derive,
    full,
    key,
    loops,
    runs,
    spell,
    variants,
)
from dclib.spec.applications import Rehearsal, ShortTraining
from dclib.spec.architectures import AUTO, FAMILIES
from dclib.spec.baselines import Distillation, GanTraining
from dclib.spec.keys import acting

quick = settings(max_examples=60, deadline=None, derandomize=True)


def options_of(family: str):
    values = {name: st.integers(1, 512) if a is int else st.sampled_from(a) for name, (_, a) in FAMILIES[family].items()}
    return st.tuples(st.just(family), st.fixed_dictionaries({}, optional=values))


# Made into networks in the tests: the type checks that the test run adds to dclib draw random numbers, which a strategy must not.
choices = st.sampled_from(sorted(FAMILIES)).flatmap(options_of)


def made(choice) -> Network:
    return Network.make(choice[0], **choice[1])


# --- networks


@quick
@given(choices, st.randoms())
def test_a_network_is_read_back_from_its_text_in_any_order(choice, random):
    network = made(choice)
    assert Network.parse(str(network)) == Network.parse(network) == network
    assert hash(Network.parse(str(network))) == hash(network)
    options = list(network.options)
    random.shuffle(options)
    spaced = ", ".join(f" {name} = {value}" for name, value in options)
    assert Network.parse(f" {network.family}:{spaced}" if spaced else network.family) == network


def test_a_network_is_also_a_call_or_a_class_and_leaves_out_what_is_at_its_default():
    network = spec.ConvNet(width=64, norm="batch")
    assert (network["width"], network["norm"], network["depth"]) == (64, "batch", 3)
    assert str(network) == "ConvNet:width=64,norm=batch"
    assert Network.parse(Store) == spec.OwnNetwork.of(Store)
    refused("width=True", call=spec.ConvNet, width=True)
    for family in FAMILIES:
        defaults = {name: default for name, (default, _) in FAMILIES[family].items()}
        assert Network.make(family, **defaults) == Network(family) == getattr(architectures, family)()
        assert str(Network.make(family, **defaults)) == family
        assert all(Network(family)[name] == default for name, default in defaults.items())


@quick
@given(choices, st.sampled_from(("condense", "train")))
def test_resolving_leaves_no_auto_and_no_other_change(choice, stage):
    network = made(choice)
    resolved = network.resolve(stage)
    assert resolved.resolve(stage) == resolved
    for name in FAMILIES[network.family]:
        expected = AUTO[name, stage] if network[name] == "auto" else network[name]
        assert resolved[name] == expected


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.text(max_size=30) | st.text("ConvNet:width=,1²batchnorm ", max_size=30))
def test_any_text_is_a_network_or_refused(text):
    try:
        assert Network.parse(str(Network.parse(text))) == Network.parse(text)
    except SpecError as error:
        assert str(error)


# --- hyper-parameters

AUTHORS = [(1, 1, 1), (10, 10, 50), (20, 20, 25), (30, 30, 20), (40, 40, 15), (50, 50, 10)]
RULE = [(2, 2, 250), (9, 9, 56), (15, 15, 33), (35, 35, 14), (100, 100, 5), (10_000, 10_000, 1)]


def test_loops_are_the_authors_and_else_the_papers_rule():
    for ipc, T, epochs in (*AUTHORS, *RULE):
        resolved = Condensation(ipc).resolve()
        assert loops(ipc) == (resolved.inner_steps, resolved.network_epochs) == (T, epochs)


def test_resolving_spells_out_the_paper():
    resolved = Condensation(ipc=10, network=Network.parse("VGG11")).resolve()
    assert (resolved.inner_steps, resolved.network_epochs, resolved.network["norm"]) == (10, 50, "batch")
    assert resolved.resolve() == resolved
    assert Condensation(ipc=10, inner_steps=3).resolve().inner_steps == 3
    assert Training().resolve().epochs == 300
    assert Training(augment="crop+flip").resolve().epochs == 1000
    assert Training(augment="crop", epochs=7).resolve().epochs == 7
    assert Training(network=Network.parse("ResNet18")).resolve().network["downsampling"] == "stride"


NOT = [
    (WholeTraining, dict(epochs=0, lr=-1.0, batch=0, momentum=1.0)),
    (Distillation, dict(ipc=0, passes=0, rate=0.0, lr=math.inf, beta2=1.0, start="warm", mode="forward")),
    (GanTraining, dict(steps=0, batch=1, latent=0, generator_width=1, lr=0.0, beta1=1.0, slope=-0.1)),
    (Rehearsal, dict(memory="attic", ipc=0, distillation=-1.0, temperature=0.0, iterations=0, finetuning=-1)),
    (ShortTraining, dict(steps=0, lr=0.0, batch=0)),
]


def test_a_value_out_of_its_range_is_refused_with_its_name_and_one_at_its_limit_is_not():
    """Those of the command's options are in mishaps.txt."""
    for kind, values in NOT:
        given = {"dataset": "digits"} if kind is WholeTraining else {}
        for name, value in values.items():
            refused(name, repr(value), call=kind, **given | {name: value})
    Condensation(inner_steps=0, network_epochs=0, patience=0, image_lr_end=0.0, image_momentum=0.0)
    Training(weight_decay=0.0, momentum=0.0, epochs=0)
    refused("unknown fruit 'aple'", "did you mean 'apple'", "pear", call=lambda: one_of("fruit", "aple", ("apple", "pear")))


def test_values_of_a_wrong_type_are_refused():
    """In a process of its own: here types are enforced before dclib sees the values."""
    code = """
import math
from dclib.errors import SpecError
from dclib.spec import Condensation, Training, key
from dclib.spec.baselines import Distillation, GanTraining
from dclib.spec.checks import declared
wrong = {int: (1.0, 2.5, True, "3", None, math.nan), float: (True, "0.1", None, [0.1], math.nan, math.inf), bool: (1, "yes")}
kinds = Condensation, Training, Distillation, GanTraining
cases = [(kind, f.name, value) for kind in kinds for f in declared(kind) for value in wrong.get(f.type, ())]
assert len(cases) > 100
for kind, field, value in cases:
    try:
        kind(**{field: value})
    except SpecError as error:
        assert field in str(error) and repr(value) in str(error), error
    else:
        raise AssertionError((kind, field, value))
assert key(Training(lr=1, momentum=0, weight_decay=0)) == key(Training(lr=1.0, momentum=0.0, weight_decay=0.0))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_rate_of_the_images_is_constant_or_follows_half_a_cosine():
    assert {Condensation(outer_steps=7).image_rate(k) for k in range(7)} == {0.1}
    falling = Condensation(image_lr=0.4, image_lr_end=0.1, outer_steps=60)
    assert [falling.image_rate(k) for k in (0, 20, 30, 40)] == pytest.approx([0.4, 0.325, 0.25, 0.175], rel=1e-12)
    assert falling.image_rate(59) == pytest.approx(0.1, abs=3e-4)
    assert key(Condensation(image_lr_end=0.0)) == key(Condensation())


def test_runs_refuse_what_does_not_fit_together():
    held_out = MakeSet("mnist", held_out=100)
    assert key(TrainNetworks(held_out)) != key(TrainNetworks(held_out, tested_on="held-out"))
    refused("held out", call=TrainNetworks, set=MakeSet("mnist"), tested_on="held-out")
    refused("validation", call=TrainNetworks, set=held_out, tested_on="validation")
    refused("learned rates", call=TrainNetworks, set=held_out, way="rates")
    assert key(MakeSet("mnist")) == key(MakeSet("mnist", storage="float32")) != key(MakeSet("mnist", storage="float16"))
    refused("storage", call=MakeSet, dataset="mnist", method="random", storage="float16")
    refused("float17", call=MakeSet, dataset="mnist", storage="float17")
    refused("herding", "needs a `whole`", call=MakeSet, dataset="mnist", method="herding")
    refused("takes no `whole`", call=MakeSet, dataset="mnist", whole=WholeTraining("mnist"))
    refused("one on mnist", call=MakeSet, dataset="mnist", method="herding", whole=WholeTraining("svhn"))


# --- recipes and variants


def test_a_recipe_gives_what_is_not_given():
    assert variants.recipe() == Condensation().resolve()
    fast = variants.recipe("fast")
    assert fast == dataclasses.replace(Condensation(), **variants.FAST[1]).resolve() != variants.recipe()
    assert variants.recipe("fast", outer_steps=1000, real_batch=8) == dataclasses.replace(fast, outer_steps=1000, real_batch=8)
    assert variants.recipe("fast", image_lr=0.1) == dataclasses.replace(fast, image_lr=0.1), "the default, which was asked for"
    for other in ({"ipc": 7}, {"network": "MLP"}, {"network": "ConvNet:norm=batch"}, {"distance": "cosine"}):
        refused("recipe 'fast' is known for a ConvNet", *other.values(), call=variants.recipe, name="fast", **other)
    refused("quick", "fast", call=variants.recipe, name="quick")


MLP_RATES = [({}, 0.01), ({"distance": "layerwise"}, 0.01), ({"distance": "cosine"}, 0.1)]
MLP_RATES += [({"distance": "cosine", "image_lr": 0.5}, 0.5)]


def test_the_mlp_learns_slowly_by_the_papers_distance_alone():
    for changes, rate in MLP_RATES:
        assert variants.recipe(network="MLP:width=8", **changes).image_lr == rate
        variant = ",".join(f"{name}={value}" for name, value in changes.items())
        (cell,) = CROSS_ARCH.cells(PAPER, network="MLP", test_network="MLP", variant=variant)
        assert cell.make_set(0).hyper.image_lr == rate


def test_stage_t_is_augmented_as_in_the_paper():
    networks = ("LeNet", "ConvNet:norm=batch", "AlexCifarNet")
    seen = [(h.augment, h.epochs) for h in (variants.stage_t("digits", network=n) for n in networks)]
    assert seen == [("none", 300), ("crop+noise", 1000), ("crop+scale+rotate", 1000)]
    on_mnist = [variants.stage_t("mnist", network=n).augment for n in networks]
    assert on_mnist == ["crop+scale+rotate", "crop+noise", "crop+scale+rotate"]
    assert variants.stage_t("/home/me/mnist").augment == "none", "a folder of the user's"
    assert variants.stage_t("mnist", augment="flip", epochs=5).epochs == 5


def test_a_variant_is_read_by_the_kind_of_its_fields():
    text = "init=real, real_batch=16 ,network_momentum=0"
    assert variants.parse(text) == {"init": "real", "real_batch": 16, "network_momentum": 0.0}
    assert variants.canonical(text) == "network_momentum=0.0,real_batch=16,init=real"
    assert variants.parse("") == variants.parse("default") == {}
    wrong = {"ipc=10": "'ipc'", "init=real,init=noise": "once", "real_batch=many": "'many'", "image_lr=high": "'high'"}
    for text, part in wrong.items():
        refused(part, call=METHOD.cells, preset=CPU, variant=text)


def test_a_variant_changes_the_set_and_nothing_else():
    plain, changed = METHOD.cells(CPU, dataset="mnist", variant=("default", "init=real"))
    run, other = plain.make_set(0), changed.make_set(0)
    assert (plain.place["variant"], changed.place["variant"]) == ("", "init=real")
    assert (run.hyper.init, other.hyper.init) == ("noise", "real")
    assert run.key != other.key
    assert changed.runs()[0].hyper == plain.runs()[0].hyper
    cells = METHOD.cells(CPU, dataset="mnist", network=RANDOM, test_network="ConvNet", variant=("default", "init=real"))
    assert [cell.variant for cell in cells] == [""], "real images have no variants"


# --- keys


# What is recorded is found by these: a change here orphans every record there is. A new field must have a default
# that means "as before".
KEYS = {
    ("method", "cpu", "mnist", "ConvNet", "ConvNet"): ("745b2efea8a07895", "70eab2b589d00b4e"),
    ("method", "cpu", "fashionmnist", "ConvNet", "ConvNet"): ("c3bcb06545137897", "8aee71dd2d4f7179"),
    ("cross_arch", "cpu", "mnist", "ConvNet", "LeNet"): ("745b2efea8a07895", "dfc52249e9377171"),
    ("cross_arch", "cpu", "mnist", "ResNet18", "ConvNet"): ("a34a77600a52f982", "68c036303cc0be23"),
    ("cross_arch", "cpu", "mnist", "ResNet18", "LeNet"): ("a34a77600a52f982", "2c705ebbf3b3c7ae"),
    ("method", "paper", "mnist", "ConvNet", "ConvNet"): ("d500fb71acfa8fd1", "cb8bb601b1f4ece2"),
    ("cross_arch", "smoke", "digits", "random", "ConvNet"): ("a093a590024f308a", "3f40aa19f7f12b3a"),
}


@pytest.mark.parametrize(("place", "expected"), KEYS.items(), ids=lambda v: "-".join(v))
def test_keys_of_recorded_runs_never_change(place, expected):
    experiment, preset, dataset, network, test_network = place
    narrow = dict(dataset=dataset, network=network, test_network=test_network)
    (cell,) = ALL[experiment].cells(PRESETS[preset], **narrow)
    run = cell.runs()[0]
    assert (run.set.key, run.key) == expected


DECLARED = {"smoke": "dc5bf70550f64dd2", "cpu": "7ad3bf4cfab237d2", "paper": "952e0adede8674ca"}


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "expected"), DECLARED.items())
def test_no_declared_key_changes(preset, expected):
    """The keys of all runs behind the paper's items, in one hash; new in place of old only where a declaration itself changes."""
    own = ("recipe", "recipe_test", "after", "after_plain", "after_choice")  # studies of ours, which grow
    declared = [e for name, e in ALL.items() if name not in own]
    keys = sorted({run.key for e in declared for cell in e.cells(PRESETS[preset]) for run in cell.runs()})
    assert hashlib.sha256(" ".join(keys).encode()).hexdigest()[:16] == expected


def test_keys_of_defaults_never_change():
    assert [key(thing) for thing in (MakeSet("digits"), Condensation(), Training())] == [
        "fe9c53e0f10cbd9a",
        "4aa95d4b22781ece",
        "f450e7c9f8363561",
    ]


@quick
@given(choices, st.integers(1, 60), st.integers(0, 9))
def test_a_field_at_its_default_is_left_out_of_the_key(choice, ipc, seed):
    network = made(choice)
    run = MakeSet("digits", seed=seed, hyper=Condensation(ipc=ipc, network=network))
    spelled = spell(run)
    assert ("seed" in spelled) == (seed != 0)
    assert ("network" in spelled.get("hyper", {})) == (network != Network())
    assert full(run)["hyper"]["ipc"] == ipc
    assert run.key == key(dataclasses.replace(run))


def test_every_hyper_parameter_is_in_the_key_and_the_number_of_networks_is_not():
    other = {"network": Network("MLP"), "distance": "cosine", "init": "real", "bn": "true", "batches": "mixed"}
    other |= {"precision": "float64", "objective": "features", "siamese": "crop"}
    fields = [f.name for f in dataclasses.fields(Condensation)]
    changed = {f: other.get(f, 0.25 if "momentum" in f or "lr" in f else 7) for f in fields}
    assert len({MakeSet("digits", hyper=Condensation(**{f: value})).key for f, value in changed.items()}) == len(fields)
    assert all(MakeSet("digits", hyper=Condensation(**{f: value})).key != MakeSet("digits").key for f, value in changed.items())
    others = dict(dataset="usps"), dict(seed=1), dict(image_size=32), dict(method="random")
    sets = [MakeSet(**{"dataset": "digits", **other}) for other in ({}, *others)]
    assert len({made.key for made in sets}) == len({TrainNetworks(made).key for made in sets}) == 5
    herded = MakeSet("digits", "herding", whole=WholeTraining("digits"))
    guides = dataclasses.replace(herded, whole=WholeTraining("digits", epochs=6)), dataclasses.replace(herded, method="k-center")
    assert len({herded.key, herded.whole.key, *(one.key for one in guides)}) == 4
    one, many = (TrainNetworks(MakeSet("digits"), Training(), n) for n in (1, 20))
    assert one.key == many.key != MakeSet("digits").key
    assert "networks" not in full(many)


def test_the_keys_of_rotated_coloured_images_are_not_those_of_older_records():
    """Their rotation fills otherwise than when they were recorded; of one channel, or without rotation, nothing has changed."""
    place = dict(dataset="cifar10", ipc=1, network="AlexCifarNet", test_network="AlexCifarNet")
    (cell,) = ALL["distillation"].cells(PRESETS["cpu"], **place)
    first = cell.runs()[0]
    assert first.hyper.augment == "crop+scale+rotate"
    assert first.key != "d7f97fae595e3e70"
    assert full(first)["mended"] == [runs.ONE_MEAN]
    rotated = Training(augment="rotate")
    grey = [MakeSet("mnist"), MakeSet("usps+turned"), MakeSet("cifar10", channels=1), MakeSet("mine.npz", channels=1)]
    coloured = [MakeSet("cifar10"), MakeSet("mnist", channels=3), MakeSet("mine.npz")]
    assert [TrainNetworks(made, rotated).mended for made in grey] == [()] * len(grey)
    assert [TrainNetworks(made, rotated).mended for made in coloured] == [(runs.ONE_MEAN,)] * len(coloured)
    assert TrainNetworks(MakeSet("cifar10"), Training(augment="crop")).mended == ()
    assert [WholeTraining(name, augment="rotate").mended for name in ("mnist", "svhn")] == [(), (runs.ONE_MEAN,)]


def test_a_record_from_before_a_mend_is_told_by_its_run():
    """Four runs of the records rotated coloured images by the older rule; all others answer as they did."""
    kinds = ("TrainNetworks", "WholeTraining")
    old = {"d7f97fae595e3e70", "4e12359bb2dd5b5a", "8face5b9e5a68191", "c3c2f1ed0b42726b"}
    assert {r["key"] for r in chain(*Store().records.values()) if r["kind"] in kinds and spec.outdated(r["run"])} == old
    run = full(TrainNetworks(MakeSet("cifar10"), Training(augment="rotate")))
    assert not spec.outdated(run)
    assert spec.outdated({name: value for name, value in run.items() if name != "mended"})


def test_grey_data_sets_have_one_channel():
    assert set(runs.GREY) == {name for name, known in KNOWN.items() if known.channels == 1}


# --- options that act

ONCE = {"network_epochs", "network_lr", "network_momentum", "network_batch"}
EVERY = {f.name for f in dataclasses.fields(Condensation)}


@pytest.mark.parametrize(
    ("network", "ipc", "idle"),
    [
        ("ConvNet", 1, {"bn", *ONCE}),
        ("MLP", 10, {"bn"}),
        ("ConvNet:norm=batch", 1, ONCE),
        ("VGG11", 10, set()),
        ("VGG11:norm=none", 10, {"bn"}),
        ("mine.py:ConvNet:code=0123456789abcdef", 10, set()),
        ("ConvNet:code=0123456789abcdef", 10, set()),
    ],
)
def test_a_run_shows_no_option_that_cannot_act_on_it(network, ipc, idle):
    """Batch norm's where there is none, the network's training where T = 1; of a user's own network nothing is known."""
    run = full(TrainNetworks(MakeSet("digits", hyper=Condensation(ipc).resolve())))
    run["set"]["hyper"]["network"] = network
    assert set(acting(run)["set"]["hyper"]) == EVERY - idle - {"image_lr_end"}, "a constant rate has no end"
    assert acting(run)["hyper"] == run["hyper"]
    assert acting(acting(run)) == acting(run)
    real = acting(full(MakeSet("digits", "random", hyper=Condensation(ipc=3))))
    assert real["hyper"] == {"ipc": 3}
    assert {"whole", "gan", "distillation"}.isdisjoint(real)


# --- seeds


@quick
@given(st.integers(-(2**40), 2**40), st.lists(st.text(max_size=5) | st.integers(), max_size=4))
def test_derived_seeds_fit_torch_and_depend_on_all_and_never_change(seed, purpose):
    assert 0 <= derive(seed, *purpose) == derive(seed, *purpose) < 2**63
    assert derive(seed, *purpose) not in (derive(seed + 1, *purpose), derive(seed, *purpose, "more"))
    assert derive(0, "init") == 3953688860265627247
    assert derive(0, "real", 1, 2, 3) == 8287052378973234481
