"""Samples of an iteration -> its metrics, findings and validity."""
