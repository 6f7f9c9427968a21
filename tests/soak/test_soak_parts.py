"""The parts of the soak test with small counts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import broken_lines
import fault_kills
import pytest
import restarts
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


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="tuning takes root")
def test_an_agent_that_dies_just_after_the_change_of_a_fault(tmp_path: Path) -> None:
    death = die(Point("agents", 150, tuned=True, fault=True), tmp_path)
    assert not death.wrongs, death
    assert death.boundary


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("nft") is None, reason="needs root and nft")
@pytest.mark.parametrize("kind", ["kill", "partition"])
def test_a_fault_is_healed_after_a_kill_of_the_coordinator(kind: str, tmp_path: Path) -> None:
    with restarts.external() as server:
        found = fault_kills.killed(kind, fault_kills.AT_S + fault_kills.FOR_S / 2, server.dsn, tmp_path)
    assert not found.wrongs
    assert found.step in ("begins", "in_place", "healing", "healed")


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
