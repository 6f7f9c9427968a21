"""A run whose ladders are made by pgbench and by sysbench, in turns: their numbers, outputs, and the refusal without a
policy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from proveout.agent.engines.postgres.installation import find_installation

COMMAND = str(Path(sys.executable).with_name("proveout"))
ROOT = Path(__file__).parents[2]
PLAN = ROOT / "plans" / "compare-clients-embedded.yaml"
SMALL = ("-p", "threads=[2]", "-p", "measure=2s", "-p", "repeat=2")

pytestmark = pytest.mark.slow


def run(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    plan = folder / "plan.yaml"
    plan.write_text(PLAN.read_text().replace(".at(4)", ".at(2)"))
    argv = [COMMAND, "run", "plan.yaml", "--headless", "--runs-dir", "runs", "--json", "result.json", *SMALL, *more]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.skipif(shutil.which("sysbench") is None, reason="sysbench is not on this host")
def test_other_load_generators_run_as_ladders(tmp_path: Path) -> None:
    pgbench = find_installation().programs / "pgbench"
    policy = tmp_path / "policy.yaml"
    guide = (ROOT / "docs" / "guide" / "programs.md").read_text()
    policy.write_text(guide[guide.index("policy: 1\n") :].partition("```")[0].replace("/usr/bin/pgbench", str(pgbench)))
    policy.chmod(0o644)
    done = run(tmp_path, "--policy", str(policy))
    assert done.returncode in (0, 3), done.stdout + done.stderr
    found: Any = json.loads((tmp_path / "result.json").read_text())
    stages = {stage["id"]: stage for stage in found["stages"]}
    for name in ("pgbench", "sysbench", "accounts", "sbtest"):
        (rung,) = stages[name]["rungs"]
        assert rung["metrics"]["tps"]["n"] == 2
        assert rung["metrics"]["tps"]["mean"] > 100.0
        assert 0.0 < rung["metrics"]["response"]["avg_us"]["mean"] < rung["metrics"]["response"]["max_us"]["mean"]
    outputs = next((tmp_path / "runs").iterdir()) / "outputs"
    assert "number of transactions actually processed" in (outputs / "pgbench-2-1-1-load-client1.txt").read_text()
    assert "Latency histogram" in (outputs / "sysbench-2-2-1-load-client1.txt").read_text()


def test_without_a_policy_the_message_has_the_line_to_add(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 4, done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    assert "the command pgbench --select-only" in text
    assert "arguments: [--select-only, --protocol=prepared, '--client={count}', --jobs=1, '--time={count}'" in text
    assert "the command sysbench oltp_point_select" in text
    assert "system db is up" not in text, "before a server is started"


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
verdicts:
  - {{id: slow, check: l.at(4).program.p90_us.mean == 1003.0}}
  - {{id: rate, check: l.at(4).tps.mean == 400.0}}
"""


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="the unprivileged user has no python3 on this host")
def test_a_client_of_ones_own_on_two_hosts_without_a_database(tmp_path: Path) -> None:
    """The client writes its log at once, of seconds to come: the parser cuts it by its times, not by when it came."""
    client = Path(tempfile.mkdtemp(dir="/var/tmp")) / "client"
    try:
        client.parent.chmod(0o755)
        client.write_text(CLIENT.format(python="/usr/bin/python3"))
        client.chmod(0o755)
        (tmp_path / "plan.yaml").write_text(CLIENT_PLAN.format(client=client))
        policy = tmp_path / "policy.yaml"
        policy.write_text(f"policy: 1\ncommands:\n  - {{path: {client}, arguments: ['*'], i_know: a test}}\n")
        policy.chmod(0o644)
        argv = [COMMAND, "run", "plan.yaml", "--headless", "--runs-dir", "runs", "--json", "result.json"]
        done = subprocess.run(
            [*argv, "--policy", str(policy)], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
        )
    finally:
        shutil.rmtree(client.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    found: Any = json.loads((tmp_path / "result.json").read_text())
    (rung,) = found["stages"][0]["rungs"]
    assert rung["metrics"]["tps"]["values"] == [400.0, 400.0], "200/s of each host, without the ramps"
    assert rung["metrics"]["program"]["p90_us"]["mean"] == 1003.0, "the largest of the two seconds of the window"
    outputs = next((tmp_path / "runs").iterdir()) / "outputs"
    assert (outputs / "l-4-2-1-load-one.txt").read_text().split()[:3] == ["2", "1", "50"]
    assert (outputs / "l-4-2-1-load-two.txt").read_text().split()[:3] == ["2", "51", "100"]


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not on this host")
def test_fio_as_the_load_of_a_ladder(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    guide = (ROOT / "docs" / "guide" / "programs.md").read_text()
    policy.write_text(guide[guide.index("policy: 1\n") :].partition("```")[0])
    policy.chmod(0o644)
    plan = str(ROOT / "plans" / "fio-program-embedded.yaml")
    argv = [COMMAND, "run", plan, "--headless", "--runs-dir", "runs", "--json", "result.json", "--policy", str(policy)]
    more = ["-p", "depths=[1]", "-p", "measure=1s", "-p", "size=1m"]
    done = subprocess.run([*argv, *more], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    found: Any = json.loads((tmp_path / "result.json").read_text())
    for stage in found["stages"]:
        (rung,) = stage["rungs"]
        metrics = rung["metrics"]
        assert metrics["tps"]["n"] >= 3
        assert metrics["program"]["iops"]["mean"] == pytest.approx(metrics["tps"]["mean"], rel=0.01)
        assert 0.0 < metrics["response"]["p50_us"]["mean"] <= metrics["response"]["p99_us"]["mean"]
