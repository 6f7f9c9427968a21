"""Captures: observations beside the load. One module per kind; `kinds.py` is the table."""
