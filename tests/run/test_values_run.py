"""Runs whose plans take metrics from queries: verdicts, reports, the comparison of two runs, a resume in the middle of
the repeats, and the messages when a wait or a metric fails."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from proveout.coordinator.schedule.progress import run_progress
from proveout.coordinator.storage.journal import read

COMMAND = str(Path(sys.executable).with_name("proveout"))
TOPOLOGY = """
proveout: 1
name: values
topology:
  hosts: {h: {roles: [client, server], address: local}}
  systems: {db: {engine: ENGINE, host: h, provision: embedded}}
workloads: {w: {kind: tptbm, key: 10}}
"""
SQLITE = TOPOLOGY.replace("ENGINE", "sqlite")

pytestmark = pytest.mark.slow


def run(folder: Path, plan: str, *more: str) -> subprocess.CompletedProcess[str]:
    (folder / "plan.yaml").write_text(plan)
    argv = [COMMAND, "run", "plan.yaml", "--headless", "--runs-dir", "runs", "--json", "result.json", *more]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=600, check=False)


def result(folder: Path) -> Any:
    return json.loads((folder / "result.json").read_text())


GROWING = f"""{SQLITE}
stages:
  - sql:
      id: grow
      system: db
      statements: [CREATE TABLE IF NOT EXISTS t (n int), INSERT INTO t VALUES (1)]
      wait_until: {{query: SELECT count(*) > 0 FROM t, equals: 1, within: 10s}}
      query: SELECT count(*) AS n, 1000 + count(*) AS iops FROM t
      metrics: {{row_count: {{column: n}}, max_iops: {{column: 2}}}}
      repeat: 3
verdicts:
  - {{id: fast, check: grow.max_iops.lower >= 900.0}}
  - {{id: sum, check: grow.row_count.mean == 2.0}}
  - {{id: waited, check: grow.wait_s.mean < 10.0 && grow.elapsed_s.n == 3}}
"""


def test_each_repeat_gives_numbers_and_verdicts_read_estimates(tmp_path: Path) -> None:
    done = run(tmp_path, GROWING)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "grow, repeat 3: row_count 3, max_iops 1,003" in done.stdout
    (stage,) = result(tmp_path)["stages"]
    assert [one["values"]["max_iops"] for one in stage["values"]] == [1001.0, 1002.0, 1003.0]
    assert stage["metrics"]["max_iops"]["n"] == 3
    (first,) = (tmp_path / "runs").iterdir()
    assert "Measured values" in (first / "report.html").read_text()
    subprocess.run([COMMAND, "report", str(first), "--values", "v.csv"], cwd=tmp_path, check=True, timeout=300)
    with (tmp_path / "v.csv").open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["metric"] == "max_iops"]
    assert [(row["stage"], row["repeat"], row["value"]) for row in rows] == [
        ("grow", "1", "1001.0"), ("grow", "2", "1002.0"), ("grow", "3", "1003.0")
    ]  # fmt: skip
    _compare(tmp_path, first)


def _compare(folder: Path, first: Path) -> None:
    """A second run of the same plan has the same numbers."""
    assert run(folder, GROWING).returncode == 0
    second = next(path for path in (folder / "runs").iterdir() if path != first)
    argv = [
        COMMAND,
        "compare",
        str(first),
        str(second),
        "--json",
        "c.json",
        "--fail-if",
        "grow.max_iops.change.mean > 0.5",
    ]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "grow: max_iops" in done.stdout
    (stage,) = json.loads((folder / "c.json").read_text())["comparisons"][0]["stages"]
    changed = {row["metric"]: row for row in stage["values"]}
    assert changed["max_iops"]["base"] == changed["max_iops"]["other"] == 1002.0
    assert changed["max_iops"]["change"]["lower"] < 0.0 < changed["max_iops"]["change"]["upper"]


def test_one_repeat_decides_nothing(tmp_path: Path) -> None:
    once = GROWING.replace("repeat: 3", "repeat: 1").replace("grow.max_iops.lower", "grow.max_iops.mean")
    once = once.replace("grow.elapsed_s.n == 3", "grow.elapsed_s.n == 1")
    done = run(tmp_path, once)
    assert done.returncode == 3, done.stdout + done.stderr
    checked = subprocess.run([COMMAND, "check", "plan.yaml"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "verdict `fast` cannot be decided by 1 repeat of `grow`" in checked.stdout + checked.stderr
    assert {verdict["id"]: verdict["outcome"] for verdict in result(tmp_path)["verdicts"]}["fast"] == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        (
            "wait_until: {query: SELECT 7, equals: 8, every: 100ms, within: 500ms}",
            ("plan.yaml:9:10: stage s: sql:db on h failed", "`SELECT 7` gave '7' and not 8 after", "within"),
        ),
        (
            "query: SELECT 1 AS a, metrics: {max_iops: {}}",
            ("plan.yaml:9:10: stage s: sql:db on h failed", "metric `max_iops`: the result has no column", "one of a"),
        ),
        ("query: SELECT 1 AS a WHERE 1 = 2, metrics: {a: {}}", ("metric `a`: the result has no rows",)),
    ],
)
def test_a_failure_has_its_place_and_the_way_out(tmp_path: Path, stage: str, words: tuple[str, ...]) -> None:
    done = run(tmp_path, f"{SQLITE}stages:\n  - sql: {{id: s, system: db, {stage}}}\nverdicts: []\n")
    assert done.returncode == 4, done.stdout + done.stderr
    for word in words:
        assert word in " ".join(done.stdout.split()), done.stdout


def test_a_resumed_run_takes_the_repeats_that_are_missing(tmp_path: Path) -> None:
    until_unix_s = int(time.time()) + 20
    waits = GROWING.replace("count(*) > 0", f"count(*) = 1 OR unixepoch() > {until_unix_s}")
    (tmp_path / "plan.yaml").write_text(waits.replace("within: 10s", "within: 60s, every: 100ms"))
    argv = [COMMAND, "run", "plan.yaml", "--headless", "--runs-dir", "runs"]
    process = subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120.0
        while not (found := list((tmp_path / "runs").glob("*/journal.sqlite"))) or not _repeats(found[0].parent):
            assert time.monotonic() < deadline, "no repeat has ended"
            time.sleep(0.1)
        (directory,) = (path.parent for path in found)
        process.kill()  # before repeat 2, or in its wait
    finally:
        process.kill()
        process.wait(60.0)
    argv = [COMMAND, "resume", str(directory), "--headless", "--json", "result.json"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    (stage,) = result(tmp_path)["stages"]
    assert [one["repeat"] for one in stage["values"]] == [1, 2, 3], done.stdout + done.stderr
    assert stage["values"][0]["values"]["row_count"] == 1.0
    assert stage["metrics"]["row_count"]["n"] == 3


def _repeats(directory: Path) -> int:
    try:
        return run_progress(stamped.event for stamped in read(directory)).values.get("grow", 0)
    except Exception:  # the journal is being made
        return 0


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
      limits: {{start_skew: 10s, tps_slope: 100%, tps_cv: 100%}}
verdicts:
  - {{id: level, check: ladder.at(1).sql.log.level.max.mean == 5.0}}
  - {{id: log, check: ladder.at(1).sql.log.wal_bytes.per_s.mean > 0.0}}
"""


def test_a_capture_gives_levels_and_rates_to_verdicts_and_reports(tmp_path: Path) -> None:
    done = run(tmp_path, SAMPLED)
    assert done.returncode == 0, done.stdout + done.stderr
    (_, ladder) = result(tmp_path)["stages"]
    assert ladder["rungs"][0]["metrics"]["sql"]["log"]["level"]["avg"]["mean"] == 5.0
    assert "Measured values, 1 thread" in done.stdout
    (directory,) = (tmp_path / "runs").iterdir()
    subprocess.run([COMMAND, "report", str(directory), "--values", "v.csv"], cwd=tmp_path, check=True, timeout=300)
    with (tmp_path / "v.csv").open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["metric"] == "wal_bytes.per_s" and row["valid"] == "True"]
    assert [row["repeat"] for row in rows] == ["1", "2"]
    assert all(float(row["value"]) > 0.0 for row in rows)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT pg_read_file('/etc/hostname') AS a",
        "COPY (SELECT 1) TO PROGRAM 'touch /tmp/escaped'",
        "COPY (SELECT 1) TO '/tmp/escaped'",
    ],
)
def test_a_query_has_no_more_rights_than_statements(tmp_path: Path, query: str) -> None:
    plan = TOPOLOGY.replace("ENGINE", "postgres")
    stage = f'  - sql: {{id: s, system: db, query: "{query}", metrics: {{a: {{}}}}}}\n'
    done = run(tmp_path, f"{plan}stages:\n{stage}verdicts: []\n")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "permission denied" in done.stdout


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
      limits: {{start_skew: 10s, tps_slope: 100%, tps_cv: 100%}}
      matrix: {{mode: [a, b]}}
      before:
        - sql: {{system: db, query: SELECT count(*) AS n FROM vpn_users, metrics: {{row_count: {{column: n}}}}}}
verdicts: []
"""


def test_a_step_gives_a_value_for_each_turn(tmp_path: Path) -> None:
    done = run(tmp_path, STEPS)
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [stage for stage in result(tmp_path)["stages"] if stage["kind"] == "sql"]
    assert len(steps) == 2
    for step in steps:
        assert [one["repeat"] for one in step["values"]][:2] == [1, 2], done.stdout
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
  - ladder: {{workload: w, target: db, threads: [1], ramp_up: 0s, measure: 2s, ramp_down: 0s, repeat: 2, capture: memory}}
verdicts:
  - {{id: fits, check: disk.size_kb.n == 2}}
  - {{id: read, check: ladder.at(1).command.memory.free_kb.avg.n == 2}}
"""


def test_numbers_of_commands_need_a_policy_and_their_outputs_are_kept(tmp_path: Path) -> None:
    refused = " ".join(run(tmp_path, COMMANDS).stdout.split())
    assert "the command df -k / is not allowed on this host" in refused
    assert "the command cat /proc/meminfo is not allowed on this host" in refused
    assert "system db is up" not in refused
    path = shutil.which("df", path="/usr/local/bin:/usr/bin:/bin")
    assert f"{{path: {path}, arguments: [-k, /]}}` under `commands`" in refused
    policy = tmp_path / "policy.yaml"
    cat = shutil.which("cat", path="/usr/local/bin:/usr/bin:/bin")
    lines = [f"  - {{path: {path}, arguments: [-k, /]}}", f"  - {{path: {cat}, arguments: [/proc/meminfo]}}", ""]
    policy.write_text("\n".join(["policy: 1", "commands:", *lines]))
    policy.chmod(0o644)
    done = run(tmp_path, COMMANDS, "--policy", str(policy))
    assert done.returncode in (0, 3), done.stdout + done.stderr
    assert {verdict["id"]: verdict["outcome"] for verdict in result(tmp_path)["verdicts"]} == {
        "fits": "PASS",
        "read": "PASS",
        "counted:db": "PASS",
        "invariants:db": "PASS",
    }
    outputs = sorted((tmp_path / "runs").iterdir())[-1] / "outputs"
    names = {path.name for path in outputs.iterdir()}
    assert names == {"disk-1-h.txt", "disk-2-h.txt", "ladder-1-1-1-memory-h.txt", "ladder-1-2-1-memory-h.txt"}
    assert "MemTotal" in (outputs / "ladder-1-2-1-memory-h.txt").read_text()
