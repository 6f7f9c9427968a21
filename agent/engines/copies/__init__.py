"""Copies of the data of systems that run already, for plans with `restore`."""
