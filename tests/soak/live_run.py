"""A real run of a small plan as a child process: its growing journal, its agents' processes, and its end.

Data flow: plan -> `proveout run` as a process (below `leased.py` for a lease other than 10 s) -> `LiveRun.until(…)`
polls the journal -> the test disturbs the run -> `end()` returns the exit code. The default database is SQLite in a
file, because it starts fast.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import psutil

from proveout.coordinator.schedule.progress import RunProgress, run_progress
from proveout.coordinator.storage.event_codec import JournalFault
from proveout.coordinator.storage.journal import read
from proveout.proto.events import Event, IterationStarted

LEASED = str(Path(__file__).with_name("leased.py"))
WORKER = "proveout.agent.load.worker"
PATIENCE_S = 240.0
POLL_S = 0.05

PLAN = """
proveout: 1
name: stands
title: A load on a file
topology:
  hosts:
    box: {{roles: [server, client], address: {address}}}
  systems:
    db: {{engine: {engine}, host: box, {where}}}
workloads:
  hlr: {{kind: hlr, population: 100}}
stages:
  - populate: {{workload: hlr, into: db}}
  - ladder: {{workload: hlr, target: db, threads: [1], think: {{constant: 2ms}}, ramp_up: 0s, measure: {measure_s}s, ramp_down: 0s, repeat: 1,
             retries: 3, limits: {{start_skew: 10s, tps_slope: 10000%, tps_cv: 10000%, void: 100%, errors: 100%, client_cpu: 100%}}}}
report: {{without: [others]}}  # no figure, because drawing others takes a second of CPU time
verdicts:
  - {{id: answers, check: ladder.at(1).errors.count.mean == 0.0}}
"""

E = TypeVar("E", bound=Event)


def plan(
    *, address: str = "local", engine: str = "sqlite", where: str = "provision: embedded", measure_s: float = 6.0
) -> str:
    """Return the plan's text. Its limits on the variation of throughput are wide, so that only the check for pauses
    finds a pause."""
    return PLAN.format(address=address, engine=engine, where=where, measure_s=measure_s)


class LiveRun:
    """One run in `folder`; `end()` or `kill()` it."""

    def __init__(
        self,
        folder: Path,
        text: str,
        *options: str,
        lease_s: float | None = None,
        before: Sequence[str] = (),
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.folder, self.runs = folder, folder / "runs"
        (folder / "plan.yaml").write_text(text)
        leased = [LEASED, str(lease_s)] if lease_s else ["-m", "proveout"]
        argv = [*before, sys.executable, *leased, "run", "plan.yaml", "--headless", *options]
        environment = {**os.environ, **environment, "PROVEOUT_RUNS_DIR": str(self.runs)}
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                argv, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def output(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    @property
    def directory(self) -> Path | None:
        return next((path.parent for path in self.runs.glob("*/journal.sqlite")), None)

    def events(self) -> list[Event]:
        """Return the events that are in the journal."""
        directory = self.directory
        try:
            return [stamped.event for stamped in read(directory)] if directory else []
        except JournalFault:  # its tables do not exist yet
            return []

    @property
    def facts(self) -> RunProgress:
        return run_progress(self.events())

    def until(self, holds: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> float:
        """Wait until `holds` is true while the run goes on; return the seconds. AssertionError after `patience_s`."""
        began_s = time.monotonic()
        while not holds():
            assert self.process.poll() is None or holds(), (
                f"it ended ({self.process.returncode}): {self.output[-2000:]}"
            )
            assert time.monotonic() - began_s < patience_s, f"never: {what}\n{self.output[-2000:]}"
            time.sleep(POLL_S)
        return time.monotonic() - began_s

    def until_event(self, kind: type[E], number: int = 1) -> E:
        """Wait for the `number`th event of a kind and return it."""
        self.until(lambda: len(self.all(kind)) >= number, f"{kind.__name__} {number}")
        return self.all(kind)[number - 1]

    def all(self, kind: type[E]) -> list[E]:
        return [event for event in self.events() if isinstance(event, kind)]

    def until_measuring(self, number: int = 1, into_s: float = 1.0) -> None:
        """Wait until the `number`th iteration measures, and `into_s` more."""
        started = self.until_event(IterationStarted, number)
        begins_s = time.monotonic() + started.starts_in_s + started.ramp_up_s + into_s
        self.until(lambda: time.monotonic() >= begins_s, "it measures")

    def end(self, patience_s: float = PATIENCE_S) -> int:
        """Wait for the end of the run and return the exit code."""
        try:
            return self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end\n{self.output[-2000:]}") from None

    def kill(self) -> None:
        """End the remaining processes of the run, with its agents and databases."""
        for process in (*self.below(), psutil_of(self.process.pid)):
            if process is not None:
                signalled(process.pid, signal.SIGCONT)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def below(self) -> list[psutil.Process]:
        """Return the child processes of the run, with those of its local agents."""
        process = psutil_of(self.process.pid)
        try:
            return process.children(recursive=True) if process else []
        except psutil.NoSuchProcess:
            return []

    def agents(self) -> list[int]:
        return [process.pid for process in self.below() if "--local" in command(process)]

    def workers(self) -> list[int]:
        return [process.pid for process in self.below() if WORKER in command(process)]


def psutil_of(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def command(process: psutil.Process) -> list[str]:
    """Return the argv of a process; [] when it has ended."""
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
        return []


def signalled(pid: int, number: signal.Signals) -> bool:
    """Send a signal; return whether the process existed."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
