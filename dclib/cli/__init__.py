"""The command `dclib`, and `make release`."""
