"""Live events of a running or replayed run."""
