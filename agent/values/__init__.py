"""Numbers from tables: the rows of a query, the output of a command."""
