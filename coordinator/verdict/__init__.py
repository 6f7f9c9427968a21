"""Metrics -> verdicts with evidence and provenance."""
