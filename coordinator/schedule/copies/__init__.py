"""Copies of the user's database files, from which resets restore them."""
