"""`make release`: every set that `results/` keeps at the presets of the book, in one archive with pictures, sums and a card.

The archive depends on the records and sets alone: made twice it has the same bytes. The card says of each set which run made it,
with which hyper-parameters, by what code and where, and how well networks train on it; whose data it was made from; and how to
read it without dclib.
"""

import hashlib
import io
import re
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..experiments import BEST
from ..report.figures import image_grid
from ..results import CondensedSet, Store
from ..results.outcomes import title
from ..results.records import in_words, machine_of
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


@dataclass(frozen=True)
class Entry:
    """A set of the archive.

    Args:
        name: of its files, without their ending.
        preset: the folder of its record.
        made: the set.
        content: its file.
        record: of the run that made it.
        trained: the records of networks trained on it, by the run's key.
    """

    name: str
    preset: str
    made: CondensedSet
    content: bytes
    record: dict[str, Any]
    trained: dict[str, list[dict[str, Any]]]

    @property
    def dataset(self) -> str:
        """The name of the data set."""
        return str(self.record["run"]["dataset"])

    def card(self, store: Store) -> str:
        """What the card says of it."""
        r, run = self.record, self.record["run"]
        shown = acting(run)
        hyper = shown.get("distillation") or shown.get("gan") or shown["hyper"]
        versions = ", ".join(f"{name} {number}" for name, number in sorted(r.get("versions", {}).items()))
        commit = f"commit {r.get('commit', 'unknown')}{', with changes not committed' if r.get('dirty') else ''}"
        lines = [
            f"### {in_words(r)}\n",
            f"- files: `{self.name}.safetensors`, `{self.name}.png`; {len(self.made.labels)} images, hash {self.made.hash}",
            f"- run: key {r['key']}, preset {self.preset}, started {r['started']}, {r['seconds']:,.0f} s with engine {r['engine']}",
            f"- where: {machine_of(r)}; {commit}; {versions}",
            f"- data: {title(self.dataset)}, hash {r.get('data_hash', 'not recorded')}",
            f"- hyper-parameters: {_spelled(hyper)}",
        ]
        for key, records in sorted(self.trained.items(), key=_by_network):
            lines.append(f"- accuracy: {_network(records[0])}: {_accuracies(store, key)}")
        return "\n".join(lines if self.trained else [*lines, "- accuracy: not recorded"])


def _spelled(hyper: dict[str, Any]) -> str:
    """Hyper-parameters as text; those of what lies deeper in brackets."""
    return ", ".join(f"{n} ({_spelled(v)})" if isinstance(v, dict) else f"{n} {v}" for n, v in sorted(hyper.items()))


def _network(record: dict[str, Any]) -> str:
    """How networks were trained on a set."""
    run, hyper = record["run"], record["run"]["hyper"]
    if run.get("way", "plain") == "rates":
        return f"{hyper['network']} by the set's own steps"
    return f"{hyper['network']}, {hyper['epochs'] + 1} epochs, augmentation {hyper['augment']}"


def _by_network(item: tuple[str, list[dict[str, Any]]]) -> tuple[str, str]:
    return _network(item[1][0]), item[0]


def _accuracies(store: Store, key: str) -> str:
    found = store.accuracies(key)
    return summary([found[j] for j in sorted(found)])


def entries(store: Store) -> list[Entry]:
    """Every set that is kept at the presets of the book, in the order of their names.

    Raises:
        FileError: there is none, or one is damaged, not recorded, or another than its record says.
    """
    paths = [path for preset in BEST for path in sorted(store.root.glob(f"{preset.name}/sets/*.safetensors"))]
    if not paths:
        raise FileError(f"{store.root} keeps no sets at {' or '.join(p.name for p in BEST)}: make some with `dclib run`")
    return sorted((_entry(store, path) for path in paths), key=lambda entry: entry.name)


def _entry(store: Store, path: Path) -> Entry:
    made, preset = CondensedSet.load(path), path.parent.parent.name
    record = next((r for r in store.records.get(made.key, []) if r["kind"] == "MakeSet"), None)
    if record is None or path.stem != made.key:
        raise FileError(f"{path} is the set of no recorded run: record it with `dclib run`, or delete it")
    if record.get("set_hash", made.hash) != made.hash:
        raise FileError(f"{path} is not the set that is recorded: fetch it again, or delete it and its record and make it again")
    of_networks = (records for records in store.records.values() if records[0]["kind"] == "TrainNetworks")
    found = (records for records in of_networks if not outdated(records[0]["run"]))
    trained = {rs[0]["key"]: rs for rs in found if rs[0].get("set_hash") == made.hash}
    run = record["run"]
    how = (run.get("distillation") or run["hyper"])["network"] if run["method"] != "gan" else "gan"
    words = [run["dataset"], f"{run['hyper']['ipc']}-per-class", *([] if run["method"] == "condense" else [run["method"]]), how]
    words += [f"seed-{run['seed']}", made.key]
    return Entry(f"{preset}/" + re.sub(r"[^\w.=-]+", "_", "-".join(words)), preset, made, path.read_bytes(), record, trained)


def card(found: Sequence[Entry], store: Store) -> str:
    """The card, in Markdown."""
    datasets = sorted({entry.dataset for entry in found})
    return CARD.format(
        version=version("dclib"),
        count=f"{len(found)} small sets of images" if len(found) > 1 else "One small set of images",
        example=f"{found[0].name}.safetensors",
        terms="\n".join(f"- **{title(name)}**: {TERMS.get(name, UNKNOWN)}" for name in datasets),
        sets="\n\n".join(entry.card(store) for entry in found),
    )


def files(store: Store) -> dict[str, bytes]:
    """All files of the archive, by name, in order."""
    found = entries(store)
    content = {f"{entry.name}.safetensors": entry.content for entry in found}
    content |= {f"{entry.name}.png": image_grid(entry.made).render("png") for entry in found}
    content["CARD.md"] = card(found, store).encode()
    sums = "".join(f"{hashlib.sha256(content[name]).hexdigest()}  {name}\n" for name in sorted(content))
    return dict(sorted({**content, "SHA256SUMS": sums.encode()}.items()))


def release(store: Store, folder: Path | str = FOLDER) -> Path:
    """Write the archive and return its path.

    Raises:
        FileError: there is no set, one is not as recorded, or the folder cannot be written.
    """
    name, buffer = f"dclib-sets-{version('dclib')}", io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:  # compressed bytes may depend on zlib's version
        for file, content in files(store).items():
            info = zipfile.ZipInfo(f"{name}/{file}", WHEN)
            info.create_system, info.external_attr = 3, 0o100644 << 16  # as on Unix, wherever it is made
            archive.writestr(info, content)
    path = Path(folder) / f"{name}.zip"
    write_atomic(path, buffer.getvalue())
    return path


def main() -> int:
    """Make the archive of the records here and say where it is."""
    return guarded(lambda: print(release(Store())))


if __name__ == "__main__":
    sys.exit(main())
