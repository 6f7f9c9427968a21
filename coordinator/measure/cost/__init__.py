"""The cost of a transaction: what servers and clients spend on it."""
