"""Workload kinds: what is run, pure, knowing no driver's API."""
