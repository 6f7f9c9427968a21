"""The cost of a transaction in reports: tables, a figure, columns of data."""
