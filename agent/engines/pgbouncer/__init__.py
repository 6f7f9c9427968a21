"""PgBouncer in front of an embedded PostgreSQL."""
