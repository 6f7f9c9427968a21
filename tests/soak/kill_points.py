"""A real run of a small plan in which an agent or the coordinator kills itself at a given boundary.

Data flow: `Point` -> `die(point, folder)` -> `proveout run` below `dying.py` (and `proveout resume` after a failure) ->
journal, exit code, remaining processes -> a list of errors. The database is SQLite in a file, because it starts fast
and the boundaries do not depend on the engine. A plan with tuning changes a file and creates another one; afterwards
both must be restored, with their content and mode.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from live_run import LIMITS, LiveRun, plan

TUNING = """
tuning:
  - {{name: settings, on: all, file: {{path: {etc}/app.conf, content: "tuned = yes\\n"}}}}
  - {{name: another, on: all, file: {{path: {etc}/new.conf, content: "new = yes\\n"}}}}
"""
FAULT = ", faults: [{{name: struck, at: 200ms, for: 200ms, on: box, file: {{path: {etc}/fault.conf, content: x}}}}]"
BEFORE = b"tuned = no\n# \xe4 comment of somebody's\n"
MODE = 0o640
DYING = str(Path(__file__).with_name("dying.py"))
ORPHANS_S = {"agents": 10.0, "coordinator": 20.0}
"""The time limit for processes of an ended run (promise 1); an agent whose coordinator was killed waits for the end of
its lease of 10 s first (promise 3)."""


@dataclass(frozen=True, slots=True)
class Point:
    """The part that kills itself (`agents`, `coordinator`) and its boundary (from 1; 0: none, to count them). `fault`:
    with `tuned`, the ladder has a fault, which changes a file as well."""

    who: str
    at: int
    tuned: bool = False
    fault: bool = False


@dataclass(frozen=True, slots=True)
class Death:
    """The result of a point. `boundary` is its name; `orphans_s` the time until the processes of the run were gone;
    `left_tuned`: the last agent was killed, so that only the next one on that host could revert it."""

    point: Point
    boundary: str
    codes: tuple[int, ...]
    orphans_s: float
    wrongs: tuple[str, ...]
    left_tuned: bool = False


def die(point: Point, folder: Path) -> Death:
    """Run the plan with a kill at this point. `folder` is empty."""
    options = [*(tuned(folder) if point.tuned else []), "--junit", "junit.xml"]
    etc = folder / "etc"
    ladder = "threads: [1], think: {constant: 5ms}, capture: [host]" + (FAULT.format(etc=etc) if point.fault else "")
    more = TUNING.format(etc=etc) if point.tuned else ""
    text = plan(ladder=ladder, ramp_ms=100, measure_s=1.0, limits=LIMITS, more=more)
    mark = folder / "mark" / "died"
    mark.parent.mkdir()
    environment = {
        "DYING_AT": str(point.at),
        "DYING_MARK": str(mark),
        "DYING_UNDO": str(folder / "undo"),
        "PROVEOUT_PASS_ENV": "DYING_AT,DYING_MARK,DYING_UNDO,PROVEOUT_RUNS_DIR",
    }
    program = (DYING, point.who)
    run = LiveRun(folder, text, *options, program=program, environment=environment)
    codes = [run.end()]
    if codes[0] != 0:  # killed, or failed because of the kill: a resume continues it
        codes.append(run.again("resume", "latest").end())
    orphans_s = _until_none(str(folder), ORPHANS_S[point.who] + 10.0)
    boundary = mark.read_text() if mark.exists() else ""
    wrongs = _wrongs(point, run, codes, boundary, orphans_s)
    if point.tuned and run.events() and "tuning settings: applied" not in run.output:
        wrongs.append("no tuning was applied")
    left = point.tuned and not as_before(folder)
    if left:  # the next agent on this host reverts the changes of a killed one
        LiveRun(folder, text, *options, program=program, environment=environment | {"DYING_AT": "-1"}).end()
    if point.tuned and not as_before(folder):
        wrongs.append(f"the host is not restored: {[path.name for path in (folder / 'etc').iterdir()]}")
    return Death(point, boundary, tuple(codes), orphans_s, tuple(wrongs), left)


def tuned(folder: Path) -> list[str]:
    """Create the file to tune and the owner's policy; return the options of the run."""
    (folder / "etc").mkdir()
    place = folder / "etc" / "app.conf"
    place.write_bytes(BEFORE)
    place.chmod(MODE)
    policy = folder / "policy" / "policy.yaml"
    policy.parent.mkdir(mode=0o700)
    policy.write_text(f"policy: 1\npaths: [{{path: {folder / 'etc'}, i_know: files of a test}}]\n")
    policy.chmod(0o600)
    return ["--policy", str(policy)]


def as_before(folder: Path) -> bool:
    """Whether the tuned folder has its file alone, with its content and mode."""
    place = folder / "etc" / "app.conf"
    there = [path.name for path in (folder / "etc").iterdir()]
    return there == [place.name] and place.read_bytes() == BEFORE and place.stat().st_mode & 0o777 == MODE


def _until_none(folder: str, patience_s: float) -> float:
    """Wait until no process has this run's folder in its environment; return the seconds."""
    began_s = time.monotonic()
    while time.monotonic() - began_s < patience_s and _left(folder):
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


def _wrongs(point: Point, run: LiveRun, codes: list[int], boundary: str, orphans_s: float) -> list[str]:
    facts, directory = run.facts, run.directory
    assert directory is not None
    late = [f"processes were left for {orphans_s:.1f} s"] if orphans_s > ORPHANS_S[point.who] else []
    if facts.started is None:  # killed before the first event: resume has nothing to continue and ends with exit code 2
        return late if codes == [-signal.SIGKILL, 2] else [f"exit codes {codes}", *late]
    good = codes[-1] == 0
    wrongs = late if good else [f"exit codes {codes}: {run.output[-1500:]}", *late]
    results = (directory / "result.json", directory / "report.html", run.folder / "junit.xml")
    wrongs += [f"no {path.name}" for path in results if not path.is_file()]
    if point.at and not boundary.startswith(f"{point.at} "):
        wrongs.append("no process was killed")
    if facts.ended is None or facts.open_iteration is not None:
        wrongs.append("the journal does not contain the end of the run")
    if not any(i.valid for i in facts.iterations):
        wrongs.append("no valid iteration")
    if len({str(i.id) for i in facts.iterations}) != len(facts.iterations):
        wrongs.append("an iteration finished twice")
    if (directory / "systems").exists():
        wrongs.append("data of systems was left")
    return wrongs
