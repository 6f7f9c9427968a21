"""A run whose loads are disturbed by faults, as its user sees it: what happens to the server, and the lines of the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from whole_run import run

from proveout.coordinator.schedule.state import run_progress
from proveout.coordinator.storage.journal import read
from proveout.proto import events

LADDER = """  - ladder:
      id: %s
      workload: hlr
      target: db
      threads: 2
      rate: 100/s
      ramp_up: 0s
      measure: %s
      ramp_down: 0s
      repeat: 1
      retries: %s
      limits: NEVER_VOID
      faults:
"""
PLAN = f"""
proveout: 1
name: disturbed
topology: {{hosts: {{h: {{roles: [client, server], address: local}}}}, systems: {{db: {{engine: postgres, host: h, provision: embedded}}}}}}
workloads: {{hlr: {{kind: hlr, population: 100}}}}
report: {{without: [others]}}
stages:
  - populate: {{workload: hlr, into: [db]}}
{LADDER % ("killed", "2s", 10)}        - {{name: crash, at: 500ms, for: 500ms, kill: {{system: db}}, destructive: true}}
{LADDER % ("marked", "3s", 0)}        - name: mark
          when: live.tps > 1 && live.errors_per_s == 0
          for: 300ms
          sql:
            system: db
            verify: {{query: SELECT count(*) FROM pg_tables WHERE tablename = 'mark', equals: 1}}
            apply: CREATE TABLE mark (n int)
            revert: DROP TABLE IF EXISTS mark
"""

pytestmark = pytest.mark.server


def test_a_killed_server_is_back_and_a_condition_begins_a_fault(tmp_path: Path) -> None:
    done = run(tmp_path, PLAN).ended(0)
    journal = [one.event for one in read(done.directory)]
    *voided, killed, marked = run_progress(journal).iterations  # on a busy machine a fault comes too late, and voids
    assert not any(one.valid for one in voided) and killed.valid
    for text in ("h: fault crash: begins ", "h: fault crash: in place after ", "h: fault crash: healed after "):
        assert text in done.out
    assert not [found.check for found in killed.findings if not found.ok and found.voids]
    (crash,) = killed.faults
    assert crash.begins_s >= 0.5 and crash.healed_s is not None
    assert crash.outage_s is not None and crash.outage_s > 0.3, "down for as long as it was killed"
    steps = [one for one in journal if isinstance(one, events.FaultSeen) and one.id == marked.id]
    assert [one.step for one in steps] == ["begins", "in_place", "healing", "healed"]
    assert all(one.at_s > 1.0 for one in steps), "after a whole second of the window"
