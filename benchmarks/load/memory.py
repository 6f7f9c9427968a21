"""The memory of load workers over time, in a long open load at a high rate.

    python benchmarks/load/memory.py [--minutes 10] [--rate 50000] [--workers 2] [--json FILE]

The load is the agent's own path: `run_load`, worker processes, their chunks merged in this process, a `LoadSecond` a
second. The workers' sessions answer at once (`null_worker`), so that two cores achieve the rate; the memory of a
database driver is not included. Private memory (USS, the memory that the end of the process would free) is read from
/proc/PID/smaps_rollup every two seconds. Growth counts from the reading after a tenth of the run, at most a minute,
when every buffer has its final size, to the maximum of the later ones. Target: < 20 MB a worker in ten minutes at
50,000 transactions a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import null_worker
from harness import Context, workload

from proveout.agent.load.run_load import POOL, run_load
from proveout.dsl.plan.stages import Windows
from proveout.proto.wire.results import LoadResult
from proveout.proto.wire.tasks import Endpoint, LoadShare, RunLoad

WEIGHTS = {"GetBasicSubscriberData": 1.0}
TERMINALS = 16
TARGET_MB = 20.0
EVERY_S = 2.0
SHOWN = 12

Reading = tuple[float, float, dict[int, float]]  # seconds since the start, MB of the agent, MB of each worker


def private_mb(pid: int) -> float:
    """Return the private memory of a process, MB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024.0


async def watch(context: Context, readings: list[Reading]) -> None:
    """Read until cancelled."""
    began = time.monotonic()
    while True:
        pool = context.resources.get(POOL)
        workers = {worker.pid: private_mb(worker.pid) for worker in pool.workers} if pool else {}  # type: ignore[attr-defined]
        if workers:
            readings.append((time.monotonic() - began, private_mb(os.getpid()), workers))
        await asyncio.sleep(EVERY_S)


async def measure(minutes: float, rate: float, workers: int) -> tuple[LoadResult, list[Reading]]:
    """Run one iteration; return the readings."""
    null_worker.use()
    spec = RunLoad(
        workload=workload(100_000, WEIGHTS),
        endpoint=Endpoint(system="null", engine="postgres", dsn=""),
        share=LoadShare(first=0, count=TERMINALS, total=TERMINALS, rate=rate),
        windows=Windows(ramp_up_s=1.0, measure_s=60.0 * minutes, ramp_down_s=0.0),
        workers=workers,
        seed=1,
        label="memory",
    )
    readings: list[Reading] = []
    with tempfile.TemporaryDirectory(prefix="proveout-bench-") as folder:
        context = Context(Path(folder))
        watching = asyncio.create_task(watch(context, readings))
        try:
            result = await run_load(context, spec)
        finally:
            watching.cancel()
            await context.close()
    return result, readings


def growth_mb(readings: list[Reading], minutes: float) -> tuple[float, float]:
    """Return the growth (of the worker that grew most, of the agent) after the settled reading, MB."""
    settled = [reading for reading in readings if reading[0] >= min(60.0, 6.0 * minutes)]
    _, agent, workers = settled[0]
    grown = [max(later[2].get(pid, 0.0) for later in settled) - mb for pid, mb in workers.items()]
    return max(grown), max(later[1] for later in settled) - agent


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory of load workers over a long iteration.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=50_000.0, help="transactions a second in total")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    result, readings = asyncio.run(measure(arguments.minutes, arguments.rate, arguments.workers))
    if len(readings) < SHOWN:
        sys.exit("too short a run to see anything: give it more --minutes")
    print(f"{'s':>6}{'agent MB':>12}  worker MB")
    for seconds, agent, workers in readings[:: max(1, len(readings) // SHOWN)]:
        print(f"{seconds:>6.0f}{agent:>12.1f}  {'  '.join(f'{mb:.1f}' for mb in workers.values())}")
    worker_mb, agent_mb = growth_mb(readings, arguments.minutes)
    achieved = result.ended_in_window / (60.0 * arguments.minutes)
    print(f"{achieved:,.0f} of {arguments.rate:,.0f} transactions/s; {result.samples_lost} records lost")
    print(f"growth: worker {worker_mb:.1f} MB (target < {TARGET_MB:.0f}), agent {agent_mb:.1f} MB")
    if arguments.json:
        figures = {"worker_mb": worker_mb, "agent_mb": agent_mb, "achieved_per_s": achieved, "readings": readings}
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
