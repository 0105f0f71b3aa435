"""Dataset condensation with gradient matching: learn a few images that train a network almost as the whole data set does.

    import dclib

    small = dclib.condense("digits", ipc=1, outer_steps=50, real_batch=32)  # Algorithm 1: ten learned images
    small.save("set.safetensors")
    print(dclib.train(small, network="LeNet", networks=3))  # test accuracies in percent
    print(dclib.train(dclib.select("digits", method="herding"), network="LeNet"))  # ten real images

The names below are loaded when they are first used, so that `import dclib` needs no torch.

The packages, from the ground up: `spec` says what a run is, `data` reads images, `core` has Algorithm 1 and stage T, `methods`
what the paper compares with, `experiments` declares its tables and figures, `results` keeps records, `run` computes what is
missing, `report` shows it, `cli` is the command; `support` has what any program needs.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

_PUBLIC = {
    "errors": ("DclibError", "SpecError", "DataError", "FileError", "Interrupted"),
    "spec": ("Condensation", "Training", "MakeSet", "TrainNetworks", "Network", "OwnNetwork"),
    "spec.architectures": ("MLP", "ConvNet", "LeNet", "AlexNet", "VGG11", "ResNet18", "AlexCifarNet"),
    "api": ("condense", "train", "test", "judge", "select", "import_set"),
    "data.dataset": ("Dataset", "load"),
    "data.objects": ("from_torchvision",),
    "results": ("CondensedSet", "Store"),
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    if not name.startswith("_") and find_spec(f"{__name__}.{name}"):
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
