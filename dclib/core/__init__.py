"""Algorithm 1 and stage T: networks, gradient matching, condensation, training, engines, checkpoints, and a literal reference."""
