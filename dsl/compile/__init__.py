"""Nodes -> the frozen `Plan`."""
