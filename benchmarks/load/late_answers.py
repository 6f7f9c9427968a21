"""Recorded beside true p50 of 64 connections whose client is delayed, and whether `client-handling` shows it.

    python benchmarks/load/late_answers.py [--seconds 3] [--only TEXT]

Flow: `measure(case)` starts `timed_server.py`, a server of PostgreSQL's protocol that keeps its own times: from the
kernel's receive time stamp of a request to the send of its answer -> one load worker runs a closed load on it
(`run_load`) -> once it is armed it is delayed as the case says, although it uses little CPU -> `summarise` gives the
recorded p50 and the finding `client-handling`, the server's own times the true p50. The exit code is 1 when the
recorded p50 is more than a tenth above the true one and the finding is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from proveout.agent.daemon.tasks import Resource
from proveout.agent.load.run_load import run_load
from proveout.agent.security.policy import Policy
from proveout.coordinator.measure.load_merge import Observations
from proveout.coordinator.measure.summarise import summarise
from proveout.dsl.plan.plan import Plan, Workload
from proveout.dsl.plan.stages import Closed, Ladder, Windows
from proveout.dsl.plan.topology import Host, System
from proveout.proto.events import IterationFinished, IterationId
from proveout.proto.wire.results import LoadResult, TaskSample
from proveout.proto.wire.tasks import Endpoint, LoadShare, RunLoad

CONNECTIONS = 64
SERVER = Path(__file__).with_name("timed_server.py")
STOP_S, GO_S = 0.008, 0.004
NOOP = Workload(name="noop", kind="noop", parameters=())


@dataclass(frozen=True, slots=True)
class Case:
    """A server, and what delays the client. `beside`: the client shares the server's CPU; `busy`: so many processes
    that use all CPU time run on the client's CPU; `stopped`: SIGSTOP for 8 ms of every 12.
    """

    name: str
    family: Literal["AF_INET", "AF_UNIX"] = "AF_INET"
    delay_ms: float = 20.0
    together: bool = False
    beside: bool = False
    think_s: float | None = None
    busy: int = 0
    stopped: bool = False


CASES = (
    Case("undisturbed"),
    Case("answers in batches", together=True, beside=True, think_s=0.02),
    Case("6 busy processes on its CPU", delay_ms=1.0, busy=6),
    Case("stopped for 8 ms of every 12", delay_ms=1.0, stopped=True),
    Case("Unix socket: undisturbed", "AF_UNIX"),
    Case("Unix socket: answers in batches", "AF_UNIX", together=True, beside=True, think_s=0.02),
    Case("Unix socket: 6 busy processes", "AF_UNIX", delay_ms=1.0, busy=6),
    Case("Unix socket: stopped", "AF_UNIX", delay_ms=1.0, stopped=True),
)


@dataclass(frozen=True, slots=True)
class LateAnswers:
    """The figures of one load: times in µs, CPU of the load worker as a share of a core."""

    true_p50_us: float
    recorded_p50_us: float
    true_mean_us: float
    recorded_mean_us: float
    client_cpu: float
    handling_fraction: float
    found: bool
    evidence: str

    @property
    def ratio(self) -> float:
        """Recorded over true p50."""
        return self.recorded_p50_us / self.true_p50_us

    @property
    def ratios(self) -> tuple[float, float]:
        """Recorded over true p50, and the same for the means."""
        return self.ratio, self.recorded_mean_us / self.true_mean_us


class Context:
    """A task context that delays the load worker from the moment it is armed."""

    key = host = "client"
    policy = Policy(own=True)

    def __init__(self, work_dir: Path, case: Case, delays: contextlib.ExitStack) -> None:
        self.work_dir, self._case, self._delays = work_dir, case, delays
        self.resources: dict[str, Resource] = {}

    def progress(self, done: float, total: float, unit: str, note: str = "") -> None: ...

    def log(self, level: str, text: str) -> None: ...

    def sample(self, sample: TaskSample) -> None: ...

    def armed(self) -> None:
        for pool in self.resources.values():
            for worker in pool.workers:  # type: ignore[attr-defined]
                self._delays.enter_context(delayed(worker.pid, self._case))

    async def started(self) -> int:
        return time.monotonic_ns() + 200_000_000

    async def finished(self) -> None: ...


def cpus() -> tuple[int, int]:
    """The CPU of the client and that of the server: one for both on a machine with one CPU."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[-1]


@contextlib.contextmanager
def delayed(pid: int, case: Case) -> Iterator[None]:
    """Pin the worker and delay it as the case says."""
    client, server = cpus()
    cpu = server if case.beside else client
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # a thread of the connecting may end
            os.sched_setaffinity(int(thread.name), {cpu})
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(case.busy)]
    for process in spinning:
        os.sched_setaffinity(process.pid, {cpu})
    pulses = asyncio.create_task(stop_and_go(pid)) if case.stopped else None
    try:
        yield
    finally:
        if pulses is not None:
            pulses.cancel()
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        for process in spinning:
            process.kill()
            process.wait()


async def stop_and_go(pid: int) -> None:
    """Stop a process again and again."""
    with contextlib.suppress(ProcessLookupError):
        while True:
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(STOP_S)
            os.kill(pid, signal.SIGCONT)
            await asyncio.sleep(GO_S)


@contextlib.contextmanager
def server(case: Case, folder: Path) -> Iterator[str]:
    """The server of a case on a CPU of its own, where there is one; yields its dsn. Its times are then in `times`."""
    together = CONNECTIONS if case.together else 0
    arguments = [case.family, str(folder / ".s.PGSQL.5432"), str(folder / "times"), str(case.delay_ms), str(together)]
    argv = [sys.executable, str(SERVER), *arguments]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        os.sched_setaffinity(process.pid, {cpus()[1]})
        port = int(process.stdout.readline())
        place = f"host=127.0.0.1 port={port}" if case.family == "AF_INET" else f"host={folder} port=5432"
        try:
            yield f"{place} user=test dbname=test sslmode=disable"
        finally:
            process.stdin.close()
            process.wait(10)


async def measure(case: Case, seconds: float) -> LateAnswers:
    """Run one load of a case."""
    with tempfile.TemporaryDirectory(prefix="late-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # noqa: ASYNC240 - a load worker of root has another account
        with contextlib.ExitStack() as delays, server(case, folder) as dsn:
            context = Context(folder, case, delays)
            spec = RunLoad(
                workload=NOOP,
                endpoint=Endpoint(system="db", engine="postgres", dsn=dsn),
                share=LoadShare(first=0, count=CONNECTIONS, total=CONNECTIONS, think_s=case.think_s, think="constant"),
                windows=Windows(ramp_up_s=0.3, measure_s=seconds, ramp_down_s=0.1),
                workers=1,
                seed=1,
                label="late answers",
            )
            try:
                result = await run_load(context, spec)
            finally:
                delays.close()
                for resource in context.resources.values():
                    await resource.close(keep_data=False)
        times = np.frombuffer((folder / "times").read_bytes(), dtype=np.int64).reshape(-1, 2)
    return compared(result, judged(result, spec.windows), times)


def judged(result: LoadResult, windows: Windows) -> IterationFinished:
    """The numbers and findings of the load, with the client on a machine of its own."""
    hosts = (
        Host(name="server", roles=(), address="server:7700"),
        Host(name="client", roles=(), address="client:7700"),
    )
    stage = Ladder(
        id="late",
        workload="noop",
        target="db",
        clients=("client",),
        threads=(CONNECTIONS,),
        windows=windows,
        arrival=Closed(),
    )
    plan = Plan(
        name="late",
        title="",
        parameters=(),
        hosts=hosts,
        systems=(System(name="db", engine="postgres", host="server", dsn="host=server"),),
        secrets=(),
        workloads=(Workload(name="noop", kind="hlr", parameters=(("population", 1),)),),  # plans have no `noop`
        captures=(),
        stages=(stage,),
        verdicts=(),
    )
    return summarise(
        Observations(
            id=IterationId(stage="late", rung=CONNECTIONS, repeat=1, attempt=1),
            stage=stage,
            plan=plan,
            rate=None,
            loads={"client": result},
            seconds={},
            t0_ns=result.measure_start_ns - round(windows.ramp_up_s * 1e9),
            started_unix_s=0.0,
        )
    )


def compared(result: LoadResult, iteration: IterationFinished, times: npt.NDArray[np.int64]) -> LateAnswers:
    """Recorded beside true times, of the requests that reached the server in the measure window."""
    arrived, sent = times[:, 0], times[:, 1]
    inside = (arrived >= result.measure_start_ns) & (arrived < result.measure_end_ns)
    finding = next(one for one in iteration.findings if one.check == "client-handling")
    service, client = iteration.metrics["service"], iteration.metrics["client"]
    true_us = (sent - arrived)[inside] / 1e3
    return LateAnswers(
        true_p50_us=float(np.median(true_us)),
        recorded_p50_us=service["p50_us"],
        true_mean_us=float(np.mean(true_us)),
        recorded_mean_us=service["avg_us"],
        client_cpu=result.client_cpu_fraction,
        handling_fraction=client["handling_fraction"],
        found=not finding.ok,
        evidence=finding.evidence,
    )


def table(rows: Sequence[tuple[Case, LateAnswers]]) -> str:
    """The figures as a Markdown table."""
    lines = [
        "| client | true p50 | recorded p50 | ratio | client CPU | `client-handling` |",
        "|---|---|---|---|---|---|",
    ]
    for case, one in rows:
        finding = f"{one.handling_fraction:.0%}{': too late' if one.found else ': fine'}"
        times = f"{one.true_p50_us / 1e3:.3g} ms | {one.recorded_p50_us / 1e3:.3g} ms | {one.ratio:.2f}"
        lines.append(f"| {case.name} | {times} | {one.client_cpu:.0%} | {finding} |")
    return "\n".join(lines)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each measure window (3)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name contains TEXT")
    options = parser.parse_args()
    rows = [(case, asyncio.run(measure(case, options.seconds))) for case in CASES if options.only in case.name]
    print(table(rows))
    return int(any(one.ratio > 1.1 and not one.found for _, one in rows))


if __name__ == "__main__":
    sys.exit(main())
