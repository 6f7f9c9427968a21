"""Verbs about the hosts of a lab."""
