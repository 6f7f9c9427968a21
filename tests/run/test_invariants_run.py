"""A whole run of the prepaid workload in which a plan's own SQL makes a cent: told at once, and the run fails with both
sums."""

from __future__ import annotations

from pathlib import Path

import pytest
from whole_run import run

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
  - ladder: {id: before, workload: ppm, target: db, threads: [1], measure: 1s, repeat: 1, ramp_up: 0s, ramp_down: 0s, limits: NEVER_VOID}
  - sql: {id: theft, system: db, statements: ["UPDATE accounts SET current_balance = current_balance + 1 WHERE account_id = 7"]}
  - ladder: {id: after, workload: ppm, target: db, threads: [1], measure: 1s, repeat: 1, ramp_up: 0s, ramp_down: 0s, limits: NEVER_VOID}
report: {without: [others]}  # no figure: drawing takes a second of a processor
verdicts:
  - {id: v, check: before.at(1).tps.mean > 1}
"""


def test_a_cent_too_much_fails_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, PLAN).ended(1)
    (verdict,) = (one for one in done.result["verdicts"] if one["id"] == "invariants:db")
    assert verdict["outcome"] == "FAIL"
    assert "first after iteration after/1/1/" in verdict["evidence"]
    assert "error: db after after/1/1/" in done.said
    before, _, broken = done.said.partition("stage theft")
    assert before.count("db conserves what it must") >= 2, "after the population, and after the first iteration"
    assert "db conserves what it must" not in broken
