"""What an experiment is: a table or figure of the paper, the cells that it has, and the runs behind each cell.

All experiments answer `cells`. Their cells answer `place`, `datasets`, `runs`, `cost` and `together`, and nothing else is asked
of them when runs are done, counted or told.

In place of the network that condenses, a cell may name any other method of `spec.methods`; Dataset Distillation in one of two
ways; the best of many random draws; or all real images.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import SpecError, one_of
from ..spec import FAMILIES, GUIDED, Condensation, MakeSet, Network, TrainNetworks, WholeTraining, variants
from ..spec.baselines import TrainGan
from ..spec.methods import METHODS
from . import dd
from .dd import DD

if TYPE_CHECKING:
    from .applications import Line
    from .presets import Preset

OPTIONS = {  # by which a notebook and the command narrow an experiment, and their axes
    "datasets": "dataset",
    "ipc": "ipc",
    "networks": "network",
    "test_networks": "test_network",
    "variants": "variant",
    "memories": "memory",
    "space": "space",
}
AXES = ("dataset", "ipc", "network", "test_network", "variant")
RANDOM = "random"  # real images chosen at random, the row to beat
WHOLE = "whole"  # the whole training set
ORS = {"ors": 1.0, "ors-tenth": 0.1, "ors-hundredth": 0.01}  # optimal random selection: the share of the best sets that counts
REAL = (RANDOM, *GUIDED, WHOLE, *ORS)
GAN = "gan"  # images drawn by a conditional GAN
# what may stand in place of a network
INSTEAD = tuple(name for name in dict.fromkeys((*REAL, GAN, *DD, *METHODS)) if name != "condense")
COST = {"MLP": 0.001, "LeNet": 0.01, "AlexNet": 3.0, "VGG11": 3.5, "ResNet18": 9.0} | dict.fromkeys(REAL, 0.0)  # ConvNet: 1
COST |= {GAN: 5.0} | dict.fromkeys(DD, 2.0)
SETS = 5  # so many sets count where they are recorded, whether or not a preset asks for them


@dataclass(frozen=True)
class Cell:
    """One number of a table: where it stands, and the runs behind it."""

    dataset: str
    ipc: int
    network: str
    test_network: str
    preset: "Preset"
    sets: int
    networks: int
    variant: str = ""  # see `variants`
    budget: str = ""  # what the experiment changes of the preset's hyper-parameters, as a variant
    held_out: int = 0  # so many training images are kept out of the set, and tested on in place of the test images
    training: dict[str, Any] = field(default_factory=dict)  # hyper-parameters of stage T in place of the preset's
    settings: Any = None  # of a method with hyper-parameters of its own (see `spec.methods`); None: its defaults

    def runs(self, seeds: Sequence[int] | None = None) -> list[TrainNetworks | WholeTraining]:
        """The runs that test networks, one for each set; each names the run that makes its set, if there is one."""
        seeds = range(self.sets) if seeds is None else seeds
        if self.network == WHOLE:
            return [self.preset.whole(self, seed) for seed in seeds]
        way, training = DD.get(self.network, "plain"), self.preset.training(self)
        if way == "rates":
            training = dd.at_rates(self.test_network, self.preset.distillation(self.dataset, self.ipc))
        if self.training:
            training = variants.stage_t(self.dataset, **vars(training) | self.training)
        on = "held-out" if self.held_out else "test"
        return [TrainNetworks(self.make_set(seed), training, self.networks, way, on) for seed in seeds]

    def counted(self) -> list[TrainNetworks | WholeTraining]:
        """The runs that count where they are recorded, whether or not the preset asks for so many sets."""
        return self.runs(range(max(self.sets, SETS)))

    def make_set(self, seed: int) -> MakeSet:
        """The run that makes the set of that seed."""
        if self.network not in INSTEAD:
            hyper = variants.apply(variants.apply(self.preset.condensation(self), self.budget), self.variant)
            return MakeSet(self.dataset, "condense", seed, hyper, held_out=self.held_out)
        method = "distill" if self.network in DD else self.network if self.network in METHODS else RANDOM
        own = {  # what a method needs, by the name of its field
            "whole": lambda: self.preset.whole(self, seed),
            "gan": lambda: TrainGan(self.dataset, self.preset.gan),
            "distillation": lambda: self.preset.distillation(self.dataset, self.ipc),
            "settings": lambda: self.settings,
        }
        needed = {name: own[name]() for name in METHODS[method].takes}
        return MakeSet(self.dataset, method, seed, Condensation(ipc=self.ipc), held_out=self.held_out, **needed)

    @property
    def cost(self) -> float:
        """A rough cost, to do the cheapest cells first: one forward pass of both networks on a set."""
        if self.network == WHOLE:
            return 20.0
        return self.ipc * sum(COST.get(name.partition(":")[0], 1.0) for name in (self.network, self.test_network))

    @property
    def together(self) -> int:
        """How many of its runs are done side by side: one network, as each set of many random ones has, is too few for a GPU."""
        return 100 if self.network in ORS else 1

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets it needs: one."""
        return (self.dataset,)

    @property
    def place(self) -> dict[str, Any]:
        """The cell's coordinates."""
        return {axis: getattr(self, axis) for axis in AXES}


@dataclass(frozen=True)
class Experiment:
    """What the paper shows in one place: a table or a figure.

    Args:
        name: of the experiment and of its notebook.
        label: the paper's label.
        question: one sentence: what is asked.
    """

    name: str
    label: str
    question: str
    narrowed_by: ClassVar[tuple[str, ...]] = ()  # axes for which `cells` takes values

    def cells(self, preset: "Preset", **narrow: Sequence | None) -> list["Cell"] | list["Line"]:
        """Return the cells at a preset, or those with the values given for an axis (None: all)."""
        raise NotImplementedError

    def given(self, narrow: dict[str, Any]) -> dict[str, tuple]:
        """Return the values given for each axis.

        Raises:
            SpecError: an axis that does not narrow the experiment, or an empty list.
        """
        found = {}
        for axis, values in narrow.items():
            one_of(f"axis of {self.name}", axis, self.narrowed_by)
            if values is not None:
                found[axis] = (values,) if isinstance(values, str | int) else tuple(values)
                if not found[axis]:
                    raise SpecError(f"the list for {axis} is empty: give at least one value")
        return found


@dataclass(frozen=True)
class Table(Experiment):
    """An experiment whose cells form a grid.

    Args:
        grid: for each axis in `AXES`, the values of the paper's table; `network` makes the set (or is one of `INSTEAD`: real
            images, or another method's, in place of condensed ones), `test_network` is trained on it,
            `variant` changes hyper-parameters (by default none).
        grids: for a preset, the axes on which its grid differs.
        diagonal: train only the network that made the set.
        belongs: which points of the grid are cells, by their coordinates; by default all.
        repeats: for a preset, the number of sets and of networks trained on each, or these from some number of images per class
            on; by default the preset's.
        budgets: for a preset, hyper-parameters in place of its own, as a variant, or these from some number of images per class on.
        more: further grids, each told by the axes on which it differs from `grid`, where that has not been narrowed away.
        training: for a preset, hyper-parameters of stage T in place of its own, by the names of `Training`.
        settings: for a method with hyper-parameters of its own, these by preset; by default those of its class.
        held_out: so many training images are kept out of every set and tested on in place of the test images.
    """

    grid: dict[str, tuple]
    grids: dict[str, dict[str, tuple]] = field(default_factory=dict)
    diagonal: bool = False
    repeats: dict[str, tuple[int, int] | dict[int, tuple[int, int]]] = field(default_factory=dict)
    budgets: dict[str, str | dict[int, str]] = field(default_factory=dict)
    more: tuple[dict[str, tuple], ...] = ()
    held_out: int = 0
    training: dict[str, dict[str, Any]] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    belongs: Callable[[dict[str, Any]], bool] = lambda place: True
    narrowed_by: ClassVar[tuple[str, ...]] = AXES

    def cells(self, preset: "Preset", **narrow: Sequence | int | None) -> list[Cell]:
        """Return the cells at a preset, over the whole grid or narrowed to the values given for an axis (None: its grid).

        Raises:
            SpecError: an axis that the experiment lacks, an empty list, or values that no cell has together.
        """
        given = {axis: _checked(axis, values) for axis, values in self.given(narrow).items()}
        fixed = self.grids.get(preset.name, {}) | given
        axes = {"variant": ("",), **self.grid, **fixed}
        points = list(filter(self._is_cell(axes), self._points(axes, fixed)))
        if not points:
            values = ", ".join(f"{axis} {' '.join(map(str, values))}" for axis, values in given.items())
            raise SpecError(f"no cell of {self.name} has {values} together: give fewer of them, or others")
        return [self.cell(preset, **p) for p in points]

    def _points(self, axes: dict[str, tuple], fixed: dict[str, tuple]) -> list[dict[str, Any]]:
        """The points of the grid, then those of the further grids that are within what is fixed, each once."""
        grids = [axes]
        for other in self.more:
            left = {axis: tuple(v for v in values if v in fixed.get(axis, values)) for axis, values in other.items()}
            grids.append({**axes, **left})
        points = dict.fromkeys(p for grid in grids for p in itertools.product(*(grid[axis] for axis in AXES)))
        return [dict(zip(AXES, point, strict=True)) for point in points]

    def _is_cell(self, axes: dict[str, tuple]) -> Callable[[dict[str, Any]], bool]:
        """Whether a point is a cell: the whole set stands once for all numbers of images, other real images for all variants."""

        def is_cell(p: dict[str, Any]) -> bool:
            real = p["network"] in INSTEAD
            own = not self.diagonal or real or p["test_network"] == p["network"]
            once = (p["network"] != WHOLE or p["ipc"] == axes["ipc"][0]) and (not real or p["variant"] == axes["variant"][0])
            return own and once and self.belongs(p)

        return is_cell

    def cell(self, preset: "Preset", **place: Any) -> Cell:
        """Return the cell at a place, spelled out at a preset, whether or not the preset's grid has it."""
        repeats = _from_on(self.repeats.get(preset.name, (preset.sets, preset.networks)), place["ipc"])
        budget = _from_on(self.budgets.get(preset.name, ""), place["ipc"])
        held_out = min(self.held_out, 300) if place["dataset"] == "digits" else self.held_out
        sets = preset.sets_of(place["network"], place["dataset"]) or repeats[0]
        networks = 1 if place["network"] in ORS else repeats[1]
        changed = dict(budget=budget, held_out=held_out, training=self.training.get(preset.name, {}))
        changed["settings"] = self.settings.get(place["network"], {}).get(preset.name)
        return Cell(**place, preset=preset, sets=sets, networks=networks, **changed)


def _from_on(value: Any, ipc: int) -> Any:
    """What holds at so many images per class, where a dictionary gives values from some number on."""
    return value[max(n for n in value if n <= ipc)] if isinstance(value, dict) else value


def _checked(axis: str, values: tuple) -> tuple:
    """The values given for an axis, each in its one spelling."""
    if axis == "ipc":
        for value in values:
            Condensation(ipc=value)
    if axis in ("network", "test_network"):
        return tuple(_checked_network(v, INSTEAD if axis == "network" else ()) for v in values)
    return tuple(map(variants.canonical, values)) if axis == "variant" else values


def _checked_network(value: Any, instead: Sequence[str]) -> str:
    one_of("network", str(value).partition(":")[0], (*FAMILIES, *instead))
    return value if value in instead else str(Network.parse(value))
