"""Figures of a report: data, charts, drawing."""
