"""The numbers that the paper prints, by label: accuracies in percent as (mean, standard deviation) over 5 sets × 20 networks.

Each table stands here as in the paper, so that one can be read beside the other. The values of the paper's curves are not in
its source, so they are not here either.
"""

import re
from typing import Any

from ..spec.architectures import Network
from .dd import learner

Accuracy = tuple[float, float]  # mean, standard deviation

SETS = 5  # behind each number, with 20 networks trained on each


def _grid(text: str) -> dict[tuple[str, ...], Accuracy]:
    """Read a table whose first line names the columns; each further line is a label of some words, then its numbers.

    Returns:
        (words of the label …, column) → number.
    """
    head, *lines = text.strip().splitlines()
    found = {}
    for line in lines:
        words = line.split()
        numbers = [word for word in words if "±" in word or word == "-"]
        label = tuple(words[: len(words) - len(numbers)])
        for column, number in zip(head.split(), numbers, strict=True):
            if number != "-":
                mean, std = re.fullmatch(r"(\d+\.\d)±(\d+\.\d)", number).groups()
                found[*label, column] = float(mean), float(std)
    return found


# Table 1: (data set, images per class, method); ConvNet makes the images, where a network does, and is trained on them.
TABLE_1 = _grid("""
                    random    herding   k-center  forgetting  ours
    mnist        1  64.9±3.5  89.2±1.6  89.3±1.5  35.5±5.6    91.7±0.5
    mnist        10 95.1±0.9  93.7±0.3  84.4±1.7  68.1±3.3    97.4±0.2
    mnist        50 97.9±0.2  94.9±0.2  97.4±0.3  88.2±1.2    98.8±0.2
    fashionmnist 1  51.4±3.8  67.0±1.9  66.9±1.8  42.0±5.5    70.5±0.6
    fashionmnist 10 73.8±0.7  71.1±0.7  54.7±1.5  53.9±2.0    82.3±0.4
    fashionmnist 50 82.5±0.7  71.9±0.8  68.3±0.8  55.0±1.1    83.6±0.4
    svhn         1  14.6±1.6  20.9±1.3  21.0±1.5  12.1±1.7    31.2±1.4
    svhn         10 35.1±4.1  50.5±3.3  14.0±1.3  16.8±1.2    76.1±0.6
    svhn         50 70.9±0.9  72.6±0.8  20.1±1.4  27.2±1.5    82.3±0.3
    cifar10      1  14.4±2.0  21.5±1.2  21.5±1.3  13.5±1.2    28.3±0.5
    cifar10      10 26.0±1.2  31.6±0.7  14.7±0.9  23.3±1.0    44.9±0.5
    cifar10      50 43.4±1.0  40.4±0.6  27.0±1.4  23.3±1.1    53.9±0.5
""")

# Table 1, last column: ConvNet trained on the whole training set.
WHOLE = {"mnist": (99.6, 0.0), "fashionmnist": (93.5, 0.1), "svhn": (95.4, 0.1), "cifar10": (84.8, 0.1)}

# Table 2: MNIST, 1 image per class; (network that condensed, network that was trained).
TABLE_2 = _grid("""
             MLP       ConvNet   LeNet     AlexNet    VGG11     ResNet18
    MLP      70.5±1.2  63.9±6.5  77.3±5.8  70.9±11.6  53.2±7.0  80.9±3.6
    ConvNet  69.6±1.6  91.7±0.5  85.3±1.8  85.1±3.0   83.4±1.8  90.0±0.8
    LeNet    71.0±1.6  90.3±1.2  85.0±1.7  84.7±2.4   80.3±2.7  89.0±0.8
    AlexNet  72.1±1.7  87.5±1.6  84.0±2.8  82.7±2.9   81.2±3.0  88.9±1.1
    VGG11    70.3±1.6  90.1±0.7  83.9±2.7  83.4±3.7   81.7±2.6  89.1±0.9
    ResNet18 73.6±1.2  91.6±0.5  86.4±1.5  85.4±1.9   83.4±2.4  89.4±0.9
""")

# Table 3: (data set, images per class, method), LeNet on MNIST and AlexCifarNet on CIFAR10; DD was not run at 1.
TABLE_3 = _grid("""
               DD        ours
    mnist   1  -         85.0±1.6
    mnist   10 79.5±8.1  93.9±0.6
    cifar10 1  -         24.2±0.9
    cifar10 10 36.8±1.2  39.1±1.2
""")
WHOLE_3 = {"mnist": (99.5, 0.0), "cifar10": (83.1, 0.2)}

# Table T8: (data set, images per class, method); the first three are the best of 1000 random sets.
TABLE_T8 = _grid("""
                    top-1000  top-100   top-10    cGAN      ours
    mnist        1  64.3±6.1  74.4±1.8  78.2±1.7  64.0±3.2  91.7±0.5
    mnist        10 94.8±0.7  96.0±0.2  96.4±0.1  94.9±0.6  97.4±0.2
    fashionmnist 1  51.3±5.4  59.6±1.3  62.4±0.9  51.1±0.8  70.5±0.6
    fashionmnist 10 73.8±1.6  76.4±0.6  77.6±0.2  73.9±0.7  82.3±0.4
    svhn         1  14.3±2.1  18.1±0.9  19.9±0.2  16.1±0.9  31.2±1.4
    svhn         10 34.6±3.2  40.3±1.3  42.9±0.9  33.9±1.1  76.1±0.6
    cifar10      1  15.0±2.0  18.5±0.8  20.1±0.5  16.3±1.4  28.3±0.5
    cifar10      10 27.1±1.6  29.8±0.7  31.4±0.2  27.9±1.1  44.9±0.5
""")

# Table T9: (data set, images per class, method); LD is label distillation, with AlexNet.
TABLE_T9 = _grid("""
                    random    herding   k-center  forgetting  LD        ours
    cifar100     1  4.2±0.3   8.4±0.3   8.3±0.3   3.5±0.3     11.5±0.4  12.8±0.3
    cifar100     10 14.6±0.5  17.3±0.3  7.1±0.3   9.8±0.2     -         25.2±0.3
""")
WHOLE_T9 = {"cifar100": (56.2, 0.3)}

# Tables T2-T6: MNIST, 1 image per class, ConvNet; (its option in stage C, its option in stage T).
TABLE_T2 = _grid("""
              sigmoid  relu     leakyrelu
    sigmoid   86.7±0.7 91.2±0.6 91.2±0.6
    relu      86.1±0.9 91.7±0.5 91.7±0.5
    leakyrelu 86.3±0.9 91.7±0.5 91.7±0.4
""")
TABLE_T3 = _grid("""
         none     max      avg
    none 78.7±3.0 80.8±3.5 88.3±1.0
    max  81.2±2.8 89.5±1.1 91.1±0.6
    avg  81.8±2.9 90.2±0.8 91.7±0.5
""")
TABLE_T4 = _grid("""
             none     batch    layer    instance group
    none     79.0±2.2 80.8±2.0 85.8±1.7 90.7±0.7 85.9±1.7
    batch    78.6±2.1 80.7±1.8 85.7±1.6 90.9±0.6 85.9±1.5
    layer    81.2±1.8 78.6±3.0 87.4±1.3 90.7±0.7 87.3±1.4
    instance 72.9±7.1 56.7±6.5 82.7±5.3 91.7±0.5 84.3±4.2
    group    79.5±2.1 81.8±2.3 87.3±1.2 91.6±0.5 87.2±1.2
""")
TABLE_T5 = _grid("""
      1        2        3        4
    1 61.3±3.5 78.2±3.0 77.1±4.0 76.4±3.5
    2 78.3±2.3 89.0±0.8 91.0±0.6 89.4±0.8
    3 81.6±1.5 89.8±0.8 91.7±0.5 90.4±0.6
    4 82.5±1.3 89.9±0.8 91.9±0.5 90.6±0.4
""")
TABLE_T6 = _grid("""
        32       64       128      256
    32  90.6±0.8 91.4±0.5 91.5±0.5 91.3±0.6
    64  91.0±0.8 91.6±0.6 91.8±0.5 91.4±0.6
    128 90.8±0.7 91.5±0.6 91.7±0.5 91.2±0.7
    256 91.0±0.7 91.6±0.6 91.7±0.5 91.4±0.5
""")

# Table T7: MNIST, 1 image per class; (distance, network that condensed and was trained).
TABLE_T7 = _grid("""
              MLP      ConvNet  LeNet    AlexNet  VGG11    ResNet18
    euclidean 69.3±0.9 92.7±0.3 65.0±5.1 66.2±5.6 57.1±7.0 68.0±5.2
    cosine    45.2±3.6 69.2±2.7 61.1±8.2 58.3±4.1 55.0±5.0 68.8±7.8
    layerwise 70.5±1.2 91.7±0.5 85.0±1.7 82.7±2.9 81.7±2.6 89.4±0.9
""")
# Table T10: MNIST, 10 images per class learned with LeNet; (method, network that was trained).
TABLE_T10 = _grid("""
         MLP       ConvNet   LeNet     AlexNet    VGG11     ResNet18
    DD   72.7±2.8  77.6±2.9  79.5±8.1  51.3±19.9  11.4±2.6  63.6±12.7
    ours 83.0±2.5  92.9±0.5  93.9±0.6  90.6±1.9   92.9±0.5  94.5±0.4
""")

# Table T11: (method, data set) → memory in MB and time in minutes, 10 images per class, on one GTX 1080 Ti.
TABLE_T11 = {("DD", "mnist"): (785, 160), ("ours", "mnist"): (653, 46)}
TABLE_T11 |= {("DD", "cifar10"): (3211, 214), ("ours", "cifar10"): (1445, 105)}
# Table 4: architecture search on CIFAR10, by what the candidates are trained on.
SOURCES = ("random", "herding", "condense", "early", "whole")  # "early": the whole set, cut short
PROXIES = SOURCES[:-1]
_ROWS = {
    "performance": (76.2, 76.2, 84.5, 84.5, 85.9),  # test accuracy in percent of the best found, trained on the whole set
    "correlation": (-0.21, -0.20, 0.79, 0.42, 1.00),  # Spearman's, of ten
    "minutes": (18.8, 18.8, 18.8, 18.8, 8604.3),
    "images": (100, 100, 100, 10_000, 50_000),
}
TABLE_4 = {row: dict(zip(SOURCES, numbers, strict=True)) for row, numbers in _ROWS.items()}

# Fig. 4: by how many points condensed images end above herding's without distillation, the only number of it in the text.
CONTINUAL_GAIN = 2.3

# Table T1: data set → training and test images.
TABLE_T1 = {"usps": (7291, 2007), "mnist": (60000, 10000), "fashionmnist": (60000, 10000)}
TABLE_T1 |= {"svhn": (73257, 26032), "cifar10": (50000, 10000), "cifar100": (50000, 10000)}


def find(experiment: str, place: dict[str, Any]) -> Accuracy | None:
    """Return what the paper prints for a cell of an experiment, or None if it prints nothing.

    Args:
        experiment: its name in `experiments`.
        place: the cell's `dataset`, `ipc`, `network`, `test_network` and `variant`.

    Returns:
        Mean and standard deviation in percent.
    """
    place = dict(place)
    if experiment in ABLATIONS:
        return _ablation(*ABLATIONS[experiment], **place)
    if place.pop("variant"):
        return None
    if experiment == "cross_arch" and (place["dataset"], place["ipc"]) == ("mnist", 1):
        return TABLE_2.get((place["network"], place["test_network"]))
    if experiment == "distillation":
        return _distillation(**place)
    if experiment in COLUMNS and place["test_network"] == "ConvNet":
        return _column(experiment, **place)
    return None


# Tables whose columns are methods, by experiment; where no other column is named, it is that of the same name.
COLUMNS = {
    **dict.fromkeys(("method", "condensed_images", "coresets", "images_per_class", "recipe_test"), (TABLE_1, WHOLE)),
    "more_baselines": (TABLE_T8, WHOLE),
    "cifar100": (TABLE_T9, WHOLE_T9),
}
NAMES = {"ConvNet": "ours", "gan": "cGAN", "ors": "top-1000", "ors-tenth": "top-100", "ors-hundredth": "top-10"}


def _column(experiment: str, dataset: str, ipc: int, network: str, test_network: str) -> Accuracy | None:
    table, whole = COLUMNS[experiment]
    return whole.get(dataset) if network == "whole" else table.get((dataset, str(ipc), NAMES.get(network, network)))


# Tables of one thing varied, by experiment: the ConvNet's option and its table, or the field of a variant and its table.
ABLATIONS = {
    "ablation_activation": ("activation", TABLE_T2),
    "ablation_pooling": ("pooling", TABLE_T3),
    "ablation_normalization": ("norm", TABLE_T4),
    "ablation_depth": ("depth", TABLE_T5),
    "ablation_width": ("width", TABLE_T6),
    "ablation_distance": ("distance", TABLE_T7),
}


def _ablation(
    varied: str, table: dict[tuple[str, ...], Accuracy], dataset: str, ipc: int, network: str, test_network: str, variant: str
) -> Accuracy | None:
    if (dataset, ipc) != ("mnist", 1):
        return None
    if varied == "distance":
        kind = variant.removeprefix("distance=") or "layerwise"
        return table.get((kind, network)) if network == test_network else None
    pair = tuple(_option(varied, text) for text in (network, test_network))
    return None if variant else table.get(pair)


def _option(name: str, text: str) -> str:
    """The value of a ConvNet's option where no other differs from the default; else empty, which is in no table."""
    network = Network.parse(text) if text.partition(":")[0] == "ConvNet" else None
    return str(network[name]) if network and {name} >= {option for option, _ in network.options} else ""


def _distillation(dataset: str, ipc: int, network: str, test_network: str) -> Accuracy | None:
    """Table 3 where the network that learned is trained, and Table T10, beside DD at its rates: it does not say in which way."""
    own = learner(dataset)
    if network == "whole":
        return WHOLE_3.get(dataset) if test_network == own else None
    column = {own: "ours", "distill": "DD"}.get(network)
    if test_network == own:
        return TABLE_3.get((dataset, str(ipc), column))
    return TABLE_T10.get((column, test_network)) if (dataset, ipc) == ("mnist", 10) else None
