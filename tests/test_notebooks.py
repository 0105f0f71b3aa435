"""The notebooks: how they are laid out, each at smoke, each with nbval on the records, and what they refuse."""

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import nbformat
import pytest

from dclib import experiments
from dclib.errors import SpecError

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TINY = "ConvNet:width=4,depth=1"
ONE = {"networks": TINY, "test_networks": TINY}
# the parameters that keep each notebook within seconds at smoke, where a ConvNet takes the fewest steps
NARROWED = {
    "ablation_activation": ONE | {"networks": f"{TINY} {TINY},activation=sigmoid"},
    "ablation_depth": ONE | {"networks": f"{TINY} ConvNet:width=4,depth=2"},
    "ablation_distance": ONE,
    "ablation_loops": ONE | {"variants": "outer_steps=2,inner_steps=1 outer_steps=4,inner_steps=1"},
    "ablation_normalization": ONE | {"networks": f"{TINY} {TINY},norm=layer"},
    "ablation_pooling": ONE | {"networks": f"{TINY} {TINY},pooling=max"},
    "ablation_width": ONE | {"networks": f"{TINY} ConvNet:width=8,depth=1"},
    "after": {"networks": f"random formed {TINY}", "test_networks": TINY},
    "choices": ONE | {"variants": "default init=real"},
    "cifar100": ONE | {"networks": f"random {TINY}"},
    "condensed_images": ONE | {"ipc": "1 2"},
    "continual": {"memories": "random herding", "datasets": "digits digits+turned"},
    "coresets": ONE | {"networks": f"random {TINY} whole"},
    "cross_arch": ONE | {"networks": f"{TINY} random"},
    "distillation": {"networks": "distill distill-plain", "ipc": 2, "test_networks": TINY},
    "images_per_class": ONE | {"networks": f"random {TINY} whole", "ipc": "1 2"},
    "method": ONE,
    "more_baselines": ONE | {"networks": f"ors-hundredth gan {TINY}"},
    "nas": {"space": "width=8 depth=1 norm=instance"},
    "recipe": ONE | {"variants": "default image_lr=1,image_lr_end=0.1"},
}
# decimals of an answer that stand in no table of its page: settings, differences and means of what does, other records
ELSEWHERE = {
    "more_baselines": {"13.5"},
}
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)


@cache
def cells(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook.cells


def code(path):
    return [cell for cell in cells(path) if cell.cell_type == "code"]


def tagged(path, tag):
    return [cell for cell in code(path) if tag in cell.metadata.get("tags", [])]


# --- layout


@each
def test_it_is_laid_out_as_all_are(path):
    """A title, the answer in bold, parameters with a comment each, tables kept and no other output, the command at the end."""
    first, last = cells(path)[0].source, cells(path)[-1].source
    assert re.match(r"# .+\n\n\*\*.+\*\*", first), "a title, then the answer in bold"
    assert "{cite:t}`zhao2021dataset`" in "".join(cell.source for cell in cells(path))
    assert f"papermill notebooks/{path.stem}.ipynb" in last
    for name, preset in re.findall(r"dclib run (\w+) --preset (\w+)", last):
        assert name == path.stem or (path.stem, name) == ("speed", "precision")
        assert preset in experiments.PRESETS
    (parameters,) = tagged(path, "parameters")
    assert parameters is code(path)[0]
    assert re.findall(r"^(\w+) = ", parameters.source, re.M)[:3] == ["preset", "recompute", "device"]
    assert 'preset = "best"' in parameters.source
    assert not re.search(r"^(?!#).*\n(?!#|recompute|device)\w+ = ", parameters.source, re.M), "a comment before each parameter"
    kept = tagged(path, "keep_output")
    assert kept
    for cell in kept:
        assert "nbval-check-output" in cell.metadata.tags
        (output,) = cell.outputs
        assert output.data["text/markdown"].startswith(":::{table} ")
        assert "|---" in output.data["text/plain"]
    assert not [cell for cell in code(path) if cell.outputs and cell not in kept], "run `make notebooks`"
    notebook = json.loads(path.read_text())
    assert "language_info" not in notebook["metadata"], "run `make notebooks`"
    assert "execution" not in str([cell["metadata"] for cell in notebook["cells"]]), "run `make notebooks`"


@each
def test_every_decimal_of_the_answer_stands_in_a_table(path):
    """So that no number outlives the records that it was read from."""
    tables = "\n".join(output.data["text/plain"] for cell in tagged(path, "keep_output") for output in cell.outputs)
    decimal = r"(?<![\d.])\d+\.\d+(?!\d)"
    said, shown = (set(re.findall(decimal, text)) for text in (cells(path)[0].source, tables))
    assert said - shown == ELSEWHERE.get(path.stem, set())


def test_labels_are_unique():
    figures = [cell.metadata.get("mystnb", {}).get("figure", {}).get("name") for path in NOTEBOOKS for cell in cells(path)]
    named = re.findall(r'"((?:tab|code)-[\w-]+)"\)', "\n".join(cell.source for path in NOTEBOOKS for cell in cells(path)))
    labels = [*filter(None, figures), *named]
    assert len(labels) == len(set(labels)) >= 2 * len(NOTEBOOKS)


# --- at smoke


def environment(folder):
    """A kernel's: results and data of its own, and a deprecated call of ours is an error."""
    settings = {"DCLIB_RESULTS": folder / "results", "DCLIB_DATA": folder / "data", "JUPYTER_PREFER_ENV_PATH": 1}
    settings |= {"PYDEVD_DISABLE_FILE_VALIDATION": 1, "PYTHONWARNINGS": "error::DeprecationWarning:dclib"}
    return os.environ | {name: str(value) for name, value in settings.items()}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """One kernel and one folder of results for all notebooks: torch is loaded once, and what two of them need is computed once."""
    from nbclient import NotebookClient

    folder, client = tmp_path_factory.mktemp("smoke"), NotebookClient(nbformat.v4.new_notebook(), timeout=600)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PREFER_ENV_PATH", "1")
        with client.setup_kernel(env=environment(folder), cwd=str(folder)):
            yield client


@pytest.mark.notebooks
@pytest.mark.slow
@each
def test_smoke(path, kernel):
    from papermill.iorw import load_notebook_node
    from papermill.parameterize import parameterize_notebook

    notebook = load_notebook_node(str(path))
    notebook = parameterize_notebook(notebook, {"preset": "smoke", **NARROWED.get(path.stem, {})})
    notebook.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))
    kernel.nb = notebook
    for index, cell in enumerate(notebook.cells):
        kernel.execute_cell(cell, index)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    kept = [cell for cell in notebook.cells if "keep_output" in cell.metadata.get("tags", [])]
    tables = [output.data["text/plain"] for cell in kept for output in cell.outputs if output.output_type == "execute_result"]
    assert any("digits" in table or "smoke" in table for table in tables), "narrowed, a page's first table may be empty"
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert "Warning" not in "".join(output.text for output in outputs if output.output_type == "stream")


def papermill(folder, **parameters):
    """Run `papermill notebooks/cross_arch.ipynb` in another folder; returns the process and what it printed into the notebook."""
    out = folder / "out.ipynb"
    given = [word for name, value in parameters.items() for word in ("-p", name, str(value))]
    command = [sys.executable, "-m", "papermill", str(ROOT / "notebooks/cross_arch.ipynb"), str(out), *given]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment(folder), timeout=600)
    outputs = [output for cell in nbformat.read(out, as_version=4).cells for output in cell.get("outputs", [])]
    return done, "".join(output.text for output in outputs if output.get("name") == "stdout")


@pytest.mark.notebooks
@pytest.mark.slow
def test_papermill_computes_and_recomputing_compares_and_leaves_the_records(tmp_path):
    narrowed = {"preset": "smoke", "networks": "random", "test_networks": "MLP"}
    assert papermill(tmp_path, **narrowed)[0].returncode == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")}
    assert len(before) == 2
    done, printed = papermill(tmp_path, **narrowed, recompute=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Of 10 recorded accuracies computed again 10 are alike" in printed
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")} == before


@pytest.mark.notebooks
@pytest.mark.slow
def test_papermill_ends_with_the_sentence_in_place_of_a_traceback(tmp_path):
    done, _ = papermill(tmp_path, datasetz="digits")
    assert done.returncode != 0
    assert done.stderr.rstrip().splitlines()[-1].startswith("SpecError: unknown parameter 'datasetz': did you mean 'datasets'?")
    assert "dclib/" not in done.stderr.partition("Exception encountered")[2]


@each
def test_an_unknown_parameter_is_refused(path):
    names = {}
    declared, *rest = (cell.source for cell in code(path))
    exec(declared, names)
    names["datasetz"] = "digits"
    with pytest.raises(SpecError, match=r"^unknown parameter 'datasetz': .*choose one of preset, recompute, device"):
        exec("\n".join(rest), names)


# --- on the records


@pytest.mark.notebooks
@pytest.mark.slow
def test_kept_tables_are_those_of_the_records_and_a_wrong_number_is_noticed(nbval):
    """nbval has executed every notebook, and a copy of one in which a number was changed."""
    assert set(re.findall(r"^FAILED (\S+?)::", nbval, re.M)) == {"wrong.ipynb"}, f"run `make notebooks`: {nbval[-3000:]}"
    assert "reference_output == test_output failed" in nbval, "it is the number that differs"
    assert {path.stem for path in NOTEBOOKS} <= set(re.findall(r"(\w+)\.ipynb::Cell", nbval)), "all were executed"
