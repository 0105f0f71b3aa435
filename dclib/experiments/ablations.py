"""The ablations of the paper's appendix (Tables T2 to T7, Fig. F2), and studies of what it leaves open."""

from ..spec import ConvNet
from ..spec.architectures import ACTIVATIONS, NORMS, POOLINGS
from ..spec.variants import FAST, spell, steps
from .cells import Table

DIGITS = dict(dataset=("digits",))

PLACE = dict(dataset=("mnist",), ipc=(1,))
CONVNET = dict(network=("ConvNet",), test_network=("ConvNet",))
BOTH = ("network", "test_network")
SIX = ("MLP", "ConvNet", "LeNet", "AlexNet", "VGG11", "ResNet18")  # networks of Tables 2, T7 and T10
FOUR = ("mnist", "fashionmnist", "svhn", "cifar10")  # data sets of Tables 1 and T8, and of Figs. 3 and F2
BUDGET = "outer_steps=60,real_batch=32"  # of Tables T2 to T6, and of the precisions, at `cpu`


def _crossed(name: str, label: str, what: str, option: str, values: tuple, few: tuple) -> Table:
    """One option of the ConvNet varied in both stages, on MNIST at one image per class; at `smoke` only `few` of its values."""
    networks = {value: str(ConvNet(**{option: value})) for value in values}
    return Table(
        name=f"ablation_{name}",
        label=label,
        question=f"How much does {what} matter, while condensing and in training on the condensed images?",
        grid=PLACE | dict.fromkeys(BOTH, tuple(networks.values())),
        grids={"smoke": DIGITS | dict.fromkeys(BOTH, tuple(networks[value] for value in few))},
        repeats={"cpu": (1, 3)},
        budgets={"cpu": BUDGET},
    )


OWN_RATE = "distance=cosine,image_lr=10"  # beyond the paper, which has one rate for all
DISTANCE = Table(
    name="ablation_distance",
    label="Table T7",
    question="Does it matter how the distance of two gradients is measured?",
    grid=PLACE | dict.fromkeys(BOTH, SIX) | dict(variant=("distance=euclidean", "distance=cosine", "", OWN_RATE)),
    grids={"smoke": DIGITS | dict.fromkeys(BOTH, ("MLP", "LeNet")), "cpu": dict.fromkeys(BOTH, SIX[:3])},
    diagonal=True,
    repeats={"cpu": (2, 3)},
)
LOOPS = Table(
    name="ablation_loops",
    label="Fig. F2",
    question="How many outer and inner steps does it take?",
    grid=CONVNET | dict(dataset=FOUR, ipc=(10,), variant=steps(K=(1, 5, 10, 20, 100, 1000), T=(1, 5, 10, 20))),
    grids={
        "smoke": DIGITS | dict(ipc=(2,), variant=steps(K=(5, 20), T=(1, 2))),
        "cpu": dict(dataset=("mnist",), variant=steps(K=(1, 5, 10, 20), T=(1, 5))),
    },
    repeats={"cpu": (1, 2)},
    budgets={"cpu": "init=noise"},
)
OPEN = ("", "init=real", "batches=mixed", "patience=10", *(f"real_batch={n}" for n in (16, 32, 64, 128, 256)))
CHOICES = Table(
    name="choices",
    label="Appendix A",
    question="What difference do the choices make that the paper leaves open, or calls unimportant?",
    grid=PLACE | CONVNET | dict(variant=OPEN),
    grids={"smoke": DIGITS | dict(ipc=(1,), network=("ConvNet",), variant=OPEN[:3])},
    more=(
        dict(network=("ConvNet:init=kaiming",), variant=("",)),
        dict(network=("ConvNet:norm=batch",), variant=("", "bn=true")),
        dict(ipc=(10,), variant=("", "network_momentum=0.0", "image_lr=0.1,init=noise")),  # the last: the paper's, also at `cpu`
        dict(network=("ResNet18", "ResNet18:downsampling=stride"), variant=("",)),
    ),
    repeats={"cpu": {1: (2, 3), 10: (1, 3)}},
)
TWO_PRECISIONS = dict(variant=("", "precision=bfloat16"))  # TF32 is a GPU's
PRECISION = Table(
    name="precision",
    label="Speed",
    question="Does it cost accuracy to match gradients in bfloat16 or TF32?",
    grid=PLACE | CONVNET | dict(variant=("", "precision=bfloat16", "precision=tf32")),
    grids={"smoke": DIGITS | TWO_PRECISIONS, "cpu": TWO_PRECISIONS},
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
RECIPE = Table(
    name="recipe",
    label="Recipe",
    question="Which rate of the images, which start and how many steps learn good images in minutes?",
    grid=CONVNET | dict(dataset=("mnist", "cifar10", "fashionmnist"), ipc=(1,), variant=RATES + ENDS + LENGTHS + OTHERS),
    grids={"smoke": DIGITS | dict(ipc=(1,), variant=RATES[::2])},
    more=(dict(ipc=(10,), variant=SEVERAL),),
    repeats={"cpu": (1, 3)},
    budgets={"cpu": {1: "outer_steps=100,real_batch=32", 10: "outer_steps=20,real_batch=32"}},
    held_out=5000,
)
RECIPE_TEST = Table(
    name="recipe_test",
    label="Recipe",
    question="What do networks reach on the test images that are trained on sets learned by the recipe?",
    grid=CONVNET | dict(dataset=FOUR, ipc=(1,)),
    grids={"smoke": DIGITS, "cpu": dict(dataset=(*FOUR[:2], "svhn10k", "cifar10"))},
    repeats={"cpu": (3, 5)},
    budgets={"cpu": {n: spell(recipe) for n, recipe in FAST.items()}},
    training={"cpu": dict(epochs=0)},
)
ABLATIONS = (
    _crossed("activation", "Table T2", "the activation function", "activation", ACTIVATIONS, ("sigmoid", "relu")),
    _crossed("pooling", "Table T3", "pooling", "pooling", POOLINGS, ("max", "avg")),
    _crossed("normalization", "Table T4", "normalisation", "norm", NORMS, ("none", "instance")),
    _crossed("depth", "Table T5", "depth", "depth", (1, 2, 3, 4), (1, 2)),
    _crossed("width", "Table T6", "width", "width", (32, 64, 128, 256), (32, 64)),
    DISTANCE,
    LOOPS,
    CHOICES,
    RECIPE,
    RECIPE_TEST,
    PRECISION,
)
