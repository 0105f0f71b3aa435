"""The frozen runs of the paper's two applications (Sec. 3.2): continual learning and architecture search; nothing imports torch.

`LearnTasks` is one sequence of tasks with a memory (computed by `methods.continual`), `TrainCandidate` one architecture trained on
a small set, or for as short a time on the whole set (`methods.nas`). As in `spec`, fields at their default stay out of a run's key.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from ..errors import SpecError, one_of
from .architectures import ACTIVATIONS, NORMS, POOLINGS, ConvNet, Network
from .checks import check, param, require
from .keys import Run
from .runs import Condensation, MakeSet

MEMORIES = ("random", "herding", "condense")
OPTIONS = ("width", "depth", "norm", "activation", "pooling")  # that the search space varies


@dataclass(frozen=True)
class Rehearsal:
    """How a network learns one task after another: end-to-end incremental learning (Castro et al., 2018) as the paper uses it.

    A task's images and the memory form one training set. When the task is learnt, `ipc` of its images per class go into the
    memory, which so has the same number of each class of each task, and on which the network is then tuned. The paper states
    neither batch, momentum nor weight decay: these are Castro et al.'s.
    """

    memory: str = param("condense", "what fills it: images chosen at random, by herding, or condensed", choices=MEMORIES)
    ipc: int = param(10, "images per class of each finished task", at_least=1)
    distillation: float = param(1.0, "weight of the loss that holds the network to its earlier outputs; 0: without", at_least=0)
    temperature: float = param(2.0, "temperature of that loss", "T", above=0)
    network: Network = param(Network, "the network that learns")
    iterations: int = param(5000, "steps for each task", at_least=1)
    lr: float = param(0.01, "learning rate", above=0)
    finetuning: int = param(500, "steps of balanced fine-tuning after each task but the first", at_least=0)
    finetuning_lr: float = param(0.001, "learning rate of the fine-tuning", above=0)
    batch: int = param(128, "images in a step", at_least=1)
    momentum: float = param(0.9, "momentum of SGD", at_least=0, below=1)
    weight_decay: float = param(1e-4, "weight decay of SGD", at_least=0)
    test_images: int = param(2000, "test images of each task, drawn at random", at_least=1)
    operations: ClassVar[tuple[str, ...]] = ()  # no augmentation

    def __post_init__(self) -> None:
        check(self)

    @property
    def unremembered(self) -> "Rehearsal":
        """Settings that affect task 1; its checkpoint is shared by all memories."""
        return replace(self, memory="random", distillation=0.0)


@dataclass(frozen=True)
class LearnTasks(Run):
    """The run that learns tasks one after another with one memory.

    Args:
        tasks: names or paths of data sets with equally many classes, first task first.
        hyper: memory, losses and steps.
        seed: of weights, batches, the test images and random memories.
        image_size, channels: what all images are turned into.
        condensation: how the memory's images are condensed, if they are; the set of each task has the run's seed.
    """

    tasks: tuple[str, ...]
    hyper: Rehearsal = field(default_factory=Rehearsal)
    seed: int = 0
    image_size: int = 32
    channels: int = 3
    condensation: Condensation | None = None

    def __post_init__(self) -> None:
        n, condensed = len(self.tasks), self.hyper.memory == "condense"
        require(n > 1, f"continual learning needs at least 2 tasks, not {n} ({', '.join(self.tasks)}): name more data sets")
        require(len(set(self.tasks)) == n, f"tasks must differ, not be {', '.join(self.tasks)}: name each data set once")
        needs = f"a memory filled by {self.hyper.memory!r} {'needs a' if condensed else 'takes no'} `condensation`"
        require(condensed == (self.condensation is not None), needs)
        same = not condensed or self.condensation.ipc == self.hyper.ipc
        require(same, f"the memory has ipc={self.hyper.ipc}: condense as many images per class")

    @property
    def shared_state(self) -> str:
        """The name of the checkpoint after task 1, which all memories share, with and without distillation."""
        return "first-" + replace(self, hyper=self.hyper.unremembered, condensation=None).key

    @property
    def sets(self) -> tuple[MakeSet, ...]:
        """The runs that make the memory's images of each task; empty where they are chosen while the network learns."""
        if self.condensation is None:
            return ()
        how = dict(hyper=self.condensation, image_size=self.image_size, channels=self.channels)
        return tuple(MakeSet(task, "condense", self.seed, **how) for task in self.tasks)

    def needs(self) -> tuple[Run, ...]:
        """The runs that make the memory's images, where they are condensed."""
        return self.sets


@dataclass(frozen=True)
class ShortTraining:
    """How an architecture is trained to be ranked: so many steps, from the one after half of them at a tenth of the rate.

    On a set of `batch` images a step is an epoch; more images come in random order, epoch after epoch. The paper gives 100 epochs
    on 100 images; rate, momentum and weight decay are those of stage T.
    """

    steps: int = param(100, "steps of SGD", at_least=1)
    lr: float = param(0.01, "learning rate of the first half", above=0)
    momentum: float = param(0.9, "momentum of SGD", at_least=0, below=1)
    weight_decay: float = param(5e-4, "weight decay of SGD", at_least=0)
    batch: int = param(100, "images in a step", at_least=1)
    operations: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        check(self)

    @property
    def rates(self) -> list[float]:
        """The learning rate of each step."""
        return [self.lr * (0.1 if step > self.steps // 2 else 1.0) for step in range(self.steps)]


@dataclass(frozen=True)
class TrainCandidate(Run):
    """The run that trains `networks` networks of one architecture and tests each on images held out of the training set.

    Args:
        dataset: a data set's name, or the path of the user's own.
        network: the architecture.
        hyper: how it is trained.
        set: the run that makes the small set it is trained on; None: the training images themselves.
        images: so many of these, drawn at random, are used; 0: all.
        held_out: how many images, drawn at random, are kept out of every training and of every set to validate on.
        networks: how many are trained; not part of the key.
        tested: whether the test images are classified as well; not part of the key.
    """

    dataset: str
    network: Network
    hyper: ShortTraining = field(default_factory=ShortTraining)
    set: MakeSet | None = None
    images: int = param(0, "images used, drawn at random; 0: all", at_least=0)
    held_out: int = param(5000, "images kept for validation", at_least=1)
    networks: int = param(1, "how many are trained", at_least=1, outside_key=True)
    tested: bool = param(False, "also classify the test images", outside_key=True)
    brief: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self)
        ours, theirs = (self.dataset, self.held_out), self.set and (self.set.dataset, self.set.held_out)
        require(self.set is None or ours == theirs, f"the set must be one of {self.dataset} with as many images held out")
        require(self.set is None or not self.images, "a small set is used whole: leave images at 0")

    def needs(self) -> tuple[Run, ...]:
        """The run that makes its small set, if it has one."""
        return (self.set,) if self.set else ()


@dataclass(frozen=True)
class Space:
    """A search space of ConvNets: every combination of these options, or evenly fewer; the default is the paper's 720.

    Args:
        width: W.
        depth: D.
        norm: N.
        activation: A.
        pooling: P.
        every: only every n-th combination, in the order of the fields, the last changing fastest.
    """

    width: tuple[int, ...] = (32, 64, 128, 256)
    depth: tuple[int, ...] = (1, 2, 3, 4)
    norm: tuple[str, ...] = NORMS
    activation: tuple[str, ...] = ACTIVATIONS
    pooling: tuple[str, ...] = POOLINGS
    every: int = param(1, "take every n-th combination", at_least=1)

    def __post_init__(self) -> None:
        check(self)
        for option in OPTIONS:
            require(bool(getattr(self, option)), f"the search space has no {option}: give at least one value")

    def networks(self, narrow: Sequence[str] = ()) -> list[Network]:
        """Return the architectures, or those with the options that `narrow` names, as in ("width=32,64", "norm=instance").

        Raises:
            SpecError: an unknown option, a value that no architecture has, or no architecture is left.
        """
        grid = itertools.product(*(getattr(self, option) for option in OPTIONS))
        found = whole = [ConvNet(**dict(zip(OPTIONS, values, strict=True))) for values in grid][:: self.every]
        for option, values in _options(narrow):
            for value in values:
                _of_some(whole, option, [value])
            found = _of_some(found, option, values)
        return found


def _of_some(networks: Sequence[Network], option: str, values: Sequence[str]) -> list[Network]:
    """Those of these architectures that have one of the option's values, of which there must be some."""
    if left := [network for network in networks if str(network[option]) in values]:
        return left
    have = ", ".join(dict.fromkeys(str(network[option]) for network in networks))
    raise SpecError(f"no architecture is left in the search space with {option}={','.join(values)}: it has {have}")


def _options(narrow: Sequence[str]) -> list[tuple[str, Sequence[str]]]:
    pairs = [str(item).partition("=") for item in narrow]
    for option, _, values in pairs:
        one_of("option of the search space", option, OPTIONS)
        require(all(values.split(",")), f"{option!r} in the search space has no value: write it as {option}=VALUE,VALUE")
    names = [option for option, _, _ in pairs]
    if twice := [option for option in names if names.count(option) > 1]:
        raise SpecError(f"{twice[0]!r} in the search space is given twice: write it once, as {twice[0]}=VALUE,VALUE")
    return [(option, values.split(",")) for option, _, values in pairs]
