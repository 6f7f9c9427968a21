"""Workloads whose transactions are written in the plan (`kind: sql`)."""
