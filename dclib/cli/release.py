"""`make release`: every set that `results/` keeps at the presets of the book, in one archive with pictures, checksums and a card.

Made twice, the archive has the same bytes. Its card says which run made each set, whose data it was made from, how well networks
train on it, and how to read it without dclib.
"""

import hashlib
import io
import re
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..experiments import BEST
from ..report.figures import image_grid
from ..results import CondensedSet, Store
from ..results.lines import in_words, machine_of
from ..results.outcomes import title
from ..spec import outdated
from ..spec.keys import acting
from ..support.console import guarded, summary
from ..support.files import write_atomic

FOLDER = Path("_build/release")
WHEN = (1980, 1, 1, 0, 0, 0)  # of every file in the archive
UNKNOWN = "not known to us: ask those who made the data."
TERMS = {  # what is known of each data set's terms
    "mnist": "made by Yann LeCun, Corinna Cortes and Christopher Burges from databases of NIST. We know of no licence that they "
    "state; the documentation of Keras says that LeCun and Cortes hold the copyright and that the terms are CC BY-SA 3.0.",
    "fashionmnist": "made by Zalando SE (Xiao, Rasul and Vollgraf); MIT licence.",
    "svhn": "made by Netzer and others at Stanford from Google Street View; its page says: for non-commercial use only.",
    "cifar10": "made by Krizhevsky, Nair and Hinton from 80 Million Tiny Images, which its makers have withdrawn. Its page asks "
    "for a citation of Krizhevsky's report of 2009; a licence is not known to us.",
    "usps": "digits from envelopes of the U.S. Postal Service (Hull, 1994); a licence is not known to us.",
}
TERMS |= {"cifar100": TERMS["cifar10"], "svhn10k": f"a part of SVHN, {TERMS['svhn']}"}
CARD = """# Condensed sets of dclib {version}

{count}, learned by or drawn with dclib, a re-implementation of *Dataset Condensation with Gradient Matching* (Zhao, Mopuri and
Bilen, ICLR 2021) that is not the authors'. Each is a `.safetensors` file with a picture beside it, a row for each class. All that
is said here was taken from dclib's records; `sha256sum -c SHA256SUMS` checks the files.

## Reading a set without dclib

```python
import json
from safetensors import safe_open

with safe_open("{example}", "np") as file:
    images, labels = file.get_tensor("images"), file.get_tensor("labels")
    about = json.loads(file.metadata()["dclib"])
```

`images` is float32 (n, channels, height, width), normalised for each channel: `images * about["std"] + about["mean"]`, with both
shaped (channels, 1, 1), are pixels in [0, 1], up to values that leave that range. `labels` is int64 (n,), an index into
`about["class_names"]`; `about["about"]` is the spelled-out run, with the options that
cannot act on it, too. A set of Dataset Distillation also has `order` and `rates`: the images that each step of training is to
see, and its learning rate.

## Whose data

The images were learned or drawn from the data sets below. dclib's MIT licence covers its code. We claim nothing on the images;
whether they may be passed on is for the owners of the data to say, and whether learned images count as copies is not settled.

{terms}

## The sets

Accuracies are in percent on the test images of the data set: the mean ± the standard deviation of the population over the
networks trained, and each of them.

{sets}
"""


def sets(store: Store) -> dict[str, tuple[Path, CondensedSet, dict[str, Any]]]:
    """Every set that is kept at the presets of the book, with its file and its record, by its name in the archive, in order.

    Raises:
        FileError: there is none, or one is damaged, not recorded, or another than its record says.
    """
    found = {}
    for path in (path for preset in BEST for path in store.root.glob(f"{preset.name}/sets/*.safetensors")):
        made, preset = CondensedSet.load(path), path.parent.parent.name
        record = next((r for r in store.records.get(made.key, []) if r["kind"] == "MakeSet"), None)
        if record is None or path.stem != made.key:
            raise FileError(f"{path} is the set of no recorded run: record it with `dclib run`, or delete it")
        if record.get("set_hash", made.hash) != made.hash:
            raise FileError(f"{path} is not the recorded set: fetch it again, or delete it and its record and make it again")
        run = record["run"]
        how = (run.get("distillation") or run["hyper"])["network"] if run["method"] != "gan" else "gan"
        words = [run["dataset"], f"{run['hyper']['ipc']}-per-class", *([] if run["method"] == "condense" else [run["method"]]), how]
        name = re.sub(r"[^\w.=-]+", "_", "-".join([*words, f"seed-{run['seed']}", made.key]))
        found[f"{preset}/{name}"] = path, made, record
    if not found:
        raise FileError(f"{store.root} keeps no sets at {' or '.join(p.name for p in BEST)}: make some with `dclib run`")
    return dict(sorted(found.items()))


def section(name: str, made: CondensedSet, record: dict[str, Any], store: Store) -> str:
    """What the card says of a set."""
    shown, r = acting(record["run"]), record
    hyper = shown.get("distillation") or shown.get("gan") or shown["hyper"]
    versions = ", ".join(f"{package} {number}" for package, number in sorted(r.get("versions", {}).items()))
    commit = f"commit {r.get('commit', 'unknown')}{', with changes not committed' if r.get('dirty') else ''}"
    preset = name.partition("/")[0]
    lines = [
        f"### {in_words(record)}\n",
        f"- files: `{name}.safetensors`, `{name}.png`; {len(made.labels)} images, hash {made.hash}",
        f"- run: key {r['key']}, preset {preset}, started {r['started']}, {r['seconds']:,.0f} s with engine {r['engine']}",
        f"- where: {machine_of(r)}; {commit}; {versions}",
        f"- data: {title(record['run']['dataset'])}, hash {r.get('data_hash', 'not recorded')}",
        f"- hyper-parameters: {_spelled(hyper)}",
    ]
    trained = []
    for key, records in store.records.items():
        of_networks = records[0]["kind"] == "TrainNetworks" and records[0].get("set_hash") == made.hash
        if of_networks and not outdated(records[0]["run"]):
            accuracies = [accuracy for _, accuracy in sorted(store.accuracies(key).items())]
            trained.append(f"- accuracy: {_network(records[0]['run'])}: {summary(accuracies)}")
    return "\n".join([*lines, *(sorted(trained) or ["- accuracy: not recorded"])])


def _spelled(hyper: dict[str, Any]) -> str:
    """Hyper-parameters as text; nested ones in brackets."""
    return ", ".join(f"{n} ({_spelled(v)})" if isinstance(v, dict) else f"{n} {v}" for n, v in sorted(hyper.items()))


def _network(run: dict[str, Any]) -> str:
    """How networks were trained on a set."""
    if run.get("way", "plain") == "rates":
        return f"{run['hyper']['network']} by the set's own steps"
    return "{network}, {0} epochs, augmentation {augment}".format(run["hyper"]["epochs"] + 1, **run["hyper"])


def card(store: Store) -> str:
    """The card, in Markdown."""
    found = sets(store)
    datasets = sorted({record["run"]["dataset"] for _, _, record in found.values()})
    return CARD.format(
        version=version("dclib"),
        count=f"{len(found)} small sets of images" if len(found) > 1 else "One small set of images",
        example=f"{next(iter(found))}.safetensors",
        terms="\n".join(f"- **{title(name)}**: {TERMS.get(name, UNKNOWN)}" for name in datasets),
        sets="\n\n".join(section(name, made, record, store) for name, (_, made, record) in found.items()),
    )


def release(store: Store, folder: Path | str = FOLDER) -> Path:
    """Write the archive and return its path.

    Raises:
        FileError: there is no set, one is not as recorded, or the folder cannot be written.
    """
    content = {"CARD.md": card(store).encode()}
    for name, (path, made, _) in sets(store).items():
        content |= {f"{name}.safetensors": path.read_bytes(), f"{name}.png": image_grid(made).render("png")}
    sums = "".join(f"{hashlib.sha256(content[name]).hexdigest()}  {name}\n" for name in sorted(content))
    content["SHA256SUMS"] = sums.encode()
    name, buffer = f"dclib-sets-{version('dclib')}", io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:  # compressed bytes may depend on zlib's version
        for file in sorted(content):
            info = zipfile.ZipInfo(f"{name}/{file}", WHEN)
            info.create_system, info.external_attr = 3, 0o100644 << 16  # as on Unix, wherever it is made
            archive.writestr(info, content[file])
    path = Path(folder) / f"{name}.zip"
    write_atomic(path, buffer.getvalue())
    return path


def main() -> int:
    """Make the archive of the records here and say where it is."""
    return guarded(lambda: print(release(Store())))


if __name__ == "__main__":
    sys.exit(main())
