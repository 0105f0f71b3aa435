"""The methods that make a small set, each declared once; what each does is one file in `dclib.methods`.

A new method is a line in `METHODS` and that file. Nothing here imports torch: a method's file is loaded when a set is made.
"""

from dataclasses import dataclass

from .checks import check, param

GUIDED = ("herding", "k-center", "forgetting")  # coresets that need a network trained on the full set
OWN = ("whole", "gan", "distillation", "settings")  # the fields of `MakeSet` that only some methods have


@dataclass(frozen=True)
class Method:
    """What is known of a method before it makes a set.

    Args:
        module: has the function `make`, which `dclib.methods` describes.
        learned: whether the images are learned or drawn, so that a file holds them; of real images the indices are recorded.
        needs: the field of `MakeSet`, one of `OWN`, that the method cannot do without.
        settings: the class of its hyper-parameters, a frozen dataclass, for `MakeSet.settings`.
    """

    module: str
    learned: bool = True
    needs: str = ""
    settings: type | None = None

    @property
    def takes(self) -> tuple[str, ...]:
        """The fields of `MakeSet` that sets of this method have, and others do not."""
        return tuple(filter(None, (self.needs, self.settings and "settings")))


@dataclass(frozen=True)
class Formation:
    """How many small images one image holds."""

    factor: int = param(2, "each image holds factor × factor smaller ones", at_least=1)

    def __post_init__(self) -> None:
        check(self)


METHODS = {
    "condense": Method("dclib.methods.condense"),
    "distill": Method("dclib.methods.distill", needs="distillation"),
    "gan": Method("dclib.methods.gan", needs="gan"),
    "formed": Method("dclib.methods.formed", settings=Formation),
    "random": Method("dclib.methods.coresets", learned=False),
    **dict.fromkeys(GUIDED, Method("dclib.methods.coresets", learned=False, needs="whole")),
}
