"""Faults on a host: tunings that are in place for a time of the measure window, and then undone."""
