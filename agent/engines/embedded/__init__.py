"""Embedded servers of any engine: the supervisor process, the server's account and files, its data on disk."""
