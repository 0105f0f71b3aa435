"""The commands of `dclib` besides condense, train, show and data, the options that they share, and `make release`."""
