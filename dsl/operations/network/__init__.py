"""Tuning operations on network interfaces."""
