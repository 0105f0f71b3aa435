"""Every table and figure of the paper, declared once.

An experiment is a grid of cells. A preset (see `presets`) spells out each cell's runs with every hyper-parameter; the
key of a run is a hash of that, without the preset's name, so that one condensed set serves every table that needs it. The
notebooks, `dclib run`, `dclib status`, the tests and the book's map all read `ALL`.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import SpecError, one_of
from ..spec import FAMILIES, GUIDED, Condensation, Network, variants
from . import ablations, dd
from .ablations import FOUR, SIX
from .presets import AXES, BEST, CPU, GAN, INSTEAD, ORS, PAPER, PRESETS, RANDOM, REAL, SMOKE, WHOLE, Cell, Preset

__all__ = [
    "ALL",
    "AXES",
    "BEST",
    "CORESETS",
    "CPU",
    "CROSS_ARCH",
    "DISTILLATION",
    "GAN",
    "IMAGES_PER_CLASS",
    "INSTEAD",
    "METHOD",
    "MORE_BASELINES",
    "ORS",
    "PAPER",
    "PRESETS",
    "RANDOM",
    "REAL",
    "SIX",
    "SMOKE",
    "WHOLE",
    "Cell",
    "Experiment",
    "Preset",
    "find",
    "find_preset",
]


@dataclass(frozen=True)
class Experiment:
    """One table or figure: its grid, and the paper's place and question.

    Args:
        name: of the experiment and of its notebook.
        label: the paper's label.
        question: one sentence: what is asked.
        grid: for each axis in `AXES`, the values of the paper's table; `network` makes the set (or is one of `INSTEAD`: real
            images, or another method's, in place of condensed ones), `test_network` is trained on it,
            `variant` changes hyper-parameters (by default none).
        diagonal: train only the network that made the set.
        belongs: which points of the grid are cells, by their coordinates; by default all.
        repeats: for a preset, the number of sets and of networks trained on each, or these from some number of images per class
            on; by default the preset's.
        budgets: for a preset, hyper-parameters in place of its own, as a variant, or these from some number of images per class on.
        more: further grids, each told by the axes on which it differs from `grid`, where that has not been narrowed away.
        epochs: for a preset, E of stage T in place of its own; 0: 300, or 1000 with augmentation.
        held_out: so many training images are kept out of every set and tested on in place of the test images.
    """

    name: str
    label: str
    question: str
    grid: dict[str, tuple]
    diagonal: bool = False
    repeats: dict[str, tuple[int, int] | dict[int, tuple[int, int]]] = field(default_factory=dict)
    budgets: dict[str, str | dict[int, str]] = field(default_factory=dict)
    more: tuple[dict[str, tuple], ...] = ()
    held_out: int = 0
    epochs: dict[str, int] = field(default_factory=dict)
    belongs: Callable[[dict[str, Any]], bool] = lambda place: True

    def cells(self, preset: Preset, **narrow: Sequence | int | None) -> list[Cell]:
        """Return the cells at a preset, over the whole grid or narrowed to the values given for an axis (None: its grid).

        Raises:
            SpecError: an axis that the experiment lacks, an empty list, or values that no cell has together.
        """
        fixed = dict(preset.grid.get(self.name, {}))
        for axis, values in narrow.items():
            one_of(f"axis of {self.name}", axis, AXES)
            if values is not None:
                fixed[axis] = _checked_axis(axis, values)
        axes = {"variant": ("",), **self.grid, **fixed}
        points = [dict(zip(AXES, point, strict=True)) for point in self._points(axes, fixed)]
        if self.diagonal:
            points = [p for p in points if p["test_network"] == p["network"] or p["network"] in INSTEAD]
        points = [p for p in points if p["network"] != WHOLE or p["ipc"] == axes["ipc"][0]]  # the same at any
        points = [p for p in points if p["network"] not in INSTEAD or p["variant"] == axes["variant"][0]]  # likewise
        points = list(filter(self.belongs, points))
        if not points:
            given = ", ".join(f"{axis} {' '.join(map(str, axes[axis]))}" for axis, values in narrow.items() if values is not None)
            raise SpecError(f"no cell of {self.name} has {given} together: give fewer of them, or others")
        return [self.cell(preset, **p) for p in points]

    def _points(self, axes: dict[str, tuple], fixed: dict[str, tuple]) -> list[tuple]:
        """The points of the grid, then those of the further grids that are within what is fixed, each once."""
        grids = [axes]
        for other in self.more:
            left = {axis: tuple(v for v in values if v in fixed.get(axis, values)) for axis, values in other.items()}
            grids.append({**axes, **left})
        return list(dict.fromkeys(p for grid in grids for p in itertools.product(*(grid[axis] for axis in AXES))))

    def cell(self, preset: Preset, **place: Any) -> Cell:
        """Return the cell at a place, spelled out at a preset, whether or not the preset's grid has it."""
        repeats = _from_on(self.repeats.get(preset.name, (preset.sets, preset.networks)), place["ipc"])
        budget = _from_on(self.budgets.get(preset.name, ""), place["ipc"])
        held_out = min(self.held_out, 300) if place["dataset"] == "digits" else self.held_out
        sets = preset.sets_of(place["network"], place["dataset"]) or repeats[0]
        networks = 1 if place["network"] in ORS else repeats[1]
        changed = dict(budget=budget, held_out=held_out, epochs=self.epochs.get(preset.name))
        return Cell(**place, preset=preset, sets=sets, networks=networks, **changed)


def _from_on(value: Any, ipc: int) -> Any:
    """What holds at so many images per class, where a dictionary gives values from some number on."""
    return value[max(n for n in value if n <= ipc)] if isinstance(value, dict) else value


def _checked_axis(axis: str, values: Any) -> tuple:
    values = (values,) if isinstance(values, str | int) else tuple(values)
    if not values:
        raise SpecError(f"the list for {axis} is empty: give at least one value")
    if axis == "ipc":
        for value in values:
            Condensation(ipc=value)
    if axis in ("network", "test_network"):
        values = tuple(_checked_network(v, INSTEAD if axis == "network" else ()) for v in values)
    if axis == "variant":
        values = tuple(map(variants.canonical, values))
    return values


def _checked_network(value: Any, instead: Sequence[str]) -> str:
    one_of("network", str(value).partition(":")[0], (*FAMILIES, *instead))
    return value if value in instead else str(Network.parse(value))


METHOD = Experiment(
    "method",
    "Sec. 2, Alg. 1",
    "How well does one learned image for each class train a network, against the paper's figure?",
    dict(dataset=("mnist", "fashionmnist"), ipc=(1,), network=("ConvNet",), test_network=("ConvNet",)),
)
CROSS_ARCH = Experiment(
    "cross_arch",
    "Table 2",
    "Do images condensed with one network train another?",
    dict(dataset=("mnist",), ipc=(1,), network=SIX, test_network=SIX),
    repeats={"cpu": (1, 2), "smoke": (2, 2)},
)
FEWER = {1: (2, 3), 10: (1, 3)}  # sets × networks at `cpu`
CORESETS = Experiment(
    "coresets",
    "Table 1",
    "Do condensed images train a network better than as many chosen real ones, and how far from the whole set?",
    dict(dataset=FOUR, ipc=(1, 10, 50), network=(RANDOM, *GUIDED, "ConvNet", WHOLE), test_network=("ConvNet",)),
    diagonal=True,
    repeats={"cpu": FEWER},
)
IMAGES_PER_CLASS = Experiment(
    "images_per_class",
    "Fig. 3",
    "How does the accuracy grow with the number of images per class, and how near does it come to the whole set's?",
    dict(dataset=FOUR, ipc=(1, 10, 20, 30, 40, 50), network=("herding", "ConvNet", WHOLE), test_network=("ConvNet",)),
    diagonal=True,
    repeats={"cpu": FEWER},
)
CONDENSED_IMAGES = Experiment(
    "condensed_images",
    "Figs. 2, F3",
    "What do the condensed images look like?",
    dict(dataset=FOUR, ipc=(1, 10), network=("ConvNet",), test_network=("ConvNet",)),
    repeats={"cpu": (1, 1), "paper": (1, 1)},
)
MORE_BASELINES = Experiment(
    "more_baselines",
    "Table T8",
    "Do condensed images beat the best of many random choices, and those that a GAN draws?",
    dict(dataset=FOUR, ipc=(1, 10), network=(*ORS, GAN, "ConvNet"), test_network=("ConvNet",)),
    diagonal=True,
    repeats={"cpu": FEWER},
)
CIFAR100 = Experiment(
    "cifar100",
    "Table T9",
    "Do condensed images still beat chosen real ones when there are a hundred classes?",
    dict(dataset=("cifar100",), ipc=(1, 10), network=(RANDOM, *GUIDED, "ConvNet", WHOLE), test_network=("ConvNet",)),
    diagonal=True,
    repeats={"cpu": FEWER},
)
DISTILLATION = Experiment(
    "distillation",
    "Tables 3, T10, T11, Fig. F4",
    "Do condensed images train networks better than those of Dataset Distillation, also networks that learned neither?",
    dict(
        dataset=("mnist", "cifar10"),
        ipc=(1, 10),
        network=(RANDOM, *dd.DD, *dd.LEARNERS, WHOLE),
        test_network=(*SIX, "AlexCifarNet"),
    ),
    repeats={"cpu": (2, 5)},
    belongs=dd.belongs,
)
DECLARED = (METHOD, CORESETS, CONDENSED_IMAGES, CROSS_ARCH, IMAGES_PER_CLASS, DISTILLATION, MORE_BASELINES, CIFAR100)
DECLARED += tuple(Experiment(**declared) for declared in ablations.DECLARED)
ALL = {experiment.name: experiment for experiment in DECLARED}


def find(name: str) -> Experiment:
    """Return the experiment of that name.

    Raises:
        SpecError: there is none.
    """
    return ALL[one_of("experiment", name, ALL)]


def find_preset(name: str) -> Preset:
    """Return the preset of that name ("best" is none: it only reads).

    Raises:
        SpecError: there is none.
    """
    return PRESETS[one_of("preset", name, PRESETS)]
