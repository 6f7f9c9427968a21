"""A run whose plan expects facts: it ends before anything is changed, with all that do not hold, and goes on when all do."""

from __future__ import annotations

from pathlib import Path

import pytest
from whole_run import run

PLAN = """proveout: 1
name: expected
topology:
  hosts:
    h:
      roles: [client, server]
      address: local
      facts: {cpus: 100_000, rack: 7}
      expect:
        cpus: {min: CPUS}
        cpu_socket: 2
        rack: [7, 8]
  systems: {db: {engine: sqlite, host: h, provision: embedded, expect: {engine: sqlite}}}
  equipment: {array: {kind: storage, connects: h, facts: {volumes: 8}}}
workloads: {w: {kind: tptbm, key: 10}}
stages: [{populate: {workload: w, into: db}}]
"""

pytestmark = pytest.mark.server


def test_all_failures_are_named_and_nothing_is_started(tmp_path: Path) -> None:
    done = run(tmp_path, PLAN.replace("CPUS", "90_000")).ended(4)
    assert "plan.yaml:10:15: h: cpus is " in done.out
    assert "expected at least 90000 (correct the host, or the expectation)" in done.out
    assert "plan.yaml:11:21: h: cpu_socket is neither measured nor declared; expected 2" in done.out
    assert "2 expectations do not hold; no host or system was changed" in done.out
    assert "system db is up" not in done.out
    result = done.result
    assert (result["run"]["status"], result["run"]["exit_code"], result["systems"]) == ("failed", 4, {})


def test_a_run_goes_on_when_all_hold_and_its_report_shows_the_difference(tmp_path: Path) -> None:
    done = run(tmp_path, PLAN.replace("CPUS", "1").replace("        cpu_socket: 2\n", "")).ended(0)
    assert "h: cpus is declared as 100000 and measured as " in done.out
    host, system, array = done.result["tested"]
    assert all(row["held"] for row in (*host["rows"], *system["rows"]))
    assert {row["fact"]: row["declared"] for row in array["rows"]} == {"volumes": "8"}
