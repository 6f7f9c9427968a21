"""Shared parts of the load benchmarks: a task context, a provisioned PostgreSQL with HLR data, and a load run."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from proveout.agent.daemon.tasks import Resource
from proveout.agent.engines.handlers import start_system
from proveout.agent.load.population.handler import populate
from proveout.agent.load.run_load import run_load
from proveout.agent.security.policy import Policy
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Windows
from proveout.dsl.plan.topology import System
from proveout.dsl.workloads.hlr.parameters import Hlr
from proveout.proto.wire.results import CaptureSample, LoadSecond
from proveout.proto.wire.tasks import Endpoint, LoadShare, PopulateSystem, RunLoad, StartSystem

RAMP_S = 0.5
T0_S = 0.2


@dataclass(frozen=True)
class Figures:
    """Transactions a second, client CPU per transaction, and the agent's merging as a part of it."""

    tps: float
    cpu_us: float
    merging_us: float = 0.0


class Context:
    """A task context for handlers that are called directly."""

    key = host = "benchmark"
    policy = Policy(own=True)

    def __init__(self, work_dir: Path) -> None:
        self.work_dir = work_dir
        self.resources: dict[str, Resource] = {}
        self.ended = 0
        self.cpu_at_start_s = 0.0

    def progress(self, done: float, total: float, unit: str, note: str = "") -> None: ...

    def sample(self, sample: LoadSecond | CaptureSample) -> None:
        """Count the ended transactions."""
        if isinstance(sample, LoadSecond):
            self.ended += sum(t.counts.ok + t.counts.logical_failures for t in sample.transactions)

    def log(self, level: str, text: str) -> None:
        print(f"{level}: {text}", file=sys.stderr)

    def armed(self) -> None:
        """Note the connection of the load, from which merging counts."""
        self.ended, self.cpu_at_start_s = 0, time.process_time()

    async def started(self) -> int:
        return time.monotonic_ns() + round(T0_S * 1e9)

    async def finished(self) -> None: ...

    async def close(self) -> None:
        """Close the resources of the handlers."""
        for resource in reversed(list(self.resources.values())):
            await resource.close(keep_data=False)


def workload(subscribers: int, weights: Mapping[str, float]) -> Workload:
    """Return HLR with these weights."""
    return Workload(name="hlr", kind="hlr", parameters=to_values(Hlr(population=subscribers, weights=dict(weights))))


@asynccontextmanager
async def postgres(hlr: Workload) -> AsyncIterator[tuple[Context, Endpoint]]:
    """Yield an embedded PostgreSQL with synchronous_commit off and the workload's data, and a context."""
    with tempfile.TemporaryDirectory(prefix="proveout-bench-") as folder:
        context = Context(Path(folder))
        settings = (
            ("max_connections", "200"),
            ("shared_buffers", "256MB"),
            ("synchronous_commit", "off"),
            ("autovacuum", "off"),  # autovacuum and checkpoints would affect some rounds of one side only
            ("max_wal_size", "16GB"),
            ("checkpoint_timeout", "1h"),
        )
        system = System(name="target", engine="postgres", host="here", provision="embedded", settings=settings)
        try:
            started = await start_system(context, StartSystem(system=system, data_root=f"{folder}/data"))
            await populate(context, PopulateSystem(workload=hlr, endpoint=started.endpoint, workers=2))
            yield context, started.endpoint
        finally:
            await asyncio.shield(context.close())


async def run(
    context: Context,
    endpoint: Endpoint,
    of: Workload,
    *,
    connections: int,
    seconds: float,
    seed: int,
    workers: int = 2,
) -> Figures:
    """Run one closed load. Exits on any error in it."""
    spec = RunLoad(
        workload=of,
        endpoint=endpoint,
        share=LoadShare(first=0, count=connections, total=connections),
        windows=Windows(ramp_up_s=RAMP_S, measure_s=seconds, ramp_down_s=0.0),
        workers=workers,
        seed=seed,
        label="benchmark",
    )
    result = await run_load(context, spec)
    merging_us = (time.process_time() - context.cpu_at_start_s) / context.ended * 1e6
    failed = any(load.counts.errors for load in result.transactions)  # one that was retried has ended well
    if failed or result.samples_lost:
        sys.exit(f"the load had errors: {result.first_errors}, samples lost: {result.samples_lost}")
    cpu_us = result.client_cpu_s / result.ended_in_window * 1e6
    return Figures(result.ended_in_window / seconds, cpu_us + merging_us, merging_us)
