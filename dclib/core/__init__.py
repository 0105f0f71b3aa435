"""Algorithm 1 and stage T: networks, the matching of gradients, condensing, training; engines, checkpoints, a literal reference."""
