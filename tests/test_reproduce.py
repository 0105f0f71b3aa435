"""dclib.reproduce: a notebook's parameters checked, records read, missing cells computed."""

import subprocess
import sys
from pathlib import Path

import pytest

from dclib import report
from dclib.errors import DataError, SpecError
from dclib.reproduce import as_list, parameters, reproduce
from dclib.results import Store

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """Results and data in empty folders."""
    monkeypatch.setenv("DCLIB_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("DCLIB_DATA", str(tmp_path / "data"))
    return tmp_path


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
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: (_ for _ in ()).throw(OSError("no network")))
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


def test_a_preset_computes_the_narrowed_grid_once(capsys, monkeypatch, shorten_smoke):
    """Ten random digits, drawn twice, train two MLPs each."""
    shorten_smoke(monkeypatch, 1, networks=2, random_sets=2)
    given = dict(preset="smoke", networks="random", test_networks="MLP", device="cpu")
    (first,) = reproduce("cross_arch", **given).itertuples()
    assert (first.dataset, first.network, first.test_network, first.networks) == ("digits", "random", "MLP", 4)
    before = {p: p.read_bytes() for p in Store().root.rglob("*") if p.is_file()}
    assert "training MLP" in capsys.readouterr().err
    (again,) = reproduce("cross_arch", **given).itertuples()
    assert (again.accuracies, capsys.readouterr().err) == (first.accuracies, "")
    assert {p: p.read_bytes() for p in Store().root.rglob("*") if p.is_file()} == before
