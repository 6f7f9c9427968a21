"""Tuning operations on files, services and packages of a host."""
