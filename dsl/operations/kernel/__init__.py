"""Tuning operations on kernel parameters."""
