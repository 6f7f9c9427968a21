"""A database of others that is restarted at any moment of a run, or refuses connections: the run waits, runs again what
was spoilt, and ends well."""

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
        assert found.code == 0, found.said[-3000:]
