"""A whole run of the prepaid workload in which a plan's own SQL makes a cent: told at once, and the run fails with both
sums."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.server

PLAN = """
proveout: 1
name: harm
topology:
  hosts:
    box: {roles: [server, client], address: local}
  systems:
    db: {engine: sqlite, host: box, provision: embedded}
workloads:
  ppm: {kind: prepaid, population: 1_000, weights: {ChangeBalance: 1}}
stages:
  - populate: {workload: ppm, into: db}
  - ladder: {id: before, workload: ppm, target: db, threads: [1], measure: 1s, repeat: 1, ramp_up: 200ms, ramp_down: 0s}
  - sql: {id: theft, system: db, statements: ["UPDATE accounts SET current_balance = current_balance + 1 WHERE account_id = 7"]}
  - ladder: {id: after, workload: ppm, target: db, threads: [1], measure: 1s, repeat: 1, ramp_up: 200ms, ramp_down: 0s}
report: {without: [others]}  # no figure: drawing takes a second of a processor
verdicts:
  - {id: v, check: before.at(1).tps.mean > 1}
"""


@pytest.mark.slow
def test_a_cent_too_much_fails_the_run(tmp_path: Path) -> None:
    plan, result = tmp_path / "harm.yaml", tmp_path / "result.json"
    plan.write_text(PLAN)
    argv = [sys.executable, "-m", "proveout", "run", str(plan), "--headless", "--json", str(result)]
    argv += ["--runs-dir", str(tmp_path / "runs")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=180, check=False)
    text = done.stdout + done.stderr
    assert done.returncode == 1, text
    (verdict,) = (one for one in json.loads(result.read_text())["verdicts"] if one["id"] == "invariants:db")
    assert verdict["outcome"] == "FAIL"
    assert "first after iteration after/1/1/" in verdict["evidence"]
    assert "error: db after after/1/1/" in text
    before, _, broken = text.partition("stage theft")
    assert before.count("db conserves what it must") >= 2, "after the population, and after the first iteration"
    assert "db conserves what it must" not in broken
