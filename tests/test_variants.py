"""Hyper-parameters in place of a preset's, as text: what is read, what is refused, and which runs it leads to."""

import pytest

from dclib.errors import SpecError
from dclib.experiments import CPU, CROSS_ARCH, METHOD, PAPER, RANDOM
from dclib.spec import variants


def test_reads_values_by_the_kind_of_their_field():
    text = "init=real, real_batch=16 ,network_momentum=0"
    assert variants.parse(text) == {"init": "real", "real_batch": 16, "network_momentum": 0.0}
    assert variants.canonical(text) == "network_momentum=0.0,real_batch=16,init=real"
    assert variants.parse("") == variants.parse("default") == {}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("distanc=cosine", "unknown hyper-parameter in a variant 'distanc': did you mean 'distance'"),
        ("ipc=10", "unknown hyper-parameter in a variant 'ipc'"),
        ("init", "a variant is written name=value, each name once, not 'init'"),
        ("init=real,init=noise", "each name once"),
        ("real_batch=many", "real_batch in a variant must be a whole number, not 'many'"),
        ("image_lr=high", "image_lr in a variant must be a number, not 'high'"),
        ("real_batch=0", "real_batch must be a whole number of at least 1, not 0"),
        ("distance=manhattan", "unknown distance 'manhattan'"),
    ],
)
def test_refuses_what_makes_no_sense(text, sentence):
    with pytest.raises(SpecError) as error:
        METHOD.cells(CPU, variant=text)
    assert sentence in str(error.value)


def test_a_variant_changes_the_set_and_nothing_else():
    plain, changed = METHOD.cells(CPU, dataset="mnist", variant=("default", "init=real"))
    run, other = plain.make_set(0), changed.make_set(0)
    assert (plain.place["variant"], changed.place["variant"]) == ("", "init=real")
    assert (run.hyper.init, other.hyper.init) == ("noise", "real")
    assert run.key != other.key
    assert changed.runs()[0].hyper == plain.runs()[0].hyper


def test_real_images_have_no_variants():
    cells = METHOD.cells(CPU, dataset="mnist", network=RANDOM, test_network="ConvNet", variant=("default", "init=real"))
    assert [cell.variant for cell in cells] == [""]


RATES = [("", 0.01), ("distance=layerwise", 0.01), ("distance=cosine", 0.1), ("distance=cosine,image_lr=0.5", 0.5)]


@pytest.mark.parametrize(("variant", "rate"), RATES)
def test_the_mlp_learns_slowly_by_the_papers_distance_alone(variant, rate):
    (cell,) = CROSS_ARCH.cells(PAPER, network="MLP", test_network="MLP", variant=variant)
    assert cell.make_set(0).hyper.image_lr == rate
