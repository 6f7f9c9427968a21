"""Fixtures for everybody: a real PostgreSQL server for the session, and a database of one's own for a test."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from proveout.agent.provision.embedded_postgres import Server
from proveout.dsl.plan import System


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The libpq conninfo of a fresh embedded PostgreSQL (superuser, database `postgres`); shared, so change no settings."""
    system = System(name="shared", engine="postgres", host="local", provision="embedded", settings=(("fsync", "off"),))
    server = Server(system, tmp_path_factory.mktemp("postgres"))
    try:
        yield server.start().dsn
    finally:
        server.close(keep_data=False)


@pytest.fixture(scope="session")
def postgres(postgres_server: str) -> str:
    """The same under a shorter name."""
    return postgres_server


@pytest.fixture
def database(postgres_server: str) -> Iterator[str]:
    """The libpq conninfo of an empty database of one's own, dropped after the test (connections and all)."""
    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    yield make_conninfo(postgres_server, dbname=name)
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
