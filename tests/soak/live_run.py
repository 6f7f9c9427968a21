"""A real run of a small plan as a child process: its growing journal, its agents' processes, and its end.

Data flow: plan -> `proveout run` as a process (below `leased.py` for a lease other than 10 s) -> `LiveRun.until(…)`
polls the journal -> the test disturbs the run -> `end()` returns the exit code -> perhaps `again("resume", "latest")`.
The default database is SQLite in a file, because it starts fast.
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
from eventually import eventually

from proveout.coordinator.schedule.state import RunProgress, run_progress
from proveout.coordinator.storage.journal import JournalFault, StorageFailed, read
from proveout.proto.events import Event, IterationStarted

LEASED = str(Path(__file__).with_name("leased.py"))
WORKER = "proveout.agent.load.worker"
END_S = 240.0
POLL_S = 0.05
NEVER_VOID = (
    "{start_skew: 10m, client_cpu: 100%, client_handling: 100%, pause: 10m, schedule_p99: 10m, achieved: 1%,"
    " tps_slope: 10000%, tps_cv: 10000%, errors: 100%, void: 100%}"
)
"""Limits that no iteration breaks, however busy this machine is. What voids is tested in tests/coordinator/measure."""

LIMITS = "start_skew: 10s, tps_slope: 10000%, tps_cv: 10000%, void: 100%, client_cpu: 100%"
PLAN = """
proveout: 1
name: stands
topology:
  hosts:
    box: {{roles: [server, client], address: {address}}}
  systems:
    db: {{engine: {engine}, host: box, {where}}}
workloads:
  hlr: {{kind: hlr, population: {population}}}
captures:
  host: {{kind: os, on: all, every: 200ms}}
stages:
  - populate: {{workload: hlr, into: db}}
  - ladder: {{workload: hlr, target: db, {ladder}, ramp_up: {ramp_ms}ms, measure: {measure_s}s, ramp_down: {ramp_ms}ms,
             repeat: {repeat}, retries: {retries}, limits: {{{limits}}}}}
report: {{without: [others]}}  # no figure, because drawing others takes a second of CPU time
verdicts:
  - {{id: answers, check: {check}}}
{more}"""

E = TypeVar("E", bound=Event)


def plan(
    *,
    address: str = "local",
    engine: str = "sqlite",
    where: str = "provision: embedded",
    population: int = 100,
    ladder: str = "threads: [1], think: {constant: 2ms}",
    ramp_ms: int = 0,
    measure_s: float = 6.0,
    repeat: int = 1,
    retries: int = 3,
    limits: str = f"{LIMITS}, errors: 100%",
    check: str = "ladder.at(1).errors.count.mean == 0.0",
    more: str = "",
) -> str:
    """The text of a plan of one ladder. Its limits on the variation of throughput are wide, so that only the check for
    pauses finds a pause; `ladder`: further fields of the ladder, `more`: further keys of the plan."""
    return PLAN.format(**locals())


class LiveRun:
    """One run in `folder`, where `text` becomes its plan; `end()` or `kill()` it. `program` follows the interpreter."""

    def __init__(
        self,
        folder: Path,
        text: str = "",
        *options: str,
        verb: Sequence[str] = ("run", "plan.yaml"),
        program: Sequence[str] = ("-m", "proveout"),
        lease_s: float | None = None,
        before: Sequence[str] = (),
        environment: Mapping[str, str] = MappingProxyType({}),
        headless: bool = True,
    ) -> None:
        self.folder = folder
        self.environment = {"PROVEOUT_RUNS_DIR": str(folder / "runs"), **environment}
        self.runs = Path(self.environment["PROVEOUT_RUNS_DIR"])
        if text:
            (folder / "plan.yaml").write_text(text.replace("NEVER_VOID", NEVER_VOID))
        self._program = (LEASED, str(lease_s)) if lease_s else tuple(program)
        argv = [*before, sys.executable, *self._program, *verb, *(["--headless"] if headless else []), *options]
        self._from = len(self.output)
        with (folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                argv, cwd=folder, env=os.environ | self.environment, stdout=log, stderr=log, start_new_session=True
            )
        self.family: dict[int, psutil.Process] = {}
        """All processes below it that were found while it ran."""
        self._more: list[LiveRun] = []

    def again(self, *verb: str) -> LiveRun:
        """Start another command in the same folder and environment; it ends with this one."""
        self._more.append(LiveRun(self.folder, verb=verb, program=self._program, environment=self.environment))
        return self._more[-1]

    @property
    def output(self) -> str:
        """The output of this and of earlier commands of the folder."""
        log = self.folder / "log"
        return log.read_text(errors="replace") if log.exists() else ""

    @property
    def said(self) -> str:
        """The output of this command."""
        return self.output[self._from :]

    @property
    def directory(self) -> Path | None:
        """The newest run; names of runs begin with their start time."""
        return max((path.parent for path in self.runs.glob("*/journal.sqlite")), default=None)

    def events(self) -> list[Event]:
        directory = self.directory
        try:
            return [stamped.event for stamped in read(directory)] if directory else []
        except (JournalFault, StorageFailed):  # its tables do not exist yet
            return []

    @property
    def facts(self) -> RunProgress:
        return run_progress(self.events())

    def until(self, holds: Callable[[], object], what: str) -> float:
        """Wait until `holds` is true while the run goes on; return the seconds."""
        began_s = time.monotonic()

        def found() -> object:
            self.below()
            ended = self.process.poll() is not None
            if not (value := holds()):
                assert not ended, f"it ended ({self.process.returncode}): {self.output[-2000:]}"
                time.sleep(POLL_S)  # reading a journal takes CPU time from the run
            return value

        eventually(found, lambda: f"{what}\n{self.output[-2000:]}")
        return time.monotonic() - began_s

    def until_iteration(self, after: int) -> None:
        """Wait until an iteration runs after `after` finished ones of this and earlier commands."""

        def holds() -> bool:
            facts = self.facts
            return len(facts.iterations) >= after and facts.open_iteration is not None

        self.until(holds, f"an iteration after {after}")

    def until_event(self, kind: type[E], number: int = 1) -> E:
        """Wait for the `number`th event of a kind and return it."""
        self.until(lambda: len(self.all(kind)) >= number, f"{kind.__name__} {number}")
        return self.all(kind)[number - 1]

    def all(self, kind: type[E]) -> list[E]:
        return [event for event in self.events() if isinstance(event, kind)]

    def until_measuring(self, number: int = 1, into_s: float = 1.0) -> None:
        """Wait until the `number`th iteration measures, and `into_s` more."""
        started = self.until_event(IterationStarted, number)
        self.until_s(time.monotonic() + started.starts_in_s + started.ramp_up_s + into_s)

    def until_s(self, instant_s: float) -> None:
        """Wait for an instant of the monotonic clock while the run goes on."""
        self.until(lambda: time.monotonic() >= instant_s, "it is time")

    def end(self) -> int:
        """Wait for the end of the run and return the exit code."""
        try:
            return self.process.wait(END_S)
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
        for more in self._more:
            more.kill()

    def below(self) -> list[psutil.Process]:
        """Return the child processes of the run, with those of its local agents."""
        process = psutil_of(self.process.pid)
        try:
            found = process.children(recursive=True) if process else []
        except psutil.NoSuchProcess:
            return []
        self.family |= {child.pid: child for child in found}
        return found

    def assert_nothing_left(self) -> None:
        """Wait until no process of the run is alive; their leases last 10 s."""
        eventually(lambda: not self._alive(), self._alive)

    def _alive(self) -> list[list[str]]:
        return [command(process) for process in self.family.values() if _lives(process)]

    def agents(self) -> list[int]:
        return [process.pid for process in self.below() if "--local" in command(process)]

    def workers(self) -> list[int]:
        return [process.pid for process in self.below() if WORKER in command(process)]


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


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
