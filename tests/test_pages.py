"""The cells of the pages of tables, run without a kernel where nothing is recorded: each shows its dashes and an empty figure."""

import ast
import json
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
PAGES = ["cross_arch", "coresets", "condensed_images", "images_per_class", "more_baselines", "cifar100", "recipe"]
PAGES += ["ablation_depth", "ablation_distance", "ablation_loops", "choices"]


def shown(cell: dict, names: dict) -> object:
    """Run a code cell and return the value of its last line, as a notebook shows it."""
    tree = ast.parse("".join(cell["source"]))
    last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(last, "cell", "eval"), names) if last else None


@pytest.mark.parametrize("name", PAGES)
def test_a_page_without_records(name, tmp_path, monkeypatch):
    monkeypatch.setenv("DCLIB_RESULTS", str(tmp_path))
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    code = [c for c in cells if c["cell_type"] == "code" and "tracking" not in "".join(c["source"])]  # which trains
    names: dict = {}
    values = [shown(cell, names) for cell in code]
    tables = [v._repr_markdown_() for v in values if hasattr(v, "_repr_markdown_")]
    assert any("nothing recorded yet" in text for text in tables)
    pictures = [v for v in values if hasattr(v, "_repr_png_")]
    assert pictures
    assert all(picture._repr_png_().startswith(b"\x89PNG") for picture in pictures)
    assert any("are not recorded yet" in text for text in tables)
