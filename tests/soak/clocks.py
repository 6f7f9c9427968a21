"""A real agent under libfaketime, whose wall clock jumps by an hour and back during a load and during a lease.

Data flow: `Wall` (the file that libfaketime reads) -> agents and their load workers read `now + offset` as the wall
clock; their monotonic clock and the coordinator's clocks are the machine's -> a run that must not be affected, and a
run whose coordinator is killed, after which the load must end with the lease. The timestamps in the agents' log prove
that their wall clock differed.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from datetime import UTC, datetime
from pathlib import Path

import psutil
from live_run import POLL_S, WORKER, LiveRun, command, plan

from proveout.proto.events import AgentLost

HOUR_S = 3600
GONE_S = 600.0
LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/local/lib/faketime/libfaketimeMT.so.1")
STAMP = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d+ ", re.MULTILINE)


def library() -> str:
    """Return the path of libfaketime; "" when it is not installed (Debian: apt-get install faketime)."""
    if shutil.which("faketime") is None:
        return ""
    return next((str(path) for pattern in LIBRARIES for path in Path("/").glob(pattern.lstrip("/"))), "")


class Wall:
    """The wall clock of processes with `environment()`: the machine's plus the offset set by `jump`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "wall"
        self.jump(0)

    def jump(self, offset_s: int) -> None:
        beside = self._file.with_suffix(".new")
        beside.write_text(f"{offset_s:+d}\n")
        beside.replace(self._file)

    def environment(self) -> dict[str, str]:
        fake = {
            "LD_PRELOAD": library(),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # with the fix, waits on the monotonic clock never end, or spin
        }
        fake["PROVEOUT_PASS_ENV"] = ",".join(fake)  # to the agent's workers as well
        return {"LEASED_AGENTS": json.dumps(["env", *(f"{name}={value}" for name, value in fake.items())])}


def unnoticed(folder: Path, *, lease_s: float, jumps: tuple[int, ...] = (HOUR_S, -HOUR_S, 0)) -> tuple[int, list[str]]:
    """Execute a run in whose measure window the agent's wall clock jumps several times, each time for a lease; return
    the number of jumps and the errors."""
    wall = Wall(folder)
    measure_s = round(lease_s * len(jumps) + 2.0, 1)
    run = LiveRun(folder, plan(measure_s=measure_s), lease_s=lease_s, environment=wall.environment())
    try:
        run.until_measuring()
        for offset_s in jumps:
            wall.jump(offset_s)
            run.until_s(time.monotonic() + lease_s)
        code, facts = run.end(), run.facts
        wrongs = [] if code == 0 else [f"exit code {code}: {run.output[-1000:]}"]
        wrongs += [f"{lost.host} was lost: {lost.reason}" for lost in run.all(AgentLost)]
        wrongs += [f"void: {void.reason}" for void in facts.voided]
        wrongs += [
            f"{i.id} is not valid: {[found.evidence for found in i.findings if found.voids and not found.ok]}"
            for i in facts.iterations
            if not i.valid
        ]
    finally:
        run.kill()
    return len(jumps), wrongs


def abandoned(folder: Path, *, lease_s: float, jump_s: int, after_s: float = 0.0) -> tuple[float, float, list[str]]:
    """Kill the coordinator during a load; the wall clock jumps `after_s` later (0: just before the kill, so that the
    jump cannot come too late on a slow machine).

    Return the seconds from the kill until no load worker was left, and until the agent had ended; and the errors."""
    wall = Wall(folder)
    run = LiveRun(folder, plan(measure_s=60.0), lease_s=lease_s, environment=wall.environment())
    try:
        run.until_measuring()
        (agent,) = (psutil.Process(pid) for pid in run.agents())
        jumped = not after_s
        if jumped:
            wall.jump(jump_s)
        run.process.send_signal(signal.SIGKILL)
        began_s = time.monotonic()
        run.process.wait()
        load_s = gone_s = None
        while gone_s is None:
            passed_s = time.monotonic() - began_s
            if not jumped and passed_s >= after_s:
                wall.jump(jump_s)
                jumped = True
            load_s = load_s if load_s is not None or loads(agent) else passed_s
            gone_s = None if agent.is_running() and agent.status() != psutil.STATUS_ZOMBIE else passed_s
            assert passed_s < GONE_S, "the agent does not end: its lease follows the wall clock"
            time.sleep(POLL_S)
        assert load_s is not None
        directory = run.directory
        assert directory is not None
        log = (directory / "logs" / "agent-box.log").read_text()
    finally:
        run.kill()
    wrongs = [] if jumped else [f"the agent ended {gone_s:.1f} s after the kill, before the clock jumped"]
    wrongs += [] if abs(ahead_s(log) - jump_s) < 60 else [f"the agent's log is {ahead_s(log)} s ahead, not {jump_s}"]
    return load_s, gone_s, wrongs


def loads(agent: psutil.Process) -> bool:
    try:
        return any(WORKER in command(child) for child in agent.children())
    except psutil.NoSuchProcess:
        return False


def ahead_s(log: str) -> float:
    """Return the seconds by which the last line of a log, written just now, is ahead of the machine's clock."""
    logged = datetime.fromisoformat(STAMP.findall(log)[-1]).timestamp()
    return logged - datetime.now(UTC).timestamp()
