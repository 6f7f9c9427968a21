"""The parts of the soak test with small counts. Those with the marker `soak` are whole runs of many seconds whose
behaviour a shorter test guards: real restarts, freezes, and jumps of clocks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import broken_lines
import clocks
import crowds
import fault_kills
import pytest
import restarts
import stops
from full_disks import fill, small_disk
from kill_points import PLAN, Point, die
from live_run import LiveRun

pytestmark = pytest.mark.server

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="tuning, mounts and nft take root")


@pytest.mark.soak
def test_a_coordinator_that_dies_in_the_middle_of_an_iteration(tmp_path: Path) -> None:
    death = die(Point("coordinator", 19), tmp_path)
    assert not death.wrongs, death
    assert death.codes == (-9, 0)


@AS_ROOT
def test_an_agent_that_dies_between_a_tuned_file_and_its_next_note(tmp_path: Path) -> None:
    death = die(Point("agents", 30, tuned=True), tmp_path)
    assert not death.wrongs, death
    assert death.boundary


@pytest.mark.soak
@AS_ROOT
def test_an_agent_that_dies_just_after_the_change_of_a_fault(tmp_path: Path) -> None:
    death = die(Point("agents", 150, tuned=True, fault=True), tmp_path)
    assert not death.wrongs, death
    assert death.boundary


@AS_ROOT
@pytest.mark.skipif(shutil.which("nft") is None, reason="needs nft")
def test_a_fault_is_healed_after_a_kill_of_the_coordinator(tmp_path: Path) -> None:
    at_s = fault_kills.AT_S + fault_kills.FOR_S / 2
    with restarts.external() as server:
        found = fault_kills.killed("partition", at_s, server.dsn, tmp_path)
    assert not found.wrongs
    assert found.step in ("begins", "in_place", "healing", "healed")


@AS_ROOT
def test_a_full_disk_stops_the_run_with_4_and_it_can_be_resumed(tmp_path: Path) -> None:
    try:
        with small_disk(tmp_path / "disk", 8 << 20) as disk:
            run = LiveRun(
                tmp_path, PLAN.replace("repeat: 1", "repeat: 4"), environment={"PROVEOUT_RUNS_DIR": str(disk / "runs")}
            )
            try:
                run.until(lambda: run.facts.iterations, "an iteration has ended")
                fill(disk / "filler", 0)
                assert run.end() == 4, run.output
                assert "Traceback" not in run.output
                assert "full" in run.output or "No space left" in run.output
                kept = run.facts.iterations
                assert kept, "finished iterations stay readable"
                (disk / "filler").unlink()
                assert run.again("resume", "latest").end() == 0, run.output
                assert run.facts.iterations[: len(kept)] == kept
            finally:
                run.kill()
    except PermissionError as refused:
        pytest.skip(f"this host does not let the tests mount a tmpfs: {refused}")


@pytest.mark.soak
def test_no_verdict_passes_on_an_iteration_of_a_frozen_database() -> None:
    for found in stops.freezes(1):
        assert found.valid, found
        assert any(text.startswith(("outage:db: ", "load: ")) for text in found.evidence), found
        assert found.code in (1, 3), found.output[-2000:]


@pytest.mark.soak
def test_a_restart_at_any_moment_does_not_end_the_run() -> None:
    for found in restarts.struck(2):
        assert not found.wrong, f"{found.findings}\n{found.output[-3000:]}"


@pytest.mark.soak
@pytest.mark.skipif(not clocks.library(), reason="needs libfaketime (Debian: apt-get install faketime)")
def test_a_load_ends_with_its_lease_though_the_wall_clock_jumps(tmp_path: Path) -> None:
    *_, wrongs = clocks.abandoned(tmp_path, lease_s=4.0, jump_s=-clocks.HOUR_S)
    assert not wrongs


async def test_kills() -> None:
    figure, failures = await broken_lines.kills(1)
    assert not failures, figure


@pytest.mark.timed  # as test_every_task_has_one_outcome_over_a_stream_that_keeps_breaking
async def test_cuts_and_retries() -> None:
    for part, count in ((broken_lines.cuts, 10), (broken_lines.retries, 20)):
        figure, failures = await part(count)
        assert not failures, figure


@pytest.mark.soak
async def test_missing_samples_are_counted_by_their_numbers() -> None:
    figure, failures = await crowds.lossy(200, share=0.1)
    assert not failures, figure
