"""A run with resets: what `sql` stages have made is there after a reset with `keep: ddl`, and gone, with a notice,
without; on files, on a server, and on a user's SQLite file, of which nothing else changes."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from whole_run import run

INDEXES = {
    "sqlite": "FROM sqlite_schema WHERE name = 'extra'",
    "duckdb": "FROM duckdb_indexes() WHERE index_name = 'extra'",
    "postgres": "FROM pg_indexes WHERE indexname = 'extra'",
}
PLAN = """
proveout: 1
name: resets
topology:
  hosts: {h: {roles: [client, server], address: local}}
  systems:
    shop: {engine: sqlite, host: h, dsn: %s}
    sqlite: {engine: sqlite, host: h, provision: embedded}
    duckdb: {engine: duckdb, host: h, provision: embedded}
    postgres: {engine: postgres, host: h, provision: embedded}
workloads:
  w: {kind: tptbm, key: 4}
  stock:
    kind: sql
    tables: {stock: {rows: 10, create: CREATE TABLE stock (id int), columns: {id: {sequence: 1}}}}
    transactions: {Look: {statements: {a: SELECT name FROM item WHERE id = 1}}}
stages:
  - sql: {id: change, system: shop, statements: [DELETE FROM item WHERE id > 3, CREATE INDEX i ON item (name)],
          query: SELECT count(*) AS n FROM item, metrics: {n: {column: n}}}
  - reset: {id: back, systems: shop}
  - sql: {id: after, system: shop, query: SELECT count(*) AS n FROM item, metrics: {n: {column: n}}}
  - populate: {id: fill, workload: stock, into: shop}
  - sql: {id: again, system: shop, statements: [DELETE FROM stock, DELETE FROM item]}
  - reset: {id: filled, systems: shop}
  - sql: {id: rows, system: shop, query: SELECT count(*) AS n FROM stock, metrics: {n: {column: n}}}
  - drop: {workload: stock, systems: shop}
  - populate: {id: load, workload: w, into: [sqlite, duckdb, postgres]}
"""
STAGES = """
  - sql: {{id: make_{0}, system: {0}, statements: [CREATE INDEX extra ON vpn_users (last_calling_party), DELETE FROM vpn_users]}}
  - reset: {{id: keeps_{0}, systems: {0}, keep: ddl}}
  - sql: {{id: kept_{0}, system: {0}, query: "{1}", metrics: {{i: {{column: i}}, n: {{column: n}}}}}}
  - reset: {{id: restores_{0}, systems: {0}}}
  - sql: {{id: gone_{0}, system: {0}, query: "{1}", metrics: {{i: {{column: i}}, n: {{column: n}}}}}}
"""

pytestmark = pytest.mark.server


def contents(path: Path) -> list[Any]:
    with closing(apsw.Connection(str(path))) as connection:
        query = "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat_'"
        rows = (connection.execute(text).fetchall() for text in (query, "SELECT * FROM item"))
        return [connection.pragma("journal_mode"), *rows]


def test_a_reset_removes_what_was_made_and_with_keep_has_the_ddl_again(sqlite_file: Path, tmp_path: Path) -> None:
    with closing(apsw.Connection(str(sqlite_file))) as connection:
        connection.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")
        connection.executemany("INSERT INTO item VALUES (?, ?)", ((i, f"n{i}") for i in range(1, 101)))
    before = contents(sqlite_file)
    text = PLAN % sqlite_file
    for one, index in INDEXES.items():
        text += STAGES.format(one, f"SELECT (SELECT count(*) {index}) AS i, count(*) AS n FROM vpn_users")
    done = run(tmp_path, text).ended(0)
    assert done.values("i") == {f"{what}_{one}": i for what, i in (("kept", 1.0), ("gone", 0.0)) for one in INDEXES}
    of_engines = {f"{what}_{one}": 16.0 for what in ("kept", "gone") for one in INDEXES}
    assert done.values("n") == {"change": 3.0, "after": 100.0, "rows": 10.0} | of_engines
    for one in INDEXES:
        told = (
            f"reset restores_{one} restores `{one}` as its last populate left it, which removes what stage `make_{one}`"
        )
        assert told in done.out
        assert f"reset keeps_{one} restores" not in done.out
    assert "as it was before the run, which removes what stage `change`" in done.out
    assert before[0] == "delete" and contents(sqlite_file) == before
    assert [path.name for path in sqlite_file.parent.iterdir()] == [sqlite_file.name]
    assert not list(tmp_path.rglob("*.copy"))
