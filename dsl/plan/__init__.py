"""The compiled plan: frozen data."""
