"""What lies in `results/` and what it says: lines, sets, outcomes beside the paper's, rankings; no torch."""
