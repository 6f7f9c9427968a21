"""Tuning operations on disks, file systems and disk groups."""
