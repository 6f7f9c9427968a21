"""Noise of a rung: two equal arms, variance components, what repeats can show, and the record of it."""
