"""The paper's claims with our numbers, the paper's, and what our records say of each: the scoreboard of the book's first page."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ..experiments import GAN, RANDOM, dd, paper
from ..results import Store
from ..results.claims import HOLDS, OPEN, REFUTED, compared
from ..results.outcomes import DASH
from ..results.studied import TOP, Learned, Search
from ..spec import GUIDED
from . import decisions as on
from .application_report import gains
from .decisions import OURS, C, Rows, T
from .tables import pipe_table

# --- the numbers that stand beside a claim: groups of what is compared, `kind` "ours" or "paper"


Groups = Sequence[Sequence[float]]
Numbers = Callable[[Any, str], Groups]


def at(*groups: Sequence[tuple]) -> Numbers:
    """The accuracies of some rows."""
    return lambda rows, kind: [[getattr(rows[place], kind) for place in group] for group in groups]


def on_mnist(*rivals: str, ipc: Sequence[int] = (1, 10)) -> Numbers:
    """Those of condensed images and of rivals, on MNIST."""
    return at(*([("mnist", n, name) for name in (OURS, *rivals)] for n in ipc))


def means(side: int, *values: str) -> Numbers:
    """The means of some values of a side over the other."""
    return lambda matrix, kind: [[fmean(getattr(o, kind) for key, o in matrix.items() if key[side] == v) for v in values]]


def transfer(made: str) -> Numbers:
    """The means over all other networks: of those on the images of one network, and of those on each network's own."""

    def numbers(matrix: Rows, kind: str) -> Groups:
        trained = on.others(matrix, T, made)
        return [[fmean(getattr(matrix[way or t, t], kind) for t in trained) for way in (made, "")]]

    return numbers


DEVIATION = {"ours": "std", "paper": "paper_std"}


def deviations(rows: Rows, kind: str) -> Groups:
    """Those over networks on condensed images and on DD's."""
    return [[getattr(rows["mnist", 10, "LeNet", way], DEVIATION[kind]) for way in (dd.CONDENSED, "distill")]]


def memory(measured: Rows, kind: str) -> Groups:
    """The process's peak in MB on MNIST, of condensing and of DD."""
    if kind == "paper":
        return [[float(paper.TABLE_T11[method, "mnist"][0]) for method in ("ours", "DD")]]
    found = measured.get(("mnist", "cpu"))
    return [[float(found[-1][way]["peak_mb"]) for way in ("condense/50", "unrolled/30")] if found else [math.nan]]


def minutes(measured: Rows, kind: str) -> Groups:
    """Minutes on MNIST, of condensing and of DD."""
    if kind == "paper":
        return [[float(paper.TABLE_T11[method, "mnist"][1]) for method in ("ours", "DD")]]
    found = measured.get(("mnist", "cpu"))
    return [on.minutes(found[-1], "mnist") if found else [math.nan]]


def gain(found: Sequence[Learned], kind: str) -> Groups:
    """Points by which condensed images end above herding's without distillation."""
    return [[paper.CONTINUAL_GAIN if kind == "paper" else fmean(gains(found, False) or [math.nan])]]


def best_found(found: Search, kind: str) -> Groups:
    """Test accuracies of the best architecture by condensed images, random ones and herding's."""
    sources = ("condense", RANDOM, "herding")
    return [[paper.TABLE_4["performance"][s] if kind == "paper" else fmean(found.performance(s) or [math.nan]) for s in sources]]


def correlations(found: Search, kind: str) -> Groups:
    """ρ over the ten best by condensed images, random ones and early stopping."""
    sources = ("condense", RANDOM, "early")
    return [[paper.TABLE_4["correlation"][s] if kind == "paper" else found.correlation(s, TOP).rho for s in sources]]


def none(found: Any, kind: str) -> Groups:
    """None are printed, or recorded."""
    return [[math.nan]]


# --- the claims, those that matter most first


@dataclass(frozen=True)
class Statement:
    """A claim of the paper.

    Args:
        item: of the paper.
        page: the stem of the notebook that tells more.
        claim: a plain sentence.
        shown: what the numbers beside it are; a colon stands between what is compared.
        read: what is recorded.
        decide: its cases.
        numbers: ours and the paper's.
        form: of a number.
    """

    item: str
    page: str
    claim: str
    shown: str
    read: Callable[[Store], Any]
    decide: Callable[[Any], on.Cases]
    numbers: Numbers
    form: str = ".1f"


TABLE_1 = on.columns("coresets", RANDOM, *GUIDED)
TABLE_2 = on.by("cross_arch", "network", "test_network")
ABLATED = "stage T, mean over stage C"
OTHERS = ("ors-hundredth", GAN)
CHOICES = (("", "init=real"), ("real_batch=64", "real_batch=256"), ("", "batches=mixed"))
RESNETS = ("ResNet18", "ResNet18:downsampling=stride")
# fmt: off
STATEMENTS = (
    Statement(
        "Table 1", "coresets", "Condensed images train a network better than random real images.",
        "MNIST, 1 and 10 images per class; condensed : random",
        TABLE_1, on.leads(RANDOM), on_mnist(RANDOM),
    ),
    Statement(
        "Table 1", "coresets", "They are better than images chosen by herding.",
        "MNIST, 1 and 10 images per class; condensed : herding",
        TABLE_1, on.leads("herding"), on_mnist("herding"),
    ),
    Statement(
        "Table 1", "coresets", "They are better than images chosen by k-center or forgetting.",
        "MNIST, 1 and 10 images per class; condensed : k-center : forgetting",
        TABLE_1, on.leads("k-center", "forgetting"), on_mnist("k-center", "forgetting"),
    ),
    Statement(
        "our recipe", "recipe", "Our recipe for two cores reaches the paper's accuracy at one image per class, within one point.",
        "MNIST, FashionMNIST, CIFAR10",
        on.by("recipe_test", "dataset"), on.near_the_paper, at([("mnist",)], [("fashionmnist",)], [("cifar10",)]),
    ),
    Statement(
        "Fig. 3", "images_per_class", "Ten condensed images per class are better than one.",
        "MNIST, CIFAR10; ten : one",
        on.columns("images_per_class"), on.ten_beat_one,
        at(*([(dataset, ipc, OURS) for ipc in (10, 1)] for dataset in ("mnist", "cifar10"))),
    ),
    Statement(
        "Table T8", "more_baselines", "Condensed images are better than the best of many random sets, and than a GAN's.",
        "MNIST, 1 image per class; condensed : best hundredth of random sets : GAN",
        on.columns("more_baselines", *OTHERS), on.leads(*OTHERS), on_mnist(*OTHERS, ipc=(1,)),
    ),
    Statement(
        "Table T9", "cifar100", "On CIFAR100 condensed images are better than chosen ones.", "",
        on.columns("cifar100", RANDOM, *GUIDED), on.leads(RANDOM, *GUIDED), none,
    ),
    Statement(
        "Table 2", "cross_arch", "The ConvNet's images train another network at most a point worse than its own images.",
        "MNIST, mean over five networks; the ConvNet's images : own",
        TABLE_2, on.suit_others, transfer(OURS),
    ),
    Statement(
        "Table 2", "cross_arch", "The MLP's images train a convolutional network worse than its own images.",
        "MNIST, mean over five networks; the MLP's images : own",
        TABLE_2, on.suit_less, transfer("MLP"),
    ),
    Statement(
        "Table T2", "ablation_activation", "Sigmoid is the worst activation in training.",
        f"{ABLATED}; sigmoid : ReLU : leaky ReLU",
        on.ablation("ablation_activation"), on.cases({"in training, sigmoid is worst": on.worst(T, "sigmoid")}),
        means(T, "sigmoid", "relu", "leakyrelu"),
    ),
    Statement(
        "Table T3", "ablation_pooling", "In training, no pooling is worst, and average pooling is not behind max pooling.",
        f"{ABLATED}; none : max : average",
        on.ablation("ablation_pooling"),
        on.cases({
            "in training, no pooling is worst": on.worst(T, "none"),
            "in training, average pooling is not behind max pooling": on.not_behind(T, "avg", "max"),
        }),
        means(T, "none", "max", "avg"),
    ),
    Statement(
        "Table T4", "ablation_normalization", "In training, instance norm is best; no norm and batch norm are worst.",
        f"{ABLATED}; instance : batch : none",
        on.ablation("ablation_normalization"),
        on.cases({
            "in training, instance norm is best": on.ahead(T, "instance", "none", "batch", "layer", "group"),
            "in training, no norm and batch norm are worst": on.worst(T, "none", "batch"),
        }),
        means(T, "instance", "batch", "none"),
    ),
    Statement(
        "Table T5", "ablation_depth", "A ConvNet of one block is the worst, in training and while condensing.",
        f"{ABLATED}; 1 block : 3 blocks",
        on.ablation("ablation_depth"),
        on.cases({
            "in training, one block is worst": on.worst(T, "1"),
            "while condensing, one block is worst": on.worst(C, "1"),
        }),
        means(T, "1", "3"),
    ),
    Statement(
        "Table T6", "ablation_width", "The width of the ConvNet that condenses hardly matters.",
        "stage C, mean over stage T; 32 filters : 256 filters",
        on.ablation("ablation_width"), on.cases({"while condensing, width hardly matters": on.narrow}),
        means(C, "32", "256"),
    ),
    Statement(
        "Table T7", "ablation_distance", "With LeNet, the layerwise distance is better than the Euclidean and the cosine distance.",
        "layerwise : Euclidean : cosine",
        on.ablation("ablation_distance"),
        on.cases({"on LeNet, the paper's distance wins": on.wins_on("LeNet", "layerwise", "euclidean", "cosine")}),
        at([(kind, "LeNet") for kind in ("layerwise", "euclidean", "cosine")]),
    ),
    Statement(
        "Fig. F2", "ablation_loops", "The accuracy hardly depends on the numbers of steps near K = 1000 and T = 10.", "",
        lambda store: {}, on.cases({}), none,
    ),
    Statement(
        "App. A", "choices",
        "The start and the real batch hardly matter; matching class by class is faster; in ResNet18 pooling beats strides.",
        "MNIST, 1 image per class; noise : real images, 64 : 256 in a batch, one class : mixed",
        on.by("choices", "ipc", "network", "variant"),
        on.cases({
            "noise and real images": lambda rows: on.alike(rows[1, OURS, "init=real"], rows[1, OURS, ""]),
            "64 and 256 real images": lambda rows: on.alike(rows[1, OURS, "real_batch=256"], rows[1, OURS, "real_batch=64"]),
            "classes apart learn faster": lambda rows: compared(rows[1, OURS, ""], rows[1, OURS, "batches=mixed"]),
            "average pooling makes better images than strides": lambda rows: compared(*(rows[1, name, ""] for name in RESNETS)),
        }),
        at(*([(1, OURS, one), (1, OURS, other)] for one, other in CHOICES)),
    ),
    Statement(
        "Table 3, T10", "distillation",
        "Condensed images are better than those of Dataset Distillation (DD), on MNIST even one than ten of DD's.",
        "MNIST, LeNet, images per class; 10 condensed : 10 of DD's, 1 condensed : 10 of DD's",
        on.distillation, on.beats_distillation,
        at(*([("mnist", n, "LeNet", dd.CONDENSED), ("mnist", 10, "LeNet", "distill")] for n in (10, 1))),
    ),
    Statement(
        "Table 3", "distillation", "Networks trained on DD's images vary more.",
        "MNIST, LeNet, 10 images per class, standard deviation; condensed : DD",
        on.distillation, on.varies_more, deviations,
    ),
    Statement(
        "Table T11", "distillation", "DD's memory grows with the network's training steps, that of condensation does not.",
        "MNIST, the process's peak; MB of condensation : DD",
        on.memory, on.takes_less("memory"), memory, ".0f",
    ),
    Statement(
        "Table T11", "distillation", "Condensing takes less time than DD.",
        "MNIST, ours on two cores, the paper's on a GPU; minutes of condensation : DD",
        on.memory, on.takes_less("time"), minutes, ".0f",
    ),
    Statement(
        "Fig. 4", "continual",
        "In continual learning a memory of condensed images forgets less than herding's, most clearly without distillation.",
        "points gained over herding without distillation",
        on.continual, on.keeps_more, gain, "+.1f",
    ),
    Statement(
        "Table 4", "nas", "Condensed images find a better architecture than random images or herding.",
        "CIFAR10; condensed : random : herding",
        on.search, on.finds_better, best_found,
    ),
    Statement(
        "Table 4", "nas", "They rank architectures more like the whole set than random images, herding or early stopping do.",
        "ρ of the ten best; condensed : random : early stopping",
        on.search, on.ranks_better, correlations, ".2f",
    ),
)
# fmt: on


# --- the scoreboard


@dataclass(frozen=True)
class Line:
    """A statement with ours, the paper's numbers and its verdicts.

    Args:
        statement: the claim.
        ours, theirs: numbers as text.
        verdicts: how many of the cases with records hold, are refuted and are not decided.
    """

    statement: Statement
    ours: str
    theirs: str
    verdicts: Counter


def scoreboard(store: Store | None = None) -> list[Line]:
    """Decide every statement on what is recorded; nothing is computed."""
    store, lines = store or Store(), []
    recorded = {read: read(store) for read in dict.fromkeys(statement.read for statement in STATEMENTS)}
    for statement in STATEMENTS:
        found = recorded[statement.read]
        verdicts = Counter(claim.verdict for claim in statement.decide(found).values() if claim.recorded)
        ours, theirs = (_text(statement.numbers(found, kind), statement.form) for kind in ("ours", "paper"))
        lines.append(Line(statement, ours, theirs, verdicts))
    return lines


def _text(groups: Groups, form: str) -> str:
    """Numbers as text; one dash where none exists."""
    if all(math.isnan(x) for group in groups for x in group):
        return DASH
    return ", ".join(" : ".join(DASH if math.isnan(x) else f"{x:{form}}".replace("-", "−") for x in group) for group in groups)


def scoreboard_table(lines: Iterable[Line], pages: str = "../notebooks") -> str:
    """The statements that records decide or leave open, as a table in Markdown whose first column links to the pages.

    Args:
        lines: of `scoreboard`.
        pages: where the notebooks are, from the page that shows it.
    """
    rows = []
    for line in filter(lambda line: line.verdicts, lines):
        claim = f"{line.statement.claim}<br><small>{line.statement.shown}</small>"
        numbers = (text.replace(", ", "<br>") for text in (line.ours, line.theirs))
        rows.append([_link(line.statement, pages), claim, verdict(line.verdicts).replace(", ", "<br>"), *numbers])
    return pipe_table(["item", "claim", "verdict", "ours", "paper"], rows, left=5)


def verdict(counted: Counter) -> str:
    """One word where a claim has one verdict in all its cases, else how many cases have which."""
    names = [f"**{name}**" if name != OPEN else name for name in (HOLDS, REFUTED, OPEN) if counted[name]]
    if len(names) == 1:
        return names[0]
    numbers = [str(counted[name]) for name in (HOLDS, REFUTED, OPEN) if counted[name]]
    return ", ".join(f"{name} {number}" for name, number in zip(names, numbers, strict=True))


def undecidable(lines: Iterable[Line], pages: str = "../notebooks") -> str:
    """One line: the claims that no record tests; empty if there is none."""
    absent = [f"{line.statement.claim.rstrip('.')} ({_link(line.statement, pages)})" for line in lines if not line.verdicts]
    return f"Not tested by the records yet: {'; '.join(absent)}." if absent else ""


def _link(statement: Statement, pages: str) -> str:
    return f"[{statement.item}]({pages}/{statement.page}.ipynb)"
