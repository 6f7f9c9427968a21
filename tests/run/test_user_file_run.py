"""A run on a user's SQLite file: statements change it, a reset brings it back, and nothing else of it changes."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from whole_run import run

PLAN = """
proveout: 1
name: own-file
topology:
  hosts: {h: {roles: [client, server], address: local}}
  systems:
    shop: {engine: sqlite, host: h, dsn: %s}
workloads:
  stock:
    kind: sql
    tables:
      stock:
        rows: 10
        create: CREATE TABLE stock (id int)
        columns: {id: {sequence: 1}}
    transactions: {Look: {statements: {a: SELECT name FROM item WHERE id = 1}}}
stages:
  - sql: {id: change, system: shop, statements: [DELETE FROM item WHERE id > 3, CREATE INDEX i ON item (name)],
          query: SELECT count(*) AS n FROM item, metrics: {n: {column: n}}}
  - reset: {id: back, systems: shop}
  - sql: {id: after, system: shop, query: SELECT count(*) AS n FROM item, metrics: {n: {column: n}}}
  - populate: {workload: stock, into: shop}
  - sql: {id: again, system: shop, statements: [DELETE FROM stock, DELETE FROM item]}
  - reset: {id: filled, systems: shop}
  - sql: {id: rows, system: shop, query: SELECT count(*) AS n FROM stock, metrics: {n: {column: n}}}
  - drop: {workload: stock, systems: shop}
"""

pytestmark = pytest.mark.server


def contents(path: Path) -> list[Any]:
    with closing(apsw.Connection(str(path))) as connection:
        query = "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat_'"
        rows = (connection.execute(text).fetchall() for text in (query, "SELECT * FROM item"))
        return [connection.pragma("journal_mode"), *rows]


def test_a_reset_restores_the_file_and_the_run_leaves_it_as_it_was(sqlite_file: Path, tmp_path: Path) -> None:
    with closing(apsw.Connection(str(sqlite_file))) as connection:
        connection.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")
        connection.executemany("INSERT INTO item VALUES (?, ?)", ((i, f"n{i}") for i in range(1, 101)))
    before = contents(sqlite_file)
    assert before[0] == "delete"
    done = run(tmp_path, PLAN % sqlite_file).ended(0)
    assert done.values("n") == {"change": 3.0, "after": 100.0, "rows": 10.0}
    assert "as it was before the run, which removes what stage `change`" in done.out
    assert contents(sqlite_file) == before
    assert [path.name for path in sqlite_file.parent.iterdir()] == [sqlite_file.name]
    assert not list(tmp_path.rglob("*.copy"))
