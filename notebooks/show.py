"""Print the tables and sentences of an executed notebook, lay its figures beside it, and say where they are: `show.py NOTEBOOK`."""

import base64
import sys
import textwrap
from pathlib import Path

import nbformat


def main(path: Path) -> None:
    """Show the outputs of the notebook at `path`."""
    figures = []
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            plain, prose = data.get("text/plain", ""), data.get("text/markdown", "")
            if "keep_output" in cell.metadata.get("tags", []):
                print("\n" + "\n".join(x if x.startswith("|") else textwrap.fill(x, 100) for x in plain.splitlines()))
            elif plain.startswith("<IPython.core.display.Markdown"):
                print("\n" + "\n".join(textwrap.fill(part, 100) for part in prose.split("\n\n") if part))
            if "image/png" in data:
                figures.append(path.with_name(f"{path.stem}-{len(figures) + 1}.png"))
                figures[-1].write_bytes(base64.b64decode(data["image/png"]))
    print(f"\nThe notebook: {path}")
    for figure in figures:
        print(f"A figure:     {figure}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
