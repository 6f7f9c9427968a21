"""A run whose load is disturbed by faults, as its user sees it: what happens to the server, the lines of the run, the
screen's log and the report; and a fault that the policy of the host does not allow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from proveout.coordinator.schedule.progress import run_progress
from proveout.coordinator.storage.journal import read
from proveout.proto import events
from proveout.tui.event_log import log_line

COMMAND = str(Path(sys.executable).with_name("proveout"))
PLAN = """
proveout: 1
name: disturbed
topology:
  hosts: {h: {roles: [client, server], address: local}}
  systems: {db: {engine: postgres, host: h, provision: embedded}}
workloads: {hlr: {kind: hlr, population: 1000}}
stages:
  - populate: {workload: hlr, into: [db]}
  - ladder:
      id: run
      workload: hlr
      target: db
      threads: 2
      rate: 100/s
      ramp_up: 2s
      measure: 9s
      repeat: 2
      faults:
        - {name: crash, at: 2s, for: 500ms, kill: {system: db}, destructive: true}
        - name: mark
          when: live.tps > 20 && live.errors_per_s == 0
          for: 300ms
          sql:
            system: db
            verify: {query: SELECT count(*) FROM pg_tables WHERE tablename = 'mark', equals: 1}
            apply: CREATE TABLE mark (n int)
            revert: DROP TABLE IF EXISTS mark
"""

pytestmark = [pytest.mark.slow, pytest.mark.server]


def run(folder: Path, plan: str) -> subprocess.CompletedProcess[str]:
    (folder / "plan.yaml").write_text(plan)
    argv = [COMMAND, "run", "plan.yaml", "--headless", "--runs-dir", "runs"]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def recorded(folder: Path) -> list[events.Stamped]:
    (directory,) = (folder / "runs").iterdir()
    return list(read(directory))


def test_overlapping_faults_of_a_system_are_refused(tmp_path: Path) -> None:
    done = run(tmp_path, PLAN)
    assert done.returncode == 2
    assert "`mark` and `crash` may be in place at the same time, and both change system db" in done.stderr


def test_a_killed_server_is_back_in_each_repeat_and_its_errors_are_a_result(tmp_path: Path) -> None:
    alone = PLAN[: PLAN.index("        - name: mark")]
    done = run(tmp_path, alone)
    assert done.returncode == 0, done.stdout + done.stderr
    for text in ("h: fault crash: begins ", "h: fault crash: in place after ", "h: fault crash: healed after "):
        assert done.stdout.count(text) == 2, done.stdout
    stamped = recorded(tmp_path)
    progress = run_progress(one.event for one in stamped)
    assert [(one.id.repeat, one.id.attempt, one.valid) for one in progress.iterations] == [(1, 1, True), (2, 1, True)]
    for iteration in progress.iterations:
        assert not [found.check for found in iteration.findings if not found.ok and (found.voids or found.breach)]
        (crash,) = iteration.faults
        assert crash.begins_s >= 2.0
        assert crash.healed_s is not None
        assert crash.outage_s is not None
        assert crash.outage_s > 0.3, "down for as long as it was killed"
    log = [line.text for one in stamped if (line := log_line(one)) is not None and "fault crash" in line.text]
    assert len(log) == 6


def test_a_condition_on_the_last_second_begins_a_fault(tmp_path: Path) -> None:
    start, _, mark = PLAN.replace("repeat: 2", "repeat: 1").partition("        - {name: crash")
    done = run(tmp_path, start + mark[mark.index("        - name: mark") :])
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [one.event for one in recorded(tmp_path) if isinstance(one.event, events.FaultSeen)]
    assert [(one.id.repeat, one.step) for one in steps] == [
        (1, step) for step in ("begins", "in_place", "healing", "healed")
    ]
    assert all(one.at_s > 1.0 for one in steps), "after a whole second of the window"


def test_a_fault_that_the_policy_does_not_allow_ends_the_run_before_its_load(tmp_path: Path) -> None:
    start = PLAN[: PLAN.index("        - {name: crash")]
    text = start + "        - {name: swap, at: 1s, for: 1s, on: h, sysctl: {vm.swappiness: 1}}\n"
    done = run(tmp_path, text)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "the kernel setting vm.swappiness is not allowed on this host" in done.stdout
    assert "load on" not in done.stdout
