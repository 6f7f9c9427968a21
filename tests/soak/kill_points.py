"""A real run of a small plan in which an agent or the coordinator kills itself at a given boundary; what becomes of it.

Data flow: `Point` -> `die(point, folder)` -> `proveout run` below `dying.py` (and `proveout resume`, when it was the
coordinator) -> the journal, the exit code, the processes that are left -> a list of what is wrong. SQLite in a file is
the database: it starts in no time, and a boundary is a boundary whatever the engine. A tuned plan changes a file and
makes another one; afterwards both must be as they were, to the byte and to the mode.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from proveout.coordinator.schedule.progress import run_progress
from proveout.coordinator.storage.journal import read

PLAN = """
proveout: 1
name: small
title: A file and a client
topology:
  hosts:
    box: {roles: [server, client], address: local}
  systems:
    db: {engine: sqlite, host: box, provision: embedded}
workloads:
  hlr: {kind: hlr, population: 100}
captures:
  host: {kind: os, on: all, every: 200ms}
stages:
  - populate: {workload: hlr, into: db}
  - ladder: {workload: hlr, target: db, threads: [1], think: {constant: 5ms}, ramp_up: 100ms, measure: 1s, ramp_down: 100ms, repeat: 1,
             retries: 3, capture: [host], limits: {start_skew: 10s, tps_slope: 10000%, tps_cv: 10000%, void: 100%}}
report: {figures: [lag]}  # there is none to draw: drawing takes a second of a processor
verdicts:
  - {id: answers, check: ladder.at(1).errors.count.mean == 0.0}
"""
TUNING = """
tuning:
  - {{name: settings, on: all, file: {{path: {etc}/app.conf, content: "tuned = yes\\n"}}}}
  - {{name: another, on: all, file: {{path: {etc}/new.conf, content: "new = yes\\n"}}}}
"""
BEFORE = b"tuned = no\n# \xe4 comment of somebody's\n"
MODE = 0o640
DYING = str(Path(__file__).with_name("dying.py"))
ORPHANS_S = {"agents": 10.0, "coordinator": 20.0}
"""How long anything of a run may be left: promise 1; an agent whose coordinator was killed has its lease of 10 s first
(promise 3)."""
RUN_S = 240.0


@dataclass(frozen=True, slots=True)
class Point:
    """Who dies (`agents`, `coordinator`), and at which of its boundaries (from 1; 0: nobody, to count them)."""

    who: str
    at: int
    tuned: bool = False


@dataclass(frozen=True, slots=True)
class Death:
    """What became of it. `boundary` is its name; `orphans_s` how long processes of the run were still there at the end;
    `left_tuned`: the last agent was the one that died, so that only the next one on that host could set it back."""

    point: Point
    boundary: str
    codes: tuple[int, ...]
    orphans_s: float
    wrongs: tuple[str, ...]
    left_tuned: bool = False


def die(point: Point, folder: Path) -> Death:
    """Run the plan with that death in it. `folder` is empty."""
    options = [*(_tuned(folder) if point.tuned else []), "--junit", "junit.xml"]
    (folder / "small.yaml").write_text(PLAN + (TUNING.format(etc=folder / "etc") if point.tuned else ""))
    mark = folder / "mark" / "died"
    mark.parent.mkdir()
    environment = {
        **os.environ,
        "DYING_AT": str(point.at),
        "DYING_MARK": str(mark),
        "DYING_UNDO": str(folder / "undo"),
        "PROVEOUT_RUNS_DIR": str(folder / "runs"),
        "PROVEOUT_PASS_ENV": "DYING_AT,DYING_MARK,DYING_UNDO,PROVEOUT_RUNS_DIR",
    }
    codes = [_proveout(folder, environment, point.who, "run", "small.yaml", "--headless", *options)]
    if codes[0] != 0:  # killed, or failed as a whole because of it: either way a resume goes on
        codes.append(_proveout(folder, environment, point.who, "resume", "latest", "--headless"))
    orphans_s = _until_none(str(folder), ORPHANS_S[point.who] + 10.0)
    boundary = mark.read_text() if mark.exists() else ""
    wrongs = _wrongs(point, folder, codes, boundary, orphans_s)
    left = point.tuned and not _as_before(folder)
    if left:  # the next agent on this host sets back what a killed one has left
        _proveout(folder, environment | {"DYING_AT": "-1"}, point.who, "run", "small.yaml", "--headless", *options)
    if point.tuned and not _as_before(folder):
        wrongs.append(f"the host is not as it was: {[path.name for path in (folder / 'etc').iterdir()]}")
    if point.tuned and _begun(folder) and not _tuned_once(folder):
        wrongs.append("nothing was ever tuned")
    return Death(point, boundary, tuple(codes), orphans_s, tuple(wrongs), left)


def _tuned(folder: Path) -> list[str]:
    """A host that may be tuned: the files as they are, the owner's policy; the options of the run."""
    (folder / "etc").mkdir()
    place = folder / "etc" / "app.conf"
    place.write_bytes(BEFORE)
    place.chmod(MODE)
    policy = folder / "policy" / "policy.yaml"
    policy.parent.mkdir(mode=0o700)
    policy.write_text(f"policy: 1\npaths: [{{path: {folder / 'etc'}, i_know: files of a test}}]\n")
    policy.chmod(0o600)
    return ["--policy", str(policy)]


def _as_before(folder: Path) -> bool:
    place = folder / "etc" / "app.conf"
    there = [path.name for path in (folder / "etc").iterdir()]
    return there == [place.name] and place.read_bytes() == BEFORE and place.stat().st_mode & 0o777 == MODE


def _tuned_once(folder: Path) -> bool:
    """Some sitting of the run told that it had tuned."""
    return "tuning settings: applied" in (folder / "log").read_text(errors="replace")


def _begun(folder: Path) -> bool:
    """The run has a first event; one that was killed before it has done nothing, and is not resumed. A later run tidies
    up after it."""
    return any(True for _ in read(min((folder / "runs").iterdir())))  # their names begin with when they began


def _proveout(folder: Path, environment: dict[str, str], *arguments: str) -> int:
    with (folder / "log").open("ab") as log:
        argv = [sys.executable, DYING, *arguments]
        return subprocess.run(
            argv, cwd=folder, env=environment, stdout=log, stderr=log, check=False, timeout=RUN_S
        ).returncode


def _until_none(folder: str, patience_s: float) -> float:
    """How long processes were still there that have this run's folder in their environment."""
    began_s = time.monotonic()
    while time.monotonic() - began_s < patience_s:
        if not _left(folder):
            break
        time.sleep(0.1)
    return time.monotonic() - began_s


def _left(folder: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("PROVEOUT_RUNS_DIR", "").startswith(
                folder
            ):
                found.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def _wrongs(point: Point, folder: Path, codes: list[int], boundary: str, orphans_s: float) -> list[str]:
    (directory,) = (folder / "runs").iterdir()
    facts = run_progress(stamped.event for stamped in read(directory))
    late = [f"processes were left for {orphans_s:.1f} s"] if orphans_s > ORPHANS_S[point.who] else []
    if facts.started is None:  # nobody was told of anything: there is nothing to go on with, and resume says so
        return late if codes == [-signal.SIGKILL, 2] else [f"exit codes {codes}", *late]
    good = codes[-1] == 0
    wrongs = late if good else [f"exit codes {codes}: {(folder / 'log').read_text()[-1500:]}", *late]
    results = (directory / "result.json", directory / "report.html", folder / "junit.xml")
    wrongs += [f"no {path.name}" for path in results if not path.is_file()]
    if point.at and not boundary.startswith(f"{point.at} "):
        wrongs.append("nobody died")
    if facts.ended is None or facts.open_iteration is not None:
        wrongs.append("the journal has no definite end")
    if not any(i.valid for i in facts.iterations):
        wrongs.append("no valid iteration")
    if len({str(i.id) for i in facts.iterations}) != len(facts.iterations):
        wrongs.append("an iteration finished twice")
    if (directory / "systems").exists():
        wrongs.append("data of systems was left")
    return wrongs
