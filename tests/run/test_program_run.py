"""Runs whose loads are made by programs: pgbench and sysbench in turns, and a client of one's own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from whole_run import run

from proveout.agent.engines.postgres.installation import find_installation

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.server


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
