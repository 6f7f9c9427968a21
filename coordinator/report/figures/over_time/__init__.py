"""Figures with time on their axis, and the samples that they are made of."""
