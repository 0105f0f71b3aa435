"""Measures what the first figure of `method.ipynb` shows: `emergence.py mnist`, `emergence.py cifar10`; ten minutes each.

The set is the recorded one of seed 0 by the recipe `fast`. After some of its outer steps the images are kept, and one network is
trained on them, always from the same initial weights, so that only the images differ. Its training is stage T in 301 epochs, as at
the preset cpu. A line of results/emergence.jsonl has the numbers (of several lines for a data set the last counts);
book/_static/emergence-NAME.png has the images, a row for each of these steps and a column for each class.
"""

import hashlib
import json
import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from dclib.core import condense, train
from dclib.data import dataset as data
from dclib.results import Store
from dclib.run import sets
from dclib.spec import MakeSet, derive, full, variants
from dclib.support.files import append_line, write_atomic
from dclib.support.provenance import now, provenance

STEPS = (0, 1, 2, 3, 5, 7, 10, 14, 20, 28, 40, 55, 75, 100, 130, 165, 200)  # k at which the images are kept
PICTURES = Path(__file__).resolve().parents[1] / "book/_static"


def main(name: str) -> None:
    """Learn the set, train and test a network on each of its stages, and write the record and the picture."""
    started, dataset = now(), data.load(name)
    run = MakeSet(name, hyper=variants.recipe("fast"))
    kept = [condense.initial_images(dataset, run.hyper, run.seed, torch.float32)]

    def keep(state: condense.Condenser) -> None:
        if state.k in STEPS:
            kept.append(state.images.clone())

    made = sets.make_set(run, dataset=dataset, looks=[keep], device="cpu")
    stages = [sets.as_set(images, dataset, run) for images in kept]
    hyper = variants.stage_t(name, epochs=300)
    small = [(torch.from_numpy(stage.images), torch.from_numpy(stage.labels)) for stage in stages]
    told = dict(on_network=lambda _, accuracy, seconds: print(f"{accuracy:.2f} % in {seconds:.0f} s", flush=True))
    accuracies = train.evaluate_each(small, dataset, hyper, seeds=[derive(0, run.key)] * len(small), device="cpu", **told)

    picture = BytesIO()
    rows = [np.concatenate(list(stage.pixels()), axis=1) for stage in stages]
    Image.fromarray(np.concatenate(rows)).save(picture, "PNG", optimize=True)
    write_atomic(PICTURES / f"emergence-{name}.png", picture.getvalue())
    line = {"dataset": name, "key": run.key, "training": full(hyper), "classes": dataset.class_names, "data_hash": dataset.hash}
    line |= {"k": STEPS, "accuracies": accuracies, "losses": made.about["losses"], "set_hash": made.hash}
    line |= {"picture": hashlib.sha256(picture.getvalue()).hexdigest(), "seconds": made.about["seconds"]}
    line |= provenance(started, "cpu", made.about["engine"])
    append_line(Store().root / "emergence.jsonl", json.dumps(line, sort_keys=True))


if __name__ == "__main__":
    main(sys.argv[1])
