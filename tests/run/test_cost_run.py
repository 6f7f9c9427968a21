"""The cost of a transaction of a real run, held against a server CPU and a log volume that are known."""

from __future__ import annotations

import statistics
from pathlib import Path

import psycopg
import pytest
from whole_run import proveout, run

SPIN = (
    "CREATE OR REPLACE FUNCTION spin(n int) RETURNS int LANGUAGE plpgsql AS $$ DECLARE x int := 0; BEGIN "
    "FOR i IN 1 .. n LOOP x := (x + i) % 1000; END LOOP; RETURN x; END $$"
)
LOOPS, LOG_BYTES = 20_000, 8_192
PLAN = f"""
proveout: 1
name: cost
topology:
  hosts: {{h: {{roles: [client, server], address: local, cost: {{per_hour: 3.60 EUR}}}}}}
  systems: {{db: {{engine: postgres, host: h, provision: embedded}}}}
workloads:
  w:
    kind: sql
    transactions:
      work:
        statements:
          spin: SELECT spin({LOOPS})
          log: SELECT pg_logical_emit_message(false, 'x', repeat('x', {LOG_BYTES}))
captures:
  host: {{kind: os, every: 500ms}}
  waits: {{kind: waits, system: db, every: 500ms}}
stages:
  - sql: {{id: make, system: db, statements: ["{SPIN}"]}}
  - ladder:
      id: run
      workload: w
      target: db
      threads: [1]
      ramp_up: 500ms
      measure: 4s
      ramp_down: 200ms
      repeat: 1
      capture: [host, waits]
      limits: NEVER_VOID
verdicts:
  - {{id: cpu, check: run.at(1).cost.server_cpu_us.n == 1}}
"""

pytestmark = [pytest.mark.timed, pytest.mark.server]


def cpu_of_a_call(dsn: str) -> float:
    """CPU of one `spin`, µs, of the backend's own ticks in /proc; the mean of 300 calls."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(SPIN)
        row = connection.execute("SELECT pg_backend_pid()").fetchone()
        assert row is not None

        def ticks() -> int:
            fields = Path(f"/proc/{row[0]}/stat").read_text().rpartition(")")[2].split()
            return int(fields[11]) + int(fields[12])

        before = ticks()
        for _ in range(300):
            connection.execute(f"SELECT spin({LOOPS})")
        return (ticks() - before) * 1e4 / 300


def test_the_servers_cpu_and_log_are_those_of_a_known_load(tmp_path: Path, database: str) -> None:
    truth_us = cpu_of_a_call(database)
    done = run(tmp_path, PLAN).ended(0)
    truth_us = (truth_us + cpu_of_a_call(database)) / 2  # the CPU's speed depends on its neighbours
    stage = done.stages["run"]
    (rung,) = stage["rungs"]
    cost = rung["metrics"]["cost"]
    assert 0.7 * truth_us <= cost["server_cpu_us"]["mean"] <= 1.6 * truth_us
    # The counters of the log are those that a backend reports once a second, of a window of 4 s.
    assert 0.7 * LOG_BYTES <= cost["wal_bytes"]["mean"] <= 1.4 * LOG_BYTES
    each = [1000.0 / tps for tps in rung["metrics"]["tps"]["values"]]  # 0.001 EUR a second
    assert cost["price_per_million"]["mean"] == pytest.approx(statistics.fmean(each), rel=0.01)
    assert "network_bytes" not in cost, "client and server are on one machine"
    sources = stage["iterations"][0]["cost"]
    assert sources["server_cpu_us"] == "the processes of the servers on h"
    assert sources["network_bytes"].startswith("not captured: ")
    assert "price per million, EUR" in done.out and "not captured" in done.out
    values = [float(row["cost.server_cpu_us"]) for row in done.table("csv") if row["transaction"] == "(all)"]
    assert sum(values) == pytest.approx(cost["server_cpu_us"]["mean"])
    proveout(tmp_path, "report", str(done.directory), "--markdown", "report.md").ended(0)
    assert "| server CPU |" in (tmp_path / "report.md").read_text()
