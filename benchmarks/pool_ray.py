"""The same load on worker processes and on Ray actors, by number of workers: `python benchmarks/pool_ray.py [--seconds S] [--json FILE]`.

HLR read-only on an embedded PostgreSQL of this machine, 8 connections, closed; each number of workers on both pools, in turn,
rounds, medians. On one machine this shows what Ray costs, not how it scales. Further: seconds until the first load is
armed (the cluster has to be formed), until a further one is, and the CPU of everything that belongs to Ray while a load runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import psutil
from load_harness import Context, postgres, workload

from proveout.agent.load.task import run_load
from proveout.dsl.plan import Windows, Workload
from proveout.proto.messages import Endpoint, LoadPool, LoadShare, RunLoad

WORKERS = (1, 2, 4, 8)
READ_ONLY = {"GetBasicSubscriberData": 35.0, "GetNewDestination": 10.0, "GetAccessData": 35.0}

Kind = Literal["local", "ray"]


class Timed(Context):
    """Notes when a load was armed, and the CPU that Ray had used when it was and when it ended."""

    armed_s = 0.0
    ray_cpu_s = 0.0

    def armed(self) -> None:
        super().armed()
        self.armed_s = time.monotonic()
        self.ray_cpu_s = sum(ray_cpu())


def ray_cpu() -> Iterator[float]:
    """CPU seconds of each process of Ray's under this one, without the load workers themselves."""
    for process in psutil.Process().children(recursive=True):
        try:
            words = " ".join(process.cmdline())
            if any(word in words for word in ("raylet", "gcs_server", "ray::", "ray_driver", "/ray/")):
                used = process.cpu_times()
                yield used.user + used.system
        except psutil.NoSuchProcess:
            continue


async def once(
    context: Timed, endpoint: Endpoint, hlr: Workload, kind: Kind, workers: int, seconds: float
) -> tuple[float, float, float]:
    """(TPS, seconds until armed, CPU of Ray as a fraction of a core)."""
    spec = RunLoad(
        workload=hlr,
        endpoint=endpoint,
        share=LoadShare(first=0, count=8, total=8),
        windows=Windows(ramp_up_s=0.5, measure_s=seconds, ramp_down_s=0.0),
        workers=workers,
        seed=1,
        label="benchmark",
        pool=LoadPool(kind=kind),
    )
    began = time.monotonic()
    result = await run_load(context, spec)
    used = (sum(ray_cpu()) - context.ray_cpu_s) / (time.monotonic() - context.armed_s)
    if result.first_errors or result.samples_lost:
        sys.exit(f"the load had errors: {result.first_errors}, samples lost: {result.samples_lost}")
    return result.ended_in_window / seconds, context.armed_s - began, used


async def main(seconds: float, rounds_wanted: int) -> list[dict[str, float]]:
    """Measure and print; the lines of the table."""
    lines: list[dict[str, float]] = []
    hlr = workload(1000, READ_ONLY)
    async with postgres(hlr) as (made, endpoint):
        context = Timed(made.work_dir)
        try:
            _, first_s, _ = await once(context, endpoint, hlr, "ray", max(WORKERS), 1.0)
            print(f"cluster, driver and {max(WORKERS)} actors: armed after {first_s:.1f} s")
            print(f"{'workers':>8}{'local, TPS':>14}{'ray, TPS':>14}{'ratio':>8}{'armed, s':>10}{'Ray, cores':>12}")
            for workers in WORKERS:
                rounds: dict[Kind, list[tuple[float, float, float]]] = {"local": [], "ray": []}
                for _ in range(rounds_wanted):
                    for kind, kept in rounds.items():
                        kept.append(await once(context, endpoint, hlr, kind, workers, seconds))
                local, ray = (statistics.median(tps for tps, _, _ in rounds[kind]) for kind in ("local", "ray"))
                armed = statistics.median(armed for _, armed, _ in rounds["ray"])
                used = statistics.median(used for _, _, used in rounds["ray"])
                print(f"{workers:8}{local:14,.0f}{ray:14,.0f}{ray / local:8.2f}{armed:10.2f}{used:12.2f}", flush=True)
                lines.append({"workers": workers, "local_tps": local, "ray_tps": ray, "ratio": ray / local})
        finally:
            await asyncio.shield(context.close())
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The same load on worker processes and on Ray actors.")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    figures = asyncio.run(main(options.seconds, options.rounds))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
