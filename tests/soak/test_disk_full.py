"""Runs whose disk, a small tmpfs, fills up: the run stops with exit code 4, keeps its finished iterations, and can be
resumed when the disk has free space."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import thorough
from full_disks import drawn, played
from kill_points import PLAN

from proveout.coordinator.schedule.progress import RunProgress, run_progress
from proveout.coordinator.storage.event_codec import JournalFault
from proveout.coordinator.storage.journal import read

pytestmark = pytest.mark.server


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("this host does not let the tests mount a tmpfs")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def facts(runs: Path) -> RunProgress:
    found = list(runs.glob("*/journal.sqlite"))
    try:
        return run_progress(stamped.event for stamped in read(found[0].parent)) if found else RunProgress()
    except JournalFault:  # its tables do not exist yet
        return RunProgress()


def fill(path: Path) -> None:
    """Fill the disk to the last block."""
    with path.open("wb", buffering=0) as stream:
        for size in (1 << 16, 1 << 12):
            try:
                while True:
                    stream.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC


@pytest.mark.slow
def test_a_full_disk_stops_the_run_with_4_and_it_can_be_resumed(small_disk: Path, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(PLAN.replace("repeat: 1", "repeat: 6"))
    runs, log = small_disk / "runs", tmp_path / "log"
    environment = {**os.environ, "PROVEOUT_RUNS_DIR": str(runs)}
    command = str(Path(sys.executable).with_name("proveout"))
    with log.open("wb") as out:
        argv = [command, "run", "small.yaml", "--headless"]
        run = subprocess.Popen(argv, cwd=tmp_path, env=environment, stdout=out, stderr=out)
    try:
        until_s = time.monotonic() + 120
        while not facts(runs).iterations:
            assert run.poll() is None and time.monotonic() < until_s, log.read_text()
            time.sleep(0.1)
        fill(small_disk / "filler")
        assert run.wait(120) == 4, log.read_text()
    finally:
        run.kill()
        run.wait()
    output = log.read_text()
    assert "Traceback" not in output
    assert "full" in output or "No space left" in output
    kept = facts(runs).iterations
    assert kept, "finished iterations stay readable"
    (small_disk / "filler").unlink()
    argv = [command, "resume", "latest", "--headless"]
    again = subprocess.run(
        argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert again.returncode == 0, again.stdout + again.stderr
    assert facts(runs).iterations[: len(kept)] == kept


SEEDS = int(os.environ.get("PROVEOUT_FULL_DISKS", str(thorough.count(2, 1))))
"""The number of moments and sizes that are drawn for each engine."""


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_disk_full_at_a_random_moment_loses_no_iteration(engine: str, seed: int) -> None:
    with tempfile.TemporaryDirectory(prefix="proveout-full-") as folder:  # the database's user needs access to it
        try:
            found = played(drawn(seed, engine), Path(folder))
        except PermissionError as refused:
            pytest.skip(f"this host does not let the tests mount a tmpfs: {refused}")
    assert not found.wrongs, f"{found.case}: {found.wrongs}\n{found.output[-3000:]}"
