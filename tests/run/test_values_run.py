"""Runs whose plans take metrics from queries and commands: verdicts, reports, the comparison of two runs, a resume in the
middle of the repeats."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import psycopg
import pytest
from live_run import LiveRun
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from whole_run import Done, proveout, run

TOPOLOGY = """
proveout: 1
name: values
topology:
  hosts: {h: {roles: [client, server], address: local}}
  systems: {db: {engine: ENGINE, host: h, provision: embedded}}
workloads: {w: {kind: tptbm, key: 10}}
"""
SQLITE = TOPOLOGY.replace("ENGINE", "sqlite")
GROW = """
stages:
  - sql:
      id: grow
      system: db
      statements: [CREATE TABLE IF NOT EXISTS t (n int), INSERT INTO t VALUES (1)]
      wait_until: {query: SELECT count(*) > 0 FROM t, equals: 1, within: 1m}
      query: SELECT count(*) AS n, 1000 + count(*) AS iops FROM t
      metrics: {row_count: {column: n}, max_iops: {column: 2}}
      repeat: 3
verdicts:
  - {id: fast, check: grow.max_iops.lower >= 900.0}
  - {id: sum, check: grow.row_count.mean == 2.0}
  - {id: waited, check: grow.elapsed_s.n == 3}
"""

pytestmark = pytest.mark.server


def test_each_repeat_gives_numbers_and_verdicts_read_estimates(tmp_path: Path) -> None:
    done = run(tmp_path, SQLITE + GROW).ended(0)
    assert "grow, repeat 3: row_count 3, max_iops 1,003" in done.out
    grow = done.stages["grow"]
    assert [one["values"]["max_iops"] for one in grow["values"]] == [1001.0, 1002.0, 1003.0]
    assert grow["metrics"]["max_iops"]["n"] == 3
    assert "Measured values" in (done.directory / "report.html").read_text()
    rows = [row for row in done.table("values") if row["metric"] == "max_iops"]
    assert [(row["stage"], row["repeat"], row["value"]) for row in rows] == [
        ("grow", "1", "1001.0"), ("grow", "2", "1002.0"), ("grow", "3", "1003.0")
    ]  # fmt: skip
    _compare(done)


def _compare(first: Done) -> None:
    """A second run of the same plan has the same numbers."""
    base = first.directory
    second = run(first.folder, SQLITE + GROW).ended(0).directory
    limit = "grow.max_iops.change.mean > 0.5"
    words = ("compare", str(base), str(second), "--json", "c.json", "--fail-if", limit)
    assert "grow: max_iops" in proveout(first.folder, *words).ended(0).out
    (stage,) = json.loads((first.folder / "c.json").read_text())["comparisons"][0]["stages"]
    (changed,) = (row for row in stage["values"] if row["metric"] == "max_iops")
    assert changed["base"] == changed["other"] == 1002.0
    assert changed["change"]["lower"] < 0.0 < changed["change"]["upper"]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT 1 AS a", ("plan.yaml:9:10: stage s: sql:db on h failed", "metric `x`: the result has no column", "one of a")),
        ("COPY (SELECT 1) TO PROGRAM 'touch /tmp/escaped'", ("permission denied",)),
    ],
)  # fmt: skip
def test_a_query_that_fails_or_may_not_run_has_its_place_and_the_way_out(
    tmp_path: Path, query: str, words: tuple[str, ...]
) -> None:
    stage = f'stages:\n  - sql: {{id: s, system: db, query: "{query}", metrics: {{x: {{}}}}}}\nverdicts: []\n'
    said = run(tmp_path, TOPOLOGY.replace("ENGINE", "postgres") + stage).ended(4).words
    assert all(word in said for word in words), said


def test_a_resumed_run_takes_the_repeats_that_are_missing(tmp_path: Path, database: str) -> None:
    """Killed in the wait of its second repeat, for which the test opens a gate."""
    dsn = conninfo_to_dict(database)
    secret = {"PROVEOUT_TEST_PASSWORD": str(dsn.pop("password"))}
    topology = SQLITE.replace("engine: sqlite", "engine: postgres").replace(
        "provision: embedded", f'dsn: "{make_conninfo(**dsn)} password=${{secrets.pw}}"'
    )
    waits = GROW.replace("count(*) > 0 FROM t", "(count(*) = 1 OR EXISTS (SELECT FROM gate))::int FROM t")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE gate ()")
        secrets = "secrets: {pw: {env: PROVEOUT_TEST_PASSWORD}}\n"
        one = LiveRun(tmp_path, topology + secrets + waits, environment=secret)
        try:
            one.until(lambda: one.facts.values.get("grow"), "a repeat has ended")
            one.process.kill()
            one.process.wait()
            connection.execute("INSERT INTO gate DEFAULT VALUES")
            again = one.again("resume", "latest")
            again.end()
        finally:
            one.kill()
    assert again.directory is not None
    (stage,) = json.loads((again.directory / "result.json").read_text())["stages"]
    assert [one["repeat"] for one in stage["values"]] == [1, 2, 3], again.output
    assert stage["values"][0]["values"]["row_count"] == 1.0
    assert stage["metrics"]["row_count"]["n"] == 3


SAMPLED = f"""{TOPOLOGY.replace("ENGINE", "postgres")}
captures:
  log:
    kind: sql
    system: db
    every: 200ms
    query: SELECT wal_bytes, 5 AS level FROM pg_stat_wal
    metrics: {{wal_bytes: {{as: rate}}, level: {{}}}}
stages:
  - populate: {{workload: w, into: db}}
  - ladder:
      workload: w
      target: db
      threads: [1]
      think: {{constant: 10ms}}
      ramp_up: 300ms
      measure: 1s
      ramp_down: 300ms
      repeat: 2
      retries: 4
      capture: log
      limits: NEVER_VOID
verdicts:
  - {{id: level, check: ladder.at(1).sql.log.level.max.mean == 5.0}}
  - {{id: log, check: ladder.at(1).sql.log.wal_bytes.per_s.mean > 0.0}}
"""


def test_a_capture_gives_levels_and_rates_to_verdicts_and_reports(tmp_path: Path) -> None:
    done = run(tmp_path, SAMPLED).ended(0, 3)
    assert done.stages["ladder"]["rungs"][0]["metrics"]["sql"]["log"]["level"]["avg"]["mean"] == 5.0
    assert "Measured values, 1 thread" in done.out
    rows = [row for row in done.table("values") if row["metric"] == "wal_bytes.per_s" and row["valid"] == "True"]
    assert [row["repeat"] for row in rows] == ["1", "2"]
    assert all(float(row["value"]) > 0.0 for row in rows)


STEPS = f"""{SQLITE}
stages:
  - populate: {{workload: w, into: db}}
  - ladder:
      id: turns
      workload: w
      target: db
      threads: [1]
      think: {{constant: 10ms}}
      ramp_up: 0s
      measure: 500ms
      ramp_down: 0s
      repeat: 2
      retries: 4
      limits: NEVER_VOID
      matrix: {{mode: [a, b]}}
      before:
        - sql: {{system: db, query: SELECT count(*) AS n FROM vpn_users, metrics: {{row_count: {{column: n}}}}}}
verdicts: []
"""


def test_a_step_gives_a_value_for_each_turn(tmp_path: Path) -> None:
    done = run(tmp_path, STEPS).ended(0)
    steps = [stage for stage in done.result["stages"] if stage["kind"] == "sql"]
    assert len(steps) == 2
    for step in steps:
        assert [one["repeat"] for one in step["values"]][:2] == [1, 2], done.out
        assert step["metrics"]["row_count"]["n"] == len(step["values"])


COMMANDS = f"""{SQLITE}
captures:
  memory:
    kind: command
    argv: [cat, /proc/meminfo]
    metrics: {{free_kb: {{column: MemFree}}, active_kb: {{column: Active, as: rate}}}}
stages:
  - command:
      id: disk
      on: h
      argv: [df, -k, /]
      output: {{pattern: '(?P<size>\\d+) +(?P<used>\\d+) .* /$'}}
      metrics: {{size_kb: {{column: size}}, used_kb: {{column: used}}}}
      repeat: 2
  - populate: {{workload: w, into: db}}
  - ladder: {{workload: w, target: db, threads: [1], ramp_up: 0s, measure: 2s, ramp_down: 0s, repeat: 2, capture: memory, limits: NEVER_VOID}}
verdicts:
  - {{id: fits, check: disk.size_kb.n == 2}}
  - {{id: read, check: ladder.at(1).command.memory.free_kb.avg.n == 2}}
"""


def test_numbers_of_commands_are_estimates_and_their_outputs_are_kept(tmp_path: Path) -> None:
    df, cat = (shutil.which(name, path="/usr/local/bin:/usr/bin:/bin") for name in ("df", "cat"))
    policy = tmp_path / "policy.yaml"
    lines = [f"  - {{path: {df}, arguments: [-k, /]}}", f"  - {{path: {cat}, arguments: [/proc/meminfo]}}", ""]
    policy.write_text("\n".join(["policy: 1", "commands:", *lines]))
    policy.chmod(0o644)
    done = run(tmp_path, COMMANDS, "--policy", str(policy)).ended(0, 3)
    assert done.stages["disk"]["metrics"]["size_kb"]["n"] == 2
    assert done.stages["ladder"]["rungs"][0]["metrics"]["command"]["memory"]["free_kb"]["avg"]["n"] == 2
    outputs = done.directory / "outputs"
    names = {path.name for path in outputs.iterdir()}
    assert names == {"disk-1-h.txt", "disk-2-h.txt", "ladder-1-1-1-memory-h.txt", "ladder-1-2-1-memory-h.txt"}
    assert "MemTotal" in (outputs / "ladder-1-2-1-memory-h.txt").read_text()
