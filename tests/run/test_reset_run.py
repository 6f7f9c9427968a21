"""A run with resets: what `sql` stages have made is there after a reset with `keep: ddl`, and gone, with a notice,
without; on every engine that proveout starts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from whole_run import run

from proveout.agent.engines.mysql.provision import FOLDERS

INDEXES = {
    "sqlite": "SELECT count(*) AS n FROM sqlite_schema WHERE name = 'extra_%(way)s'",
    "duckdb": "SELECT count(*) AS n FROM duckdb_indexes() WHERE index_name = 'extra_%(way)s'",
    "postgres": "SELECT count(*) AS n FROM pg_indexes WHERE indexname = 'extra_%(way)s'",
    "mysql": "SELECT count(*) AS n FROM information_schema.statistics WHERE index_name = 'extra_%(way)s'",
}
HEAD = """
proveout: 1
name: resets
topology:
  hosts: {h: {roles: [client, server], address: local}}
  systems:
"""
SYSTEM = "    %(engine)s: {engine: %(engine)s, host: h, provision: embedded}\n"
CHANGE = """
  - sql:
      id: make_%(id)s
      system: %(engine)s
      statements: [CREATE INDEX extra_%(way)s ON vpn_users (last_calling_party), DELETE FROM vpn_users]
  - reset: {id: reset_%(id)s, systems: %(engine)s%(keep)s}
  - sql: {id: left_%(id)s, system: %(engine)s, query: "%(query)s", metrics: {n: {column: n}}}
  - sql: {id: rows_%(id)s, system: %(engine)s, query: SELECT count(*) AS n FROM vpn_users, metrics: {n: {column: n}}}
"""

pytestmark = pytest.mark.server


def engines() -> list[str]:
    path = os.pathsep.join((os.environ.get("PATH", ""), *FOLDERS))
    return [one for one in INDEXES if one != "mysql" or shutil.which("mariadbd", path=path)]


def changes(keep: str) -> str:
    way = "kept" if keep else "gone"
    return "".join(
        CHANGE % {"engine": one, "id": f"{one}_{way}", "way": way, "keep": keep, "query": INDEXES[one] % {"way": way}}
        for one in engines()
    )


def test_a_reset_removes_what_was_made_and_with_keep_has_the_ddl_again(tmp_path: Path) -> None:
    text = HEAD + "".join(SYSTEM % {"engine": one} for one in engines())
    text += "workloads: {w: {kind: tptbm, key: 4}}\nstages:\n"
    text += (
        f"  - populate: {{id: load, workload: w, into: [{', '.join(engines())}]}}{changes('')}{changes(', keep: ddl')}"
    )
    done = run(tmp_path, text).ended(0)
    expected = {("left", "gone"): 0.0, ("rows", "gone"): 16.0, ("left", "kept"): 1.0, ("rows", "kept"): 16.0}
    assert done.values("n") == {f"{what}_{one}_{way}": n for (what, way), n in expected.items() for one in engines()}
    for one in engines():
        told = f"reset reset_{one}_gone restores `{one}` as its last populate left it, which removes what stage `make_{one}_gone`"
        assert told in done.out
        assert f"reset reset_{one}_kept restores" not in done.out
