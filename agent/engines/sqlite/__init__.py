"""SQLite: driver, provisioning, population, authorizer."""
