"""Workload kinds: the transactions that run and the rows that they need. Pure; no kind uses a driver's API."""
