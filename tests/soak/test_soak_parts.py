"""The parts of the soak test with small counts."""

from __future__ import annotations

import os
from pathlib import Path

import broken_lines
import pytest
from kill_points import Point, die

pytestmark = pytest.mark.server


@pytest.mark.slow
def test_a_coordinator_that_dies_in_the_middle_of_an_iteration(tmp_path: Path) -> None:
    death = die(Point("coordinator", 19), tmp_path)
    assert not death.wrongs, death
    assert death.codes == (-9, 0)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="tuning takes root")
def test_an_agent_that_dies_between_a_tuned_file_and_its_next_note(tmp_path: Path) -> None:
    death = die(Point("agents", 30, tuned=True), tmp_path)
    assert not death.wrongs, death
    assert death.boundary


async def test_kills() -> None:
    figure, failures = await broken_lines.kills(1)
    assert not failures, figure


async def test_cuts() -> None:
    figure, failures = await broken_lines.cuts(10)
    assert not failures, figure


async def test_retries() -> None:
    figure, failures = await broken_lines.retries(20)
    assert not failures, figure


async def test_missing_samples_are_counted_by_their_numbers() -> None:
    made, received, missing = await broken_lines.counted(cut_every_s=0.2, samples=200)
    assert received + missing == made
    assert received >= 200
