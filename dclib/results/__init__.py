"""Records and sets on disk, and what they say: outcomes beside the paper's, claims, rankings; no torch."""

from .store import *  # noqa: F403
from .store import __all__ as __all__
