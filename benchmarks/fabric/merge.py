"""The CPU cost of merging the seconds of many Ray workers: `python benchmarks/fabric/merge.py [--workers N]
[--rates R…] [--json FILE]`.

Every worker's second has 8 transaction types with one histogram each (service; closed), or three (service, response and
schedule; open). Measured: the CPU time in which the driver unpacks them, merges them, and encodes the resulting
`LoadSecond` for the agent. Not measured: Ray's own calls, one per second and worker (`pool_ray.py` includes part of
them).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from proveout.agent.load.ray_pool import RayAggregator, pack
from proveout.proto.wire import codec, histogram
from proveout.proto.wire.messages import Sample
from proveout.proto.wire.results import Histogram, LoadSecond, TransactionCounts, TransactionLoad

TYPES = 8
SECONDS = 5
T0_NS = 1_000_000_000


def worker_second(random: np.random.Generator, rate: int, *, is_open: bool) -> bytes:
    """One worker's second: `rate` transactions over the types, log-normal times around a millisecond."""
    loads = []
    for number in range(TYPES):
        times = [random.lognormal(13.8, 0.6, max(1, rate // TYPES)).astype(np.int64) for _ in range(3)]
        service, response, schedule = (histogram.bin_ns(part) for part in times)
        counts = TransactionCounts(name=f"t{number}", ok=max(1, rate // TYPES))
        loads.append(
            TransactionLoad(
                counts=counts,
                service=service,
                response=response if is_open else service,
                schedule=schedule if is_open else Histogram(),
            )
        )
    return pack(loads, is_open=is_open)


def measure(workers: int, rate: int, *, is_open: bool) -> tuple[float, int]:
    """Return (CPU seconds for one second of all workers, its bytes)."""
    random = np.random.default_rng(1)
    seconds = [worker_second(random, rate, is_open=is_open) for _ in range(workers)]
    names = [f"t{number}" for number in range(TYPES)]
    gatherer = RayAggregator(names, workers=workers, is_open=is_open, t0_ns=T0_NS)
    began = time.process_time()
    for number in range(SECONDS):
        told = LoadSecond(second=number, window="measure", start_ns=T0_NS, duration_s=1.0, transactions=())
        for worker, packed in enumerate(seconds):
            gatherer.add(worker, told, packed)
        (whole,) = gatherer.seconds()
        codec.agent_envelope(Sample(key="k", sequence=1, sample=whole)).SerializeToString()
    return (time.process_time() - began) / SECONDS, sum(map(len, seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU of merging one second of many workers.")
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument(
        "--rates", type=int, nargs="+", default=[100, 1000, 5000], help="transactions a second of a worker"
    )
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    lines = []
    print(f"merging 1 s of {options.workers} workers x {TYPES} transaction types")
    for is_open in (False, True):
        for rate in options.rates:
            cpu_s, size = measure(options.workers, rate, is_open=is_open)
            kind = "open" if is_open else "closed"
            lines.append({"arrival": kind, "rate": rate, "core_fraction": cpu_s, "mb_per_s": size / 1e6})
            print(
                f"  {kind:6} {rate:6}/s a worker: {cpu_s * 100:5.1f} % of a core, {size / 1e6:6.2f} MB/s to the driver"
            )
    if options.json:
        options.json.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
