"""Does one declared run and records what came of it: `DO` names the function for each kind of run.

What is recorded already is read, not computed. A function asks the runner for what its run needs, when it needs it.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from ..core import engine as engines
from ..errors import Diverged
from ..results import Store
from ..results.lines import data_of
from ..spec import MakeSet, TrainGan, TrainNetworks, WholeTraining, full
from ..spec.applications import LearnTasks, TrainCandidate
from ..spec.keys import Run
from ..support.provenance import now, provenance
from . import applying, making, training
from .loading import check_unchanged

DO: dict[type[Run], Callable[..., Any]] = {
    MakeSet: making.make_set,
    WholeTraining: making.train_on_whole,
    TrainGan: making.train_on_whole,
    TrainNetworks: training.train_networks,
    LearnTasks: applying.learn_tasks,
    TrainCandidate: applying.train_candidate,
}


@dataclasses.dataclass
class Runner:
    """What a run needs besides its spec.

    Args:
        store: where records and sets are found and written.
        preset: the folder of new records.
        device: "auto", "cpu", "cuda" …
        engine: "auto", "eager", "compiled" or "captured".
        should_stop: asked between steps.
        trajectories: those that several of the sets to be made share, each with its longest K; their states are kept.
        failed: by their keys, what was raised by runs that left the finite numbers.
    """

    store: Store
    preset: str
    device: str = "auto"
    engine: str = "auto"
    should_stop: Callable[[], bool] = lambda: False
    trajectories: dict[str, int] = dataclasses.field(default_factory=dict)
    failed: dict[str, Diverged] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        engines.tune_allocator()
        self.where = engines.resolve_device(self.device)

    @property
    def how(self) -> dict[str, Any]:
        """The device and the question whether to stop, for whatever computes."""
        return {"device": str(self.where), "should_stop": self.should_stop}

    def do(self, *runs: Run) -> Any:
        """Do and record what is missing of a run, or of several that are alike but for the seed of their sets.

        Returns:
            What other runs take from the first: a set, a trained network; or the accuracies that it found.

        Raises:
            Diverged: the run, or one that it needs, has left the finite numbers, now or when it was tried before.
            Interrupted: told to stop; what is finished is recorded.
        """
        key = runs[0].key
        if key in self.failed:
            raise self.failed[key]
        try:
            return DO[type(runs[0])](self, *runs)
        except Diverged as error:
            if error not in self.failed.values():  # else it is that of a run that this one needs
                self.failed[key] = Diverged(f"{runs[0].words}: {error}")
                raise self.failed[key] from error
            raise

    def check_data(self, run: Run, found: str) -> None:
        """Refuse data that has changed since runs on it were recorded, by its hash (see `check_unchanged`)."""
        check_unchanged(self.store, data_of({"run": full(run)}), found)

    def record(self, run: Run, engine: str, values: dict[str, Any], started: str | None = None) -> None:
        """Add a record of a run, with where and by what code it was done."""
        spelled = {"key": run.key, "kind": type(run).__name__, "run": full(run)}
        device = torch.cuda.get_device_name(self.where) if self.where.type == "cuda" else "cpu"
        self.store.add_once(self.preset, {**spelled, **provenance(started or now(), device, engine), **values})
