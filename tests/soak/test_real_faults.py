"""A real load with a short lease, during which the agent's wall clock jumps by an hour.

The parts `clocks`, `links` and `stops` of `make soak` test the lease of 10 s with more jumps, a disconnected network
link, and pauses of 5 and 15 s.
"""

from __future__ import annotations

from pathlib import Path

import clocks
import pytest

pytestmark = pytest.mark.server

LEASE_S = 4.0


@pytest.mark.slow
@pytest.mark.skipif(not clocks.library(), reason="needs libfaketime (Debian: apt-get install faketime)")
def test_a_load_ends_with_its_lease_though_the_wall_clock_jumps(tmp_path: Path) -> None:
    *_, wrongs = clocks.abandoned(tmp_path, lease_s=LEASE_S, jump_s=-clocks.HOUR_S)
    assert not wrongs
