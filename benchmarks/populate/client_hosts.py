"""Populating from one and from two client hosts with a fixed number of workers each: rows per second, ratios.

    python benchmarks/populate/client_hosts.py [--workload hlr|tptbm|prepaid|tprocc] [--scale X] [--rounds N]
        [--json FILE]

A host is one process with one worker on a core of its own, and takes its share of the slices as in a run. Two settings,
in turn:

- sink: the rows are made, encoded and written to a TCP connection; a process at its other end counts bytes. This is the
  clients' part alone. The sink takes CPU time from the hosts' cores, which is printed.
- postgres: the populate task of each host loads its share into one embedded server, which shares the cores. With two
  cores, the server's part decides how far two hosts are quicker.

The rate is that from the start of the first host to the end of the last, without the start of processes for the sink,
with it for PostgreSQL.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import statistics
import tempfile
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import psycopg
from psql_copy import UNITS, Context, server, workload_of

from proveout.agent.engines.postgres.populate import Chunks
from proveout.agent.load.populate import populate
from proveout.agent.load.populate_jobs import share_of, slices
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.tasks import Endpoint, PopulateSystem

HOSTS = (1, 2)
RECEIVED_BYTES = 1 << 20


def host(workload: Workload, number: int, hosts: int, address: tuple[str, int], ready: Barrier, rows: Any) -> None:
    """One host's worker: its share of all tables to the sink."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[number % len(cores)]})
    population = build(workload).population
    chunks = [Chunks(table) for table in population.tables]
    with socket.create_connection(address) as connection:
        ready.wait()
        for first, count in share_of(slices(population.units, population.slice_units), number, number + 1, hosts):
            for table in chunks:
                for made, image in table.of(first, count):
                    connection.sendall(image)
                    rows[number] += made


def sink(listening: socket.socket, cpu_s: Any) -> None:
    """Count what arrives until all connections are closed; note the CPU time."""
    counted, buffer = 0, bytearray(RECEIVED_BYTES)
    with listening.accept()[0] as connection:
        while received := connection.recv_into(buffer):
            counted += received
    cpu_s.value = time.process_time()


def into_sink(workload: Workload, hosts: int) -> tuple[float, float]:
    """Rows per second of so many hosts, and the CPU of the sinks as a share of the time."""
    start = multiprocessing.get_context("fork")
    ready, rows = start.Barrier(hosts + 1), start.Array("q", hosts)
    used = [start.Value("d", 0.0) for _ in range(hosts)]
    processes = []
    for number in range(hosts):
        listening = socket.create_server(("127.0.0.1", 0))
        arguments = (workload, number, hosts, listening.getsockname(), ready, rows)
        processes += [
            start.Process(target=sink, args=(listening, used[number])),
            start.Process(target=host, args=arguments),
        ]
    for process in processes:
        process.start()
    ready.wait()
    began = time.monotonic()
    for process in processes:
        process.join()
    lasted = time.monotonic() - began
    if any(process.exitcode for process in processes):
        raise SystemExit("a host or its sink failed")
    return sum(rows[:]) / lasted, sum(float(one.value) for one in used) / lasted


async def loaded(workload: Workload, endpoint: Endpoint, hosts: int) -> None:
    """Load the tables, made before, from so many hosts with one worker each."""
    parts = (
        PopulateSystem(
            workload=workload,
            endpoint=endpoint,
            workers=1,
            steps=("load",),
            share_from=number,
            share_to=number + 1,
            shares=hosts,
        )
        for number in range(hosts)
    )
    await asyncio.gather(*(populate(Context(), part) for part in parts))


def into_postgres(workload: Workload, endpoint: Endpoint, hosts: int) -> float:
    """Rows per second of so many hosts."""
    population = build(workload).population
    with psycopg.connect(endpoint.dsn, autocommit=True) as connection:
        for statement in (*population.drop["postgres"], *population.before["postgres"], "CHECKPOINT"):
            connection.execute(statement)
        began = time.monotonic()
        asyncio.run(loaded(workload, endpoint, hosts))
        lasted = time.monotonic() - began
        counts = [connection.execute(f"SELECT count(*) FROM {table.name}") for table in population.tables]
        rows = sum(int(count.fetchall()[0][0]) for count in counts)
        for statement in population.drop["postgres"]:
            connection.execute(statement)
    return rows / lasted


def main() -> None:
    """Run the rounds: sink 1, sink 2, PostgreSQL 1, PostgreSQL 2, …"""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=tuple(UNITS), default="hlr")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    workload = workload_of(options.workload, round(UNITS[options.workload] * options.scale))
    rates: dict[str, list[float]] = {f"{into}, {hosts}": [] for into in ("sink", "postgres") for hosts in HOSTS}
    shares: list[float] = []
    with tempfile.TemporaryDirectory() as folder, server(Path(folder) / "server") as endpoint:
        for _ in range(options.rounds):
            for hosts in HOSTS:
                rate, share = into_sink(workload, hosts)
                rates[f"sink, {hosts}"].append(rate)
                shares.append(share)
            for hosts in HOSTS:
                rates[f"postgres, {hosts}"].append(into_postgres(workload, endpoint, hosts))
    print(f"{options.workload}: {options.rounds} rounds, medians, one worker a host, {os.cpu_count()} cores")
    medians = {name: statistics.median(values) for name, values in rates.items()}
    for name, rate in medians.items():
        print(f"{name + ' host(s)':24}{rate:14,.0f} rows/s")
    ratios = {into: medians[f"{into}, 2"] / medians[f"{into}, 1"] for into in ("sink", "postgres")}
    print(f"two hosts / one: {ratios['sink']:.2f} into the sink, {ratios['postgres']:.2f} into PostgreSQL")
    print(f"the sinks' CPU: up to {max(shares):.0%} of a core")
    if options.json:
        options.json.write_text(json.dumps({"rates": rates, "ratios": ratios, "sink_cpu": shares}, indent=2) + "\n")


if __name__ == "__main__":
    main()
