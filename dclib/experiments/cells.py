"""A cell of a table: one number, where it stands, and the runs behind it.

In place of the network that condenses, a cell may name real images: chosen in one of four ways, the best of many random draws,
or all of them; a conditional GAN that draws images; or Dataset Distillation, in one of two ways.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..spec import GUIDED, Condensation, MakeSet, TrainNetworks, WholeTraining, variants
from ..spec.baselines import TrainGan
from . import dd
from .dd import DD

AXES = ("dataset", "ipc", "network", "test_network", "variant")
RANDOM = "random"  # real images chosen at random, the row to beat
WHOLE = "whole"  # the whole training set
ORS = {"ors": 1.0, "ors-tenth": 0.1, "ors-hundredth": 0.01}  # optimal random selection: the share of the best sets that counts
REAL = (RANDOM, *GUIDED, WHOLE, *ORS)
GAN = "gan"  # images drawn by a conditional GAN
INSTEAD = (*REAL, GAN, *DD)  # what may stand in place of a network
COST = {"MLP": 0.001, "LeNet": 0.01, "AlexNet": 3.0, "VGG11": 3.5, "ResNet18": 9.0} | dict.fromkeys(REAL, 0.0)  # ConvNet: 1
COST |= {GAN: 5.0} | dict.fromkeys(DD, 2.0)
Run = TrainNetworks | WholeTraining


@dataclass(frozen=True)
class Cell:
    """One number of a table: where it stands, and the runs behind it."""

    dataset: str
    ipc: int
    network: str
    test_network: str
    preset: Any  # a `presets.Preset`
    sets: int
    networks: int
    variant: str = ""  # see `variants`
    budget: str = ""  # what the experiment changes of the preset's hyper-parameters, as a variant
    held_out: int = 0  # so many training images are kept out of the set, and tested on in place of the test images
    epochs: int | None = None  # E of stage T in place of the preset's; 0: 300, or 1000 with augmentation

    def runs(self, seeds: Sequence[int] | None = None) -> list[Run]:
        """The runs that test networks, one for each set; each names the run that makes its set, if there is one."""
        seeds = range(self.sets) if seeds is None else seeds
        if self.network == WHOLE:
            return [self.preset.whole(self, seed) for seed in seeds]
        way, training = DD.get(self.network, "plain"), self.preset.training(self)
        if way == "rates":
            training = dd.at_rates(self.test_network, self.preset.distillation(self.dataset, self.ipc))
        if self.epochs is not None:
            training = dataclasses.replace(training, epochs=self.epochs).resolve()
        on = "held-out" if self.held_out else "test"
        return [TrainNetworks(self.make_set(seed), training, self.networks, way, on) for seed in seeds]

    def make_set(self, seed: int) -> MakeSet:
        """The run that makes the set of that seed."""
        made = self._make_set(seed)
        return dataclasses.replace(made, held_out=self.held_out) if self.held_out else made

    def _make_set(self, seed: int) -> MakeSet:
        if self.network not in INSTEAD:
            hyper = variants.apply(self.preset.condensation(self), self.budget)
            return MakeSet(self.dataset, "condense", seed, variants.apply(hyper, self.variant))
        if self.network in DD:
            return dd.make_set(self.dataset, self.ipc, seed, self.preset.distillation(self.dataset, self.ipc))
        if self.network == GAN:
            return MakeSet(self.dataset, GAN, seed, Condensation(ipc=self.ipc), gan=TrainGan(self.dataset, self.preset.gan))
        if self.network in GUIDED:
            return MakeSet(self.dataset, self.network, seed, Condensation(ipc=self.ipc), whole=self.preset.whole(self, seed))
        return MakeSet(self.dataset, "random", seed, Condensation(ipc=self.ipc))

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
