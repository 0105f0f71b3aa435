"""What `make demo` does: learn one image for each digit, draw them, and run Table 2 in small. `demo.py FOLDER`.

What is claimed of the table stands here before it is computed: images condensed with the ConvNet train each of the three networks
better than as many random real images do. The two sets behind each of its numbers are enough to decide that.
"""

import sys
from pathlib import Path

import papermill
import show
import torch

from dclib import report
from dclib.core.condense import initial_images
from dclib.data import dataset as data
from dclib.experiments import CROSS_ARCH, RANDOM, SMOKE
from dclib.results import Store, table
from dclib.results.claims import Claim, Estimate, between
from dclib.run import sets
from dclib.spec import MakeSet
from dclib.support.files import write_atomic
from dclib.support.provenance import now

FRAMES = (2, 5, 10, 30)  # outer steps after which the images are shown
CLAIM = "The claim, made before the run: the ConvNet's images train each network better than random real images do."


def main(folder: Path) -> None:
    """Write the picture and the executed notebook into a folder, and print what they show."""
    picture, executed, notebook = folder / "emerging.png", folder / "cross_arch.ipynb", Path(__file__).with_name("cross_arch.ipynb")
    write_atomic(picture, emerging().render())
    papermill.execute_notebook(notebook, executed, {"preset": "smoke"}, progress_bar=False, stderr_file=sys.stderr)
    show.main(executed)
    print(f"The images:   {picture}, from noise to learned, beside real ones")
    print(f"\n{CLAIM}\n{verdict()}")


def emerging() -> report.Picture:
    """Learn the first of the table's sets, keep it for the notebook, and draw its images on their way."""
    digits = data.load("digits")
    (cell,) = CROSS_ARCH.cells(SMOKE, network="ConvNet", test_network="ConvNet")
    run = cell.make_set(0)
    rows = {"noise": sets.as_set(initial_images(digits, run.hyper, run.seed, torch.float32), digits, run)}

    def keep(state) -> None:
        if state.k in FRAMES:
            rows["learned" if state.k == FRAMES[-1] else f"step {state.k}"] = sets.as_set(state.images, digits, run)

    made = sets.make_set(run, dataset=digits, looks=[keep], about={"started": now()})
    made.save(Store(preset="smoke").set_path("smoke", run.key))
    rows["real"] = sets.as_set(sets.choose_at_random(MakeSet("digits", "random"), digits), digits, run)
    return report.image_rows(rows)


def verdict() -> str:
    """Say what the table decides, with the difference from random images for each network."""
    found = {(cell.network, cell.test_network): cell for cell in table("cross_arch", "smoke").itertuples()}
    tested = list(dict.fromkeys(network for _, network in found))
    pairs = [[Estimate.of(found[made, network]) for made in ("ConvNet", RANDOM)] for network in tested]
    apart = [between(*pair) for pair in pairs]
    said = "; ".join(f"{n} {d.mean:+.1f} points, 95 % [{d.low:+.1f}, {d.high:+.1f}]" for n, d in zip(tested, apart, strict=True))
    return f"It {dict(holds='holds', refuted='is refuted').get(Claim(tuple(apart)).verdict, 'is not decided')}: {said}."


if __name__ == "__main__":
    main(Path(sys.argv[1]))
