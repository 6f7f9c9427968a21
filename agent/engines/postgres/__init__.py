"""PostgreSQL: driver, provisioning, population, propagation, captures."""
