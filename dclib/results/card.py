"""The card of a set that is published as a data set of its own: README.md, with a head in YAML that the common hubs read."""

import json
import os
import shlex
from pathlib import Path
from typing import Any

from ..spec import Condensation, full

SIZES = {1_000: "n<1K", 10_000: "1K<n<10K", 100_000: "10K<n<100K"}  # the hubs' names for a number of images
LICENCES = {  # of the source data: the hubs' name, and who says so
    "digits": ("cc-by-4.0", "CC BY 4.0, as the UCI repository gives it (Optical Recognition of Handwritten Digits)"),
    "mnist": ("cc-by-sa-3.0", "CC BY-SA 3.0, as the Keras documentation gives it; Y. LeCun and C. Cortes hold the copyright"),
    "fashionmnist": ("mit", "MIT, as its repository gives it; Zalando SE holds the copyright"),
    "svhn": ("other", "for non-commercial use only, as its page says"),
    "svhn10k": ("other", "for non-commercial use only, as SVHN's page says"),
}
UNKNOWN = "unknown", "not known here: look at the page of the data"
CARD = """---
license: {licence}
task_categories:
- image-classification
size_categories:
- {size}
pretty_name: {title}
tags:
- dataset-condensation
- dataset-distillation
configs:
- config_name: default
  data_files:
{files}
---

# {heading}

{count} small images that stand for a whole data set: a network trained on them approaches one trained on all of it. The method is
*Dataset Condensation with Gradient Matching* (Zhao, Mopuri and Bilen, ICLR 2021), or one that it is compared with.

- Source data: {source}
- Made by: {made}
- Images: {count} of {classes} classes, {channels} × {height} × {width}, {per_class} of the largest class
- Normalisation: the images were learned, or are used, standardised by the mean {mean} and the standard deviation {std} of pixels in
  [0, 1]; test images must be, too
- Licence of the source data: {terms}

`train/` has a folder for each class, whose name begins with the class's number. The pixels are 8-bit; {clamped:.1f} % of the values
lay outside of the data's colours and are clamped.
"""


def card(made: Any, tested: bool, clamped: float) -> str:
    """Return the card of a set.

    Args:
        made: a `CondensedSet`, enlarged.
        tested: whether there are test images beside it.
        clamped: the share of its values that are clamped, in percent.
    """
    licence, terms = LICENCES.get(made.source, UNKNOWN)
    count, channels, height, width = made.images.shape
    title = f"{made.dataset}: {count} images ({made.about.get('method', 'a small set')})"
    splits = ("train", "test") if tested else ("train",)
    size = next((name for most, name in SIZES.items() if count < most), "100K<n<1M")
    mean, std = (", ".join(f"{value:.4g}" for value in values) for values in (made.mean, made.std))
    return CARD.format(
        licence=licence, size=size, title=json.dumps(title, ensure_ascii=False), heading=title, terms=terms,
        files="\n".join(f"  - split: {split}\n    path: {split}/**" for split in splits), count=count,
        source=_name(made.source) or made.dataset, made=f"`{line}`" if (line := command(made)) else "a program of its author's",
        classes=len(made.class_names), channels=channels, height=height, width=width, per_class=made.ipc,
        mean=mean, std=std, clamped=clamped,
    )  # fmt: skip


def command(made: Any) -> str:
    """The command that makes a set again, without the file to write; empty where there is none."""
    about = made.about
    if "imported" in about:
        return shlex.join(["dclib", "import", about["imported"]["from"], "--dataset", _name(made.source)])
    if not {"method", "hyper"} <= about.keys() or not made.source or about.get("held_out") or about.get("channels"):
        return ""
    chosen = about["method"] in ("random", "herding", "k-center", "forgetting")
    if not chosen and about["method"] != "condense":
        return ""
    options = {"image_size": about.get("image_size", 0), "seed": about.get("seed", 0)}
    if chosen:
        guide = about.get("whole") or {}
        options |= {"method": about["method"], "ipc": about["hyper"]["ipc"]}
        options |= {"epochs": guide.get("epochs", 0), "network": guide.get("network", "")}
    else:
        usual = full(Condensation())
        options |= {name: value for name, value in about["hyper"].items() if value != usual.get(name)}
        options["storage"] = about.get("storage", "").replace("float32", "")
    words = [word for name, value in options.items() if value for word in (f"--{name.replace('_', '-')}", str(value))]
    return shlex.join(["dclib", "select" if chosen else "condense", _name(made.source), *words])


def _name(source: str) -> str:
    """A data set's name; of a path, which is another on each machine, the last part."""
    return Path(source).name if os.path.isabs(source) else source
