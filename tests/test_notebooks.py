"""The notebooks: their scheme, every one through papermill at smoke and through nbval on the records, and refusals.

The size limits and the stripped outputs are in test_house.py.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import nbformat
import pytest

from dclib import experiments
from dclib.experiments import studies
from dclib.results import Store
from dclib.spec.variants import steps

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TINY = "ConvNet:width=4,depth=1"
PAIRS = {  # of the ablations' rows and columns
    "activation": f"{TINY} {TINY},activation=sigmoid",
    "pooling": f"{TINY} {TINY},pooling=max",
    "normalization": f"{TINY} {TINY},norm=layer",
    "depth": "ConvNet:width=4,depth=1 ConvNet:width=4,depth=2",
    "width": "ConvNet:width=4,depth=1 ConvNet:width=8,depth=1",
}
# what keeps each notebook at smoke within seconds
NARROWED = {
    "cross_arch": {"networks": "MLP random", "test_networks": "MLP"},
    "method": {"networks": "MLP", "test_networks": "MLP"},
    "datasets": {},
    "coresets": {"networks": "random MLP whole", "test_networks": "MLP"},
    "condensed_images": {"networks": "MLP", "test_networks": "MLP", "ipc": "1 2"},
    "more_baselines": {"networks": "ors gan MLP", "test_networks": "MLP"},
    "cifar100": {"networks": "random MLP", "test_networks": "MLP"},
    "images_per_class": {"networks": "herding MLP whole", "test_networks": "MLP", "ipc": "1 2"},
    "distillation": {"networks": "distill distill-plain", "ipc": 2, "test_networks": "LeNet MLP"},
    "speed": {},
    "costs": {},
    **{f"ablation_{name}": {"networks": pair, "test_networks": pair} for name, pair in PAIRS.items()},
    "ablation_distance": {"networks": "MLP", "test_networks": "MLP"},
    "ablation_loops": {"networks": "MLP", "test_networks": "MLP", "variants": " ".join(steps(K=(2, 4), T=(1,)))},
    "choices": {"networks": "MLP", "test_networks": "MLP", "variants": "default init=real"},
    "recipe": {"networks": "MLP", "test_networks": "MLP", "variants": "default image_lr=1,image_lr_end=0.1"},
    "continual": {"memories": "random herding", "datasets": "digits digits+turned"},
    "nas": {"space": "width=8 depth=1"},
    "own_data": {},
}
RECORDED = {name: [] for name in ("datasets", "speed", "own_data", "costs")}  # kinds of records
RECORDED |= {"continual": ["tasks"], "nas": ["candidates", "sets", "whole"]}
FIGURES = {"distillation": 2, "speed": 2, "condensed_images": 2, "more_baselines": 2, "choices": 2}  # in the others one
# decimals of an answer that stand in no table of its page: settings, differences and means of what does, other records
ELSEWHERE = {
    "ablation_activation": {"85.5", "84.4"},
    "ablation_distance": {"0.1", "61.0", "5.3", "52.2", "2.0"},
    "ablation_width": {"0.4", "86.0"},
    "more_baselines": {"13.5"},
    "speed": {"2.4", "1.18", "1.6", "1.8"},
}
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)


@cache
def cells(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook.cells


def tags(cell):
    return cell.metadata.get("tags", [])


# --- scheme


@each
def test_it_opens_with_title_answer_and_claim(path):
    title, claim = cells(path)[:2]
    assert re.match(r"# .+\n\n\*\*.+\*\*", title.source), "a title, then the answer in bold"
    assert "seconds" in title.source, "how long it takes"
    assert claim.source.startswith("**The claim.**")
    assert "{cite:t}`zhao2021dataset`" in claim.source


@each
def test_the_third_cell_holds_the_parameters_each_with_a_comment(path):
    cell = cells(path)[2]
    assert tags(cell) == ["parameters"]
    names = re.findall(r"^(\w+) = ", cell.source, re.M)
    assert names[:3] == ["preset", "recompute", "device"]
    assert len(names) >= 4, "the grid that can be narrowed"
    assert 'preset = "best"' in cell.source
    assert not re.search(r"^(?!#).*\n(?!#|recompute|device)\w+ = ", cell.source, re.M), "a comment before each parameter"
    assert all(p in cell.source for p in experiments.PRESETS)


@each
def test_one_call_reads_or_computes(path):
    assert cells(path)[3].source.rstrip().endswith("**parameters(globals()))")
    assert sum("parameters(globals())" in c.source for c in cells(path)) == 1


@each
def test_it_is_an_experiment_and_ends_with_the_command(path):
    last = cells(path)[-1].source
    assert "**To reproduce it**" in last
    assert f"papermill notebooks/{path.stem}.ipynb" in last
    for name, preset in re.findall(r"dclib run (\w+) --preset (\w+)", last):
        assert name == path.stem or (path.stem, name) == ("speed", "precision")
        assert preset in experiments.PRESETS
    if "reproduce(" in cells(path)[3].source:
        assert f'reproduce("{experiments.find(path.stem).name}"' in cells(path)[3].source
        assert f"dclib run {path.stem}" in last


@each
def test_the_kept_table_is_checked_and_numbered(path):
    kept = [c for c in cells(path) if "keep_output" in tags(c)]
    assert kept
    for cell in kept:
        assert "nbval-check-output" in tags(cell)
        assert cell.metadata["mystnb"] == {"markdown_format": "myst"}
        (output,) = cell.outputs
        assert output.data["text/markdown"].startswith(":::{table} ")
        assert "|---" in output.data["text/plain"]


@each
def test_every_decimal_of_the_answer_stands_in_a_table(path):
    """So that no number outlives the records it was read from."""
    tables = "\n".join(output.data["text/plain"] for c in cells(path) if "keep_output" in tags(c) for output in c.outputs)
    decimal = r"(?<![\d.])\d+\.\d+(?!\d)"
    said, shown = (set(re.findall(decimal, text)) for text in (cells(path)[0].source, tables))
    assert said - shown == ELSEWHERE.get(path.stem, set())


@pytest.mark.parametrize("name", studies.ALL)
def test_what_is_measured_is_not_called_unmeasured(name):
    unmeasured = Store().incomplete(studies.ALL[name].cells(experiments.CPU))
    (path,) = (path for path in NOTEBOOKS if path.stem == name)
    assert unmeasured or "Not measured yet" not in cells(path)[0].source


def test_labels_are_unique():
    figures = [c.metadata.get("mystnb", {}).get("figure", {}).get("name") for path in NOTEBOOKS for c in cells(path)]
    named = re.findall(r'"((?:tab|code)-[\w-]+)"\)', "\n".join(c.source for path in NOTEBOOKS for c in cells(path)))
    labels = [*filter(None, figures), *named]
    assert len(labels) == len(set(labels)) >= 2 * len(NOTEBOOKS)


@each
def test_it_is_clean_of_the_machine_that_ran_it(path):
    notebook = json.loads(path.read_text())
    assert notebook["nbformat"] == 4
    assert notebook["nbformat_minor"] >= 5
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert "language_info" not in notebook["metadata"], "run `make notebooks`"
    assert "execution" not in str([c["metadata"] for c in notebook["cells"]])


# --- execution


def environment(folder):
    settings = dict(DCLIB_RESULTS=str(folder / "results"), DCLIB_DATA=str(folder / "data"), PYDEVD_DISABLE_FILE_VALIDATION="1")
    return os.environ | settings | dict(JUPYTER_PREFER_ENV_PATH="1", PYTHONWARNINGS="error::DeprecationWarning:dclib")


def papermill(folder, path, **parameters):
    """Run a notebook from another folder, with its own results and without data; returns the process and the executed cells."""
    out = folder / "out.ipynb"
    given = [word for name, value in parameters.items() for word in ("-p", name, str(value))]
    command = [sys.executable, "-m", "papermill", str(path), str(out), *given, "--no-progress-bar", "--log-level", "WARNING"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment(folder), timeout=600)
    return done, nbformat.read(out, as_version=4).cells if out.exists() else []


def test_every_notebook_is_run():
    assert {path.stem for path in NOTEBOOKS} == set(NARROWED)


@pytest.mark.notebooks
@pytest.mark.slow
@each
def test_smoke(path, tmp_path):
    done, executed = papermill(tmp_path, path, preset="smoke", **NARROWED[path.stem])
    assert done.returncode == 0, done.stderr[-2000:]
    outputs = [o for c in executed for o in c.get("outputs", [])]
    table, *_ = [c.outputs[0].data["text/plain"] for c in executed if "keep_output" in tags(c)]
    assert "digits" in table or "smoke" in table
    assert sum("image/png" in o.get("data", {}) for o in outputs) == FIGURES.get(path.stem, 1)
    assert "Warning" not in "".join(o.text for o in outputs if o.output_type == "stream")
    recorded = sorted((tmp_path / "results").rglob("*.jsonl"))
    whole = ["whole"] if re.search("whole|gan", str(NARROWED[path.stem])) else []
    assert [p.stem for p in recorded] == RECORDED.get(path.stem, ["networks", "sets", *whole])


@pytest.mark.notebooks
@pytest.mark.slow
def test_recompute_compares_and_leaves_the_records(tmp_path):
    cross_arch, narrowed = ROOT / "notebooks/cross_arch.ipynb", {"networks": "random", "test_networks": "MLP"}
    papermill(tmp_path, cross_arch, preset="smoke", **narrowed)
    before = {p: p.read_bytes() for p in sorted((tmp_path / "results").rglob("*.jsonl"))}
    done, executed = papermill(tmp_path, cross_arch, preset="smoke", recompute=True, **narrowed)
    assert done.returncode == 0, done.stderr[-2000:]
    printed = "".join(o.text for o in executed[4].outputs if o.get("name") == "stdout")  # after the injected parameters
    assert "Of 10 recorded accuracies computed again 10 are alike" in printed
    assert before == {p: p.read_bytes() for p in sorted((tmp_path / "results").rglob("*.jsonl"))}
    assert len(before) == 2


@pytest.mark.notebooks
@each
def test_an_unknown_parameter_is_an_error_of_one_sentence(path, tmp_path):
    done, _ = papermill(tmp_path, path, datasetz="digits")
    assert done.returncode != 0
    last = done.stderr.rstrip().splitlines()[-1]
    hint = "" if path.stem == "own_data" else "did you mean 'datasets'? "  # which takes a folder instead
    assert last.startswith(f"SpecError: unknown parameter 'datasetz': {hint}choose one of preset, recompute, device")
    assert "dclib/" not in done.stderr.partition("Exception encountered")[2], "the sentence and no traceback of dclib's"


@pytest.mark.notebooks
@pytest.mark.parametrize(
    ("parameter", "value", "valid"),
    [
        ("preset", "smok", "best, smoke, cpu, paper"),
        ("datasets", "digits mnits", "digits, mnist, "),
        ("networks", "MLP LeNett", "MLP, ConvNet, LeNet, "),
        ("device", "cpo", "auto, cpu, cuda"),
    ],
)
def test_a_misspelt_value_is_an_error_that_lists_the_valid_ones(parameter, value, valid, tmp_path):
    done, _ = papermill(tmp_path, ROOT / "notebooks/cross_arch.ipynb", **{"preset": "smoke"} | {parameter: value})
    assert done.returncode != 0
    last = done.stderr.rstrip().splitlines()[-1]
    assert last.startswith("SpecError: unknown ")
    assert repr(value.split()[-1]) in last
    assert valid in last
    assert not (tmp_path / "results").exists()


@pytest.mark.notebooks
def test_more_images_than_a_class_has_are_an_error_of_one_sentence(tmp_path):
    narrow = dict(networks="herding", test_networks="MLP", ipc=500)
    done, _ = papermill(tmp_path, ROOT / "notebooks/coresets.ipynb", preset="smoke", **narrow)
    assert done.returncode != 0
    last = done.stderr.rstrip().splitlines()[-1]
    assert re.fullmatch(r"DataError: class '0' of digits has \d+ images, fewer than the 500 asked for: lower ipc", last)


def nbval(path, folder, **settings):
    """Execute a notebook and compare its kept outputs, as `pytest --nbval-lax` does."""
    command = [sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env", "-q", "-p", "no:cacheprovider"]
    command += ["-c", os.devnull, "--rootdir", str(folder), str(path)]
    env = environment(folder) | settings
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, timeout=600)


@pytest.mark.notebooks
@pytest.mark.slow
@each
def test_kept_outputs_are_those_of_the_records(path, tmp_path):
    done = nbval(path, tmp_path, DCLIB_RESULTS=os.environ["DCLIB_RESULTS"])
    assert done.returncode == 0, f"run `make notebooks`: {done.stdout[-3000:]}"


@pytest.mark.notebooks
@pytest.mark.slow
def test_a_kept_number_that_is_not_the_records_is_noticed(tmp_path):
    changed = Path(shutil.copy(ROOT / "notebooks/datasets.ipynb", tmp_path))
    text = changed.read_text()
    assert "73,257 |" in text
    changed.write_text(text.replace("73,257 |", "73,258 |"))
    done = nbval(changed, tmp_path)
    assert done.returncode == 1
    assert "73,258" in done.stdout
