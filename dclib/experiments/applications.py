"""The paper's two applications (Sec. 3.2): continual learning (Fig. 4) and architecture search (Table 4, Fig. F1).

Each is an experiment like the tables. In place of a grid it has a plan for each preset, from which its cells are made.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ..errors import SpecError, one_of
from ..spec import Condensation, ConvNet, MakeSet, Network, WholeTraining
from ..spec.applications import MEMORIES, LearnTasks, Rehearsal, ShortTraining, Space, TrainCandidate
from ..spec.keys import Run
from .cells import Experiment
from .paper import SOURCES
from .presets import Preset, hasty


@dataclass(frozen=True)
class Line:
    """A line of Fig. 4 or a column of Table 4: it answers what a `Cell` answers.

    Args:
        place: its coordinates by axis.
        datasets: those it needs.
        made: the runs whose records are its numbers.
        cost: roughly, to do the cheapest first.
    """

    place: dict[str, Any]
    datasets: tuple[str, ...]
    made: tuple[Run, ...]
    cost: float
    together: ClassVar[int] = 1  # of its runs are done side by side

    def runs(self) -> tuple[Run, ...]:
        """The runs whose records are its numbers."""
        return self.made

    counted = runs  # those that count where they are recorded


@dataclass(frozen=True)
class ContinualPlan:
    """Continual learning at a preset.

    Args:
        tasks: data sets in the order in which they are learnt.
        hyper: all but the memory and the distillation.
        condensation: of a memory's images.
        seeds: how many runs.
        image_size: of all images.
    """

    tasks: tuple[str, ...]
    hyper: Rehearsal
    condensation: Condensation
    seeds: int
    image_size: int = 32


@dataclass(frozen=True)
class Continual(Experiment):
    """Continual learning: a cell for each memory, without and with distillation."""

    plans: dict[str, ContinualPlan]
    narrowed_by: ClassVar[tuple[str, ...]] = ("dataset", "memory")

    def cells(self, preset: Preset, **narrow: Sequence[str] | None) -> list[Line]:
        """Return the cells at a preset; `dataset` gives other tasks in order, `memory` some of `MEMORIES`.

        Raises:
            SpecError: an unknown axis or memory, or fewer than two tasks.
        """
        plan, given = self.plans[preset.name], self.given(narrow)
        memories = [one_of("memory", memory, MEMORIES) for memory in given.get("memory", MEMORIES)]
        tasks = given.get("dataset", plan.tasks)
        return [_line(plan, tasks, memory, held) for held in (False, True) for memory in dict.fromkeys(memories)]


def _line(plan: ContinualPlan, tasks: tuple[str, ...], memory: str, held: bool) -> Line:
    hyper = replace(plan.hyper, memory=memory, distillation=float(held))
    how = dict(image_size=plan.image_size, condensation=plan.condensation if memory == "condense" else None)
    runs = tuple(LearnTasks(tasks, hyper, seed, **how) for seed in range(plan.seeds))
    return Line(dict(tasks=tasks, memory=memory, distillation=held), tasks, runs, 1.0 + MEMORIES.index(memory))


@dataclass(frozen=True)
class SearchPlan:
    """Architecture search at a preset.

    Args:
        dataset: on which.
        space: the candidates.
        short: how they are trained on small sets, and for as many steps on the whole set.
        long: how they are trained on the whole set.
        condensation: of the small set that is condensed; the others have as many images.
        guide: epochs of the training on the whole set that herding looks at.
        networks: how many are trained of each.
        images: of the training set that stand for the whole in `long`; 0: all.
        held_out: images that candidates are ranked by.
        guide_network: that is trained for herding.
    """

    dataset: str
    space: Space
    short: ShortTraining
    long: ShortTraining
    condensation: Condensation
    guide: int
    networks: int
    images: int = 0
    held_out: int = 5000
    guide_network: Network = field(default_factory=ConvNet)


@dataclass(frozen=True)
class Search(Experiment):
    """Architecture search: a cell for each thing that the architectures are trained on, with a run for each architecture."""

    plans: dict[str, SearchPlan]
    narrowed_by: ClassVar[tuple[str, ...]] = ("dataset", "space")

    def cells(self, preset: Preset, **narrow: Sequence[str] | None) -> list[Line]:
        """Return the cells at a preset; `dataset` gives another, `space` narrows the architectures as in `Space.networks`.

        Raises:
            SpecError: an unknown axis, more than one data set, or no architecture is left.
        """
        plan, given = self.plans[preset.name], self.given(narrow)
        dataset, *more = given.get("dataset", (plan.dataset,))
        if more:
            raise SpecError(f"architectures are searched on one data set, not on {', '.join((dataset, *more))}: name one")
        networks = plan.space.networks(given.get("space", ()))
        return [_column(plan, dataset, source, networks) for source in SOURCES]


def _column(plan: SearchPlan, dataset: str, source: str, networks: Sequence[Network]) -> Line:
    whole = source == "whole"
    hyper, images = (plan.long, plan.images) if whole else (plan.short, 0)
    small = None if source in ("early", "whole") else _small_set(plan, dataset, source)
    how = hyper, small, images, plan.held_out, plan.networks, whole
    runs = tuple(TrainCandidate(dataset, network, *how) for network in networks)
    place = dict(dataset=dataset, source=source, networks=tuple(map(str, networks)))
    return Line(place, (dataset,), runs, float(SOURCES.index(source)))


def _small_set(plan: SearchPlan, dataset: str, source: str) -> MakeSet:
    """The run that makes the small set that all architectures are trained on."""
    held_out, guide = plan.held_out, None
    if source == "herding":
        guide = WholeTraining(dataset, plan.guide_network, epochs=plan.guide, held_out=held_out)
    hyper = plan.condensation if source == "condense" else Condensation(ipc=plan.condensation.ipc)
    return MakeSet(dataset, source, hyper=hyper, whole=guide, held_out=held_out)


TINY = ConvNet(width=32, depth=2)
SMOKE = Condensation(2, TINY, outer_steps=6, network_epochs=10, real_batch=16, init="real").resolve()
CONTINUAL = Continual(
    "continual",
    "Fig. 4",
    "Do condensed images in a small memory keep old tasks better than chosen real ones?",
    {
        "smoke": ContinualPlan(
            ("digits", "digits+inverted", "digits+turned"),
            Rehearsal(ipc=2, network=TINY, iterations=40, finetuning=10, batch=32, test_images=500),
            SMOKE,
            seeds=1,
            image_size=16,
        ),
        "cpu": ContinualPlan(
            ("svhn10k", "mnist", "usps"),
            Rehearsal(iterations=500, finetuning=200, batch=64),
            hasty(Condensation(10, outer_steps=10, network_epochs=10, real_batch=64).resolve()),
            seeds=3,
        ),
        "paper": ContinualPlan(("svhn", "mnist", "usps"), Rehearsal(), Condensation(10).resolve(), seeds=5),
    },
)
NAS = Search(
    "nas",
    "Table 4, Fig. F1",
    "Are architectures ranked by a short training on ten condensed images per class as by one on the whole set?",
    {
        "smoke": SearchPlan(
            "digits",
            Space(width=(8, 16), depth=(1, 2), every=11),
            ShortTraining(steps=30, batch=20),
            ShortTraining(steps=90, batch=20),
            SMOKE,
            guide=1,
            networks=1,
            held_out=200,
            guide_network=TINY,
        ),
        "cpu": SearchPlan(
            "cifar10",
            Space(width=(32, 64), depth=(1, 2, 3), every=7),
            ShortTraining(steps=50),
            ShortTraining(steps=400),
            hasty(Condensation(10, outer_steps=80, network_epochs=10, real_batch=64).resolve()),
            guide=2,
            networks=3,
        ),
        "paper": SearchPlan(
            "cifar10",
            Space(),
            ShortTraining(),
            ShortTraining(steps=45_000),
            Condensation(10, outer_steps=500).resolve(),
            guide=60,
            networks=5,
        ),
    },
)
