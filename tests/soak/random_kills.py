"""Runs of which a part receives a signal at a random moment, and which are then resumed.

Data flow: a seed -> `Blow` (engine, victim, signal, moment) -> `struck(blow, folder)`: `proveout run`, the signal,
`proveout resume` until the run has finished -> a list of errors. This process adopts orphans
(PR_SET_CHILD_SUBREAPER), so that remaining processes are found with any name, user or environment. Temporary files go
to a folder of the test.

Checked after each: processes, temporary files, POSIX and System V shared memory, content and mode of the tuned files,
the number of valid iterations, the exit code, and the files of a finished run. A run ends with 0, or with 3 where an
iteration that counts met the end of a process of the database, which is a finding then.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
from kill_points import TUNING, as_before, tuned
from live_run import LIMITS, LiveRun, plan, signalled
from restarts import OF_THE_DATABASE

PR_SET_CHILD_SUBREAPER = 36
GONE_S = 30.0
RESUMES_MAX = 4
ITERATIONS = 2

VICTIMS: dict[str, Callable[[psutil.Process], bool]] = {
    "coordinator": lambda process: False,  # the run's own process, not one of its children
    "agent": lambda process: "proveout.agent" in process.cmdline() or "--local" in process.cmdline(),
    "together": lambda process: False,
    "server": lambda process: process.name() in ("postgres", "mariadbd"),
    "guard": lambda process: any(word.endswith("engines/embedded/supervisor.py") for word in process.cmdline()),
    "worker": lambda process: any("worker" in word for word in process.cmdline()),
    "helper": lambda process: any("helper_main" in word for word in process.cmdline()),
    "any": lambda process: True,
}
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSTOP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """A signal to a part of a run at a moment (0 to 1, as a share of its length). SIGSTOP is followed by SIGCONT."""

    seed: int
    engine: str
    victim: str
    signal: signal.Signals
    moment: float

    @classmethod
    def drawn(cls, seed: int) -> Blow:
        draw = random.Random(seed)
        return cls(
            seed=seed,
            engine=draw.choice(("sqlite", "sqlite", "postgres")),
            victim=draw.choice(tuple(VICTIMS)),
            signal=draw.choice(SIGNALS),
            moment=draw.random(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a blow: whether the signal found its victim, the exit codes, and the errors."""

    blow: Blow
    hit: bool
    codes: tuple[int, ...]
    wrongs: tuple[str, ...]


def kills(count: int, progress: Callable[[int], None], first: int = 0) -> tuple[str, list[str]]:
    """Execute blows, each to a run of its own, until `count` have found their victim; `first` is their first seed."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    lengths = {engine: _length_s(engine) for engine in ("sqlite", "postgres")}
    failures: list[str] = []
    hits, resumed, seed = 0, 0, first
    while hits < count and seed < first + 3 * count:
        blow = Blow.drawn(seed)
        seed += 1
        with tempfile.TemporaryDirectory(prefix="soak-") as folder:
            outcome = struck(blow, Path(folder), lengths[blow.engine])
        hits += outcome.hit
        resumed += len(outcome.codes) > 1
        failures += [f"{blow}: {wrong}" for wrong in outcome.wrongs]
        for wrong in outcome.wrongs:
            print(f"{blow}: {wrong}", file=sys.stderr, flush=True)
        progress(hits)
    if hits < count:
        failures.append(f"only {hits} of {seed - first} signals found their victim")
    return (
        f"{hits} parts of runs struck in {seed - first} runs, {resumed} of them resumed, {len(failures)} errors",
        failures,
    )


def _length_s(engine: str) -> float:
    """Measure the length of an undisturbed run on this machine, in seconds."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        began_s = time.monotonic()
        blow = Blow(seed=-1, engine=engine, victim="any", signal=signal.SIGTERM, moment=1e9)
        outcome = struck(blow, Path(folder), 1.0)
        assert not outcome.wrongs and outcome.codes == (0,), outcome
        return time.monotonic() - began_s


def struck(blow: Blow, folder: Path, length_s: float) -> Outcome:
    """Execute a run with this blow, and its resumes. `folder` is empty."""
    (folder / "tmp").mkdir(mode=0o700)
    options, environment = tuned(folder), {"TMPDIR": str(folder / "tmp")}
    text = plan(
        engine=blow.engine,
        ladder="threads: [2], capture: [host]",
        ramp_ms=100,
        measure_s=1.0,
        repeat=ITERATIONS,
        retries=6,
        limits=LIMITS,
        check="ladder.at(2).tps.mean > 0.0",
        more=TUNING.format(etc=folder / "etc"),
    )
    folder.chmod(0o755)
    shared = _shared_memory()
    run = LiveRun(folder, text, *options, environment=environment)
    hit = _strike(blow, run, length_s)
    codes = [run.end()]
    while not _is_end(run, codes[-1]) and len(codes) <= RESUMES_MAX:
        _until_alone()
        if not run.events():  # nothing was written, so there is nothing to resume
            run = LiveRun(folder, text, *options, environment=environment)
            codes.append(run.end())
        else:
            codes.append(run.again("resume", "latest").end())
    return Outcome(blow=blow, hit=hit, codes=tuple(codes), wrongs=tuple(_wrongs(run, codes, shared)))


def _strike(blow: Blow, run: LiveRun, length_s: float) -> bool:
    """Wait for the moment, then send the signal; return whether the victim existed."""
    until_s = time.monotonic() + blow.moment * length_s
    while time.monotonic() < until_s:
        if run.process.poll() is not None:
            return False
        time.sleep(0.01)
    reached = [pid for pid in _victims(blow, run) if signalled(pid, blow.signal)]
    if blow.signal is signal.SIGSTOP:
        time.sleep(random.Random(blow.seed).uniform(0.2, 14.0))
        for pid in reached:
            signalled(pid, signal.SIGCONT)
    return bool(reached)


def _victims(blow: Blow, run: LiveRun) -> list[int]:
    if blow.victim == "coordinator":
        return [run.process.pid]
    found = []
    for process in run.below():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if VICTIMS["agent" if blow.victim == "together" else blow.victim](process):
                found.append(process.pid)
    if blow.victim == "together":
        return [run.process.pid, *found]
    return [random.Random(blow.seed).choice(found)] if found else []


def _is_end(run: LiveRun, code: int) -> bool:
    """Whether a run need not be resumed: it ended with 0, or with 3 and a finding on the database."""
    findings = [finding for iteration in run.facts.iterations for finding in iteration.findings if not finding.ok]
    return code == 0 or (code == 3 and any(finding.check.startswith(OF_THE_DATABASE) for finding in findings))


def _until_alone(patience_s: float = GONE_S) -> list[str]:
    """Wait until no process of the run is left; return those that remain after `patience_s`. Orphans are children of
    this process."""
    until_s = time.monotonic() + patience_s
    while True:
        left = [_named(process) for process in psutil.Process().children(recursive=True)]
        alive = [name for name in left if name]
        if not alive or time.monotonic() > until_s:
            return alive
        time.sleep(0.1)


def _named(process: psutil.Process) -> str:
    """Return the command line of a process, "" for one that has ended; an ended orphan is reaped."""
    try:
        if process.status() != psutil.STATUS_ZOMBIE:
            return " ".join(process.cmdline()[:6]) or process.name()
        if process.ppid() == os.getpid():
            os.waitpid(process.pid, os.WNOHANG)
    except (psutil.NoSuchProcess, ChildProcessError):
        pass
    return ""


def _shared_memory() -> set[str]:
    """Return PostgreSQL's POSIX segments without a mapping, and System V segments without an attached process."""
    mapped = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            mapped |= {line.split()[5] for line in maps.read_text().splitlines() if "/dev/shm/PostgreSQL." in line}
    posix = {str(path) for path in Path("/dev/shm").glob("PostgreSQL.*")} - mapped
    table = [line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
    return posix | {f"shmid {row[1]}" for row in table if row[6] == "0"}


def _wrongs(run: LiveRun, codes: list[int], shared: set[str]) -> list[str]:
    folder, log = run.folder, run.output
    wrongs = [f"process left: {name}" for name in _until_alone()]
    wrongs += [] if _is_end(run, codes[-1]) else [f"exit codes {codes}: {log[-1500:]}"]
    wrongs += ["a traceback"] if "Traceback (most recent call last)" in log else []
    wrongs += [f"temporary file left: {path.name}" for path in (folder / "tmp").iterdir()]
    # Check again after 2 s: a server that another program is just starting is not attached yet.
    if new := _shared_memory() - shared:
        time.sleep(2.0)
        wrongs += [f"shared memory left: {name}" for name in sorted(new & _shared_memory())]
    names = sorted(path.name for path in (folder / "etc").iterdir())
    wrongs += [] if as_before(folder) else [f"the host is not restored: {names}"]
    return wrongs + _recorded(run)


def _recorded(run: LiveRun) -> list[str]:
    """Check the journal and the files of the finished run."""
    facts, directory = run.facts, run.directory
    if directory is None or facts.ended is None or facts.ended.status != "finished":
        return ["the journal does not contain the end of the run"]
    valid = [str(one.id) for one in facts.iterations if one.valid]
    wrongs = [f"{len(valid)} valid iterations: {valid}"] if len(valid) != ITERATIONS else []
    wrongs += [f"no {name}" for name in ("result.json", "report.html") if not (directory / name).exists()]
    return wrongs + (["data of systems was left"] if (directory / "systems").exists() else [])
