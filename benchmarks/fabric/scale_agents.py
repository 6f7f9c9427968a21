"""One coordinator and many agents.

    python benchmarks/fabric/scale_agents.py [--agents 10 100 300 1000] [--seconds 15] [--json FILE]

Real gRPC sessions with mutual TLS over loopback: the agents share two processes, and their tasks are simulated (for the
real parts see `scale_agents_hosts.py`); the coordinator is `coordinator.run.run` on a plan with this number of hosts,
with its journal. Every agent receives a beat every 3 s and sends 50 metrics and one second of load each second.

The coordinator has one core and the agents the others (`--together`: all share all), so that their CPU times are
separate. On one core, a thousand agents need longer to accept two tasks than the coordinator to write them: `--light`
leaves out the agents' own work.

Measured: the time until all agents are connected; from the first task of an iteration that is passed to its session (a
capture and a load for each agent), the time until the last one is written, until the last capture (one task for each
agent) and until the last load (both tasks) has reached its agent, with the CPU of both sides; the differences of the
agents' T0 (from the coordinator's estimates of their clocks; all processes have one clock here, so that the differences
are errors), and the delay of the loads after T0; in the measure window the CPU of both sides and the share of samples
received; the coordinator's peak RSS; the CPU of the screen's model for the same events.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import numpy as np

from proveout.coordinator import run as loop
from proveout.coordinator.agents import connect as dial
from proveout.coordinator.agents import session
from proveout.coordinator.agents.endpoints import external_endpoints
from proveout.coordinator.certificates import Credentials, Ledger, Member, write_member
from proveout.coordinator.storage import run_directory
from proveout.coordinator.storage.journal import Journal
from proveout.dsl.compile.compiler import compile_plan
from proveout.proto.events import (
    AgentLost,
    AgentUp,
    HostTick,
    IterationFinished,
    IterationVoided,
    LoadTick,
    Notice,
    Stamped,
)
from proveout.proto.wire.messages import CoordinatorMessage
from proveout.proto.wire.tasks import RunCapture, RunLoad, Task
from proveout.tui.run_view import RunView, reduce

HOSTS = Path(__file__).with_name("scale_agents_hosts.py")
PROCESSES = 2
FILES_PER_AGENT = 8
RAMP_UP_S = 2
TYPES = 8
LEASE_S = 30.0
"""Three times the default, because a busy machine may stop the agents' few processes for longer than 10 s."""
_NOTED = ("watched_ns", "given_ns", "t0_ns", "began_ns")
"""The times that each agent reports for its capture and its load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one run: times in seconds, skews in milliseconds, CPU of the coordinator unless named
    `agents_…`."""

    agents: int
    exit_code: int
    connect_s: float
    connect_cpu_s: float
    written_s: float
    written_cpu_s: float
    one_task_s: float
    dispatch_s: float
    agents_dispatch_cpu_s: float
    t0_p50_ms: float
    t0_p99_ms: float
    skew_p50_ms: float
    skew_p99_ms: float
    cpu_fraction: float
    agents_cpu_fraction: float
    rss_bytes: int
    model_fraction: float
    host_ticks_per_s: float
    load_ticks_per_s: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """A time, and the CPU time that both sides had used by then, s."""

    at_s: float
    own_s: float
    agents_s: float


@dataclass(slots=True)
class Watcher:
    """A listener of the run that records the times of events and the CPU time used by then. `pids` are the agents'
    processes."""

    pids: Sequence[int]
    began: Mark | None = None
    connected: Mark | None = None
    seconds: list[Mark] = field(default_factory=list)
    events: IO[bytes] = field(default_factory=tempfile.TemporaryFile)
    """All events, pickled, for the screen's model: kept in memory they would count as the coordinator's."""
    notes: list[str] = field(default_factory=list)
    spent_s: float = 0.0
    """CPU of keeping them, which is not the coordinator's either."""

    def mark(self) -> Mark:
        return Mark(time.monotonic(), time.process_time() - self.spent_s, sum(map(_cpu_s, self.pids)))

    def __call__(self, stamped: Stamped) -> None:
        """Record an event."""
        began_s = time.thread_time()
        pickle.dump(stamped, self.events, pickle.HIGHEST_PROTOCOL)
        self.spent_s += time.thread_time() - began_s
        match stamped.event:
            case AgentUp():
                self.connected = self.mark()
            case LoadTick(window="measure"):
                self.seconds.append(self.mark())
            case HostTick() | LoadTick():
                pass
            case IterationFinished(findings=findings) as ended if not ended.valid:
                self.notes += [f"{found.check}: {found.evidence}" for found in findings if found.voids and not found.ok]
            case Notice() | AgentLost() | IterationVoided() as event:
                self.notes.append(str(event)[:300])


def _cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used, s (proc(5); in steps of 10 ms)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def agents(
    names: Sequence[str], folder: Path, told: dict[str, dict[str, int]], light: bool
) -> Iterator[tuple[dict[str, str], list[int]]]:
    """Start agents; yield their addresses and processes. At the end, `told` contains the times that they report."""
    processes: list[subprocess.Popen[str]] = []
    addresses: dict[str, str] = {}
    try:
        for number in range(min(PROCESSES, len(names))):
            own = names[number::PROCESSES]
            argv = [sys.executable, str(HOSTS), "--pki", str(folder / "agent"), "--state", str(folder / "state")]
            argv += ["--light", *own] if light else own
            processes.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
        for process in processes:
            assert process.stdout is not None
            addresses |= json.loads(process.stdout.readline())["addresses"]
        yield addresses, [process.pid for process in processes]
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            said, _ = process.communicate(timeout=120)
            told |= json.loads(said)["told"] if said else {}


@contextmanager
def on_cores_of_the_agents(together: bool) -> Iterator[None]:
    """Give processes started in this context all cores but the first, and afterwards this process the first."""
    allowed = sorted(os.sched_getaffinity(0))
    apart = not together and len(allowed) > 1
    if apart:
        os.sched_setaffinity(0, allowed[1:])
    try:
        yield
    finally:
        if apart:
            os.sched_setaffinity(0, allowed[:1])


def plan_text(addresses: dict[str, str], seconds: int) -> str:
    """Return a plan with a ladder of one rung, with one connection and a capture on every host."""
    hosts = "\n".join(f"    {name}: {{roles: [client], address: '{at}'}}" for name, at in addresses.items())
    first = next(iter(addresses))
    types = "\n".join(f"      type{number}: {{weight: 1, statements: {{one: SELECT 1}}}}" for number in range(TYPES))
    return f"""
proveout: 1
name: scale
topology:
  hosts:
{hosts}
  systems:
    db: {{engine: postgres, host: {first}, dsn: host=nowhere}}
workloads:
  work:
    kind: sql
    transactions:
{types}
captures:
  host: {{kind: os, on: all, every: 1s}}
stages:
  - ladder:
      id: base
      workload: work
      target: db
      threads: [{len(addresses)}]
      ramp_up: {RAMP_UP_S}s
      measure: {seconds}s
      repeat: 1
      capture: [host]
"""


@dataclass(slots=True)
class Sent:
    """The times at which the first task of an iteration was passed to its session, and the last load of the first
    attempt to its stream."""

    first: Mark | None = None
    last: Mark | None = None
    written: int = 0


async def _run(sitting: loop.RunOptions, journal: Journal, watcher: Watcher, count: int) -> tuple[int, Sent]:
    """Execute a run, and record the times at which the tasks of `count` agents were sent."""
    sent = Sent()
    send, write = session.AgentSession.send, dial.Stream.write
    loads: set[bytes] = set()

    def noting(self: session.AgentSession, message: CoordinatorMessage | Task, encoded: bytes = b"") -> None:
        if sent.first is None and isinstance(message, Task) and isinstance(message.spec, (RunCapture, RunLoad)):
            sent.first = watcher.mark()
        if isinstance(message, Task) and isinstance(message.spec, RunLoad):
            loads.add(encoded)
        send(self, message, encoded)

    async def written(self: dial.Stream, message: CoordinatorMessage | bytes) -> None:
        await write(self, message)
        if message in loads:
            sent.written += 1
            if sent.written == count:
                sent.last = watcher.mark()
                dial.Stream.write = write  # type: ignore[method-assign] - what follows is not watched

    session.AgentSession.send = noting  # type: ignore[method-assign]
    dial.Stream.write = written  # type: ignore[method-assign]
    try:
        watcher.began = watcher.mark()
        return (await loop.run(sitting, journal, [watcher])).exit_code, sent
    finally:
        session.AgentSession.send = send  # type: ignore[method-assign]
        dial.Stream.write = write  # type: ignore[method-assign]


def model_cost(events: IO[bytes]) -> tuple[float, float]:
    """Reduce the run's events with the screen's model: (CPU seconds per second of run, host ticks per second)."""
    view, spent, ticks = RunView(), 0.0, list[float]()
    events.seek(0)
    with suppress(EOFError):
        while True:
            stamped: Stamped = pickle.load(events)
            began = time.process_time()
            view = reduce(view, stamped)
            spent += time.process_time() - began
            ticks += [stamped.unix_s] if isinstance(stamped.event, HostTick) else []
    lasted = (ticks[-1] - ticks[0]) if len(ticks) > 1 else 1.0
    return spent / lasted, len(ticks) / lasted


def measure(count: int, seconds: int, together: bool, light: bool) -> Figures:
    """One run with `count` agents."""
    with ExitStack() as stack:
        # In memory, because a thousand hosts would have a thousand disks for their journals.
        memory = Path("/dev/shm")
        folder = Path(tempfile.mkdtemp(prefix="proveout-scale-", dir=memory if memory.is_dir() else None))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        ledger = Ledger.create(folder / "authority")
        write_member(ledger, Member(role="agent", name="many", addresses=("127.0.0.1",)), folder / "agent")
        write_member(ledger, Member(role="coordinator", name="lead"), folder / "coordinator")
        ledger.close()
        told: dict[str, dict[str, int]] = {}
        with ExitStack() as running:
            with on_cores_of_the_agents(together):
                names = [f"host{number}" for number in range(count)]
                addresses, pids = running.enter_context(agents(names, folder, told, light))
            path = folder / "scale.yaml"
            path.write_text(plan_text(addresses, seconds))
            plan = compile_plan(path)
            command = run_directory.Command(plan=str(path))
            directory = run_directory.create(folder / "runs", plan, command, datetime.now(UTC))
            sitting = loop.RunOptions(
                plan=plan,
                directory=directory,
                version="0",
                external=external_endpoints(plan, os.environ),
                credentials=Credentials.read(folder / "coordinator"),
                lease_s=LEASE_S,
            )
            watcher = Watcher(pids)
            with Journal(directory.path) as journal:
                exit_code, sent = asyncio.run(_run(sitting, journal, watcher, count))
        return _figures(count, exit_code, sent, watcher, told)


def _figures(count: int, exit_code: int, sent: Sent, watcher: Watcher, told: dict[str, dict[str, int]]) -> Figures:
    rss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # before the model of the screen is built
    none = Mark(0.0, 0.0, 0.0)
    watched, given, t0s, began = (np.array([said[name] for said in told.values()], dtype=np.int64) for name in _NOTED)
    # All agents have the same T0, converted with the estimate of each clock: the median is the intended T0.
    t0 = np.median(t0s) if told else 0.0
    skews_ms, errors_ms = (np.abs(began - t0) / 1e6, np.abs(t0s - t0) / 1e6) if told else (np.zeros(1), np.zeros(1))
    opened, connected = watcher.began or none, watcher.connected or none
    first, last = (sent.first, sent.last) if sent.first and sent.last else (none, none)
    window = (watcher.seconds[0], watcher.seconds[-1]) if len(watcher.seconds) > 1 else (none, Mark(1.0, 0.0, 0.0))
    lasted_s = window[1].at_s - window[0].at_s
    model, ticks = model_cost(watcher.events)
    p50, p99 = np.percentile(skews_ms, [50, 99])
    return Figures(
        agents=count,
        exit_code=exit_code,
        connect_s=connected.at_s - opened.at_s,
        connect_cpu_s=connected.own_s - opened.own_s,
        written_s=last.at_s - first.at_s,
        written_cpu_s=last.own_s - first.own_s,
        one_task_s=float(watched.max()) / 1e9 - first.at_s if told and sent.first else float("nan"),
        dispatch_s=float(given.max()) / 1e9 - first.at_s if told and sent.last else float("nan"),
        agents_dispatch_cpu_s=last.agents_s - first.agents_s,
        t0_p50_ms=float(np.percentile(errors_ms, 50)),
        t0_p99_ms=float(np.percentile(errors_ms, 99)),
        skew_p50_ms=float(p50),
        skew_p99_ms=float(p99),
        cpu_fraction=(window[1].own_s - window[0].own_s) / lasted_s,
        agents_cpu_fraction=(window[1].agents_s - window[0].agents_s) / lasted_s,
        rss_bytes=rss_bytes,
        model_fraction=model,
        host_ticks_per_s=ticks,
        load_ticks_per_s=(len(watcher.seconds) - 1) / lasted_s,
        notes=tuple(watcher.notes),
    )


def main() -> None:
    """Print a line for each number of agents; each runs in a process of its own, so that its RSS is separate."""
    parser = argparse.ArgumentParser(description="One coordinator and many agents.")
    parser.add_argument("--agents", type=int, nargs="+", default=[10, 100, 300, 1000])
    parser.add_argument("--seconds", type=int, default=15, help="the measure window")
    parser.add_argument("--together", action="store_true", help="coordinator and agents share all cores")
    parser.add_argument("--light", action="store_true", help="agents that check, journal and log nothing")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    _files(max(chosen.agents))
    if chosen.one:
        print(json.dumps(asdict(measure(chosen.agents[0], chosen.seconds, chosen.together, chosen.light))))
        return
    lines = []
    print(
        "agents | connect s (CPU) | written s (CPU) | at agents s: one, both (their CPU) | T0 p50/p99 ms"
        " | begun p50/p99 ms"
        " | CPU, agents' CPU | RSS MB | model | samples/s, seconds/s | exit code"
    )
    for count in chosen.agents:
        argv = [sys.executable, __file__, "--one", "--agents", str(count), "--seconds", str(chosen.seconds)]
        argv += ["--together"] if chosen.together else []
        argv += ["--light"] if chosen.light else []
        line = json.loads(subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout)
        lines.append(line | {"light": chosen.light})
        print(
            f"{count:6} | {line['connect_s']:6.2f} ({line['connect_cpu_s']:5.2f})"
            f" | {line['written_s']:6.3f} ({line['written_cpu_s']:5.3f})"
            f" | {line['one_task_s']:6.3f}, {line['dispatch_s']:6.3f} ({line['agents_dispatch_cpu_s']:5.2f})"
            f" | {line['t0_p50_ms']:5.2f}/{line['t0_p99_ms']:6.2f}"
            f" | {line['skew_p50_ms']:6.2f}/{line['skew_p99_ms']:7.2f}"
            f" | {line['cpu_fraction']:6.1%} {line['agents_cpu_fraction']:6.1%} | {line['rss_bytes'] / 1e6:5.0f}"
            f" | {line['model_fraction']:6.2%} | {line['host_ticks_per_s']:6.1f} {line['load_ticks_per_s']:4.2f}"
            f" | {line['exit_code']}",
            flush=True,
        )
        for note in line["notes"][:6]:
            print(f"        {note}")
    if chosen.json:
        chosen.json.write_text(json.dumps(lines, indent=1) + "\n")


def _files(agents_max: int) -> None:
    """Raise the limit of open files for the connections, or exit with the way out."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = agents_max * FILES_PER_AGENT + 256
    if hard != resource.RLIM_INFINITY and hard < needed:
        sys.exit(f"{agents_max} agents need {needed} open files and this shell allows {hard}: raise `ulimit -Hn`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))


if __name__ == "__main__":
    main()
