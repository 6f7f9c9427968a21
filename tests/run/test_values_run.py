"""A run whose plan takes metrics from queries and commands: verdicts, tables, kept outputs; in simulated runs, what a
resume takes again, and steps."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from run_simulator import Fault
from simulated import PLAN as SIMULATED
from simulated import STAGES, assert_ended, cells, simulate
from whole_run import Done, run

from proveout.dsl.plan.stages import Sql
from proveout.proto import events

HEAD = """
proveout: 1
name: values
topology:
  hosts: {h: {roles: [client, server], address: local}}
  systems: {db: {engine: ENGINE, host: h, provision: embedded}}
workloads: {w: {kind: tptbm, key: 10}}
"""
PLAN = f"""{HEAD.replace("ENGINE", "postgres")}
captures:
  log:
    kind: sql
    system: db
    every: 200ms
    query: SELECT wal_bytes, 5 AS level FROM pg_stat_wal
    metrics: {{wal_bytes: {{as: rate}}, level: {{}}}}
  memory:
    kind: command
    every: 500ms
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
  - sql:
      id: grow
      system: db
      statements: [CREATE TABLE IF NOT EXISTS t (n int), INSERT INTO t VALUES (1)]
      wait_until: {{query: SELECT (count(*) > 0)::int FROM t, equals: 1, within: 1m}}
      query: SELECT count(*) AS n, 1000 + count(*) AS iops FROM t
      metrics: {{row_count: {{column: n}}, max_iops: {{column: 2}}}}
      repeat: 3
  - populate: {{workload: w, into: db}}
  - ladder:
      workload: w
      target: db
      threads: [1]
      think: {{constant: 10ms}}
      ramp_up: 0s
      measure: 1s
      ramp_down: 0s
      repeat: 2
      capture: [log, memory]
      limits: NEVER_VOID
report: {{without: [others]}}
verdicts:
  - {{id: fits, check: disk.size_kb.n == 2}}
  - {{id: fast, check: grow.max_iops.lower >= 900.0}}
  - {{id: sum, check: grow.row_count.mean == 2.0}}
  - {{id: waited, check: grow.elapsed_s.n == 3}}
  - {{id: level, check: ladder.at(1).sql.log.level.max.mean == 5.0}}
  - {{id: log, check: ladder.at(1).sql.log.wal_bytes.per_s.mean > 0.0}}
  - {{id: read, check: ladder.at(1).command.memory.free_kb.avg.n == 2}}
"""

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("values")
    df, cat = (shutil.which(name, path="/usr/local/bin:/usr/bin:/bin") for name in ("df", "cat"))
    policy = folder / "policy.yaml"
    lines = [f"  - {{path: {df}, arguments: [-k, /]}}", f"  - {{path: {cat}, arguments: [/proc/meminfo]}}", ""]
    policy.write_text("\n".join(["policy: 1", "commands:", *lines]))
    policy.chmod(0o644)
    return run(folder, PLAN, "--policy", str(policy)).ended(0, 3)


def test_each_repeat_gives_numbers_and_verdicts_read_estimates(finished: Done) -> None:
    assert "grow, repeat 3: row_count 3, max_iops 1,003" in finished.out
    rows = [row for row in finished.table("values") if row["metric"] == "max_iops"]
    assert [(row["stage"], row["repeat"], row["value"]) for row in rows] == [
        ("grow", "1", "1001.0"), ("grow", "2", "1002.0"), ("grow", "3", "1003.0")
    ]  # fmt: skip
    assert "Measured values" in (finished.directory / "report.html").read_text()
    outcomes = {one["id"]: one["outcome"] for one in finished.result["verdicts"]}
    names = ("fits", "fast", "sum", "waited", "level", "read")
    assert {name: outcomes[name] for name in names} == dict.fromkeys(names, "PASS")


def test_a_capture_gives_levels_and_rates_of_each_repeat(finished: Done) -> None:
    assert "Measured values, 1 thread" in finished.out
    rows = [row for row in finished.table("values") if row["metric"] == "wal_bytes.per_s"]
    assert [row["repeat"] for row in rows] == ["1", "2"]
    assert all(float(row["value"]) > 0.0 for row in rows)


def test_the_outputs_of_commands_are_kept(finished: Done) -> None:
    outputs = finished.directory / "outputs"
    names = {path.name for path in outputs.iterdir()}
    assert names == {"disk-1-h.txt", "disk-2-h.txt", "ladder-1-1-1-memory-h.txt", "ladder-1-2-1-memory-h.txt"}
    assert "MemTotal" in (outputs / "ladder-1-2-1-memory-h.txt").read_text()


def test_a_query_that_fails_has_its_place_and_the_way_out(tmp_path: Path) -> None:
    stage = 'stages:\n  - sql: {id: s, system: db, query: "SELECT 1 AS a", metrics: {x: {}}}\nverdicts: []\n'
    said = run(tmp_path, HEAD.replace("ENGINE", "sqlite") + stage).ended(4).words
    for words in ("plan.yaml:9:10: stage s: sql:db on h failed", "metric `x`: the result has no column", "one of a"):
        assert words in said, said


def test_a_resumed_run_takes_the_repeats_that_are_missing() -> None:
    plan = replace(SIMULATED, stages=(STAGES[0], Sql(id="grow", system="backend", statements=("grow",), repeat=3)))
    for at in range(0, simulate(plan).inputs, 3):
        killed = simulate(plan, None, Fault(at=at, kind="kill"))
        resumed = simulate(plan, world=killed.world, epoch=2)
        assert assert_ended(resumed).exit_code == 0, at
        taken = [event.repeat for event in resumed.world.events if isinstance(event, events.ValuesTaken)]
        assert taken == [1, 2, 3], at


def test_a_step_gives_values_for_each_turn() -> None:
    journal = simulate(cells(repeat=3)).world.events
    taken = [
        event.repeat for event in journal if isinstance(event, events.ValuesTaken) and event.stage == "a__before_1"
    ]
    assert taken == [1, 2, 3]
