"""dclib.reproduce and dclib.report.survey: a notebook's parameters checked, records read, missing cells computed."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dclib import report
from dclib.data.sources import KNOWN
from dclib.errors import DataError, SpecError
from dclib.experiments import paper
from dclib.report import survey
from dclib.reproduce import as_list, parameters, reproduce
from dclib.results import Store
from dclib.run import compute as run

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """Results and data in empty folders."""
    monkeypatch.setenv("DCLIB_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("DCLIB_DATA", str(tmp_path / "data"))
    return tmp_path


@pytest.fixture
def computed(monkeypatch):
    """In place of computing, remember which cells were to be computed."""
    asked = []
    monkeypatch.setattr(run, "compute", lambda cells, store, preset, **how: asked.append((cells, store, preset, how)) or [])
    return asked


# --- parameters


def test_parameters_are_the_plain_data_of_a_notebook():
    given = dict(preset="cpu", ipc=None, networks=["MLP"], recompute=True, x=1.5, In=[""], Out={}, _i="text", __name__="__main__")
    assert parameters(given | {"report": report, "exit": 0, "call": print}) == dict(
        preset="cpu", ipc=None, networks=["MLP"], recompute=True, x=1.5
    )


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (None, None),
        ("MLP LeNet", ["MLP", "LeNet"]),
        ("MLP, LeNet", ["MLP", "LeNet"]),
        ("ConvNet:width=64,norm=batch MLP", ["ConvNet:width=64,norm=batch", "MLP"]),
        (("MLP", "LeNet"), ["MLP", "LeNet"]),
        (10, [10]),
        ("", []),
        ("[1, 10]", [1, 10]),
        ("(10)", [10]),
        (" ['ConvNet:width=64,norm=batch', \"MLP\"]", ["ConvNet:width=64,norm=batch", "MLP"]),
        ("[mnist, cifar10]", ["mnist", "cifar10"]),
        ("[]", []),
    ],
)
def test_a_list_parameter_may_be_text(value, read):
    assert as_list(value) == read


# --- refusals


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"netwroks": "MLP"}, "unknown parameter 'netwroks': did you mean 'networks'"),
        ({"name2": 1}, "choose one of preset, recompute, device, datasets, ipc, networks, test_networks, variants"),
        ({"preset": "cup"}, "unknown preset 'cup': did you mean 'cpu'. choose one of best, smoke, cpu, paper"),
        ({"datasets": "digits mnits"}, "unknown data set 'mnits': did you mean 'mnist'"),
        ({"datasets": "no/such/folder"}, "unknown data set 'no/such/folder'.*path of an .npz file"),
        ({"datasets": "gone.npz"}, "unknown data set 'gone.npz'"),
        ({"datasets": ""}, "the list for dataset is empty"),
        ({"datasets": [3]}, "unknown data set '3'"),
        ({"networks": "MLP ConvNex"}, "unknown network 'ConvNex'"),
        ({"test_networks": "ConvNet:widht=3"}, "unknown option of ConvNet 'widht': did you mean 'width'"),
        ({"test_networks": "random"}, "unknown network 'random'"),
        ({"ipc": "0"}, "ipc must be a whole number of at least 1, not 0"),
        ({"ipc": True}, "ipc must be a whole number of at least 1, not True"),
        ({"ipc": [1, 2.5]}, "ipc must be a whole number of at least 1, not 2.5"),
        ({"ipc": "one"}, "ipc must be a whole number of at least 1, not 'one'"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"recompute": "yes"}, "recompute must be True or False, not 'yes'"),
        ({"preset": "best", "recompute": True}, "preset 'best' computes nothing"),
    ],
    ids=lambda v: str(v)[:40] if isinstance(v, dict) else "",
)
def test_what_cannot_be_is_refused_before_anything_is_computed(given, words, computed):
    with pytest.raises(SpecError, match=words):
        reproduce("cross_arch", **{"preset": "smoke"} | given)
    assert not computed


def test_an_unknown_experiment_is_refused():
    with pytest.raises(SpecError, match="unknown experiment 'cross_arhc': did you mean 'cross_arch'"):
        reproduce("cross_arhc")


def test_data_that_is_not_here_stops_the_run_before_it_begins(monkeypatch, folders):
    def load(name, *shape):
        if name == "usps":
            raise DataError("usps is not on this machine")

    monkeypatch.setattr(run, "load", load)
    with pytest.raises(DataError, match="usps"):
        reproduce("cross_arch", preset="smoke", datasets="digits usps", networks="random", test_networks="MLP")
    assert not (folders / "results/smoke/networks.jsonl").exists()


def test_in_a_notebook_an_error_is_its_sentence_alone():
    assert SpecError("one sentence")._render_traceback_() == ["SpecError: one sentence"]


# --- reading and computing


def test_best_computes_nothing_and_does_not_load_torch():
    code = (
        "import sys; from dclib.reproduce import reproduce; "
        "assert len(reproduce('cross_arch')) == 36; assert len(reproduce('method', ipc='1 10', datasets='mnist')) == 2; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=120).returncode == 0


def test_a_preset_computes_the_narrowed_grid(computed):
    reproduce("cross_arch", preset="smoke", networks="MLP", test_networks="LeNet, MLP", device="cpu")
    ((cells, store, preset, how),) = computed
    assert (preset, how) == ("smoke", {"device": "cpu"})
    assert store.root == Store().root
    places = {(c.network, c.test_network) for c in cells}
    assert places == {("MLP", "LeNet"), ("MLP", "MLP")}
    assert {c.dataset for c in cells} == {"digits"}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """Results in which ten random digits, drawn five times, trained two MLPs each."""
    folder = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DCLIB_RESULTS", str(folder))
        (row,) = reproduce("cross_arch", preset="smoke", networks="random", test_networks="MLP").itertuples()
    assert row.networks == 10
    assert 40 < row.ours < 90
    return folder


def test_what_is_recorded_is_not_computed_again(smoke, monkeypatch, computed):
    monkeypatch.setenv("DCLIB_RESULTS", str(smoke))
    assert reproduce("cross_arch", preset="smoke", networks="random", test_networks="MLP").networks.tolist() == [10]
    assert not computed


def test_recompute_leaves_the_records_and_compares(smoke, monkeypatch, capsys):
    monkeypatch.setenv("DCLIB_RESULTS", str(smoke))
    before = {p: p.read_bytes() for p in smoke.rglob("*") if p.is_file()}
    given = dict(preset="smoke", networks="random", test_networks="MLP")
    (old,), (new,) = (reproduce("cross_arch", **given, recompute=again).accuracies for again in (False, True))
    assert new == old
    said = capsys.readouterr().out
    assert "Of 10 recorded accuracies computed again 10 are alike, the largest difference is 0.00 points." in said
    assert {p: p.read_bytes() for p in smoke.rglob("*") if p.is_file()} == before


def last_line(table):
    return [cell.strip() for cell in table.splitlines()[-1].split("|")[1:-1]]


# --- the data sets


def test_smoke_looks_at_the_digits_alone():
    (digits,) = survey.survey(preset="smoke")
    assert (digits.name, digits.where, len(digits.dataset.y_train)) == ("digits", "embedded", 1000)
    assert survey.missing_sentence([digits]) == ""


def test_without_data_every_known_set_has_its_row_and_a_way_to_get_it(monkeypatch, folders):
    monkeypatch.setattr("dclib.data.sources.DEBIAN", folders)
    found = survey.survey()
    assert {f.name for f in found} == set(KNOWN)
    assert [f.name for f in found if f.dataset] == ["digits"]
    rows = survey.found_table(found).splitlines()[2:]
    assert sum("not here" in row and row.count("—") == 4 for row in rows) == len(KNOWN) - 1
    sentence = survey.missing_sentence(found)
    assert all(name in sentence for name in KNOWN if name != "digits")
    assert "NAME.npz" in sentence
    assert str(folders) not in sentence


def test_the_papers_table_does_not_depend_on_what_is_here(monkeypatch, folders):
    monkeypatch.setattr("dclib.data.sources.DEBIAN", folders)
    without = survey.statistics_table(survey.survey())
    save_usps(folders)
    found = survey.survey()
    assert survey.statistics_table(found) == without
    for name, (train, test) in paper.TABLE_T1.items():
        assert any(f"{train:,} " in row and f"{test:,} " in row for row in without.splitlines() if report.title(name) in row)


def save_usps(folder, train=60):
    pixels, labels = np.random.default_rng(0), np.arange(10)
    (folder / "data").mkdir(exist_ok=True)
    x_train = pixels.integers(0, 255, (train, 16, 16), np.uint8)
    x_test = pixels.integers(0, 255, (20, 16, 16), np.uint8)
    y_train, y_test = np.resize(labels, train), np.resize(labels, 20)
    np.savez(folder / "data/usps.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)


def test_counts_that_are_not_the_papers_are_told(folders):
    from dclib.run.sets import load

    load.cache_clear()
    save_usps(folders)
    found = survey.survey(datasets="usps")
    assert last_line(survey.found_table(found)) == ["USPS", "npz", "1 × 16 × 16", "60", "20", "-7,231, -1,987"]
    (name,) = survey.samples(found)
    assert name == "USPS"
    assert survey.samples(found)[name].images.shape == (10, 1, 16, 16)
    load.cache_clear()


def test_survey_refuses_what_reproduce_refuses():
    with pytest.raises(SpecError, match="unknown parameter 'dataset': did you mean 'datasets'"):
        survey.survey(dataset="mnist")
    with pytest.raises(SpecError, match="unknown data set 'mnits'"):
        survey.survey(datasets="mnits")
    with pytest.raises(SpecError, match="unknown preset"):
        survey.survey(preset="all")
