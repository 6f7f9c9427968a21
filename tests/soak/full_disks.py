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
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from live_run import LIMITS, LiveRun, plan

ITERATIONS = 4
MIB = 1 << 20


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


def played(case: Case, folder: Path) -> Filled:
    """Run a case in an empty folder."""
    folder.chmod(0o755)  # the database runs as another user
    disk = folder / "disk"
    with ExitStack() as mounts:
        if not case.alone:
            mounts.enter_context(small_disk(disk, case.size_bytes))
        disk.mkdir(exist_ok=True)
        text = plan(
            engine=case.engine,
            population=1000 if case.engine == "sqlite" else 10_000,
            ladder="threads: [1, 2], think: {constant: 200us}, capture: [host]",
            ramp_ms=100,
            measure_s=1.0,
            repeat=2,
            retries=case.retries,
            limits=LIMITS,
            check="ladder.at(1).tps.mean > 0.0 && ladder.at(2).tps.mean > 0.0",
            more="preflight: false\n",
        )
        run, filler = _filled_run(case, folder, text, disk, mounts)
        codes = [run.end()]
        filler.unlink(missing_ok=True)
        if codes[0] == 4:
            codes.append(run.again("resume", "latest").end())
        found, output = run.facts, run.output
    wrongs = []
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


def _filled_run(case: Case, folder: Path, text: str, disk: Path, mounts: ExitStack) -> tuple[LiveRun, Path]:
    """Return the run, and the file that has filled the disk."""
    run = LiveRun(folder, text, environment={"PROVEOUT_RUNS_DIR": str(disk / "runs")})
    mounts.callback(run.kill)
    systems = disk
    if case.alone:  # its agent takes a second to start, and the database another one
        run.until(lambda: any(disk.glob("runs/*/systems")), "it has begun")
        (systems,) = disk.glob("runs/*/systems")
        mounts.enter_context(small_disk(systems, case.size_bytes))
    run.until(lambda: len(run.facts.history) >= case.after_events or run.process.poll() is not None, "it goes on")
    time.sleep(case.after_s)
    if run.process.poll() is None:
        fill(systems / "filler", case.left_bytes)
    return run, systems / "filler"


def disks(count: int) -> tuple[str, list[str]]:
    """Fill `count` disks of runs with SQLite, and as many with PostgreSQL."""
    failures: list[str] = []
    full = 0
    for number in range(2 * count):
        case = drawn(number // 2, ("sqlite", "postgres")[number % 2])
        with tempfile.TemporaryDirectory(prefix="proveout-full-") as folder:
            found = played(case, Path(folder))
        full += found.codes[0] == 4
        failures += [f"{case}: {wrong}" for wrong in found.wrongs]
    return f"{2 * count} runs on full disks: {full} stopped with 4 and were resumed, none lost an iteration", failures
