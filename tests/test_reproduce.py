"""dclib.reproduce: a notebook's parameters checked, records read, missing cells computed."""

import subprocess
import sys
from pathlib import Path

import pytest

from dclib import report
from dclib.errors import DataError, SpecError
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
