"""What `experiments` and `studies` are written with: a table's cells, and how a preset spells out the runs behind it; no torch."""
