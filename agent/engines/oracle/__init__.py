"""Oracle Database: driver, SQL, population, wait events."""
