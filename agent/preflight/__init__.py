"""Preflight checks of an agent: what a plan needs of a running system and of this host. Nothing is changed."""
