"""The same load on worker processes and on Ray actors: `python benchmarks/load/pool_ray.py [--pairs N] [--seconds S]
[--workers 1,2] [--only closed] [--json FILE]`.

HLR read-only on an embedded PostgreSQL of this machine, 8 connections: closed, and open at a share of the closed peak.
For each number of workers, pairs of a load on either pool, one after the other, the first of a pair on each pool in
turn, so that what else the machine does and its drift meet both alike. Given are the medians, and of the pairs' ratios
the geometric mean with its 95 % interval (Student's t of their logarithms): one that has 1 in it shows no difference.
On one machine this shows what Ray costs, not how it scales. Further: seconds until the first load is armed (the cluster
has to be formed), until a further one is; and who used the CPU from the moment a load was armed to its end, in cores,
by what the processes are: Ray's (raylet, GCS, its agents, the driver, the actors' own processes), the load workers
themselves, this process; not the database, whose sessions end with the load. With its defaults it takes about five
minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil
from harness import Context, postgres, workload

from proveout.agent.load.run_load import run_load
from proveout.core import distributions
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Windows
from proveout.proto.wire import histogram
from proveout.proto.wire.tasks import Endpoint, LoadPool, LoadShare, RunLoad

READ_ONLY = {"GetBasicSubscriberData": 35.0, "GetNewDestination": 10.0, "GetAccessData": 35.0}

Kind = Literal["local", "ray"]
KINDS_OF_POOL: tuple[Kind, ...] = ("local", "ray")


class Timed(Context):
    """Notes when a load was armed, and the CPU that each kind of process had used by then."""

    armed_s = 0.0
    before: dict[str, float]

    def armed(self) -> None:
        super().armed()
        self.before = used_s()
        self.armed_s = time.monotonic()


KINDS = (
    ("raylet", "raylet/raylet"),
    ("gcs", "gcs_server"),
    ("driver", "ray_driver"),
    ("load workers", "proveout.agent.load.worker"),
    ("actors", "ray::LoadActor"),
    ("actors", "LoadActor"),
    ("idle Ray workers", "ray::"),
    ("Ray's agents", "/ray/"),
    ("Ray's agents", "ray_node"),
    ("database", "postgres"),
)
"""(kind of process, text in its command line); the first match counts."""
RAYS = frozenset({"raylet", "gcs", "driver", "actors", "idle Ray workers", "Ray's agents"})


def used_s() -> dict[str, float]:
    """Return the CPU seconds so far of this process and its descendants by kind; without those of ended processes."""
    found: dict[str, float] = {}
    here = psutil.Process()
    for process in (here, *here.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            words = " ".join(process.cmdline())
            kind = next((kind for kind, word in KINDS if word in words), "others")
            used = process.cpu_times()
            kind = "this process" if process == here else kind
            found[kind] = found.get(kind, 0.0) + used.user + used.system
    return found


@dataclass(frozen=True)
class Measured:
    """One load: transactions a second, its response times, client CPU a transaction, time to arm, and CPU by kind in
    cores."""

    tps: float
    p50_us: float
    p99_us: float
    cpu_us: float
    armed_s: float
    cores: dict[str, float]

    @property
    def ray_cores(self) -> float:
        """The CPU of all that is Ray's, in cores."""
        return sum(used for kind, used in self.cores.items() if kind in RAYS)


async def once(
    context: Timed, endpoint: Endpoint, hlr: Workload, *, kind: Kind, workers: int, seconds: float, rate: float | None
) -> Measured:
    """A load on one of the pools; `rate` a second, or closed. Exits when anything about it was not clean."""
    spec = RunLoad(
        workload=hlr,
        endpoint=endpoint,
        share=LoadShare(first=0, count=8, total=8, rate=rate),
        windows=Windows(ramp_up_s=0.5, measure_s=seconds, ramp_down_s=0.0),
        workers=workers,
        seed=1,
        label="benchmark",
        pool=LoadPool(kind=kind),
    )
    began = time.monotonic()
    result = await run_load(context, spec)
    took_s = time.monotonic() - context.armed_s
    cores = {kind: (used - context.before.get(kind, 0.0)) / took_s for kind, used in used_s().items()}
    if result.first_errors or result.samples_lost:
        sys.exit(f"the load had errors: {result.first_errors}, samples lost: {result.samples_lost}")
    response = histogram.merge(one.response for one in result.transactions)
    p50_us, p99_us = (ns / 1e3 for ns in histogram.percentiles_ns(response, (50.0, 99.0)))
    cpu_us = result.client_cpu_s / result.ended_in_window * 1e6
    return Measured(result.ended_in_window / seconds, p50_us, p99_us, cpu_us, context.armed_s - began, cores)


async def pairs(measure: Callable[[Kind], Awaitable[Measured]], count: int) -> dict[Kind, list[Measured]]:
    """So many loads on each pool, in pairs whose first is on each pool in turn."""
    found: dict[Kind, list[Measured]] = {"local": [], "ray": []}
    orders: tuple[tuple[Kind, Kind], ...] = (("local", "ray"), ("ray", "local"))
    for number in range(count):
        for kind in orders[number % 2]:
            found[kind].append(await measure(kind))
    return found


def compared(found: dict[Kind, list[Measured]], figure: str) -> tuple[float, float, float]:
    """Ray over local of a figure, by pairs: geometric mean of the ratios, and its 95 % interval."""
    sides = zip(found["ray"], found["local"], strict=True)
    logs = [math.log(float(getattr(ray, figure)) / float(getattr(local, figure))) for ray, local in sides]
    mean = statistics.fmean(logs)
    half = distributions.t_quantile(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


HEAD = (
    f"{'arrival':>14}{'workers':>8}{'local, TPS':>12}{'ray, TPS':>12}{'ray / local (95 %)':>24}"
    f"{'p99, µs: local, ray':>20}{'CPU, µs':>14}{'Ray, cores':>12}"
)


def line(arrival: str, workers: int, found: dict[Kind, list[Measured]]) -> dict[str, float | str]:
    """Print a line of the table, and give its figures."""

    def middle(kind: Kind, figure: str) -> float:
        return statistics.median(float(getattr(one, figure)) for one in found[kind])

    ratio, low, high = compared(found, "tps")
    print(
        f"{arrival:>14}{workers:8}{middle('local', 'tps'):12,.0f}{middle('ray', 'tps'):12,.0f}"
        f"{f'{ratio:.3f} ({low:.3f} … {high:.3f})':>24}"
        f"{middle('local', 'p99_us'):9,.0f}{middle('ray', 'p99_us'):9,.0f}"
        f"{middle('local', 'cpu_us'):8.1f}{middle('ray', 'cpu_us'):8.1f}{middle('ray', 'ray_cores'):12.2f}",
        flush=True,
    )
    kept: dict[str, float | str] = {"arrival": arrival, "workers": workers, "ratio": ratio, "low": low, "high": high}
    for kind in found:
        for figure in ("tps", "p50_us", "p99_us", "cpu_us", "armed_s"):
            kept[f"{kind}_{figure}"] = middle(kind, figure)
    for kind, ones in found.items():
        cores = {what: statistics.median(one.cores.get(what, 0.0) for one in ones) for what in ones[0].cores}
        cores.pop("database", None)
        told = ", ".join(f"{what} {used:.3f}" for what, used in sorted(cores.items(), key=lambda item: -item[1]))
        print(f"{'':14}{kind:>8}  cores: {told}", flush=True)
        kept |= {f"{kind}_cores_{what}": used for what, used in cores.items()}
    return kept | {"ray_cores": middle("ray", "ray_cores")}


async def main(options: argparse.Namespace) -> list[dict[str, float | str]]:
    """Measure and print; the lines of the table."""
    lines: list[dict[str, float | str]] = []
    hlr = workload(1000, READ_ONLY)
    async with postgres(hlr) as (made, endpoint):
        context = Timed(made.work_dir)

        def measuring(workers: int, rate: float | None, seconds: float) -> Callable[[Kind], Awaitable[Measured]]:
            return lambda kind: once(context, endpoint, hlr, kind=kind, workers=workers, seconds=seconds, rate=rate)

        try:
            first = await measuring(max(options.workers), None, 1.0)("ray")
            print(f"cluster, driver and {max(options.workers)} actors: armed after {first.armed_s:.1f} s")
            print(HEAD)
            for workers in options.workers:
                for kind in KINDS_OF_POOL:  # processes of both are warm, and the file cache
                    await measuring(workers, None, 1.0)(kind)
                closed = await pairs(measuring(workers, None, options.seconds), options.pairs)
                lines.append(line("closed", workers, closed))
                if options.only == "closed":
                    continue
                peak = min(statistics.median(one.tps for one in found) for found in closed.values())
                rate = float(round(options.share * peak))
                paced = await pairs(measuring(workers, rate, options.seconds), options.pairs)
                lines.append(line(f"{rate:,.0f}/s", workers, paced))
        finally:
            await asyncio.shield(context.close())
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The same load on worker processes and on Ray actors.")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each measurement")
    parser.add_argument("--pairs", type=int, default=8, help="loads on either pool; at least 3")
    parser.add_argument("--share", type=float, default=0.6, help="of the closed peak, for open arrival")
    parser.add_argument(
        "--workers", type=lambda text: [int(one) for one in text.split(",")], default=[1, 2], metavar="1,2,…"
    )
    parser.add_argument("--only", choices=("closed",), help="leave the open load out")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    chosen = parser.parse_args()
    figures = asyncio.run(main(chosen))
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=1) + "\n")
