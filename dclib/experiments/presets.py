"""The presets: each spells out the runs behind a table's cell (see `cells`) with every hyper-parameter."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

from ..errors import one_of
from ..spec import GUIDED, Condensation, ConvNet, Network, Training, WholeTraining, loops, variants
from ..spec.baselines import Distillation, GanTraining
from . import dd
from .cells import GAN, ORS, RANDOM, WHOLE, Cell


def paper_condensation(cell: Cell) -> Condensation:
    """The paper's hyper-parameters (appendix A)."""
    return variants.recipe(ipc=cell.ipc, network=cell.network, **variants.parse(cell.variant))


def paper_training(cell: Cell) -> Training:
    """Stage T as in the authors' code."""
    return variants.stage_t(cell.dataset, network=cell.test_network)


WHOLE_AUGMENT = {"mnist": "crop+scale+rotate", "digits": "none", "cifar10": "crop+flip", "cifar100": "crop+flip"}


def whole_training(cell: Cell, seed: int, epochs: int, augment: str) -> WholeTraining:
    """The training behind a cell: of the network that is tested on the whole set, or of a ConvNet that guides a choice."""
    network = Network.parse(cell.test_network) if cell.network == WHOLE else ConvNet()
    lr = 0.01 if network.family == "AlexCifarNet" else WholeTraining.lr  # it has no norm, and many weights
    return WholeTraining(cell.dataset, network.resolve("train"), epochs=epochs, lr=lr, augment=augment, seed=seed)


def paper_whole(cell: Cell, seed: int) -> WholeTraining:
    """Sixty epochs on augmented images: our recipe, for the paper states none."""
    return whole_training(cell, seed, 60, WHOLE_AUGMENT.get(cell.dataset, "crop"))


CPU_GAN = GanTraining(steps=6000, batch=64, generator_width=64, discriminator_width=32)
SMOKE_GAN = GanTraining(steps=200, batch=32, generator_width=32, discriminator_width=16, lr=1e-3)

# K at 1 image per class and the number of real images by the condensing network's family, at `cpu` and at `smoke`.
CPU_STEPS = {"MLP": (1000, 64), "LeNet": (1000, 64), "ConvNet": (150, 64)}
CPU_STEPS |= {"AlexNet": (40, 64), "VGG11": (60, 64), "ResNet18": (30, 32), "AlexCifarNet": (200, 64)}
SMOKE_STEPS = {"MLP": (400, 32), "LeNet": (150, 32), "ConvNet": (30, 32), "AlexNet": (2, 16), "VGG11": (1, 16), "ResNet18": (1, 16)}
SMOKE_EPOCHS = {"MLP": 300, "LeNet": 300, "AlexNet": 15, "VGG11": 15, "ResNet18": 10}  # E; elsewhere 60
CPU_WHOLE = {"mnist": 3, "fashionmnist": 5, "svhn": 4, "svhn10k": 15}  # epochs on the whole set; elsewhere 8


def hasty(hyper: Condensation) -> Condensation:
    """Start from real images, at ten times η_S: few steps make no images out of noise.

    Each of n images of a class moves by an n-th of what the only one would.
    """
    return dataclasses.replace(hyper, init="real", image_lr=10 * hyper.image_lr)


def _reduced(
    steps: dict[str, tuple[int, int]],
    share: int,
    fewer: Callable[[int], float],
    begun: Callable[[Condensation], Condensation] = lambda hyper: hyper,
) -> Callable[[Cell], Condensation]:
    """Fewer outer steps and real images, and above 1 image per class fewer of all that T = ipc repeats: pilot values.

    Args:
        steps: K at 1 image per class and the number of real images, by the network's family.
        share: ς_θ falls to a `share`-th.
        fewer: K falls to a `fewer`-th of what it is at 1 image per class.
        begun: changes the hyper-parameters above 1 image per class, as `hasty` does.
    """

    def condensation(cell: Cell) -> Condensation:
        K, real = steps.get(Network.parse(cell.network).family, (100, 64))
        hyper = dataclasses.replace(paper_condensation(cell), outer_steps=K, real_batch=real)
        if cell.ipc == 1:
            return hyper
        K = max(1, round(K / fewer(cell.ipc)))
        return begun(dataclasses.replace(hyper, outer_steps=K, network_epochs=max(1, loops(cell.ipc)[1] // share)))

    return condensation


def cpu_training(cell: Cell) -> Training:
    """As the paper, in 301 epochs whether images are augmented or not."""
    return dataclasses.replace(paper_training(cell), epochs=300)


def cpu_whole(cell: Cell, seed: int) -> WholeTraining:
    """A few epochs, augmented only where the network would learn the images by heart in them."""
    augment = WHOLE_AUGMENT[cell.dataset] if cell.dataset in ("cifar10", "cifar100") else "none"
    return whole_training(cell, seed, CPU_WHOLE.get(cell.dataset, 8), augment)


def smoke_training(cell: Cell) -> Training:
    """Without augmentation and in fewer epochs: enough to see that everything works."""
    epochs = SMOKE_EPOCHS.get(Network.parse(cell.test_network).family, 60)
    return dataclasses.replace(paper_training(cell), epochs=epochs)


def smoke_whole(cell: Cell, seed: int) -> WholeTraining:
    """Four epochs."""
    return whole_training(cell, seed, 4, "none")


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
        whole: a cell's training on the whole set, by seed; the first guides the choice of real images.
        wholes: trainings on the whole set, where a table has such a row.
        ors_sets: draws of random real images of which optimal random selection takes the best.
        gan: how a GAN is trained, once for each data set; of its images there are as many draws as of random real ones.
        distillation: the hyper-parameters of Dataset Distillation, by data set and images per class.
        distilled_sets: how many sets of it, by data set; elsewhere as many as condensed ones.
    """

    name: str
    purpose: str
    condensation: Callable[[Cell], Condensation]
    training: Callable[[Cell], Training]
    sets: int
    networks: int
    random_sets: int = 5
    whole: Callable[[Cell, int], WholeTraining] = smoke_whole
    wholes: int = 1
    ors_sets: int = 20
    gan: GanTraining = SMOKE_GAN
    distillation: Callable[[str, int], Distillation] = dd.of_smoke
    distilled_sets: dict[str, int] = field(default_factory=dict)

    def sets_of(self, network: str, dataset: str) -> int | None:
        """How many sets stand behind a cell that names no network; None: as many as of condensed ones."""
        counts = {RANDOM: self.random_sets, GAN: self.random_sets, WHOLE: self.wholes}
        counts |= dict.fromkeys(GUIDED, 1) | dict.fromkeys(ORS, self.ors_sets)
        return self.distilled_sets.get(dataset) if network in dd.DD else counts.get(network)


SMOKE = Preset(
    "smoke",
    "the embedded digits and few steps: does everything work?",
    _reduced(SMOKE_STEPS, 20, lambda ipc: ipc),
    smoke_training,
    sets=1,
    networks=1,
)
CPU = Preset(
    "cpu",
    "the paper's data sets with fewer steps, in minutes to hours on two cores",
    _reduced(CPU_STEPS, 5, lambda ipc: 15 if ipc > 10 else 7.5, hasty),
    cpu_training,
    sets=2,
    networks=5,
    random_sets=2,
    whole=cpu_whole,
    ors_sets=100,
    gan=CPU_GAN,
    distillation=dd.of_cpu,
    distilled_sets={"mnist": 3, "cifar10": 1},
)
PAPER = Preset(
    "paper",
    "the paper's own hyper-parameters, for a GPU",
    paper_condensation,
    paper_training,
    sets=5,
    networks=20,
    whole=paper_whole,
    wholes=5,
    ors_sets=1000,
    gan=GanTraining(),
    distillation=dd.of_paper,
)
PRESETS = {preset.name: preset for preset in (SMOKE, CPU, PAPER)}
BEST = (PAPER, CPU)  # most faithful first; smoke never fills a cell of the book


def find_preset(name: str) -> Preset:
    """Return the preset of that name ("best" is none: it only reads).

    Raises:
        SpecError: there is none.
    """
    return PRESETS[one_of("preset", name, PRESETS)]
