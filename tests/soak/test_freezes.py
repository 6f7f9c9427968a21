"""A database that is stopped over a measure window: no verdict passes on such an iteration."""

from __future__ import annotations

import os

import freezes
import pytest
import thorough

pytestmark = pytest.mark.server

COUNT = int(os.environ.get("PROVEOUT_FREEZES", str(thorough.count(2, 1))))


@pytest.mark.slow
@pytest.mark.thorough
def test_no_verdict_passes_on_an_iteration_of_a_frozen_database() -> None:
    for found in freezes.freezes(COUNT):
        print(f"frozen at {found.at_s:.2f} s: {found.tps:.0f} TPS, {found.evidence}")
        assert found.valid, found
        assert any(text.startswith(("outage:db: ", "load: ")) for text in found.evidence), found
        assert found.code in (1, 3), found.output[-2000:]
