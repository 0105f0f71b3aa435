"""A Sphinx extension for the page on the library: tables of hyper-parameters, and shorter signatures."""

import dataclasses
from typing import Any

ESCAPED = r"\|"  # else Sphinx takes |x| for a substitution


def shorten(app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returned: str | None) -> tuple | None:
    """Write `<factory>`, which is no Python and would keep types from being linked, as `...`."""
    return (signature.replace("<factory>", "..."), returned) if signature else None


def tabulate(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Append to a dataclass's docstring a table of the hyper-parameters that its fields declare."""
    from dclib.spec.checks import declared, range_of

    if what != "class" or not dataclasses.is_dataclass(obj) or not (fields := declared(obj)):
        return
    rows = [("name", "symbol", "default", "values", "meaning")]
    for f in fields:
        default = "" if f.default in (dataclasses.MISSING, "") else f"``{f.default}``"
        rows.append((f"``{f.name}``", f.metadata["symbol"], default, range_of(f), f.metadata["help"]))
    lines += ["", ".. list-table::", "   :header-rows: 1", ""]
    for first, *rest in rows:
        lines += [f"   * - {first}", *(f"     - {cell.replace('|', ESCAPED)}" for cell in rest)]
    lines.append("")


def setup(app: Any) -> dict[str, bool]:
    """What Sphinx calls."""
    app.connect("autodoc-process-signature", shorten)
    app.connect("autodoc-process-docstring", tabulate)
    return {"parallel_read_safe": True}
