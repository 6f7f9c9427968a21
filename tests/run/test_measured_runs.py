"""Runs of stages that are not transactions of ours: tools, programs of others, and metrics of queries and commands."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from whole_run import Done, run

from proveout.agent.engines.postgres.installation import find_installation

TOOL = """
proveout: 1
name: storage
title: A small file
topology:
  hosts:
    store1: {roles: [storage], address: local}
    store2: {roles: [storage], address: local}
stages:
  - tool:
      id: mixed
      run: fio
      from: role:storage
      pattern: mixed-8k-70-30
      iodepth: 2
      jobs: 1
      size: 4MiB
      direct: false
      ramp_up: 0s
      measure: 1s
      repeat: 1
      limits: {start_skew: 10m, pause: 10m, iops_slope: 10000%, iops_cv: 10000%}
verdicts:
  - {id: both, check: mixed.at(2).nodes.store1.iops.mean > 0.0 && mixed.at(2).nodes.store2.iops.mean > 0.0}
  - {id: slow, severity: warn, check: mixed.at(2).write.iops.mean < 1.0}
report: {figures: [iops-by-queue-depth]}
"""

pytestmark = pytest.mark.server


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not on this host")
def test_a_tool_stage_from_the_plan_to_the_report(tmp_path: Path) -> None:
    done = run(tmp_path, TOOL).ended(0, 3)
    assert "mixed, I/O depth 2, repeat 1 of 1" in done.out
    (rung,) = done.stages["mixed"]["rungs"]
    nodes = rung["metrics"]["nodes"]
    assert set(nodes) == {"store1", "store2"}
    assert rung["metrics"]["iops"]["mean"] == pytest.approx(sum(node["iops"]["mean"] for node in nodes.values()))
    facts = {one["host"]: one["facts"] for one in done.result["environment"]}
    assert facts["store1"]["tool.fio"].startswith("fio-")
    assert not (done.directory / "systems").exists(), "its files are gone"
    assert "IOPS by I/O depth: mixed" in (done.directory / "report.html").read_text()
    rows = [(row["stage"], row["threads"], row["transaction"]) for row in done.table("csv")]
    assert rows == [("mixed", "2", transaction) for transaction in ("(all)", "read", "write")]


ROOT = Path(__file__).parents[2]


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("sysbench") is None, reason="sysbench is not on this host")
def test_other_load_generators_run_as_ladders(tmp_path: Path) -> None:
    pgbench = find_installation().programs / "pgbench"
    policy = tmp_path / "policy.yaml"
    guide = (ROOT / "docs" / "guide" / "programs.md").read_text()
    policy.write_text(guide[guide.index("policy: 1\n") :].partition("```")[0].replace("/usr/bin/pgbench", str(pgbench)))
    policy.chmod(0o644)
    plan = (ROOT / "plans" / "compare-clients-embedded.yaml").read_text().replace(".at(4)", ".at(2)")
    small = ("-p", "threads=[2]", "-p", "measure=2s", "-p", "repeat=2")
    done = run(tmp_path, plan, *small, "--policy", str(policy)).ended(0, 3)
    for name in ("pgbench", "sysbench", "accounts", "sbtest"):
        (rung,) = done.stages[name]["rungs"]
        assert rung["metrics"]["tps"]["n"] == 2 and rung["metrics"]["tps"]["mean"] > 0.0
        assert 0.0 < rung["metrics"]["response"]["avg_us"]["mean"] < rung["metrics"]["response"]["max_us"]["mean"]
    outputs = done.directory / "outputs"
    assert "number of transactions actually processed" in (outputs / "pgbench-2-1-1-load-client1.txt").read_text()
    assert "Latency histogram" in (outputs / "sysbench-2-2-1-load-client1.txt").read_text()


CLIENT = """#!{python}
import os, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
ends = int(options["-rup"]) + int(options["-time"]) + int(options["-rdown"])
rate = float(options["-rate"])
with open("seconds.csv", "w") as log:
    log.write("second,transactions,errors,p90_us\\n")
    for second in range(1, ends + 1):
        log.write(f"{{second}},{{rate:.0f}},0,{{1000 + second}}\\n")
print(os.environ["LOAD_REPEAT"], options["-minsub"], options["-maxsub"], oct(os.stat("seconds.csv").st_mode))
sys.exit(3)
"""
CLIENT_PLAN = """
proveout: 1
name: client
topology:
  hosts:
    one: {{roles: [client, server], address: local}}
    two: {{roles: [client], address: local}}
  systems:
    service: {{engine: none, host: one}}
workloads:
  client:
    kind: program
    argv: [{client}, -threads, "{{threads}}", -rate, "{{rate}}", -minsub, "{{range_from}}", -maxsub, "{{range_to}}",
           -rup, "{{ramp_up_s}}", -time, "{{measure_s}}", -rdown, "{{ramp_down_s}}"]
    range: [1, 100]
    output: {{format: csv, file: seconds.csv, log: {{time: second, transactions: transactions, errors: errors}}}}
    metrics: {{p90_us: {{take: max, hosts: max}}}}
    exit_codes: [0, 3]
stages:
  - ladder:
      id: l
      workload: client
      target: service
      from: [one, two]
      threads: [4]
      rate: 400/s
      ramp_up: 1s
      measure: 2s
      ramp_down: 1s
      repeat: 2
      limits: NEVER_VOID
verdicts:
  - {{id: slow, check: l.at(4).program.p90_us.mean == 1003.0}}
  - {{id: rate, check: l.at(4).tps.mean == 400.0}}
"""


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="the unprivileged user has no python3 on this host")
def test_a_client_of_ones_own_on_two_hosts_without_a_database(tmp_path: Path, package_folder: Path) -> None:
    """The client writes its log at once, of seconds to come: the parser cuts it by its times, not by when it came."""
    client = package_folder / "client"
    client.write_text(CLIENT.format(python="/usr/bin/python3"))
    client.chmod(0o755)
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"policy: 1\ncommands:\n  - {{path: {client}, arguments: ['*'], i_know: a test}}\n")
    policy.chmod(0o644)
    done = run(tmp_path, CLIENT_PLAN.format(client=client), "--policy", str(policy)).ended(0)
    (rung,) = done.stages["l"]["rungs"]
    assert rung["metrics"]["tps"]["values"] == [400.0, 400.0], "200/s of each host, without the ramps"
    assert rung["metrics"]["program"]["p90_us"]["mean"] == 1003.0, "the largest of the two seconds of the window"
    outputs = done.directory / "outputs"
    assert (outputs / "l-4-2-1-load-one.txt").read_text().split()[:3] == ["2", "1", "50"]
    assert (outputs / "l-4-2-1-load-two.txt").read_text().split()[:3] == ["2", "51", "100"]


VALUES_HEAD = """
proveout: 1
name: values
topology:
  hosts: {h: {roles: [client, server], address: local}}
  systems: {db: {engine: ENGINE, host: h, provision: embedded}}
workloads: {w: {kind: tptbm, key: 10}}
"""
VALUES = f"""{VALUES_HEAD.replace("ENGINE", "postgres")}
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


@pytest.fixture(scope="module")
def with_values(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("values")
    df, cat = (shutil.which(name, path="/usr/local/bin:/usr/bin:/bin") for name in ("df", "cat"))
    policy = folder / "policy.yaml"
    lines = [f"  - {{path: {df}, arguments: [-k, /]}}", f"  - {{path: {cat}, arguments: [/proc/meminfo]}}", ""]
    policy.write_text("\n".join(["policy: 1", "commands:", *lines]))
    policy.chmod(0o644)
    return run(folder, VALUES, "--policy", str(policy)).ended(0, 3)


def test_each_repeat_gives_numbers_and_verdicts_read_estimates(with_values: Done) -> None:
    assert "grow, repeat 3: row_count 3, max_iops 1,003" in with_values.out
    rows = [row for row in with_values.table("values") if row["metric"] == "max_iops"]
    assert [(row["stage"], row["repeat"], row["value"]) for row in rows] == [
        ("grow", "1", "1001.0"), ("grow", "2", "1002.0"), ("grow", "3", "1003.0")
    ]  # fmt: skip
    assert "Measured values" in (with_values.directory / "report.html").read_text()
    outcomes = {one["id"]: one["outcome"] for one in with_values.result["verdicts"]}
    names = ("fits", "fast", "sum", "waited", "level", "read")
    assert {name: outcomes[name] for name in names} == dict.fromkeys(names, "PASS")


def test_a_capture_gives_levels_and_rates_of_each_repeat(with_values: Done) -> None:
    assert "Measured values, 1 thread" in with_values.out
    rows = [row for row in with_values.table("values") if row["metric"] == "wal_bytes.per_s"]
    assert [row["repeat"] for row in rows] == ["1", "2"]
    assert all(float(row["value"]) > 0.0 for row in rows)


def test_the_outputs_of_commands_are_kept(with_values: Done) -> None:
    outputs = with_values.directory / "outputs"
    names = {path.name for path in outputs.iterdir()}
    assert names == {"disk-1-h.txt", "disk-2-h.txt", "ladder-1-1-1-memory-h.txt", "ladder-1-2-1-memory-h.txt"}
    assert "MemTotal" in (outputs / "ladder-1-2-1-memory-h.txt").read_text()


def test_a_query_that_fails_has_its_place_and_the_way_out(tmp_path: Path) -> None:
    stage = 'stages:\n  - sql: {id: s, system: db, query: "SELECT 1 AS a", metrics: {x: {}}}\nverdicts: []\n'
    said = run(tmp_path, VALUES_HEAD.replace("ENGINE", "sqlite") + stage).ended(4).words
    for words in ("plan.yaml:9:10: stage s: sql:db on h failed", "metric `x`: the result has no column", "one of a"):
        assert words in said, said
