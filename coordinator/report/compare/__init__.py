"""Reports of a comparison of runs."""
