"""Print the tables that an executed notebook kept, lay its figures beside it, and say where they are: `show.py NOTEBOOK`."""

import base64
import sys
from pathlib import Path

import nbformat


def main(path: Path) -> None:
    """Show the outputs of the notebook at `path`."""
    figures = []
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "keep_output" in cell.metadata.get("tags", []):
                print("\n" + (output.get("text") or data.get("text/markdown") or data.get("text/plain", "")).strip())
            if "image/png" in data:
                figures.append(path.with_name(f"{path.stem}-{len(figures) + 1}.png"))
                figures[-1].write_bytes(base64.b64decode(data["image/png"]))
    print(f"\nThe notebook: {path}")
    for figure in figures:
        print(f"A figure:     {figure}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
