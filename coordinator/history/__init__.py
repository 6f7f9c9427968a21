"""Many runs of a folder: their table, the history of each metric, and its change points."""
