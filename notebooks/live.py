"""Measures what the page `live` shows: `live.py mnist`, `live.py fashionmnist`; some minutes each.

It needs node (Debian: `apt install nodejs`). The page's own trainer, in node in place of a browser, trains networks on the ten
learned images (the recorded set of seed 0 by the recipe `fast`) and on the recorded sets of ten random real images, a set for each
seed, and tests them on all test images. A line of results/live.jsonl has the numbers (of several lines for a data set the last
counts). book/_static/live-NAME.png has the real images that the page shows, each row one image of every class: the random sets,
then the test images, drawn at random.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
import time
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from dclib.data import dataset as data
from dclib.results import CondensedSet, Store
from dclib.spec import MakeSet, variants
from dclib.support.files import append_line, write_atomic
from dclib.support.provenance import now, provenance

STATIC = Path(__file__).resolve().parents[1] / "book/_static"
WIDTH, EPOCHS, SEEDS = 32, 300, 5  # the page's own at first
TESTS = {"mnist": 15, "fashionmnist": 10}  # test images of each class on the page
TRAIN = """
const fs = require("fs"), [set, tests, answers, width, epochs, seed, augmented] = process.argv.slice(2);
const read = path => { const all = fs.readFileSync(path), n = 4 * SIDE * SIDE;
  return Array.from({length: all.length / n}, (_, i) => new Float32Array(all.buffer.slice(i * n, (i + 1) * n))); };
const images = read(set), labels = images.map((_, i) => i), network = new Network(+width, +seed);
const random = +augmented ? augmenting(+seed) : null;
for (let epoch = 0; epoch <= +epochs; epoch++) network.epoch(epoch, +epochs, images, labels, random);
console.log(network.accuracy(read(tests), fs.readFileSync(answers)));
"""


def main(name: str) -> None:
    """Train and test the networks, and write the record and the picture."""
    started, dataset, store = now(), data.load(name), Store(preset="cpu")
    made = CondensedSet.load(store.find_set(MakeSet(name, hyper=variants.recipe("fast")).key))
    draws = [variants.selection(name, "random", seed=seed) for seed in range(SEEDS)]
    recorded = [store.records[run.key][0] for run in draws if run.key in store.records]
    chosen = [dataset.x_train[torch.tensor(record["indices"]).flatten()] for record in recorded]
    training, seconds = variants.stage_t(name, network=f"ConvNet:width={WIDTH}", epochs=EPOCHS), []

    def train(images: np.ndarray, seed: int, folder: Path) -> float:
        """Train one network on the page's trainer and return its accuracy in percent."""
        (folder / "set").write_bytes(images.astype(np.float32).tobytes())
        given = [folder / "set", folder / "tests", folder / "answers", WIDTH, EPOCHS, seed, int(training.augment != "none")]
        start = time.perf_counter()
        done = subprocess.run(["node", folder / "train.js", *map(str, given)], capture_output=True, text=True, check=True)
        seconds.append(time.perf_counter() - start)
        print(f"{done.stdout.strip()} % in {seconds[-1]:.0f} s", flush=True)
        return float(done.stdout)

    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        (folder / "train.js").write_text((STATIC / "live-worker.js").read_text() + TRAIN)
        (folder / "tests").write_bytes(dataset.normalise(dataset.x_test).numpy().tobytes())
        (folder / "answers").write_bytes(dataset.y_test.numpy().astype(np.uint8).tobytes())
        learned = [train(made.images, seed, folder) for seed in range(SEEDS)]
        real = [train(dataset.normalise(chosen[seed % len(chosen)]).numpy(), seed, folder) for seed in range(SEEDS)]

    draw, tests = np.random.default_rng(0), TESTS[name]
    members = [draw.permutation(np.flatnonzero(dataset.y_test.numpy() == c))[:tests] for c in range(dataset.classes)]
    shown = np.stack(members, 1)  # an image of each class in a row
    rows = [*(x.numpy() for x in chosen), *dataset.x_test.numpy()[shown]]
    picture = BytesIO()
    Image.fromarray(np.concatenate([np.concatenate(list(row[:, 0]), 1) for row in rows])).save(picture, "PNG", optimize=True)
    write_atomic(STATIC / f"live-{name}.png", picture.getvalue())
    line = {"dataset": name, "data_hash": dataset.hash, "classes": dataset.class_names, "key": made.key, "set_hash": made.hash}
    line |= {"random": [record["key"] for record in recorded], "tests": shown.tolist(), "width": WIDTH, "epochs": EPOCHS}
    line |= {"augment": training.augment, "accuracies": {"learned": learned, "random": real}}
    line |= {"seconds": [round(s, 1) for s in seconds], "picture": hashlib.sha256(picture.getvalue()).hexdigest()}
    line |= provenance(started, "cpu", "javascript")
    append_line(Store().root / "live.jsonl", json.dumps(line, sort_keys=True))


if __name__ == "__main__":
    main(sys.argv[1])
