"""The top statements of a measure window and their plans."""
