"""What `make demo` runs before the notebook: one image for each digit emerges from noise, as a picture. `demo.py FOLDER`.

The set is the one that the notebook's table needs, so that it is learned once.
"""

import dataclasses
import sys
from pathlib import Path

import torch

from dclib import data, report
from dclib.condense import initial_images
from dclib.experiments import CROSS_ARCH, SMOKE
from dclib.results import Store
from dclib.runs import sets
from dclib.spec import MakeSet
from dclib.support.files import write_atomic
from dclib.support.provenance import now

FRAMES = (2, 5, 10, 30)  # outer steps after which the images are shown


def main(folder: Path) -> None:
    """Learn the images, keep them for the notebook, and draw them beside noise and real ones."""
    digits, started = data.load("digits"), now()
    (cell,) = CROSS_ARCH.cells(SMOKE, network="ConvNet", test_network="ConvNet")
    run = cell.make_set(0)
    rows = {"noise": sets.as_set(initial_images(digits, run.hyper, run.seed, torch.float32), digits, run)}

    def keep(state) -> None:
        if state.k in FRAMES:
            rows["learned" if state.k == FRAMES[-1] else f"step {state.k}"] = sets.as_set(state.images, digits, run)

    made = sets.condense_set(run, dataset=digits, looks=[keep])
    dataclasses.replace(made, about={**made.about, "started": started}).save(Store().set_path("smoke", run.key))
    rows["real"] = sets.as_set(sets.choose_at_random(MakeSet("digits", "random"), digits), digits, run)
    picture = folder / "emerging.png"
    write_atomic(picture, report.image_rows(rows).render())
    print(f"The ten images, from noise to learned, beside real ones: {picture}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
