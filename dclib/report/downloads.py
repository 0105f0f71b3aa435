"""Links to files that a page itself holds, so that they need no server: its rows as CSV, condensed sets and their pictures."""

import json
import tempfile
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..results import CondensedSet
from .figures import image_grid

if TYPE_CHECKING:
    import pandas as pd

LARGEST = 100_000  # bytes of a set that a page holds


def csv_link(rows: "pd.DataFrame", name: str) -> str:
    """Return a link to rows as a CSV file, without their column `records`; tuples are written as lists in JSON.

    Args:
        rows: from `results.table`, or any others.
        name: of the file, without its ending.
    """
    rows = rows.drop(columns="records", errors="ignore")
    flat = rows.map(lambda value: json.dumps(value) if isinstance(value, tuple) else value)
    return _link("records as CSV", flat.to_csv(index=False).encode(), "text/csv", f"{name}.csv")


def set_links(sets: Mapping[str, CondensedSet]) -> str:
    """Return for each set a link to its picture and, if it is small, to its file for `dclib train` or `CondensedSet.load`.

    Args:
        sets: by name, from `recorded_sets`.
    """
    lines = []
    for name, made in sets.items():
        links = [_link("PNG", image_grid(made).render(), "image/png", f"{made.key}.png")]
        if made.images.nbytes < LARGEST:
            with tempfile.TemporaryDirectory() as folder:
                made.save(file := Path(folder, f"{made.key}.safetensors"))
                links.append(_link("safetensors", file.read_bytes(), "application/octet-stream", file.name))
        lines.append(f"{name}: {', '.join(links)}")
    return f"The sets as files. {'; '.join(lines)}." if lines else ""


def _link(text: str, content: bytes, kind: str, name: str) -> str:
    return f'<a href="data:{kind};base64,{b64encode(content).decode()}" download="{name}">{text}</a>'
