"""Ratios of throughput and client CPU of variants of the PostgreSQL client and of numbers of workers, in one run, in
turn.

    python benchmarks/load/variants.py [--connections 4] [--seconds 4] [--rounds 5] [--json FILE]

Closed load, HLR mix and one SELECT by key, against one embedded PostgreSQL. Variants: libpq through psycopg.pq (as
where nothing is compiled) and proveout's own implementation of the protocol, with two workers each; then the latter
with one and four. CPU is the client's, user and system, with the agent's merging. Ratios are to the first variant.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Context, Figures, postgres, run, workload
from pgbench import HLR_MIXES, SUBSCRIBERS

from proveout.agent.engines.postgres.driver import PURE_PYTHON
from proveout.dsl.workloads.hlr import HLR_WEIGHTS
from proveout.proto.wire.tasks import Endpoint


@dataclass(frozen=True)
class Way:
    """A variant: the client library of the workers, and their number."""

    name: str
    libpq: bool = False
    workers: int = 2


WAYS = (
    Way("libpq, 2 workers", libpq=True),
    Way("wire compiled, 2 workers"),
    Way("wire compiled, 1 worker", workers=1),
    Way("wire compiled, 4 workers", workers=4),
)


async def once(folder: Path, endpoint: Endpoint, way: Way, mix: str, options: argparse.Namespace, seed: int) -> Figures:
    """One load with workers of its own."""
    os.environ[PURE_PYTHON] = "1" if way.libpq else ""
    context = Context(folder)
    try:
        return await run(
            context,
            endpoint,
            workload(SUBSCRIBERS, HLR_MIXES[mix]),
            connections=options.connections,
            seconds=options.seconds,
            seed=seed,
            workers=way.workers,
        )
    finally:
        await asyncio.shield(context.close())


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Every mix, every way, round by round."""
    lines: list[dict[str, Any]] = []
    async with postgres(workload(SUBSCRIBERS, HLR_WEIGHTS)) as (context, endpoint):
        for mix in HLR_MIXES:
            figures: dict[str, list[Figures]] = {way.name: [] for way in WAYS}
            for seed in range(options.rounds):
                for way in WAYS:
                    figures[way.name].append(await once(context.work_dir, endpoint, way, mix, options, seed))
            lines += table(mix, figures)
    return lines


def table(mix: str, figures: dict[str, list[Figures]]) -> list[dict[str, Any]]:
    """Print medians and ratios; the lines for --json."""
    lines: list[dict[str, Any]] = []
    for name, each in figures.items():
        tps, cpu_us = statistics.median(f.tps for f in each), statistics.median(f.cpu_us for f in each)
        first = lines[0] if lines else {"tps": tps, "cpu_us": cpu_us}
        ratios = tps / first["tps"], cpu_us / first["cpu_us"]
        lines.append({"mix": mix, "way": name, "tps": tps, "cpu_us": cpu_us, "rate": ratios[0], "cpu": ratios[1]})
        print(f"{mix:12}{name:28}{tps:10,.0f} TPS{ratios[0]:6.2f} x{cpu_us:8.1f} µs{ratios[1]:6.2f} x", flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    lines = asyncio.run(measure(options))
    if options.json:
        options.json.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
