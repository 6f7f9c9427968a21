"""A run whose load is disturbed by faults, as its user sees it: what happens to the server, and the lines of the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from whole_run import run

from proveout.coordinator.schedule.progress import run_progress
from proveout.coordinator.storage.journal import read
from proveout.proto import events

PLAN = """
proveout: 1
name: disturbed
topology: {hosts: {h: {roles: [client, server], address: local}}, systems: {db: {engine: postgres, host: h, provision: embedded}}}
workloads: {hlr: {kind: hlr, population: 1000}}
stages:
  - populate: {workload: hlr, into: [db]}
  - ladder:
      id: run
      workload: hlr
      target: db
      threads: 2
      rate: 100/s
      ramp_up: 0s
      measure: MEASURE
      ramp_down: 0s
      repeat: REPEAT
      limits: NEVER_VOID
      faults:
"""
CRASH = "        - {name: crash, at: 1s, for: 500ms, kill: {system: db}, destructive: true}\n"
MARK = """        - name: mark
          when: live.tps > 1 && live.errors_per_s == 0
          for: 300ms
          sql:
            system: db
            verify: {query: SELECT count(*) FROM pg_tables WHERE tablename = 'mark', equals: 1}
            apply: CREATE TABLE mark (n int)
            revert: DROP TABLE IF EXISTS mark
"""

pytestmark = pytest.mark.server


def plan(fault: str, *, measure: str, repeat: int) -> str:
    return PLAN.replace("MEASURE", measure).replace("REPEAT", str(repeat)) + fault


def test_a_killed_server_is_back_in_each_repeat_and_its_errors_are_a_result(tmp_path: Path) -> None:
    done = run(tmp_path, plan(CRASH, measure="3s", repeat=2)).ended(0)
    for text in ("h: fault crash: begins ", "h: fault crash: in place after ", "h: fault crash: healed after "):
        assert done.out.count(text) == 2, done.out
    iterations = run_progress(one.event for one in read(done.directory)).iterations
    assert [(one.id.repeat, one.id.attempt, one.valid) for one in iterations] == [(1, 1, True), (2, 1, True)]
    for iteration in iterations:
        assert not [found.check for found in iteration.findings if not found.ok and found.voids]
        (crash,) = iteration.faults
        assert crash.begins_s >= 1.0 and crash.healed_s is not None
        assert crash.outage_s is not None and crash.outage_s > 0.3, "down for as long as it was killed"


def test_a_condition_on_the_last_second_begins_a_fault(tmp_path: Path) -> None:
    done = run(tmp_path, plan(MARK, measure="4s", repeat=1)).ended(0)
    steps = [one.event for one in read(done.directory) if isinstance(one.event, events.FaultSeen)]
    assert [one.step for one in steps] == ["begins", "in_place", "healing", "healed"]
    assert all(one.at_s > 1.0 for one in steps), "after a whole second of the window"
