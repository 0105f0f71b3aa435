"""Every table and figure of the paper, declared once, and the presets that turn a declaration into runs.

An experiment is a grid of cells. A preset spells out each cell's runs with every hyper-parameter; the key of a run is a hash of
that, without the preset's name, so that one condensed set serves every table that needs it. The notebooks, `dclib run`,
`dclib status`, the tests and the book's map all read `ALL`.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import SpecError, one_of
from .spec import Condensation, MakeSet, Network, Training, TrainNetworks

SIX = ("MLP", "ConvNet", "LeNet", "AlexNet", "VGG11", "ResNet18")
RANDOM = "random"  # in place of a network: real images chosen at random, the row to beat
AXES = ("dataset", "ipc", "network", "test_network")
COST = {RANDOM: 0.0, "MLP": 0.001, "LeNet": 0.01, "AlexNet": 3.0, "VGG11": 3.5, "ResNet18": 9.0}  # against ConvNet's


@dataclass(frozen=True)
class Experiment:
    """One table or figure: its grid, and the paper's place and question.

    Args:
        name: of the experiment and of its notebook.
        label: the paper's label.
        question: one sentence: what is asked.
        grid: for each axis in `AXES`, the values of the paper's table; `network` makes the set, `test_network` is trained on it.
        diagonal: train only the network that made the set.
        repeats: for a preset, the number of sets and of networks trained on each; by default the preset's.
    """

    name: str
    label: str
    question: str
    grid: dict[str, tuple]
    diagonal: bool = False
    repeats: dict[str, tuple[int, int]] = field(default_factory=dict)

    def cells(self, preset: "Preset", **narrow: Sequence | int | None) -> list["Cell"]:
        """Return the cells at a preset, over the whole grid or narrowed to the values given for an axis (None: its grid).

        Raises:
            SpecError: an axis that the experiment lacks, or an empty list.
        """
        axes = {**self.grid, **preset.grid.get(self.name, {})}
        for axis, values in narrow.items():
            one_of(f"axis of {self.name}", axis, AXES)
            if values is not None:
                axes[axis] = _checked_axis(axis, values)
        sets, networks = self.repeats.get(preset.name, (preset.sets, preset.networks))
        points = [dict(zip(AXES, point, strict=True)) for point in itertools.product(*(axes[axis] for axis in AXES))]
        if self.diagonal:
            points = [p for p in points if p["test_network"] in (p["network"], RANDOM) or p["network"] == RANDOM]
        draws = {RANDOM: preset.random_sets}
        return [Cell(**p, preset=preset, sets=draws.get(p["network"], sets), networks=networks) for p in points]


def _checked_axis(axis: str, values: Any) -> tuple:
    values = (values,) if isinstance(values, str | int) else tuple(values)
    if not values:
        raise SpecError(f"the list for {axis} is empty: give at least one value")
    if axis == "ipc":
        for value in values:
            Condensation(ipc=value)
    if axis in ("network", "test_network"):
        values = tuple(v if v == RANDOM and axis == "network" else str(Network.parse(v)) for v in values)
    return values


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

    def runs(self, seeds: Sequence[int] | None = None) -> list[TrainNetworks]:
        """The runs of stage T, one for each set; each names the run that makes its set."""
        seeds = range(self.sets) if seeds is None else seeds
        return [TrainNetworks(self.make_set(seed), self.preset.training(self), self.networks) for seed in seeds]

    def make_set(self, seed: int) -> MakeSet:
        """The run that makes the set of that seed."""
        if self.network == RANDOM:
            return MakeSet(self.dataset, "random", seed, Condensation(ipc=self.ipc))
        return MakeSet(self.dataset, "condense", seed, self.preset.condensation(self))

    @property
    def cost(self) -> float:
        """A rough cost, to do the cheapest cells first: one forward pass of both networks."""
        return sum(COST.get(name.partition(":")[0], 1.0) for name in (self.network, self.test_network))

    @property
    def place(self) -> dict[str, Any]:
        """The cell's coordinates."""
        return {axis: getattr(self, axis) for axis in AXES}


def yardstick(cell: Cell) -> Cell:
    """The row to beat: random real images, with the same test network."""
    return dataclasses.replace(cell, network=RANDOM, sets=cell.preset.random_sets)


def with_yardsticks(cells: Sequence[Cell]) -> list[Cell]:
    """Add what the cells of `smoke` are compared with before they count."""
    rows = list(cells)
    for row in map(yardstick, (cell for cell in cells if cell.preset.name == "smoke")):
        if row not in rows:
            rows.append(row)
    return rows


def paper_condensation(cell: Cell) -> Condensation:
    """The paper's hyper-parameters (appendix A); with MLP, η_S is 0.01."""
    network = Network.parse(cell.network)
    return Condensation(ipc=cell.ipc, network=network, image_lr=0.01 if network.family == "MLP" else 0.1).resolve()


def paper_training(cell: Cell) -> Training:
    """Stage T as in the authors' code: a ConvNet with batch norm gets crops and noise, others on MNIST crop, scale and rotation."""
    network = Network.parse(cell.test_network)
    augment = "crop+scale+rotate" if cell.dataset == "mnist" else "none"
    if network.family == "ConvNet" and network["norm"] == "batch":
        augment = "crop+noise"
    return Training(network=network, augment=augment).resolve()


# K and the number of real images by the condensing network's family, at `cpu` and at `smoke`.
CPU_STEPS = {"MLP": (1000, 64), "LeNet": (1000, 64), "ConvNet": (150, 64)}
CPU_STEPS |= {"AlexNet": (40, 64), "VGG11": (60, 64), "ResNet18": (30, 32)}
SMOKE_STEPS = {"MLP": (400, 32), "LeNet": (150, 32), "ConvNet": (30, 32), "AlexNet": (2, 16), "VGG11": (1, 16), "ResNet18": (1, 16)}
SMOKE_EPOCHS = {"AlexNet": 15, "VGG11": 15, "ResNet18": 10}


def _reduced(steps: dict[str, tuple[int, int]]) -> Callable[[Cell], Condensation]:
    def condensation(cell: Cell) -> Condensation:
        K, real = steps.get(Network.parse(cell.network).family, (100, 64))
        return dataclasses.replace(paper_condensation(cell), outer_steps=K, real_batch=real)

    return condensation


def cpu_training(cell: Cell) -> Training:
    """As the paper, in 301 epochs whether images are augmented or not."""
    return dataclasses.replace(paper_training(cell), epochs=300)


def smoke_training(cell: Cell) -> Training:
    """Without augmentation and in fewer epochs: enough to see that everything works."""
    epochs = SMOKE_EPOCHS.get(Network.parse(cell.test_network).family, 60)
    return dataclasses.replace(paper_training(cell), epochs=epochs)


@dataclass(frozen=True)
class Preset:
    """A budget: how a cell's runs are spelled out.

    Args:
        name: "smoke", "cpu" or "paper".
        purpose: one sentence.
        condensation: a cell's hyper-parameters of Algorithm 1.
        training: a cell's hyper-parameters of stage T.
        sets: condensed sets for each cell.
        networks: networks trained on each set.
        random_sets: draws of random real images, where a table has such a row.
        grid: axes that differ from the declaration, by experiment.
    """

    name: str
    purpose: str
    condensation: Callable[[Cell], Condensation]
    training: Callable[[Cell], Training]
    sets: int
    networks: int
    random_sets: int = 5
    grid: dict[str, dict[str, tuple]] = field(default_factory=dict)


SMOKE = Preset(
    "smoke",
    "the embedded digits and few steps: does everything work?",
    _reduced(SMOKE_STEPS),
    smoke_training,
    sets=1,
    networks=1,
    grid={
        "method": {"dataset": ("digits",)},
        "cross_arch": {"dataset": ("digits",), "network": ("MLP", "ConvNet", "LeNet", RANDOM)},
    },
)
CPU = Preset(
    "cpu",
    "the paper's data sets with fewer steps, in minutes to hours on two cores",
    _reduced(CPU_STEPS),
    cpu_training,
    sets=2,
    networks=5,
)
PAPER = Preset("paper", "the paper's own hyper-parameters, for a GPU", paper_condensation, paper_training, sets=5, networks=20)
PRESETS = {preset.name: preset for preset in (SMOKE, CPU, PAPER)}
BEST = (PAPER, CPU)  # most faithful first; smoke never fills a cell of the book


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
    repeats={"cpu": (1, 2)},
)
ALL = {experiment.name: experiment for experiment in (METHOD, CROSS_ARCH)}


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
