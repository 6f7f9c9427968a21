"""Preflight checks of an agent: the needs of a plan, of a running system and of this host. Nothing is changed."""
