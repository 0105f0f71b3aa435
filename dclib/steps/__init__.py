"""What the algorithms are made of: inner steps, the loop that can be stopped, checkpoints, lanes, processes, users' networks."""
