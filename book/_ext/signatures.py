"""A Sphinx extension for the page on the library: a default that a dataclass makes afresh is written as an ellipsis."""

from typing import Any


def shorten(app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returned: str | None) -> tuple | None:
    """Write `<factory>`, which is no Python and would keep types from being linked, as `...`."""
    return (signature.replace("<factory>", "..."), returned) if signature else None


def setup(app: Any) -> dict[str, bool]:
    """What Sphinx calls."""
    app.connect("autodoc-process-signature", shorten)
    return {"parallel_read_safe": True}
