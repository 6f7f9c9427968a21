"""A run with resets: what `sql` stages have made is there after a reset with `keep: ddl`, and gone, with a notice,
without; on a server that proveout starts, and on a user's SQLite file, of which nothing else changes. Each repeat of a
ladder may have a start of the server of its own."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from whole_run import run

from proveout import open_run

PLAN = """
proveout: 1
name: resets
topology:
  hosts: {h: {roles: [client, server], address: local}}
  systems:
    shop: {engine: sqlite, host: h, dsn: %s}
    db: {engine: postgres, host: h, provision: embedded}
report: {without: [others]}
workloads:
  w: {kind: tptbm, key: 4}
  calls: {kind: hlr, population: 100}
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
  - populate: {id: load, workload: w, into: db}
  - sql: {id: make, system: db, statements: [CREATE INDEX extra ON vpn_users (last_calling_party), DELETE FROM vpn_users]}
  - reset: {id: keeps, systems: db, keep: ddl}
  - sql: {id: kept, system: db, query: LOOK, metrics: {i: {column: i}, n: {column: n}}}
  - reset: {id: restores, systems: db}
  - sql: {id: gone, system: db, query: LOOK, metrics: {i: {column: i}, n: {column: n}}}
  - populate: {id: again_loaded, workload: calls, into: db}
  - ladder:
      id: each
      workload: calls
      target: db
      threads: [1, 2]
      ramp_up: 0s
      measure: 500ms
      ramp_down: 0s
      repeat: 2
      reload: each_repeat
      restart: each_repeat
      limits: NEVER_VOID
""".replace(
    "LOOK",
    "\"SELECT (SELECT count(*) FROM pg_indexes WHERE indexname = 'extra') AS i, count(*) AS n FROM vpn_users\"",
)

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
    done = run(tmp_path, PLAN % sqlite_file).ended(0)
    assert done.values("i") == {"kept": 1.0, "gone": 0.0}
    assert done.values("n") == {"change": 3.0, "after": 100.0, "rows": 10.0, "kept": 16.0, "gone": 16.0}
    assert "reset restores restores `db` as its last populate left it, which removes what stage `make`" in done.out
    assert "reset keeps restores" not in done.out
    assert "as it was before the run, which removes what stage `change`" in done.out
    assert before[0] == "delete" and contents(sqlite_file) == before
    assert [path.name for path in sqlite_file.parent.iterdir()] == [sqlite_file.name]
    assert not list(tmp_path.rglob("*.copy"))

    starts: dict[int, set[int]] = {1: set(), 2: set()}
    for one in open_run(done.directory).stages["each"].iterations:
        starts[one.id.repeat].add(one.server_started_ms[""])
    assert [len(found) for found in starts.values()] == [1, 1], "the rungs of a repeat share a start of the server"
    assert starts[1] != starts[2]
