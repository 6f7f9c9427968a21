"""An external database that is restarted at any moment of a run, or refuses connections: the run waits, and ends
with exit code 0, or with 3 where an iteration that counts met the interruption."""

from __future__ import annotations

import os

import pytest
import restarts
import thorough

pytestmark = pytest.mark.server

COUNT = int(os.environ.get("PROVEOUT_RESTARTS", str(thorough.count(3, 2))))


@pytest.mark.slow
@pytest.mark.thorough
def test_a_restart_at_any_moment_does_not_end_the_run() -> None:
    for found in restarts.struck(COUNT):
        print(f"{found.kind} at {found.at_s:.1f} s: exit {found.code} after {found.seconds:.0f} s; {found.notices}")
        assert not found.wrong, f"{found.findings}\n{found.output[-3000:]}"
