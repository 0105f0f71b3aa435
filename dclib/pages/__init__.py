"""What the notebooks show: tables, sentences, charts and figures of what is recorded; no torch."""
