"""Database engines: one package per engine, and what embedded servers have in common."""
