"""Rules on what a reset restores."""
