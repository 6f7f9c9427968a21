"""Runs with resets: what `sql` stages have made is there after a reset with `keep: ddl`, and gone, with a notice,
without; on every engine that proveout starts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

COMMAND = str(Path(sys.executable).with_name("proveout"))
INDEXES = {
    "sqlite": "SELECT count(*) AS n FROM sqlite_schema WHERE name = 'extra'",
    "duckdb": "SELECT count(*) AS n FROM duckdb_indexes() WHERE index_name = 'extra'",
    "postgres": "SELECT count(*) AS n FROM pg_indexes WHERE indexname = 'extra'",
    "mysql": "SELECT count(*) AS n FROM information_schema.statistics WHERE index_name = 'extra'",
}
HEAD = """
proveout: 1
name: resets
topology:
  hosts: {h: {roles: [client, server], address: local}}
  systems:
"""
SYSTEM = "    %(engine)s: {engine: %(engine)s, host: h, provision: embedded}\n"
STAGES = """
  - sql:
      id: make_%(engine)s
      system: %(engine)s
      statements: [CREATE INDEX extra ON vpn_users (last_calling_party), DELETE FROM vpn_users, CREATE TABLE made (n int)]
  - reset: {id: reset_%(engine)s, systems: %(engine)s%(keep)s}
  - sql: {id: left_%(engine)s, system: %(engine)s, query: "%(query)s", metrics: {n: {column: n}}}
  - sql: {id: rows_%(engine)s, system: %(engine)s, query: SELECT count(*) AS n FROM vpn_users, metrics: {n: {column: n}}}
"""

pytestmark = pytest.mark.slow


def run(folder: Path, engines: Sequence[str], keep: str) -> tuple[subprocess.CompletedProcess[str], Any]:
    text = HEAD + "".join(SYSTEM % {"engine": engine} for engine in engines)
    text += "workloads: {w: {kind: tptbm, key: 4}}\nstages:\n"
    text += f"  - populate: {{id: load, workload: w, into: [{', '.join(engines)}]}}"
    text += "".join(STAGES % {"engine": one, "keep": keep, "query": INDEXES[one]} for one in engines)
    (folder / "plan.yaml").write_text(text)
    argv = [COMMAND, "run", "plan.yaml", "--headless", "--runs-dir", "runs", "--json", "result.json"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    stages = {one["id"]: one for one in json.loads((folder / "result.json").read_text())["stages"]}
    taken = {name: one["values"][0]["values"] for name, one in stages.items() if one["values"]}
    return done, {name: values["n"] for name, values in taken.items() if "n" in values}


def check_both(folder: Path, engines: Sequence[str]) -> None:
    kept, found = run(folder, engines, ", keep: ddl")
    assert found == {f"{what}_{one}": number for one in engines for what, number in (("left", 1.0), ("rows", 16.0))}
    assert "removes what" not in kept.stdout
    gone, found = run(folder, engines, "")
    assert found == {f"{what}_{one}": number for one in engines for what, number in (("left", 0.0), ("rows", 16.0))}
    for one in engines:
        text = f"reset reset_{one} restores `{one}` as its last populate left it, which removes what stage `make_{one}`"
        assert gone.stdout.count(text) >= 1


def test_a_reset_with_keep_has_the_ddl_again(tmp_path: Path) -> None:
    check_both(tmp_path, ["sqlite", "duckdb"])


@pytest.mark.server
def test_a_reset_of_postgres_with_keep_has_the_ddl_again(tmp_path: Path) -> None:
    check_both(tmp_path, ["postgres"])


@pytest.mark.usefixtures("mysql_server")  # skips without a server
def test_a_reset_of_mysql_with_keep_has_the_ddl_again(tmp_path: Path) -> None:
    check_both(tmp_path, ["mysql"])
