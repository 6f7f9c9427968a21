"""Copies of PostgreSQL databases that run already, for plans with `restore`."""
