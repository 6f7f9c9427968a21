"""Measures the highest rate of this host's load generator: loads of a no-op statement with growing numbers of
connections.

Flow: target (an endpoint, or a system to provision for it) -> for each number of connections one closed `RunLoad`
through the agent's own code, with workers and aggregation -> `Step`s -> `ceiling`, the fastest of them. Nothing is
written to the target.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from proveout.agent.daemon.tasks import TaskRunner
from proveout.agent.load.ceiling_store import Ceiling
from proveout.agent.load.run_load import run_load
from proveout.agent.sandbox.helper import start_system
from proveout.agent.security.policy import Policy
from proveout.core import directories
from proveout.core.data_classes import record
from proveout.core.errors import ProveoutError
from proveout.dsl.engines import EMBEDDED
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Windows
from proveout.dsl.plan.topology import System
from proveout.dsl.workloads.kinds import KIND
from proveout.proto.wire import histogram
from proveout.proto.wire.results import LoadResult
from proveout.proto.wire.tasks import Endpoint, LoadShare, RunLoad, StartSystem

RAMP_S = 0.5
T0_S = 0.1


@record
class Step:
    """One load: no-op transactions a second, client CPU for each, and response times, µs."""

    connections: int
    per_s: float
    cpu_us: float
    p50_us: float
    p99_us: float


class LocalTaskContext(TaskRunner):
    """A task context without a coordinator: the load starts as soon as it is armed, and nothing is sent."""

    def __init__(self, work_dir: Path) -> None:
        super().__init__("ceiling", "here", work_dir, {}, lambda _: None, policy=Policy(provision=EMBEDDED))

    async def started(self) -> int:
        """Start `T0_S` from now."""
        return time.monotonic_ns() + round(T0_S * 1e9)

    async def close(self) -> None:
        """Close workers and servers."""
        for resource in reversed(list(self.resources.values())):
            await resource.close(keep_data=False)


async def measure(
    target: Endpoint | System,
    connections: Sequence[int],
    *,
    seconds: float,
    workers: int | None,
    on_step: Callable[[Step], None],
) -> list[Step]:
    """One step for each number of connections to an endpoint, or to a temporary server; calls `on_step` after each.

    TaskFault; ProveoutError if a load had errors.
    """
    steps: list[Step] = []
    with directories.make("ceiling") as folder:
        context = LocalTaskContext(folder)
        try:
            if isinstance(target, System):
                started = await start_system(context, StartSystem(system=target, data_root=f"{folder}/data"))
                target = started.endpoint
            for count in connections:
                spec = RunLoad(
                    workload=Workload(name=KIND, kind=KIND, parameters=()),
                    endpoint=target,
                    share=LoadShare(first=0, count=count, total=count),
                    windows=Windows(ramp_up_s=RAMP_S, measure_s=seconds, ramp_down_s=0.0),
                    workers=min(count, workers or cores()),
                    seed=1,
                    label=f"ceiling {count}",
                )
                steps.append(_step(count, seconds, await run_load(context, spec)))
                on_step(steps[-1])
        finally:
            await asyncio.shield(context.close())
    return steps


def ceiling(engine: str, steps: Sequence[Step], *, shared: bool, workers: int) -> Ceiling:
    """The fastest step."""
    best = max(steps, key=lambda step: step.per_s)
    return Ceiling(
        engine=engine,
        shared=shared,
        per_s=best.per_s,
        connections=best.connections,
        cpu_us=best.cpu_us,
        workers=workers,
        measured_unix_s=time.time(),
    )


def cores() -> int:
    """Default number of load workers."""
    return len(os.sched_getaffinity(0))


def _step(connections: int, seconds: float, result: LoadResult) -> Step:
    load = result.transactions[0]
    if load.counts.error_count or not result.ended_in_window:
        first = result.first_errors[0] if result.first_errors else "no transaction ended"
        raise ProveoutError(
            f"the load with {connections} connections had errors: {first}",
            way_out="let the server accept that many connections, or use fewer with --connections",
        )
    p50_ns, p99_ns = histogram.percentiles_ns(load.response, (50.0, 99.0))
    return Step(
        connections=connections,
        per_s=result.ended_in_window / seconds,
        cpu_us=result.client_cpu_s / result.ended_in_window * 1e6,
        p50_us=p50_ns / 1e3,
        p99_us=p99_ns / 1e3,
    )
