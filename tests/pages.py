"""Runs the code of a page in this process, on made-up records."""

import ast
import json
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"


def shown(name: str, *cells: str, leave_out: str = "", **given: Any) -> dict[str, Any]:
    """What each code cell of a page ends with, by the cell's id; a numbered table as its rows without the head.

    Args:
        name: of the page.
        cells: run only these, after the parameters.
        leave_out: not those with this word in them.
        given: parameters, and names that cells which are not run would have made.
    """
    found, namespace = {}, {}
    for cell in json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]:
        declares = "parameters" in cell["metadata"].get("tags", [])
        if cell["cell_type"] != "code" or (cells and not declares and cell["id"] not in cells):
            continue
        source = "".join(cell["source"])
        if leave_out and leave_out in source:
            continue
        body = ast.parse(source).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), cell["id"], "exec"), namespace)
        if declares:
            namespace |= given
        if last:
            value = eval(compile(ast.Expression(last.value), cell["id"], "eval"), namespace)
            found[cell["id"]] = rows(value.text) if hasattr(value, "caption") else value
    return found


def rows(table: str) -> list[list[str]]:
    """The rows of a table in Markdown."""
    return [[text.strip() for text in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
