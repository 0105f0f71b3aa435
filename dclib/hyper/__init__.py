"""What `spec` is written with: the networks by name, checks, spelling, variants, the rivals' hyper-parameters; no torch."""
