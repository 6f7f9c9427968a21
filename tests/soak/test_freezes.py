"""A database that stands still over a measure window: no such iteration is valid."""

from __future__ import annotations

import os

import freezes
import pytest
import thorough

pytestmark = pytest.mark.server

COUNT = int(os.environ.get("PROVEOUT_FREEZES", str(thorough.count(2, 1))))


@pytest.mark.slow
@pytest.mark.thorough
def test_an_iteration_of_a_frozen_database_is_void_and_says_why() -> None:
    for found in freezes.freezes(COUNT):
        print(f"frozen at {found.at_s:.2f} s: {found.tps:.0f} TPS, {found.evidence}")
        assert not found.valid, found
        assert any(text.startswith(("outage:db: ", "load: ")) for text in found.evidence), found
        assert found.code == 0, found.said[-2000:]
