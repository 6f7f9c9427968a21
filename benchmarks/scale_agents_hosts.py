"""Many agents in one process, for `scale_agents.py`: real daemons on loopback with mutual TLS, whose tasks touch nothing.

Data flow: `scale_agents.py` starts it with a folder of certificates -> one `agent.daemon.serve` per host, all in one event loop, each with
a journal and a state directory of its own -> `{"addresses": …}` as one line of JSON on standard output -> the run -> at SIGTERM
one more line: per host when its load was given to it, when it was to start on the coordinator's clock and when it did. All clocks are
the same `monotonic_ns` here, which is what makes the skew measurable, and which no coordinator knows.

A capture sends 50 made-up readings a second, a load one `LoadSecond` a second; what a task on a real host would cost there
is left out: a thousand hosts have a thousand machines for it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from proveout.agent.daemon import Options, serve
from proveout.agent.tasks import Handler, TaskContext
from proveout.proto.results import (
    CaptureResult,
    CaptureSample,
    Done,
    FactsRead,
    Histogram,
    LoadResult,
    LoadSecond,
    Reading,
    SystemStarted,
    TransactionCounts,
    TransactionLoad,
)
from proveout.proto.tasks import Endpoint, InspectSystem, ReadFacts, RunCapture, RunLoad, RunSql, StopSystem

METRICS = 50
SECOND_NS = 1_000_000_000
MIX = {f"type{number}": 12 for number in range(8)}
"""Transactions of a second by type, as the plan of `scale_agents.py` weighs them."""
_told: dict[str, dict[str, int]] = {}


async def _until(at_ns: int) -> None:
    while (left_ns := at_ns - time.monotonic_ns()) > 0:  # noqa: ASYNC110 -- the clock, nobody signals it
        await asyncio.sleep(left_ns / 1e9)


async def run_capture(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """50 readings a second until it is finished."""
    finished = asyncio.ensure_future(context.finished())
    start_ns, sent = time.monotonic_ns(), 0
    while not finished.done():
        readings = tuple(Reading(metric=f"metric{number}", value=float(sent + number)) for number in range(METRICS))
        context.sample(CaptureSample(capture=spec.capture.name, at_ns=time.monotonic_ns(), readings=readings))
        sent += 1
        left_s = (start_ns + sent * SECOND_NS - time.monotonic_ns()) / 1e9
        try:
            await asyncio.wait({finished}, timeout=max(0.0, left_s))
        except asyncio.CancelledError:
            finished.cancel()
            raise
    return CaptureResult(capture=spec.capture.name, samples=sent)


async def run_load(context: TaskContext, spec: RunLoad) -> LoadResult:
    """Arm at once, note when T0 was and when the load began, and send a second of 100 transactions each second."""
    given_ns = time.monotonic_ns()
    context.armed()
    t0_ns = await context.started()
    await _until(t0_ns)
    began_ns = time.monotonic_ns()
    first = _told.get(context.host, {"given_ns": given_ns})[
        "given_ns"
    ]  # an iteration that is run again was given before
    _told[context.host] = {"given_ns": first, "t0_ns": t0_ns, "began_ns": began_ns}
    windows, load = spec.windows, _transactions()
    count = int(windows.total_s)
    for second in range(count):
        start_ns = t0_ns + second * SECOND_NS
        await _until(start_ns + SECOND_NS)
        window: Literal["ramp_up", "measure"] = "ramp_up" if second < windows.ramp_up_s else "measure"
        context.sample(LoadSecond(second=second, window=window, start_ns=start_ns, duration_s=1.0, transactions=load))
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
    """Each type with as many different times as it has transactions in a second."""
    loads = []
    for name, count in MIX.items():
        indices = tuple(range(10_000, 10_000 + count))
        times = Histogram(
            indices=indices, counts=(seconds,) * count, sum_ns=10**6 * count * seconds, min_ns=10**5, max_ns=5 * 10**6
        )
        counts = TransactionCounts(name=name, ok=count * seconds)
        loads.append(TransactionLoad(counts=counts, response=times, service=times))
    return tuple(loads)


async def inspect(_context: TaskContext, spec: InspectSystem) -> SystemStarted:
    """A server that is not there."""
    endpoint = Endpoint(system=spec.endpoint.system, engine=spec.endpoint.engine, dsn="", version="0")
    return SystemStarted(endpoint=endpoint, settings=(("version", "0"),))


async def read_facts(_context: TaskContext, _spec: ReadFacts) -> FactsRead:
    """About as many as a real host has."""
    return FactsRead(facts=tuple((f"fact{number}", number) for number in range(40)))


async def done(_context: TaskContext, _spec: Any) -> Done:
    """Nothing to do."""
    return Done()


TABLE: Mapping[type, Handler] = {
    RunCapture: run_capture,
    RunLoad: run_load,
    InspectSystem: inspect,
    ReadFacts: read_facts,
    RunSql: done,
    StopSystem: done,
}


async def _serve(names: list[str], pki: Path, state: Path) -> None:
    stop = asyncio.Event()
    addresses: dict[str, str] = {}
    agents = [
        asyncio.create_task(
            serve(
                Options(listen="127.0.0.1:0", pki=pki, state_dir=state / name, name=name),
                lambda address, name=name: addresses.__setitem__(name, address),  # type: ignore[misc]
                TABLE,
            )
        )
        for name in names
    ]
    while len(addresses) < len(names):
        await asyncio.sleep(0.05)
        for agent in agents:
            if agent.done():
                agent.result()
    # Each agent has asked for the signal; there is one handler in a process, and it ends them all.
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    print(json.dumps({"addresses": addresses}), flush=True)
    await stop.wait()
    print(json.dumps({"told": _told}), flush=True)
    for agent in agents:
        agent.cancel()
    await asyncio.gather(*agents, return_exceptions=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Agents for scale_agents.py.")
    parser.add_argument("--pki", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("names", nargs="+")
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    asyncio.run(_serve(chosen.names, chosen.pki, chosen.state))


if __name__ == "__main__":
    main()
