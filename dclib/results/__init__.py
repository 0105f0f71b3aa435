"""Records and sets on disk, and what they say: tables beside the paper's, claims, rankings; no torch."""

from .outcomes import records, table
from .store import CondensedSet, Store, results_root

__all__ = ["CondensedSet", "Store", "records", "results_root", "table"]
