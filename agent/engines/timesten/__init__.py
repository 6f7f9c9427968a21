"""Oracle TimesTen: driver, SQL, replication lag."""
