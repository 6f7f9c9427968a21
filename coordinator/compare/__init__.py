"""Comparison of runs: comparability, differences, `--fail-if`."""
