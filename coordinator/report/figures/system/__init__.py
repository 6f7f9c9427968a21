"""Figures of the database under load: waits and replication lag."""
