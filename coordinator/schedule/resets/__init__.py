"""Stages that restore copies of data."""
