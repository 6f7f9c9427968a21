"""Load workers as actors on a Ray cluster."""
