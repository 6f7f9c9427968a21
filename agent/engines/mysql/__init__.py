"""MySQL and MariaDB: driver, provisioning, population."""
