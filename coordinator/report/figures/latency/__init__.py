"""Figures of response times as distributions."""
