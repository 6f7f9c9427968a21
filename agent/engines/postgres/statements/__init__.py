"""Statistics of the statements of a PostgreSQL, and their plans."""
