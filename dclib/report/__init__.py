"""What the notebooks show: tables, sentences, charts and figures of what is recorded; no torch."""

from .shared import *  # noqa: F403
from .shared import __all__ as __all__
