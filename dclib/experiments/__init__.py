"""The paper's tables and figures, declared once, with the presets that spell out their runs, and the paper's numbers; no torch."""

from .tables import *  # noqa: F403
from .tables import __all__ as __all__
