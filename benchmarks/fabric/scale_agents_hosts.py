"""Many agents in one process, for `scale_agents.py`: real sessions with simulated tasks.

Data flow: `scale_agents.py` starts it with a folder of certificates -> one gRPC server for the process, with a port for
each agent, which passes each session to the agent that its Hello names -> `{"addresses": …}` as one line of JSON on
standard output -> the run -> at SIGTERM one more line: for each host the times at which it received its capture and its
load, its T0, and the time at which its load began. All processes have the same `monotonic_ns`, so that the skew can be
measured; the coordinator does not use this.

As on a real host: a TLS connection and a stream for each agent, authorization, admission and fencing, signatures,
leases, the clock exchanges, the journal and the audit log of each agent (files in memory), and the outbox with the
times at which it sends samples.

Simulated: agents share a server, an event loop and a certificate. A capture sends 50 generated readings a second, a
load one generated `LoadSecond` a second; the cost of tasks is left out, because a thousand hosts have a thousand
machines for them. One timer of the process starts all loads (`Starter`), in place of the worker processes of each host:
the begin of a load shows whether its `Start` arrived in time and whether this process was delayed, not the time in
which a thousand coroutines are scheduled.

With `--light` agents do not verify signatures, keep their journal in a dict and have no audit log: a thousand real
agents do this work in parallel on their machines, these agents do it one after the other on one machine.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import logging
import signal
import sys
import time
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import grpc
import grpc.aio

from proveout.agent.daemon.servicer import SERVER_OPTIONS, STOP_S, Admission, Servicer
from proveout.agent.daemon.session import Session
from proveout.agent.daemon.task_journal import AgentJournal, Known
from proveout.agent.daemon.tasks import Handler, TaskContext
from proveout.agent.security.authz import AuthzInterceptor, TaskVerifier, TrustStore, server_credentials
from proveout.core.child_process import rare_garbage_collection
from proveout.proto.audit_log import FILE, AuditLog, Head
from proveout.proto.signing import DENIED, Denied
from proveout.proto.wire.agent_pb2_grpc import add_AgentServicer_to_server
from proveout.proto.wire.messages import Hello, Loads, Readings, Refused, TaskDone, TaskFailed
from proveout.proto.wire.results import (
    CaptureResult,
    CaptureSample,
    Done,
    FactsRead,
    Histogram,
    LoadResult,
    LoadSecond,
    SystemStarted,
    TransactionCounts,
    TransactionLoad,
)
from proveout.proto.wire.tasks import (
    Endpoint,
    InspectSystem,
    ReadFacts,
    RunCapture,
    RunLoad,
    RunSql,
    StopSystem,
)

METRICS = 50
SECOND_NS = 1_000_000_000
MIX = {f"type{number}": 12 for number in range(8)}
"""Transactions per second by type, with the weights of the plan of `scale_agents.py`."""
_times_ns: dict[str, dict[str, int]] = {}
"""Host -> the times that it reports."""


NAMES = tuple((f"metric{number}", "") for number in range(METRICS))


class Starter:
    """Resolves futures at given times, with one timer for the earliest of them."""

    def __init__(self) -> None:
        self._due: list[tuple[int, int, asyncio.Future[int]]] = []
        self._timer: asyncio.TimerHandle | None = None

    def at(self, when_ns: int) -> asyncio.Future[int]:
        """Return a future that resolves at `when_ns` with the `monotonic_ns` at which this process resolves it."""
        loop = asyncio.get_running_loop()
        seen: asyncio.Future[int] = loop.create_future()
        heapq.heappush(self._due, (when_ns, id(seen), seen))
        self._arm(loop)
        return seen

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._due[0][0] / 1e9, self._look, loop) if self._due else None

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._due and self._due[0][0] <= (now_ns := time.monotonic_ns()):
            _, _, seen = heapq.heappop(self._due)
            if not seen.done():
                seen.set_result(now_ns)
        self._arm(loop)


_starter = Starter()


def _each_second(first_ns: int, count: int | None, send: Callable[[int], None]) -> Callable[[], None]:
    """Call `send(0)`, `send(1)` … a second apart, from `first_ns`; return a function that stops it."""
    loop = asyncio.get_running_loop()
    timer: list[asyncio.TimerHandle] = []

    def tick(number: int) -> None:
        send(number)
        if count is None or number + 1 < count:
            timer[:] = [loop.call_at((first_ns + (number + 1) * SECOND_NS) / 1e9, tick, number + 1)]

    timer.append(loop.call_at(first_ns / 1e9, tick, 0))

    def end() -> None:
        timer[0].cancel()

    return end


async def run_capture(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Send 50 readings a second until the capture is finished."""
    sent = 0
    # `setdefault`, because a repeated iteration sends the task again.
    _times_ns.setdefault(context.host, {}).setdefault("watched_ns", time.monotonic_ns())

    def send(number: int) -> None:
        nonlocal sent
        sent += 1
        readings = Readings(NAMES, array("d", range(number, number + METRICS)))
        context.sample(CaptureSample(capture=spec.capture.name, at_ns=time.monotonic_ns(), readings=readings))

    end = _each_second(time.monotonic_ns(), None, send)
    try:
        await context.finished()
        send(sent)
    finally:
        end()
    return CaptureResult(capture=spec.capture.name, samples=sent)


async def run_load(context: TaskContext, spec: RunLoad) -> LoadResult:
    """Arm at once, record T0 and the begin of the load, and send a second of 100 transactions each second."""
    given_ns = time.monotonic_ns()
    context.armed()
    t0_ns = await context.started()
    began_ns = await _starter.at(t0_ns)
    noted = _times_ns.setdefault(context.host, {})
    noted.setdefault("given_ns", given_ns)
    noted |= {"t0_ns": t0_ns, "began_ns": began_ns}
    windows, count = spec.windows, int(spec.windows.total_s)
    over = asyncio.Event()

    def send(second: int) -> None:
        start_ns = t0_ns + second * SECOND_NS
        window: Literal["ramp_up", "measure"] = "ramp_up" if second < windows.ramp_up_s else "measure"
        context.sample(LoadSecond(second=second, window=window, start_ns=start_ns, duration_s=1.0, transactions=_LOAD))
        if second == count - 1:
            over.set()

    end = _each_second(t0_ns + SECOND_NS, count, send)
    try:
        await over.wait()
    finally:
        end()
    measure_ns = t0_ns + int(windows.ramp_up_s * 1e9)
    return LoadResult(
        transactions=_transactions(int(windows.measure_s)),
        ended_in_window=sum(MIX.values()) * int(windows.measure_s),
        measure_start_ns=measure_ns,
        measure_end_ns=measure_ns + int(windows.measure_s * 1e9),
        client_cpu_fraction=0.1,
        client_cpu_s=0.1,
        start_skew_ns=began_ns - t0_ns,
        seconds_produced=count,
    )


def _transactions(seconds: int = 1) -> tuple[TransactionLoad, ...]:
    """Return each type with as many different times as it has transactions in a second."""
    loads = []
    for name, count in MIX.items():
        indices = tuple(range(10_000, 10_000 + count))
        times = Histogram(
            indices=indices, counts=(seconds,) * count, sum_ns=10**6 * count * seconds, min_ns=10**5, max_ns=5 * 10**6
        )
        counts = TransactionCounts(name=name, ok=count * seconds)
        loads.append(TransactionLoad(counts=counts, response=times, service=times))
    return tuple(loads)


_LOAD = Loads.of(_transactions())


async def inspect(_context: TaskContext, spec: InspectSystem) -> SystemStarted:
    """Return a system without a server behind it."""
    endpoint = Endpoint(system=spec.endpoint.system, engine=spec.endpoint.engine, dsn="", version="0")
    return SystemStarted(endpoint=endpoint, settings=(("version", "0"),))


async def read_facts(_context: TaskContext, _spec: ReadFacts) -> FactsRead:
    """Return about as many facts as a real host has."""
    return FactsRead(facts=tuple((f"fact{number}", number) for number in range(40)))


async def done(_context: TaskContext, _spec: Any) -> Done:
    return Done()


TABLE: Mapping[type, Handler] = {
    RunCapture: run_capture,
    RunLoad: run_load,
    InspectSystem: inspect,
    ReadFacts: read_facts,
    RunSql: done,
    StopSystem: done,
}


class LightJournal(AgentJournal):
    """An agent's journal without a file."""

    def __init__(self) -> None:
        self._epochs: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._tasks: dict[tuple[str, int, str], Known] = {}

    def highest_epoch(self, run: str) -> int | None:
        return self._epochs.get(run)

    def note_epoch(self, run: str, epoch: int) -> None:
        self._epochs[run] = epoch

    def known(self, run: str, epoch: int, key: str) -> Known | None:
        return self._tasks.get((run, epoch, key))

    def accept(self, run: str, epoch: int, key: str, digest: str, sequence: int) -> None:
        self.note_sequence(run, sequence)
        self._tasks[run, epoch, key] = Known(digest=digest, outcome=None)

    def note_sequence(self, run: str, sequence: int) -> None:
        self._numbers[run] = max(sequence, self._numbers.get(run, 0))

    def highest_sequence(self, run: str) -> int:
        return self._numbers.get(run, 0)

    def finish(self, run: str, epoch: int, outcome: TaskDone | TaskFailed) -> None:
        before = self._tasks[run, epoch, outcome.key]
        self._tasks[run, epoch, outcome.key] = Known(digest=before.digest, outcome=outcome)

    def blank(self) -> None:
        self._tasks = {key: Known(digest=known.digest, outcome=None) for key, known in self._tasks.items()}

    def forget(self, run: str) -> None:
        self._tasks = {key: known for key, known in self._tasks.items() if key[0] != run}

    def close(self) -> None:
        pass


class LightLog(AuditLog):
    """An audit log that discards its entries."""

    def note(self, what: str, **fields: str | int | float | None) -> Head:
        return Head(log="", number=0, hash="")

    def head(self) -> str:
        return ""

    def sync(self) -> None:
        pass


class LightTrust(TrustStore):
    """Accepts tasks from every coordinator with a valid TLS certificate."""

    def objection(self, hello: Hello) -> str:
        return ""

    def verifier(self, hello: Hello) -> TaskVerifier:
        return lambda _: ""


class Gate(Admission):
    """The admissions of many agents behind one server: a Hello is for the agent of the host that it names."""

    def __init__(self, gates: Mapping[str, Admission]) -> None:
        self._gates = gates

    def head(self) -> str:
        """Return no head: the audit logs of this benchmark are not compared."""
        return ""

    async def admit(self, hello: Hello) -> Session | Refused:
        """Pass the Hello to the admission of its agent."""
        gate = self._gates.get(hello.host)
        return Refused(reason=f"there is no host {hello.host}") if gate is None else await gate.admit(hello)


def _admission(name: str, trust: TrustStore, state_dir: Path, light: bool) -> Admission:
    state_dir.mkdir(mode=0o700, parents=True)
    audit = (LightLog if light else AuditLog)(state_dir / FILE)
    journal = LightJournal() if light else AgentJournal(state_dir / "journal.sqlite")
    return Admission(name=name, state_dir=state_dir, table=TABLE, trust=trust, audit=audit, journal=journal)


async def _serve(names: list[str], pki: Path, state: Path, light: bool) -> None:
    trust = (LightTrust if light else TrustStore)(pki)
    gates = {name: _admission(name, trust, state / name, light) for name in names}
    server = grpc.aio.server(interceptors=[AuthzInterceptor(denied=Denied(pki / DENIED))], options=SERVER_OPTIONS)
    add_AgentServicer_to_server(Servicer(Gate(gates), ""), server)
    ports = {name: server.add_secure_port("127.0.0.1:0", server_credentials(pki)) for name in names}
    await server.start()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    print(json.dumps({"addresses": {name: f"127.0.0.1:{port}" for name, port in ports.items()}}), flush=True)
    with rare_garbage_collection():
        await stop.wait()
    print(json.dumps({"told": _times_ns}), flush=True)
    for gate in gates.values():
        if gate.session is not None:
            gate.session.end("cancelled", "the benchmark is over", keep_data=False)
            await gate.session.ended.wait()
    await server.stop(STOP_S)


def main() -> None:
    parser = argparse.ArgumentParser(description="Agents for scale_agents.py.")
    parser.add_argument("--pki", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--light", action="store_true")
    parser.add_argument("names", nargs="+")
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    asyncio.run(_serve(chosen.names, chosen.pki, chosen.state, chosen.light))


if __name__ == "__main__":
    main()
