"""Percentiles of response times with a stall of one second, measured by an open schedule, a closed loop, and pgbench.

    python benchmarks/load/stall.py [--seconds 10] [--rate 200]

One embedded PostgreSQL, HLR's read by key over 8 connections. In each measurement another session holds `LOCK TABLE
subscriber` for one second. *Theory* is the wait of every arrival of the schedule that follows from its intended time:
arrivals within the stall wait until its end, the others not at all. *Response* counts from the intended start,
*service* from the real one. pgbench runs the same statement closed, and with `--rate` (`-R`), where it also counts from
its schedule.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import subprocess
import tempfile
import threading
import time
from itertools import takewhile
from pathlib import Path

import psycopg
from harness import Context, postgres, workload

from proveout.agent.engines.postgres.installation import find_installation
from proveout.agent.load.pacing import Pacing
from proveout.agent.load.run_load import run_load
from proveout.dsl.plan.stages import Windows
from proveout.proto.wire import histogram
from proveout.proto.wire.results import LoadResult
from proveout.proto.wire.tasks import Endpoint, LoadShare, RunLoad

SUBSCRIBERS = 10_000
CONNECTIONS = 8
STALL_S = 1.0
BEFORE_S = 4.0
RAMP_S = 0.5
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 100.0)
SCRIPT = (
    f"\\set s random(1, {SUBSCRIBERS})\nSELECT sub_nbr, bit_1, hex_1, byte2_1, msc_location, vlr_location"
    " FROM subscriber WHERE s_id = :s;\n"
)


def stall(dsn: str, held: list[int]) -> None:
    """Lock the table for a second after a delay; `held` receives the times at which it was locked, monotonic ns."""
    time.sleep(BEFORE_S)
    with psycopg.connect(dsn) as connection:
        connection.execute("LOCK TABLE subscriber IN ACCESS EXCLUSIVE MODE")
        held.append(time.monotonic_ns())
        time.sleep(STALL_S)
        held.append(time.monotonic_ns())


async def load(
    context: Context, endpoint: Endpoint, seconds: float, rate: float | None
) -> tuple[RunLoad, LoadResult, list[int]]:
    spec = RunLoad(
        workload=workload(SUBSCRIBERS, {"GetBasicSubscriberData": 1.0}),
        endpoint=endpoint,
        share=LoadShare(first=0, count=CONNECTIONS, total=CONNECTIONS, rate=rate),
        windows=Windows(ramp_up_s=RAMP_S, measure_s=seconds, ramp_down_s=0.3),
        workers=2,
        seed=1,
        label="stall",
    )
    held: list[int] = []
    blocker = threading.Thread(target=stall, args=(endpoint.dsn, held))
    blocker.start()
    result = await run_load(context, spec)
    await asyncio.to_thread(blocker.join)
    return spec, result, held


def theory(spec: RunLoad, result: LoadResult, held: list[int]) -> list[float]:
    """The waits at the percentiles, ms."""
    pacing = Pacing.of(spec.share, spec.windows, spec.seed)
    t0_ns = result.measure_start_ns - round(spec.windows.ramp_up_s * 1e9)
    end_ns = result.measure_end_ns - t0_ns
    due = [t0_ns + ns for k in range(CONNECTIONS) for ns in takewhile(lambda ns: ns < end_ns, pacing.fire_times(k))]
    waits = sorted(max(held[1] - at, 0) if at >= held[0] else 0 for at in due if at >= result.measure_start_ns)
    return at_percentiles([wait / 1e6 for wait in waits])


def pgbench(folder: Path, endpoint: Endpoint, seconds: float, rate: float | None) -> tuple[list[float], int]:
    """Its per-transaction latencies at the percentiles, ms, and how many there were; logged, for it prints none."""
    (folder / "read.sql").write_text(SCRIPT)
    held: list[int] = []
    blocker = threading.Thread(target=stall, args=(endpoint.dsn, held))
    blocker.start()
    limit = () if rate is None else ("-R", f"{rate:g}")
    argv = [str(find_installation().programs / "pgbench"), "-n", "-M", "prepared", "-j", "2", "-c", str(CONNECTIONS)]
    argv += ["-T", f"{seconds:.0f}", *limit, "-l", "--log-prefix", str(folder / "log"), "-f", str(folder / "read.sql")]
    subprocess.run([*argv, endpoint.dsn], check=True, capture_output=True)
    blocker.join()
    # client transaction latency_us script epoch epoch_us [schedule_lag_us]
    fields = [line.split() for log in folder.glob("log.*") for line in log.read_text().splitlines()]
    for log in folder.glob("log.*"):
        log.unlink()
    latencies = sorted(int(row[2]) / 1e3 for row in fields)
    return at_percentiles(latencies), len(latencies)


def at_percentiles(values: list[float]) -> list[float]:
    """Of sorted values, by rank."""
    return [values[max(1, math.ceil(p / 100.0 * len(values) * (1 - 4e-16))) - 1] for p in PERCENTILES]


def ms(values: tuple[int, ...]) -> list[float]:
    return [value / 1e6 for value in values]


def show(name: str, values: list[float], count: int) -> None:
    print(f"{name:34}{count:>10,}" + "".join(f"{value:>10,.1f}" for value in values), flush=True)


async def compare(seconds: float, rate: float) -> None:
    print(f"{'ms':34}{'count':>10}" + "".join(f"{'max' if p == 100 else f'p{p:g}':>10}" for p in PERCENTILES))
    async with postgres(workload(SUBSCRIBERS, {"GetBasicSubscriberData": 1.0})) as (context, endpoint):
        spec, result, held = await load(context, endpoint, seconds, rate)
        opened = result.transactions[0]
        show(f"theory, open {rate:g}/s", theory(spec, result, held), opened.counts.ok)
        show("proveout, open: response", ms(histogram.percentiles_ns(opened.response, PERCENTILES)), opened.counts.ok)
        show("proveout, open: service", ms(histogram.percentiles_ns(opened.service, PERCENTILES)), opened.counts.ok)
        _, result, _ = await load(context, endpoint, seconds, None)
        closed = result.transactions[0]
        show("proveout, closed: response", ms(histogram.percentiles_ns(closed.response, PERCENTILES)), closed.counts.ok)
        with tempfile.TemporaryDirectory() as folder:
            for name, limit in (("pgbench, closed", None), (f"pgbench -R {rate:g}: from its schedule", rate)):
                values, count = await asyncio.to_thread(pgbench, Path(folder), endpoint, seconds, limit)
                show(name, values, count)


def main() -> None:
    parser = argparse.ArgumentParser(description="One second's stall, seen by open and closed loads.")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=200.0)
    arguments = parser.parse_args()
    asyncio.run(compare(arguments.seconds, arguments.rate))


if __name__ == "__main__":
    main()
