"""Embedded servers for tests: their commits do not wait for the disk, as no test cuts the power, and they are small."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from proveout.agent.engines.mysql.dsn import connect, parse
from proveout.agent.engines.mysql.provision import Server as MysqlServer
from proveout.agent.engines.postgres.provision import Server as PostgresServer
from proveout.dsl.plan.topology import System

SERVERS: dict[str, Any] = {"postgres": PostgresServer, "mysql": MysqlServer}
SETTINGS = {
    "postgres": (("fsync", "off"),),
    "mysql": (("innodb_flush_log_at_trx_commit", "2"), ("innodb_log_file_size", "8M")),
}


def system(engine: Any = "postgres", *settings: tuple[str, str], name: str = "db", **more: Any) -> System:
    settings = (*SETTINGS.get(engine, ()), *settings)
    return System(name=name, engine=engine, host="h", provision="embedded", settings=settings, **more)


@contextlib.contextmanager
def embedded(root: Path, *, keep_data: bool = False, of: System | None = None, **more: Any) -> Iterator[Any]:
    """A server with its data below `root`, not started; `more` are arguments of its class. It is closed at the end."""
    described = of or system()
    server = SERVERS[described.engine](described, root, **more)
    try:
        yield server
    finally:
        server.close(keep_data=keep_data)


def ask(dsn: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements, each committed by itself; the rows of the last."""
    opened: Any = connect(parse(dsn)) if dsn.startswith("mysql") else psycopg.connect(dsn, autocommit=True)
    rows: list[tuple[Any, ...]] = []
    with opened as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
            rows = list(cursor.fetchall()) if cursor.description else []
    return rows


def value(dsn: str, *statements: str) -> Any:
    """The first value of the last statement."""
    return ask(dsn, *statements)[0][0]


def status_of(pid: int | None) -> dict[str, str]:
    """The fields of a process in /proc."""
    rows = (line.partition(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {name: text.strip() for name, _, text in rows}
