"""A real load whose worker, agent or database is stopped (SIGSTOP) for 5 s and for 15 s.

Data flow: process and time -> a run under load -> SIGSTOP, and SIGCONT after the time -> the journal: after 5 s the
iteration is valid and a finding reports the pause; after 15 s it is void and repeated, or marked as an outage.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from live_run import LiveRun, command, plan, psutil_of, signalled

from proveout.coordinator.schedule.state import RunProgress

TOLERATED_S, VOIDING_S = 5.0, 15.0
FINDINGS = {"worker": "pause:load@box", "agent": "pause:agent@box", "database": "pause:db"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The result of a pause: the evidence that reports it ("" without any), and the errors."""

    who: str
    pause_s: float
    evidence: str
    wrongs: tuple[str, ...]


def stop(who: str, pause_s: float, folder: Path) -> Stopped:
    """Stop a process in the measure window of a load and check the run's findings. The window is long enough for the
    load to continue after the pause."""
    measure_s = 4.0 * pause_s if pause_s < 10.0 else pause_s + 8.0
    run = LiveRun(folder, plan(engine="postgres" if who == "database" else "sqlite", measure_s=measure_s))
    try:
        run.until_measuring()
        pids = {"worker": run.workers, "agent": run.agents, "database": lambda: servers(run)}[who]()
        assert pids, f"there is no {who}"
        freeze(pids, pause_s, run)
        code, facts = run.end(), run.facts
    finally:
        run.kill()
    judge = tolerated if pause_s < 10.0 else void
    expected = (1, 3) if who == "database" and pause_s >= 10.0 else (0,)
    wrongs = [] if code in expected else [f"exit code {code}: {run.output[-1000:]}"]
    return Stopped(who=who, pause_s=pause_s, evidence=reported(facts, who), wrongs=(*wrongs, *judge(facts, who)))


def servers(run: LiveRun) -> list[int]:
    """Return the processes of the run's database server, the postmaster first."""
    return [process.pid for process in run.below() if any("postgres" in word for word in command(process)[:1])]


def freeze(pids: Iterable[int], pause_s: float, run: LiveRun) -> None:
    stopped = [pid for pid in pids if signalled(pid, signal.SIGSTOP)]
    try:
        run.until_s(time.monotonic() + pause_s)
        for pid in stopped:
            with suppress(psutil.NoSuchProcess):
                process = psutil_of(pid)
                assert process is None or process.status() == psutil.STATUS_STOPPED, f"{pid} did not stop"
    finally:
        for pid in stopped:
            signalled(pid, signal.SIGCONT)


def reported(facts: RunProgress, who: str) -> str:
    """Return the evidence and reasons in the journal that report the pause."""
    found = [f for i in facts.iterations for f in i.findings if f.check in _checks(who)]
    voided = [void.reason for void in facts.voided]
    return "; ".join([*(finding.evidence for finding in found), *voided])


def _checks(who: str) -> tuple[str, ...]:
    """Return the checks that report a pause; a long one of the database is an outage."""
    return (FINDINGS[who], "outage:db") if who == "database" else (FINDINGS[who],)


def tolerated(facts: RunProgress, who: str) -> list[str]:
    """Check for one iteration that is valid and reports the pause."""
    wrongs = [f"void: {void.reason}" for void in facts.voided]
    wrongs += [f"{f.check}: {f.evidence}" for i in facts.iterations for f in i.findings if f.voids and not f.ok]
    if len(facts.iterations) != 1:
        wrongs.append(f"{len(facts.iterations)} iterations")
    if not reported(facts, who):
        wrongs.append(f"no finding reports it: {[f.check for i in facts.iterations for f in i.findings if not f.ok]}")
    return wrongs


def void(facts: RunProgress, who: str) -> list[str]:
    """Check that the first iteration is void because of the pause and was repeated with a valid one; for the database,
    that it is marked with a breach."""
    wrongs = []
    first = facts.iterations[0] if facts.iterations else None
    lost = [reason.reason for reason in facts.voided if "lost" in reason.reason]
    if who == "database":  # an outage of the system counts, and no verdict passes on it
        marked = first is not None and any(f.check in _checks(who) and f.breach for f in first.findings)
        return [] if marked else ["the iteration is not marked because of it"]
    by_finding = first is not None and any(f.check in _checks(who) and f.voids for f in first.findings)
    if not (by_finding or (who == "agent" and lost)):
        wrongs.append("the iteration is not void because of it")
    if not facts.iterations or not facts.iterations[-1].valid or facts.iterations[-1].id.attempt < 2:
        wrongs.append("it was not repeated")
    return wrongs
