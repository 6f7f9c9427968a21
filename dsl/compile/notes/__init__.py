"""Notes on plans that are valid."""
