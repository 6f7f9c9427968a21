"""NOPM of TPROC-C beside go-tpc's TPC-C: one PostgreSQL, as many warehouses and users, in one run, in turn; medians,
ratios.

    python benchmarks/load/gotpc.py GO_TPC [--warehouses 4] [--users 4] [--seconds 20] [--rounds 3] [--json FILE]

GO_TPC is the program `go-tpc` (github.com/pingcap/go-tpc). Both load their own database of one embedded server
(synchronous_commit off, a Unix socket), run without keying and think times, and count new orders that were committed.
Ours runs three times: with SQL from the client, which is nearly go-tpc's statement for statement, with the same
statements in pipelines, and with stored procedures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import resource
import secrets
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from harness import Context
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from proveout.agent.engines.handlers import start_system
from proveout.agent.engines.postgres.roles import administration
from proveout.agent.load.populate import populate
from proveout.agent.load.run_load import run_load
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Windows
from proveout.dsl.plan.topology import System
from proveout.dsl.workloads.tprocc import Tprocc
from proveout.proto.wire.tasks import Endpoint, LoadShare, PopulateSystem, RunLoad, StartSystem

RAMP_S = 2
SETTINGS = (
    ("max_connections", "200"),
    ("shared_buffers", "512MB"),
    ("max_wal_size", "8GB"),
    ("synchronous_commit", "off"),
)
TICKS = os.sysconf("SC_CLK_TCK")
TPMC = re.compile(r"tpmC: ([\d.]+)")


WAYS: dict[str, dict[str, bool]] = {"SQL": {}, "pipeline": {"pipeline": True}, "procedures": {"procedures": True}}


def workload(warehouses: int, way: str) -> Workload:
    """TPROC-C of that size, with its statements sent in one of the `WAYS`."""
    parameters = to_values(Tprocc(warehouses=warehouses, **WAYS[way]))
    return Workload(name="orders", kind="tprocc", parameters=parameters)


def database(endpoint: Endpoint, name: str) -> str:
    """The conninfo of a new database with an owner of its own.

    The server's own users have passwords of one SCRAM iteration, which go-tpc's driver refuses.
    """
    password = secrets.token_hex(16)
    with psycopg.connect(administration(endpoint), autocommit=True) as connection:
        connection.execute("SET scram_iterations = 4096")
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
        connection.execute(f"CREATE DATABASE {name} OWNER {name}")
    return make_conninfo(endpoint.dsn, dbname=name, user=name, password=password)


class GoTpc:
    """go-tpc on one database."""

    def __init__(self, program: Path, dsn: str, warehouses: int) -> None:
        self._program, self._given, self._warehouses = program, conninfo_to_dict(dsn), warehouses

    def prepare(self) -> None:
        """Create and load its tables."""
        self._run("prepare", "-T", "2", "--no-check")

    def nopm(self, users: int, seconds: int) -> float:
        """New orders committed a minute."""
        told = self._run("run", "-T", str(users), "--time", f"{seconds}s")
        found = TPMC.findall(told)
        if not found:
            sys.exit(f"go-tpc gave no tpmC: {told[-2000:]}")
        return float(found[-1])

    def _run(self, verb: str, *options: str) -> str:
        given = {name: str(value) for name, value in self._given.items()}
        socket = f"sslmode=disable&host={quote(given['host'], safe='')}&port={given['port']}"
        argv = [str(self._program), "tpcc", verb, "-d", "postgres", "-U", given["user"], "-p", given["password"]]
        # Of two hosts its driver takes the one that sorts last, and a socket's folder can only be given as a parameter
        argv += ["-H", "-", "-P", given["port"]]
        argv += ["-D", given["dbname"], "--warehouses", str(self._warehouses), "--conn-params", socket, *options]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"go-tpc {verb} failed: {(done.stderr + done.stdout).strip()[-2000:]}")
        return done.stdout


class Cpu:
    """CPU time of the client and of the server between two calls. Backends count when they have ended."""

    def __init__(self, endpoint: Endpoint, context: Context) -> None:
        with psycopg.connect(administration(endpoint)) as connection:
            (data,) = connection.execute("SHOW data_directory").fetchone() or ("",)
        self._postmaster = Path(data, "postmaster.pid").read_text().split()[0]
        self._context = context
        self._client_s, self._server_s = self._read()

    def _read(self) -> tuple[float, float]:
        """go-tpc has ended and is counted with the children; our workers still run."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        pools: list[Any] = [each for each in self._context.resources.values() if hasattr(each, "workers")]
        workers = sum(of_process(worker.pid, 2) for pool in pools for worker in pool.workers)
        return used.ru_utime + used.ru_stime + workers, of_process(self._postmaster, 4)

    def since(self) -> tuple[float, float]:
        """Seconds of (client, server) since the last call."""
        before, (self._client_s, self._server_s) = (self._client_s, self._server_s), self._read()
        return self._client_s - before[0], self._server_s - before[1]


def of_process(pid: int | str, fields: int) -> float:
    """CPU time of a process, s: its own (2 fields), or that of its ended children too (4)."""
    found = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, found[11 : 11 + fields])) / TICKS


async def ours(context: Context, endpoint: Endpoint, orders: Workload, users: int, seconds: int, seed: int) -> float:
    """New orders committed a minute; exits when the load had errors."""
    spec = RunLoad(
        workload=orders,
        endpoint=endpoint,
        share=LoadShare(first=0, count=users, total=users),
        windows=Windows(ramp_up_s=RAMP_S, measure_s=seconds, ramp_down_s=0.0),
        workers=2,
        seed=seed,
        label="benchmark",
    )
    result = await run_load(context, spec)
    if result.first_errors or result.samples_lost:
        sys.exit(f"the load had errors: {result.first_errors}, samples lost: {result.samples_lost}")
    length_s = (result.measure_end_ns - result.measure_start_ns) / 1e9
    return next(t.counts.ok for t in result.transactions if t.counts.name == "NewOrder") / length_s * 60.0


async def measured(options: argparse.Namespace, context: Context, folder: str) -> dict[str, list[Round]]:
    system = System(name="target", engine="postgres", host="here", provision="embedded", settings=SETTINGS)
    started = await start_system(context, StartSystem(system=system, data_root=f"{folder}/data"))
    peer = GoTpc(options.program, database(started.endpoint, "gotpc"), options.warehouses)
    await asyncio.to_thread(peer.prepare)
    endpoint = Endpoint(system="target", engine="postgres", dsn=database(started.endpoint, "tprocc"))
    each = {way: workload(options.warehouses, way) for way in WAYS}
    await populate(context, PopulateSystem(workload=each["procedures"], endpoint=endpoint, workers=2))
    rounds: dict[str, list[Round]] = {name: [] for name in ("go-tpc", *each)}
    cpu = Cpu(started.endpoint, context)
    for seed in range(options.rounds):
        rate = await asyncio.to_thread(peer.nopm, options.users, options.seconds + RAMP_S)
        rounds["go-tpc"].append(Round(rate, rate * (options.seconds + RAMP_S) / 60, *await ended(cpu)))
        for name, orders in each.items():
            rate = await ours(context, endpoint, orders, options.users, options.seconds, seed)
            rounds[name].append(Round(rate, rate * (options.seconds + RAMP_S) / 60, *await ended(cpu)))
    return rounds


@dataclass(frozen=True)
class Round:
    """One round: NOPM, new orders of the whole round (that of the measure window, ramp-up included), CPU time."""

    nopm: float
    orders: float
    client_s: float
    server_s: float

    def us(self, seconds: float) -> float:
        """Time per new order, µs."""
        return seconds / self.orders * 1e6


async def ended(cpu: Cpu) -> tuple[float, float]:
    """The CPU time of a round, when its backends have ended."""
    await asyncio.sleep(1.0)
    return cpu.since()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path, help="the program go-tpc")
    parser.add_argument("--warehouses", type=int, default=4)
    parser.add_argument("--users", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="proveout-bench-") as folder:
        context = Context(Path(folder))
        try:
            rounds = await measured(options, context, folder)
        finally:
            await asyncio.shield(context.close())
    report(options, rounds)


def report(options: argparse.Namespace, rounds: dict[str, list[Round]]) -> None:
    """Print the table; the figures for --json."""
    print(
        f"{options.warehouses} warehouses, {options.users} users, {options.rounds} rounds of {options.seconds} s,"
        " medians; CPU time per new order of client and server"
    )
    peer = statistics.median(each.nopm for each in rounds["go-tpc"])
    figures: dict[str, Any] = {"rounds": {name: [asdict(one) for one in each] for name, each in rounds.items()}}
    figures["ratios"] = {}
    for name, each in rounds.items():
        median = statistics.median(one.nopm for one in each)
        client = statistics.median(one.us(one.client_s) for one in each)
        server = statistics.median(one.us(one.server_s) for one in each)
        figures["ratios"][name] = median / peer
        rates = ", ".join(f"{one.nopm:,.0f}" for one in each)
        print(
            f"{name:12}{median:10,.0f} NOPM {median / peer:6.2f} x go-tpc  client {client:6,.0f} µs  server"
            f" {server:6,.0f} µs   (rounds: {rates})"
        )
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
