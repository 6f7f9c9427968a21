"""The speed of loading a population, compared with psql's `\\copy` of the same rows from files: one run, interleaved,
medians, ratios.

    python benchmarks/populate/psql_copy.py [--workload hlr|tptbm|prepaid|tprocc] [--scale X] [--workers N] [--rounds N]
        [--json FILE]

At scale 1 each workload has four to five million rows: 500,000 subscribers (hlr), 2000 × 2000 rows (tptbm), 2 million
customers (prepaid), 8 warehouses (tprocc). With far fewer rows the start of workers would dominate.

Both sides load one embedded PostgreSQL and end with the same tables: keys, indexes, foreign keys, vacuumed and
analysed. proveout's side is the whole task, with the start of workers and the final count; it generates its rows while
it loads. `\\copy` reads text files that were written before the measurement, first in one psql, then in as many in
parallel as proveout has workers. "Rows only" leaves out the statements after the rows, which both sides share.

Before the rounds, `\\copy` loads once without being measured, so that no side pays for the server's first WAL files,
and proveout's modules are compiled to bytecode, as they are where it is installed. The CPU time is that of the
client's processes: psql's, or those of the workers with their start.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

import proveout
from proveout.agent.engines.postgres.installation import find_installation
from proveout.agent.engines.postgres.provision import Server
from proveout.agent.engines.row_values import plain_rows
from proveout.agent.load.populate import populate
from proveout.agent.load.populate_jobs import slices
from proveout.agent.security.policy import Policy
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.topology import System
from proveout.dsl.workloads.base import Population
from proveout.dsl.workloads.kinds import build, built_in
from proveout.dsl.workloads.tprocc import UNITS_PER_WAREHOUSE
from proveout.proto.wire.tasks import Endpoint, PopulateSystem

UNITS = {"hlr": 500_000, "prepaid": 2_000_000, "tprocc": 8 * UNITS_PER_WAREHOUSE, "tptbm": 4_000_000}
UNITS_AT_ONCE = 2_000
TARGETS = (0.8, 1.0)  # beside one `\copy`, and beside as many as there are workers


@dataclass
class Timings:
    """Seconds of each round: rows only, until the tables were ready, and CPU of the client's processes."""

    name: str
    rows_only: list[float] = field(default_factory=list)
    ready: list[float] = field(default_factory=list)
    client_cpu: list[float] = field(default_factory=list)


class Context:
    """A task context that notes the time of the last row."""

    key = host = "benchmark"
    policy = Policy(own=True)

    def __init__(self) -> None:
        self.rows_in = 0.0

    def progress(self, done: float, total: float, unit: str, note: str = "") -> None:
        """Note the time: the first progress note follows the last row."""
        if note and not self.rows_in:
            self.rows_in = time.monotonic()

    def log(self, level: str, text: str) -> None:
        """Raise on a warning, which would make the benchmark invalid."""
        print(f"{level}: {text}", file=sys.stderr)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the benchmark's context has no {name}")


def ours(endpoint: Endpoint, workload: Workload, workers: int, timings: Timings) -> int:
    """Load with the populate task, then drop the tables; return the number of rows."""
    with psycopg.connect(endpoint.dsn, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
    context, cpu, started = Context(), children_cpu_s(), time.monotonic()
    spec = PopulateSystem(workload=workload, endpoint=endpoint, workers=workers)
    populated = asyncio.run(populate(context, spec))
    timings.ready.append(time.monotonic() - started)
    timings.rows_only.append(context.rows_in - started)
    timings.client_cpu.append(children_cpu_s() - cpu)
    with psycopg.connect(endpoint.dsn, autocommit=True) as connection:
        for statement in build(workload).population.drop["postgres"]:
            connection.execute(statement)
    return sum(table.rows for table in populated.tables)


def copied(
    endpoint: Endpoint, population: Population, files: list[tuple[str, Path]], jobs: int, timings: Timings
) -> None:
    """Load with psql, `jobs` in parallel, with the same DDL before and after, then drop the tables."""
    with psycopg.connect(endpoint.dsn, autocommit=True) as connection:
        for statement in (*population.drop["postgres"], *population.before["postgres"]):
            connection.execute(statement)
        connection.execute("CHECKPOINT")
        cpu, started = children_cpu_s(), time.monotonic()
        with ThreadPoolExecutor(jobs) as pool:
            if jobs == 1:
                psql(endpoint, [rf"\copy {table} from '{path}'" for table, path in files])
            else:
                list(pool.map(lambda one: psql(endpoint, [rf"\copy {one[0]} from '{one[1]}'"]), files))
        timings.rows_only.append(time.monotonic() - started)
        timings.client_cpu.append(children_cpu_s() - cpu)
        for phase in population.after["postgres"]:
            for statement in phase:
                connection.execute(statement)
        timings.ready.append(time.monotonic() - started)
        for statement in population.drop["postgres"]:
            connection.execute(statement)


def children_cpu_s() -> float:
    """CPU time of the processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def psql(endpoint: Endpoint, commands: list[str]) -> None:
    """Run psql on commands; its failure ends the benchmark."""
    arguments = [part for command in commands for part in ("-c", command)]
    program = find_installation().programs / "psql"
    subprocess.run([program, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", endpoint.dsn, *arguments], check=True)


def write_files(folder: Path, population: Population, workers: int) -> list[tuple[str, Path]]:
    """Write the rows as COPY text, a file per table and slice (the slices of proveout's workers)."""
    files = []
    for number, (first, count) in enumerate(slices(population.units)):
        for table in population.tables:
            path = folder / f"{table.name}.{number}.txt"
            with path.open("w") as file:
                for start in range(first, first + count, UNITS_AT_ONCE):
                    rows = plain_rows(table, start, min(UNITS_AT_ONCE, first + count - start))
                    file.writelines("\t".join(map(_text, row)) + "\n" for row in rows)
            files.append((table.name, path))
    return files


def _text(value: object) -> str:
    return r"\N" if value is None else str(value)


@contextmanager
def server(folder: Path) -> Iterator[Endpoint]:
    """Start an embedded server with enough WAL that checkpoints do not affect the comparison."""
    settings = (("max_wal_size", "8GB"), ("checkpoint_timeout", "30min"))
    one = Server(System(name="db", engine="postgres", host="local", provision="embedded", settings=settings), folder)
    try:
        yield one.start()
    finally:
        one.close(keep_data=False)


def workload_of(kind: str, units: int) -> Workload:
    """Return a workload of about this number of units."""
    size = {"key": math.isqrt(units)} if kind == "tptbm" else {"population": units}
    if kind == "tprocc":
        size = {"warehouses": max(1, units // UNITS_PER_WAREHOUSE)}
    return Workload(name=kind, kind=kind, parameters=to_values(built_in(kind).parameters.model_validate(size)))


def report(sides: list[Timings], rows: int, workload: Workload, workers: int) -> dict[str, Any]:
    """Print the table; return the figures for --json."""
    base = sides[1]
    units = build(workload).population.units
    print(f"{workload.kind}: {units:,} units, {rows:,} rows, {workers} workers, {len(base.ready)} rounds, medians")
    print(f"{'':24}{'rows only s':>12}{'rows/s':>12}{'ready s':>10}{'rows/s':>12}{'client CPU ns/row':>20}")
    for side in sides:
        only, ready = statistics.median(side.rows_only), statistics.median(side.ready)
        cpu = f"{statistics.median(side.client_cpu) / rows * 1e9:,.0f}" if side.client_cpu else ""
        print(f"{side.name:24}{only:12.2f}{rows / only:12,.0f}{ready:10.2f}{rows / ready:12,.0f}{cpu:>20}")
    figures: dict[str, Any] = {
        "workload": workload.kind,
        "rows": rows,
        "workers": workers,
        "sides": [vars(side) for side in sides],
        "ratios": {},
    }
    for other, target in zip(sides[1:], TARGETS, strict=False):
        only = statistics.median(other.rows_only) / statistics.median(sides[0].rows_only)
        ready = statistics.median(other.ready) / statistics.median(sides[0].ready)
        figures["ratios"][other.name] = {"rows_only": only, "ready": ready}
        print(f"proveout / {other.name}: {only:.2f} x the rate of rows, {ready:.2f} x until ready (>= {target:.2f})")
    return figures


def main() -> None:
    """Run the rounds A B C A B C …"""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=tuple(UNITS), default="hlr")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    workload = workload_of(options.workload, round(UNITS[options.workload] * options.scale))
    population = build(workload).population
    sides = [Timings("proveout"), Timings(r"\copy"), Timings(rf"\copy x {options.workers}")]
    with tempfile.TemporaryDirectory() as folder, server(Path(folder) / "server") as endpoint:
        files = write_files(Path(folder), population, options.workers)
        for folder_of_modules in Path(proveout.__path__[0]).iterdir():
            compileall.compile_dir(folder_of_modules.resolve(), quiet=2)
        copied(endpoint, population, files, options.workers, Timings("not measured"))
        rows = 0
        for _ in range(options.rounds):
            rows = ours(endpoint, workload, options.workers, sides[0])
            copied(endpoint, population, files, 1, sides[1])
            copied(endpoint, population, files, options.workers, sides[2])
    figures = report(sides, rows, workload, options.workers)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
