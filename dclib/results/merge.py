"""What another results folder holds, brought into this one: `dclib merge`, after a run on a borrowed machine.

Records are appended, never changed. Where both folders have the same network the older record counts, as for every reader, and
a different accuracy is told; a set that is here stays. Whatever is merged is whole and written at once, so that a merge that
was stopped, or is repeated, does what is left. What cannot be merged stays where it is and is told.
"""

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..spec.baselines import loss_summary
from ..support.files import write_atomic
from .lines import UNTESTED, checkpoint_about, data_of, in_words, plain, values
from .store import CondensedSet, Store

IDENTITY = ("run", "data", "seed", "engine")  # of a checkpoint, without how far it is
END = {  # what a state that is kept says of the end of its training, as the record does
    "WholeTraining": lambda about: next((round(a, 4) for a in about.get("epoch_accuracies", [])[-1:]), None),
    "TrainGan": lambda about: loss_summary(about.get("losses", [])),
}


@dataclass
class Merged:
    """What became of it all.

    Args:
        networks, sets, checkpoints: how many are new here.
        alike: how many records were here already.
        differences: a sentence for each thing that is not the same in both folders.
        refused: a sentence for each thing that is damaged, or must not be mixed with what is here.
    """

    networks: int = 0
    sets: int = 0
    checkpoints: int = 0
    alike: int = 0
    differences: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def sentence(self) -> str:
        """The counts in words."""
        counts = {"network": self.networks, "set": self.sets, "checkpoint": self.checkpoints}
        new = [f"{n} {what}{'' if n == 1 else 's'}" for what, n in counts.items()]
        return f"{new[0]}, {new[1]} and {new[2]} are new; {self.alike} {'was' if self.alike == 1 else 'were'} here already"


def merge_into(store: Store, folders: Sequence[Path | str]) -> Merged:
    """Bring the records of these folders into a store, with their sets, and the checkpoints of what is not finished here.

    Raises:
        FileError: a folder holds no results, is the store's own or has a line that is no record, and then nothing is merged;
            or the store cannot be written.
    """
    sources, merged = [_source(Path(folder), store) for folder in folders], Merged()
    store.refresh()
    for source in sources:
        _Merge(store, source, merged).all()
    return merged


def _source(folder: Path, store: Store) -> Store:
    if not folder.is_dir():
        raise FileError(f"there is no folder {folder} to merge")
    if folder.resolve() == store.root.resolve():
        raise FileError(f"{folder} is the results folder itself: name another to merge into it")
    found = Store(folder)
    if not found.records and not _states(found):
        raise FileError(f"{folder} holds no results: name the folder that `dclib run --results` filled, not one of its presets")
    return found


def _states(store: Store) -> list[Path]:
    """The checkpoints, and the states of trainings on the whole set, done or not."""
    return [path for folder in ("checkpoints", "whole") for path in sorted(store.root.glob(f"*/{folder}/*.safetensors"))]


@dataclass
class _Merge:
    """One folder, the source, into another, the store."""

    store: Store
    source: Store
    merged: Merged

    def all(self) -> None:
        records = [record for records in self.source.records.values() for record in records]
        foreign = [record for record in records if self._is_foreign(record)]  # before any of them is here
        for name, count in sorted(Counter(data_of(record).title for record in foreign).items()):
            self.merged.refused.append(f"{name} in {self.source.root} is other data than here: its records ({count}) are left out")
        records = [record for record in records if record not in foreign]
        recorded = self.store.records.keys() | {record["key"] for record in records}
        for path in sorted(self.source.root.glob("*/sets/*.safetensors")):
            if self.store.find_set(path.stem) is None:
                self._set_file(path, recorded)
        for record in records:
            self._record(record)
        for path in _states(self.source):
            self._state(path)

    def _is_foreign(self, record: dict[str, Any]) -> bool:
        """Whether it was measured on other data that goes by the same name."""
        found = record.get("data_hash")
        return found is not None and found not in self.store.data.get(data_of(record), {found})

    def _set_file(self, path: Path, recorded: Set[str]) -> None:
        """Bring a set that has no file here, if it is recorded, there or here."""
        key = path.stem
        if key not in recorded:
            if key not in self.source.records:
                self.merged.differences.append(f"{path} is left out: its run is not recorded")
            return
        try:
            found = CondensedSet.load(path)
        except FileError:
            self.merged.refused.append(f"{path} is a damaged set and is left out: fetch it again, or make it again there")
            return
        there, here = ([r.get("set_hash", found.hash) for r in store.records.get(key, [])] for store in (self.source, self.store))
        if found.key != key or found.hash not in (there or here):
            self.merged.refused.append(f"{path} is not the set that its record names and is left out")
        elif not here or found.hash in here:
            write_atomic(self.store.set_path(path.parent.parent.name, key), path.read_bytes())

    def _record(self, record: dict[str, Any]) -> None:
        """Bring a record that has a network, a set or a GAN that is not here, or the older of two that differ."""
        known, found = self.store.records.get(record["key"], []), values(record)
        if plain(record) in map(plain, known):
            self.merged.alike += len(found)
            return
        held = {n: other for other in reversed(known) for n in values(other)}  # the oldest of each
        new = found.keys() - held.keys()
        path = self.store.find_set(record["key"]) if new else None
        if path and CondensedSet.load(path).hash != record.get("set_hash"):  # a file that no record names
            self._stays(record)
            new = set()
        older = [self._is_older(record, held[n], n) for n in found if n in held]
        if new or any(older):
            self.store.add(record["preset"], plain(record))
            if record["kind"] == "MakeSet":
                self.merged.sets += len(new)
            else:
                self.merged.networks += len(new)

    def _is_older(self, theirs: dict[str, Any], ours: dict[str, Any], network: str) -> bool:
        """True if theirs is older and the accuracy differs."""
        here, there = (values(record)[network] for record in (ours, theirs))
        if here == there or None in (here, there):
            self.merged.alike += 1
            return False
        if theirs["kind"] in UNTESTED:
            self._stays(theirs)
            return False
        older, where = theirs.get("started", "") < ours.get("started", ""), self.source.root
        counts = f"the older counts, that {f'in {where}' if older else 'here'}"
        said = f"{_words(theirs)}, network {network}: {here:g} % here and {there:g} % in {where}; {counts}"
        self.merged.differences.append(said)
        return older

    def _stays(self, theirs: dict[str, Any]) -> None:
        self.merged.differences.append(f"{_words(theirs)}: what is here differs from that in {self.source.root} and stays")

    def _state(self, path: Path) -> None:
        """Bring a checkpoint of what is not finished here, or of a training on the whole set, if it is further than ours."""
        key, preset = path.stem, path.parent.parent.name
        if whole := path.parent.name == "whole":  # sets are chosen with it when it is finished, too
            place = self.store.whole_path(preset, key)
        elif key in self.store.records or self.store.find_set(key) is not None:
            return
        else:
            place = self.store.checkpoint_path(preset, key)
        theirs, ours = checkpoint_about(path), checkpoint_about(place)
        recorded = self.store.records.get(key, ()) if whole else ()
        if theirs is None:
            self.merged.refused.append(f"{path} is a damaged checkpoint and is left out: fetch it again")
        elif ours is not None and any(theirs.get(name) != ours.get(name) for name in IDENTITY):
            self.merged.differences.append(f"{path} is left out: the checkpoint here was begun with another engine or other data")
        elif ours is not None and theirs["k"] <= ours["k"]:
            return
        elif recorded and END[recorded[0]["kind"]](theirs) != values(recorded[0])["0"]:
            self.merged.differences.append(f"{path} is left out: it is not the state of the training that is recorded here")
        else:
            write_atomic(place, path.read_bytes())
            self.merged.checkpoints += 1


def _words(record: dict[str, Any]) -> str:
    try:
        return in_words(record)
    except (KeyError, TypeError):
        return f"run {record['key']}"
