"""The paper's tables, figures and applications, declared once; the presets that spell out their runs; the paper's numbers.

Nothing here loads torch. The notebooks, the command, the tests and the book read `ALL`.
"""

from ..errors import one_of
from .ablations import ABLATIONS, SIX
from .after import AFTER, AFTER_CHOICE, AFTER_PLAIN
from .applications import CONTINUAL, NAS
from .cells import AXES, GAN, INSTEAD, OPTIONS, ORS, RANDOM, REAL, WHOLE, Cell, Experiment, Table
from .presets import BEST, CPU, PAPER, PRESETS, SMOKE, Preset, find_preset
from .tables import CORESETS, CROSS_ARCH, DISTILLATION, IMAGES_PER_CLASS, METHOD, MORE_BASELINES, TABLES

__all__ = [
    "ALL", "AXES", "BEST", "CONTINUAL", "CORESETS", "CPU", "CROSS_ARCH", "DISTILLATION", "GAN", "IMAGES_PER_CLASS", "INSTEAD",
    "METHOD", "MORE_BASELINES", "NAS", "OPTIONS", "ORS", "PAPER", "PRESETS", "RANDOM", "REAL", "SIX", "SMOKE", "WHOLE",
    "Cell", "Experiment", "Preset", "Table", "find", "find_preset",
]  # fmt: skip

ALL = {experiment.name: experiment for experiment in (*TABLES, *ABLATIONS, AFTER, AFTER_PLAIN, AFTER_CHOICE, CONTINUAL, NAS)}


def find(name: str) -> Experiment:
    """Return the experiment of that name.

    Raises:
        SpecError: there is none.
    """
    return ALL[one_of("experiment", name, ALL)]
