"""Pools of load workers: local processes, or actors on a Ray cluster."""
