"""DuckDB: confinement, driver, provisioning, population, SQL of the agent."""
