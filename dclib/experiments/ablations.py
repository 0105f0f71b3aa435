"""The ablations of the paper's appendix (Tables T2 to T7, Fig. F2), and what it leaves open, as plain declarations.

`experiments` makes experiments of them, and `presets` has their grids where a budget has one of its own.
"""

from typing import Any

from ..spec import ConvNet
from ..spec.variants import FAST, steps

PLACE = dict(dataset=("mnist",), ipc=(1,))
CONVNET = dict(network=("ConvNet",), test_network=("ConvNet",))
BOTH = ("network", "test_network")
SIX = ("MLP", "ConvNet", "LeNet", "AlexNet", "VGG11", "ResNet18")  # networks of Tables 2, T7 and T10
FOUR = ("mnist", "fashionmnist", "svhn", "cifar10")  # data sets of Tables 1 and T8, and of Figs. 3 and F2
BUDGET = "outer_steps=60,real_batch=32"  # of Tables T2 to T6, and of the precisions, at `cpu`


def _crossed(name: str, label: str, what: str, option: str, values: tuple) -> dict[str, Any]:
    """One option of the ConvNet varied in both stages, on MNIST at one image for each class."""
    return dict(
        name=f"ablation_{name}",
        label=label,
        question=f"How much does {what} matter, while condensing and in training on the condensed images?",
        grid=PLACE | dict.fromkeys(BOTH, tuple(str(ConvNet(**{option: value})) for value in values)),
        repeats={"cpu": (1, 3)},
        budgets={"cpu": BUDGET},
    )


OWN_RATE = "distance=cosine,image_lr=10"  # beyond the paper, which has one rate for all
DISTANCE = dict(
    name="ablation_distance",
    label="Table T7",
    question="Does it matter how the distance of two gradients is measured?",
    grid=PLACE | dict.fromkeys(BOTH, SIX) | dict(variant=("distance=euclidean", "distance=cosine", "", OWN_RATE)),
    diagonal=True,
    repeats={"cpu": (2, 3)},
)
LOOPS = dict(
    name="ablation_loops",
    label="Fig. F2",
    question="How many outer and inner steps does it take?",
    grid=CONVNET | dict(dataset=FOUR, ipc=(10,), variant=steps(K=(1, 5, 10, 20, 100, 1000), T=(1, 5, 10, 20))),
    repeats={"cpu": (1, 2)},
    budgets={"cpu": "init=noise"},
)
OPEN = ("", "init=real", "batches=mixed", "patience=10", *(f"real_batch={n}" for n in (16, 32, 64, 128, 256)))
CHOICES = dict(
    name="choices",
    label="Appendix A",
    question="What difference do the choices make that the paper leaves open, or calls unimportant?",
    grid=PLACE | CONVNET | dict(variant=OPEN),
    more=(
        dict(network=("ConvNet:init=kaiming",), variant=("",)),
        dict(network=("ConvNet:norm=batch",), variant=("", "bn=true")),
        dict(ipc=(10,), variant=("", "network_momentum=0.0", "image_lr=0.1,init=noise")),  # the last: the paper's, also at `cpu`
        dict(network=("ResNet18", "ResNet18:downsampling=stride"), variant=("",)),
    ),
    repeats={"cpu": {1: (2, 3), 10: (1, 3)}},
)
PRECISION = dict(
    name="precision",
    label="Speed",
    question="Does it cost accuracy to match gradients in bfloat16 or TF32?",
    grid=PLACE | CONVNET | dict(variant=("", "precision=bfloat16", "precision=tf32")),
    repeats={"cpu": (3, 5), "paper": (3, 5)},
    budgets={"cpu": BUDGET},
)
RATES = ("", "image_lr=0.4", "image_lr=0.4,image_lr_end=0.1", "image_lr=1,image_lr_end=0.1", "image_lr=2,image_lr_end=0.1")
ENDS = ("image_lr=1,image_lr_end=0.02", "image_lr=1,image_lr_end=0.3")
LENGTHS = tuple(f"outer_steps={K},image_lr={start},image_lr_end=0.1" for start in (0.4, 1) for K in (50, 200, 400))
OTHERS = tuple(f"image_lr=1,image_lr_end=0.1,{change}" for change in ("init=real", "real_batch=16", "real_batch=64"))
SEVERAL = (
    "",
    "image_lr=3,image_lr_end=0.3",
    "image_lr=10,image_lr_end=1",
    "image_lr=3,image_lr_end=0.3,init=noise",
    "image_lr=10,image_lr_end=1,init=noise",
    "outer_steps=60,image_lr=3,image_lr_end=0.3",
    "image_lr=3,image_lr_end=0.3,network_epochs=20",
)
RECIPE = dict(
    name="recipe",
    label="Recipe",
    question="Which rate of the images, which start and how many steps learn good images in minutes?",
    grid=CONVNET | dict(dataset=("mnist", "cifar10", "fashionmnist"), ipc=(1,), variant=RATES + ENDS + LENGTHS + OTHERS),
    more=(dict(ipc=(10,), variant=SEVERAL),),
    repeats={"cpu": (1, 3)},
    budgets={"cpu": {1: "outer_steps=100,real_batch=32", 10: "outer_steps=20,real_batch=32"}},
    held_out=5000,
)
RECIPE_TEST = dict(
    name="recipe_test",
    label="Recipe",
    question="What do networks reach on the test images that are trained on sets learned by the recipe?",
    grid=CONVNET | dict(dataset=FOUR, ipc=(1,)),
    repeats={"cpu": (3, 5)},
    budgets={"cpu": {n: ",".join(f"{name}={value}" for name, value in recipe.items()) for n, recipe in FAST.items()}},
    epochs={"cpu": 0},
)
DECLARED = (
    _crossed("activation", "Table T2", "the activation function", "activation", ("sigmoid", "relu", "leakyrelu")),
    _crossed("pooling", "Table T3", "pooling", "pooling", ("none", "max", "avg")),
    _crossed("normalization", "Table T4", "normalisation", "norm", ("none", "batch", "layer", "instance", "group")),
    _crossed("depth", "Table T5", "depth", "depth", (1, 2, 3, 4)),
    _crossed("width", "Table T6", "width", "width", (32, 64, 128, 256)),
    DISTANCE,
    LOOPS,
    CHOICES,
    RECIPE,
    RECIPE_TEST,
    PRECISION,
)

DIGITS = dict(dataset=("digits",))
TWO = {  # of the rows and columns, at `smoke`
    "ablation_activation": ("ConvNet:activation=sigmoid", "ConvNet"),
    "ablation_pooling": ("ConvNet:pooling=max", "ConvNet"),
    "ablation_normalization": ("ConvNet:norm=none", "ConvNet"),
    "ablation_depth": ("ConvNet:depth=1", "ConvNet:depth=2"),
    "ablation_width": ("ConvNet:width=32", "ConvNet:width=64"),
    "ablation_distance": ("MLP", "LeNet"),
}
SMOKE = {
    **{name: DIGITS | dict.fromkeys(BOTH, networks) for name, networks in TWO.items()},
    "ablation_loops": DIGITS | dict(ipc=(2,), variant=steps(K=(5, 20), T=(1, 2))),
    "recipe_test": DIGITS,
    "recipe": DIGITS | dict(ipc=(1,), variant=RATES[::2]),
    "choices": DIGITS | dict(ipc=(1,), network=("ConvNet",), variant=OPEN[:3]),
    "precision": DIGITS | dict(variant=("", "precision=bfloat16")),
}
CPU = {
    "recipe_test": dict(dataset=(*FOUR[:2], "svhn10k", "cifar10")),
    "precision": dict(variant=("", "precision=bfloat16")),  # TF32 is a GPU's
    "ablation_distance": dict.fromkeys(BOTH, SIX[:3]),
    "ablation_loops": dict(dataset=("mnist",), variant=steps(K=(1, 5, 10, 20), T=(1, 5))),
}
