"""What any program needs: files written whole, where a number comes from, progress, stopping, and how the command talks."""
