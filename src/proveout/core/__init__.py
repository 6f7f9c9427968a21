"""Shared helpers that import nothing else of proveout: errors, numbers, units, statistics, framing, child processes."""
