"""The paper's two applications, declared: continual learning (Fig. 4) and architecture search (Table 4, Fig. F1).

They are no grids of data set × images × network, so they are no `experiments.Experiment`: a study has, for each preset, a plan that
spells out its cases. What a case shares with a cell of a table is all that running and counting need: `runs`, `cost`, `datasets`,
`place`. The notebooks, `dclib run`, `dclib status` and the tests read `ALL`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ..errors import SpecError, one_of
from ..spec import Condensation, ConvNet, MakeSet, Network, WholeTraining
from ..spec.applications import MEMORIES, ApplicationRun, LearnTasks, Rehearsal, ShortTraining, Space, TrainCandidate
from .paper import SOURCES
from .presets import hasty

PROXIES = SOURCES[:-1]
DISTILLATION = (False, True)


@dataclass(frozen=True)
class Case:
    """One line or column of a study: where it stands, and the runs behind it.

    Args:
        place: its coordinates by name, in pairs.
        preset: the name of the preset.
        datasets: those it needs.
        spelled: returns its runs, one after the other; they may be hundreds, and some are asked only for the first.
        cost: roughly, to do the cheapest first.
    """

    place: tuple[tuple[str, Any], ...]
    preset: str
    datasets: tuple[str, ...]
    spelled: Callable[[], Iterator[ApplicationRun]]
    cost: float
    together: ClassVar[int] = 1  # of its runs are done side by side

    def __getitem__(self, name: str) -> Any:
        return dict(self.place)[name]

    def runs(self) -> Iterator[ApplicationRun]:
        """The runs whose records are its numbers."""
        return self.spelled()


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

    def cases(self, preset: str, datasets: Sequence[str] | None = None, memories: Sequence[str] | None = None) -> list[Case]:
        """One for each memory, without and with distillation.

        Args:
            preset: its name.
            datasets: tasks in place of the plan's.
            memories: some of `MEMORIES`.

        Raises:
            SpecError: an unknown memory, or fewer than two tasks.
        """
        tasks = self.tasks if datasets is None else tuple(datasets)
        chosen = [one_of("memory", m, MEMORIES) for m in _listed("memories", MEMORIES if memories is None else memories)]
        return [self._case(preset, tasks, memory, held) for held in DISTILLATION for memory in chosen]

    def _case(self, preset: str, tasks: tuple[str, ...], memory: str, held: bool) -> Case:
        first = LearnTasks(
            tasks,
            replace(self.hyper, memory=memory, distillation=float(held)),
            image_size=self.image_size,
            condensation=self.condensation if memory == "condense" else None,
        )
        place = (("tasks", tasks), ("memory", memory), ("distillation", held))
        spelled = lambda: (replace(first, seed=seed) for seed in range(self.seeds))  # noqa: E731
        return Case(place, preset, tasks, spelled, 1.0 + MEMORIES.index(memory))


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
        guide_network: that is trained for it.
        networks: how many are trained of each.
        images: of the training set that stand for the whole in `long`; 0: all.
        held_out: images that candidates are ranked by.
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

    def cases(self, preset: str, datasets: Sequence[str] | None = None, space: str = "") -> list[Case]:
        """One for each thing that the architectures are trained on.

        Args:
            preset: its name.
            datasets: one in place of the plan's.
            space: narrows it, as for `Space.networks`.

        Raises:
            SpecError: no architecture is left, or not one data set.
        """
        names = _listed("datasets", (self.dataset,) if datasets is None else datasets)
        if len(names) > 1:
            raise SpecError(f"architectures are searched on one data set, not on {', '.join(names)}: name one")
        candidates = self.space.networks(space)
        return [self._case(preset, names[0], source, candidates) for source in SOURCES]

    def _case(self, preset: str, dataset: str, source: str, candidates: Sequence[Network]) -> Case:
        hyper, images = (self.long, self.images) if source == "whole" else (self.short, 0)

        def spelled() -> Iterator[TrainCandidate]:
            how = hyper, self._set(dataset, source), images, self.held_out, self.networks, source == "whole"
            return (TrainCandidate(dataset, network, *how) for network in candidates)

        place = (("dataset", dataset), ("source", source), ("networks", tuple(map(str, candidates))))
        return Case(place, preset, (dataset,), spelled, float(SOURCES.index(source)))

    def _set(self, dataset: str, source: str) -> MakeSet | None:
        if source in ("early", "whole"):
            return None
        if source == "condense":
            return MakeSet(dataset, "condense", 0, self.condensation, held_out=self.held_out)
        whole = (
            WholeTraining(dataset, self.guide_network, epochs=self.guide, held_out=self.held_out) if source == "herding" else None
        )
        return MakeSet(dataset, source, 0, Condensation(ipc=self.condensation.ipc), whole=whole, held_out=self.held_out)


def _listed(what: str, values: Sequence[str]) -> tuple[str, ...]:
    if not values:
        raise SpecError(f"the list for {what} is empty: give at least one value")
    return tuple(dict.fromkeys(values))


@dataclass(frozen=True)
class Study:
    """One application: the paper's place and question, and a plan for each preset."""

    name: str
    label: str
    question: str
    plans: dict[str, ContinualPlan | SearchPlan]

    @property
    def narrows(self) -> Callable[..., list[Case]]:
        """The function whose options narrow the study."""
        return type(self.plans["paper"]).cases

    def cells(self, preset: Any, **narrow: Any) -> list[Case]:
        """Return the cases at a preset (an `experiments.Preset`); options as for the plan's `cases`."""
        return self.plans[preset.name].cases(preset.name, **narrow)


def _condensation(ipc: int, **changes: Any) -> Condensation:
    return replace(Condensation(ipc=ipc), **changes).resolve()


TINY = ConvNet(width=32, depth=2)
CONTINUAL = Study(
    "continual",
    "Fig. 4",
    "Do condensed images in a small memory keep old tasks better than chosen real ones?",
    {
        "smoke": ContinualPlan(
            ("digits", "digits+inverted", "digits+turned"),
            Rehearsal(ipc=2, network=TINY, iterations=40, finetuning=10, batch=32, test_images=500),
            _condensation(2, network=TINY, outer_steps=6, network_epochs=10, real_batch=16, init="real"),
            seeds=1,
            image_size=16,
        ),
        "cpu": ContinualPlan(
            ("svhn10k", "mnist", "usps"),
            Rehearsal(iterations=500, finetuning=200, batch=64),
            hasty(_condensation(10, outer_steps=10, network_epochs=10, real_batch=64)),
            seeds=3,
        ),
        "paper": ContinualPlan(("svhn", "mnist", "usps"), Rehearsal(), _condensation(10), seeds=5),
    },
)
NAS = Study(
    "nas",
    "Table 4, Fig. F1",
    "Are architectures ranked by a short training on ten condensed images per class as by one on the whole set?",
    {
        "smoke": SearchPlan(
            "digits",
            Space(width=(8, 16), depth=(1, 2), every=11),
            ShortTraining(steps=30, batch=20),
            ShortTraining(steps=90, batch=20),
            _condensation(2, network=TINY, outer_steps=6, network_epochs=10, real_batch=16, init="real"),
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
            hasty(_condensation(10, outer_steps=80, network_epochs=10, real_batch=64)),
            guide=2,
            networks=3,
        ),
        "paper": SearchPlan(
            "cifar10",
            Space(),
            ShortTraining(),
            ShortTraining(steps=45_000),
            _condensation(10, outer_steps=500),
            guide=60,
            networks=5,
        ),
    },
)
ALL = {study.name: study for study in (CONTINUAL, NAS)}
