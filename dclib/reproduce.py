"""One call for a notebook: read an experiment's records, or compute what is missing, under the notebook's own parameters.

    table = reproduce("cross_arch", **parameters(globals()))

papermill only warns of a parameter that no cell declares; here every name and every value is checked before anything is done.
"""

import ast
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from . import experiments
from .data.formats import is_npz, no_data
from .data.sources import check_name, data_root, own_place, parted, spelled
from .errors import SpecError, one_of
from .experiments import OPTIONS
from .results import Store
from .results.studied import read

PLAIN = (str, int, float, bool, list, tuple, type(None))
Given = str | int | float | bool | list | tuple | None  # what papermill gives for a parameter, whatever it should be
IPYTHON = {"In", "Out", "exit", "quit", "open", "get_ipython"}  # what IPython itself puts among a notebook's names


def parameters(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return a notebook's parameters: whatever plain data its `globals()` hold so far, papermill's included."""
    own = {name: value for name, value in namespace.items() if not name.startswith("_") and name not in IPYTHON}
    return {name: value for name, value in own.items() if isinstance(value, PLAIN)}


def reproduce(
    name: str,
    *,
    preset: Given = "best",
    recompute: Given = False,
    device: Given = "auto",
    **narrow: Given,
) -> Any:
    """Return what is recorded of an experiment (`results.studied.read`), after computing what is missing unless preset is "best".

    Args:
        name: the experiment.
        preset: "best" computes nothing; smoke, cpu and paper compute and record what is missing.
        recompute: compute everything again, leave the records alone, and print how both compare.
        device: "auto", "cpu", "cuda" …
        narrow: values for the experiment's axes: datasets, ipc, networks, test_networks and variants; datasets and memories for
            continual learning; datasets and space for the search. Text is split at spaces, and at commas where it has no ":"
            and no "=".

    Raises:
        SpecError: an unknown parameter, or a value that its parameter cannot take.
        DataError: a data set cannot be loaded.
        Interrupted: stopped; what is finished is recorded.
    """
    experiment = experiments.find(name)
    options = [option for option, axis in OPTIONS.items() if axis in experiment.narrowed_by]
    names = check_page(*options, preset=preset, recompute=recompute, device=device, **narrow)
    values = narrowed(name, experiment.narrowed_by, **{option: as_list(value) for option, value in narrow.items()})
    look = partial(read, name, preset, **values)
    found = look(store=Store(preset=preset))  # before torch is loaded, so that every wrong name is told at once
    check_records(names, Store())
    if preset == "best":
        return found
    cells, recorded = experiment.cells(experiments.find_preset(preset), **values), Store(preset=preset)
    if not recompute:
        return look(store=_computed(cells, recorded, preset, device))
    with tempfile.TemporaryDirectory() as folder:
        again = _computed(cells, Store(folder), preset, device)
        print(alike(cells, recorded, again))
        return look(store=again)


def narrowed(what: str, axes: Sequence[str], **given: Sequence[Given] | None) -> dict[str, list]:
    """Return the values of the options that are given, by the axes that they narrow; data sets by their full names.

    Args:
        what: the experiment's name.
        axes: those by which it can be narrowed.
        given: a list for each option of `OPTIONS`; None: it is not given.

    Raises:
        SpecError: an option that does not narrow it, or a value that an axis cannot take.
    """
    found = {option: values for option, values in given.items() if values is not None}
    if other := [option for option in found if OPTIONS[option] not in axes]:
        raise SpecError(f"{what} cannot be narrowed by {other[0]}: leave it out")
    read = {"ipc": _whole, "datasets": lambda name: spelled(str(name))}
    return {OPTIONS[o]: [read.get(o, partial(_name, o))(value) for value in values] for o, values in found.items()}


def _computed(cells: Sequence[Any], store: Store, preset: str, device: str) -> Store:
    if store.incomplete(cells):
        from .run.compute import compute

        compute(cells, store, preset, device=device)
    return store


def alike(cells: Sequence[Any], recorded: Store, again: Store) -> str:
    """Say how far accuracies that were computed again agree with those recorded."""
    pairs = []
    for key in dict.fromkeys(run.key for cell in cells for run in cell.runs()):
        old, new = recorded.accuracies(key), again.accuracies(key)
        pairs += [(old[j], new[j]) for j in new if j in old]
    same = sum(abs(a - b) < 1e-3 for a, b in pairs)
    apart = f", the largest difference is {max(abs(a - b) for a, b in pairs):.2f} points" if pairs else ""
    return f"Of {len(pairs)} recorded accuracies computed again {same} are alike{apart}."


def check_page(
    *names: str,
    preset: Given = "best",
    recompute: Given = False,
    device: Given = "auto",
    datasets: Given = None,
    **others: Any,
) -> list[str] | None:
    """Check the parameters of a page that records nothing, and return its data sets by their full names.

    Args:
        names: the page's parameters beside preset, recompute and device.
        preset, recompute, device, datasets, others: what the page was given.

    Raises:
        SpecError: an unknown parameter, or a value that its parameter cannot take.
    """
    for parameter in others:
        one_of("parameter", parameter, ("preset", "recompute", "device", *names))
    given = as_list(datasets)
    check(preset, recompute, device, given or ())
    return in_full(given)


def check(preset: Given, recompute: Given, device: Given, datasets: Iterable[Given]) -> None:
    """Refuse a preset, device or data set that does not exist, without loading torch.

    Raises:
        SpecError, DataError: says which, and lists the valid ones.
    """
    one_of("preset", preset, ("best", *experiments.PRESETS))
    if not isinstance(recompute, bool):
        raise SpecError(f"recompute must be True or False, not {recompute!r}")
    if recompute and preset == "best":
        raise SpecError("preset 'best' computes nothing, so nothing can be recomputed: choose smoke, cpu or paper")
    one_of("device", str(device).partition(":")[0], ("auto", "cpu", "cuda"))
    for dataset in datasets:
        check_dataset(dataset)


def check_dataset(name: Given) -> None:
    """Refuse a data set that is neither known, nor in the data root, nor a path that exists; nothing is loaded.

    Raises:
        DataError: lists those there are, or says what a file is.
    """
    base, _ = parted(spelled(str(name)))
    place = Path(base)
    if place.is_absolute() and place.is_file() and not is_npz(place):
        raise no_data(place)
    if not (place.is_absolute() and place.exists()):
        check_name(base, data_root())


def in_full(datasets: Sequence[Given] | None) -> list[str] | None:
    """The data sets' names, and paths in full, so that they mean the same in any folder; None stays None."""
    return None if datasets is None else [spelled(str(name)) for name in datasets]


def check_records(datasets: Sequence[str] | None, store: Store) -> None:
    """Refuse to show or to add to records of the user's own data that has changed since; known data is not asked for.

    Args:
        datasets: as `in_full` gives them.
        store: where the records are.

    Raises:
        DataError: names the data.
    """
    if own := [name for name in datasets or () if own_place(name)]:
        from .run.loading import check_recorded

        check_recorded(own, store)


def as_list(value: Given) -> list | None:
    """Read a list parameter: None is the whole grid; papermill's -p gives text, also of a list in brackets, or a number."""
    if isinstance(value, str) and (text := value.strip())[:1] + text[-1:] in ("[]", "()"):
        try:
            value = ast.literal_eval(text)  # as Python or JSON write it
        except (ValueError, SyntaxError):
            value = text[1:-1]  # bare words
    if isinstance(value, str):
        return (value if ":" in value or "=" in value else value.replace(",", " ")).split()
    return list(value) if isinstance(value, list | tuple) else value if value is None else [value]


def _name(option: str, value: Given) -> str:
    if not isinstance(value, str | int):
        raise SpecError(f"{option} must be names, and {value!r} is none")
    return str(value)


def _whole(value: Given) -> int:
    if isinstance(value, bool) or not str(value).isdecimal():
        raise SpecError(f"ipc must be a whole number of at least 1, not {value!r}: write it as 1, or as 1,10,50")
    return int(value)
