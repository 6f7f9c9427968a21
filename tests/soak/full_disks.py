"""Real runs whose disk, a small tmpfs, fills up at a moment drawn from a seed; and their resumes.

Data flow: seed -> `drawn` -> tmpfs, `proveout run` in it -> after a drawn number of journal events and a drawn time,
the disk is filled up to a drawn rest -> exit code and journal -> the disk is freed -> `proveout resume` -> a list of
errors. The database is SQLite in a file, or PostgreSQL. Run directory, agent, captures and database share the disk, so
that any of them can be the first to fail; or the disk holds only the database.
"""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from proveout.coordinator.schedule.progress import RunProgress, run_progress
from proveout.coordinator.storage.event_codec import JournalFault
from proveout.coordinator.storage.journal import StorageFailed, read

T = TypeVar("T")
ITERATIONS = 4
RUN_S = 240.0
MIB = 1 << 20
PLAN = """
proveout: 1
name: full
title: A disk that fills up
preflight: false
topology:
  hosts:
    box: {{roles: [server, client], address: local}}
  systems:
    db: {{engine: {engine}, host: box, provision: embedded}}
workloads:
  hlr: {{kind: hlr, population: {population}}}
captures:
  host: {{kind: os, on: all, every: 200ms}}
stages:
  - populate: {{workload: hlr, into: db}}
  - ladder: {{workload: hlr, target: db, threads: [1, 2], think: {{constant: 200us}}, ramp_up: 100ms, measure: {measure}, ramp_down: 100ms, repeat: 2,
             retries: {retries}, capture: [host], limits: {{start_skew: 10s, tps_slope: 10000%, tps_cv: 10000%, void: 100%, client_cpu: 100%}}}}
report: {{without: [others]}}  # no figure, because drawing others takes a second of CPU time
verdicts:
  - {{id: answers, check: ladder.at(1).tps.mean > 0.0 && ladder.at(2).tps.mean > 0.0}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The moment at which the disk is filled (after events in the journal, then seconds), the space left, and the
    plan's `retries`.

    `alone`: the disk holds the database's data only.
    """

    seed: int
    engine: str
    size_bytes: int
    after_events: int
    after_s: float
    left_bytes: int
    retries: int
    alone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """The result of a case: exit codes of the run and of its resumes, the log, and the errors."""

    case: Case
    codes: tuple[int, ...]
    iterations: int
    wrongs: tuple[str, ...]
    output: str


def drawn(seed: int, engine: str = "sqlite") -> Case:
    """Draw the case of a seed."""
    chance = random.Random(f"{engine}-{seed}")
    size = chance.randrange(8, 24) * MIB if engine == "sqlite" else chance.randrange(110, 180) * MIB
    return Case(
        seed=seed,
        engine=engine,
        size_bytes=size,
        after_events=chance.randrange(1, 22),
        after_s=chance.uniform(0.0, 1.5),
        left_bytes=chance.choice((0, 1 << 12, 1 << 14, 1 << 16, 1 << 18, MIB)),
        retries=chance.randrange(3),
        alone=chance.random() < 0.5,
    )


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """Mount a tmpfs. PermissionError when this host does not permit it."""
    folder.mkdir(parents=True, exist_ok=True)
    argv = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=711", "tmpfs", str(folder)]
    mounted = subprocess.run(argv, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        raise PermissionError(mounted.stderr)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path, left_bytes: int) -> None:
    """Fill the disk except for `left_bytes`."""
    about = os.statvfs(path.parent)
    with path.open("wb", buffering=0) as stream:
        left = about.f_bavail * about.f_frsize - left_bytes
        try:
            while left > 0:
                left -= stream.write(bytes(min(1 << 16, left)))
            while not left_bytes:
                stream.write(bytes(1 << 12))
        except OSError as error:
            assert error.errno == errno.ENOSPC


def facts(runs: Path) -> RunProgress:
    """Return the progress of the only run; an empty one when its journal has just been created."""
    found = list(runs.glob("*/journal.sqlite"))
    try:
        return run_progress(stamped.event for stamped in read(found[0].parent)) if found else RunProgress()
    except (JournalFault, StorageFailed):
        return RunProgress()


def played(case: Case, folder: Path) -> Filled:
    """Run a case in an empty folder."""
    folder.chmod(0o755)  # the database runs as another user
    disk = folder / "disk"
    with ExitStack() as mounts:
        if not case.alone:
            mounts.enter_context(small_disk(disk, case.size_bytes))
        disk.mkdir(exist_ok=True)
        text = PLAN.format(
            engine=case.engine,
            population=1000 if case.engine == "sqlite" else 10_000,
            measure="1s",
            retries=case.retries,
        )
        (folder / "full.yaml").write_text(text)
        codes, filler = _filled_run(case, folder, disk, mounts)
        filler.unlink(missing_ok=True)
        wrongs = []
        if codes[0] == 4:
            codes.append(_proveout(folder, disk, "resume", "latest"))
        found, output = facts(disk / "runs"), (folder / "log").read_text(errors="replace")
    valid = sum(iteration.valid for iteration in found.iterations)
    if codes[0] not in (0, 4) or codes[-1] != 0:
        wrongs.append(f"exit codes {codes}")
    if valid != ITERATIONS:
        wrongs.append(f"{valid} of {ITERATIONS} iterations")
    if codes[0] == 4 and "file system" not in output:
        wrongs.append("no file system is named")
    if "Traceback" in output:
        wrongs.append("a traceback")
    return Filled(case=case, codes=tuple(codes), iterations=valid, wrongs=tuple(wrongs), output=output)


def _filled_run(case: Case, folder: Path, disk: Path, mounts: ExitStack) -> tuple[list[int], Path]:
    """Return the run's exit code, and the file that has filled the disk."""
    process = _start(folder, disk, "run", "full.yaml")
    try:
        if case.alone:  # its agent takes a second to start, and the database another one
            (systems,) = _until(lambda: list(disk.glob("runs/*/systems")), process)
            mounts.enter_context(small_disk(systems, case.size_bytes))
        else:
            systems = disk
        _until(lambda: len(facts(disk / "runs").history) >= case.after_events, process)
        time.sleep(case.after_s)
        filler = systems / "filler"
        if process.poll() is None:
            fill(filler, case.left_bytes)
        return [process.wait(RUN_S)], filler
    finally:
        process.kill()
        process.wait()


def _until(found: Callable[[], T], process: subprocess.Popen[bytes]) -> T:
    """Wait until `found` returns a true value, or until the process ends; return the value."""
    until_s = time.monotonic() + RUN_S
    while not (value := found()) and process.poll() is None:
        assert time.monotonic() < until_s, "it does not go on"
        time.sleep(0.01)
    return value


def _start(folder: Path, disk: Path, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PROVEOUT_RUNS_DIR": str(disk / "runs")}
    argv = [sys.executable, "-m", "proveout", *arguments, "--headless"]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(argv, cwd=folder, env=environment, stdout=log, stderr=log)


def _proveout(folder: Path, disk: Path, *arguments: str) -> int:
    return _start(folder, disk, *arguments).wait(RUN_S)


if __name__ == "__main__":
    import tempfile

    engine_, *seeds_ = sys.argv[1:]
    for seed_ in map(int, seeds_):
        with tempfile.TemporaryDirectory() as place_:
            result_ = played(drawn(seed_, engine_), Path(place_))
        print(result_.case, result_.codes, result_.iterations, result_.wrongs or "fine", flush=True)
        if result_.wrongs:
            print(
                "\n".join(line[:600] for line in result_.output.splitlines() if "exit code" in line or "rror" in line)
            )
