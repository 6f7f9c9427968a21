"""Tuning operations on database systems."""
