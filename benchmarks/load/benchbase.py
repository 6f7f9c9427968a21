"""HLR beside BenchBase's TATP: one PostgreSQL over TCP, as many subscribers and terminals, in one run, in turn;
medians, ratio.

    python benchmarks/load/benchbase.py FOLDER [--java java] [--terminals 4 64] [--seconds 10] [--rounds 3] [--json
    FILE]

FOLDER is BenchBase's distribution for PostgreSQL, unpacked (`mvn -P postgres package`, then benchbase-postgres.tgz),
and java one that runs it. Both run closed, unlimited, with the same weights, READ COMMITTED, synchronous_commit off, on
a database of their own. Its TATP is not the specification's: misses count as success, start times are 0, 8 and 6, and
access types are drawn once for all subscribers; so the two do nearly, not exactly, the same work.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from harness import Context, Figures, run, workload

from proveout.agent.engines.postgres.installation import find_installation
from proveout.agent.load.populate import populate
from proveout.dsl.workloads.hlr import HLR_WEIGHTS
from proveout.proto.wire.tasks import Endpoint, PopulateSystem

SUBSCRIBERS = 100_000  # BenchBase's scale factor 1
NOBODY = 65534
START_S = 30.0
# the order in which BenchBase lists them
TRANSACTIONS = {
    "DeleteCallForwarding": "DeleteCallForwarding",
    "GetAccessData": "GetAccessData",
    "GetNewDestination": "GetNewDestination",
    "GetSubscriberData": "GetBasicSubscriberData",
    "InsertCallForwarding": "InsertCallForwarding",
    "UpdateLocation": "UpdateLocation",
    "UpdateSubscriberData": "UpdateSubscriberData",
}
SETTINGS = ("synchronous_commit=off", "shared_buffers=256MB", "max_connections=200", "max_wal_size=4GB")


@contextmanager
def server(folder: Path) -> Iterator[tuple[int, str]]:
    """A PostgreSQL of the wheel on a loopback port, for JDBC has no Unix sockets: (port, the superuser's password)."""
    programs, password = find_installation().programs, secrets.token_hex(16)
    folder.chmod(0o711)
    home = folder / "server"
    home.mkdir()
    (home / "password").write_text(password)
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        for path in (home, home / "password"):
            os.chown(path, NOBODY, NOBODY)
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    argv = [str(programs / "initdb"), "-D", str(home / "data"), "-U", "bench", "-A", "scram-sha-256", "-E", "UTF8"]
    subprocess.run([*argv, f"--pwfile={home / 'password'}"], check=True, capture_output=True, cwd=home, **user)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    options = [
        part for setting in (*SETTINGS, f"port={port}", f"unix_socket_directories={home}") for part in ("-c", setting)
    ]
    running = subprocess.Popen(
        [str(programs / "postgres"), "-D", str(home / "data"), *options], cwd=home, stderr=subprocess.DEVNULL, **user
    )
    try:
        yield port, password
    finally:
        running.terminate()
        running.wait()


def database(port: int, password: str, name: str) -> str:
    """The conninfo of a new database."""
    given = f"host=127.0.0.1 port={port} user=bench password={password} sslmode=disable"
    deadline = time.monotonic() + START_S
    while True:
        try:
            with psycopg.connect(f"{given} dbname=postgres", autocommit=True) as connection:
                connection.execute(f'CREATE DATABASE "{name}"')
                return f"{given} dbname={name}"
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


class BenchBase:
    """BenchBase's TATP on a database of its own."""

    def __init__(self, options: argparse.Namespace, folder: Path, port: int, password: str) -> None:
        self._home, self._java, self._folder = options.folder.resolve(), options.java, folder
        self._port, self._password = port, password

    def load(self) -> None:
        """Create and load its tables."""
        self._run(self._configuration(1, 1), "--create=true", "--load=true")

    def run(self, terminals: int, seconds: int) -> Figures:
        """Run for some seconds, after as many of warm-up; CPU is the whole process's, with its start, over both."""
        results = self._folder / f"results-{time.monotonic_ns()}"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self._run(self._configuration(terminals, seconds), "--execute=true", "-d", str(results))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        (summary,) = results.glob("*.summary.json")
        told = json.loads(summary.read_text())
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Figures(float(told["Throughput (requests/second)"]), cpu_s / (2 * told["Measured Requests"]) * 1e6)

    def _configuration(self, terminals: int, seconds: int) -> Path:
        weights = ", ".join(f"{HLR_WEIGHTS[ours]:g}" for ours in TRANSACTIONS.values())
        types = "".join(f"<transactiontype><name>{name}</name></transactiontype>" for name in TRANSACTIONS)
        file = self._folder / "tatp.xml"
        file.write_text(
            "<parameters><type>POSTGRES</type><driver>org.postgresql.Driver</driver>"
            f"<url>jdbc:postgresql://127.0.0.1:{self._port}/benchbase?sslmode=disable</url>"
            f"<username>bench</username><password>{self._password}</password>"
            "<isolation>TRANSACTION_READ_COMMITTED</isolation><batchsize>128</batchsize>"
            f"<scalefactor>{SUBSCRIBERS / 100_000:g}</scalefactor><terminals>{terminals}</terminals>"
            f"<works><work><warmup>{seconds}</warmup><time>{seconds}</time><rate>unlimited</rate>"
            f"<weights>{weights}</weights></work></works><transactiontypes>{types}</transactiontypes></parameters>"
        )
        file.chmod(0o600)
        return file

    def _run(self, configuration: Path, *verbs: str) -> None:
        argv = [self._java, "-jar", "benchbase.jar", "-b", "tatp", "-c", str(configuration), *verbs]
        done = subprocess.run(argv, cwd=self._home, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"BenchBase failed: {(done.stdout + done.stderr).strip()[-2000:]}")


async def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Every number of terminals: rounds of BenchBase, ours."""
    lines = []
    with tempfile.TemporaryDirectory(prefix="proveout-bench-", dir="/var/tmp") as name:
        folder = Path(name)
        with server(folder) as (port, password):
            database(port, password, "benchbase")
            hlr = workload(SUBSCRIBERS, HLR_WEIGHTS)
            endpoint = Endpoint(system="target", engine="postgres", dsn=database(port, password, "proveout"))
            context, peer = Context(folder), BenchBase(options, folder, port, password)
            try:
                await asyncio.to_thread(peer.load)
                await populate(context, PopulateSystem(workload=hlr, endpoint=endpoint, workers=2))
                for terminals in options.terminals:
                    theirs, ours = [], []
                    for seed in range(options.rounds):
                        theirs.append(await asyncio.to_thread(peer.run, terminals, options.seconds))
                        ours.append(
                            await run(context, endpoint, hlr, connections=terminals, seconds=options.seconds, seed=seed)
                        )
                    lines.append(line(terminals, theirs, ours))
            finally:
                await asyncio.shield(context.close())
    return lines


def line(terminals: int, theirs: list[Figures], ours: list[Figures]) -> dict[str, Any]:
    """Print medians and ratios; the figures for --json."""
    rates = [statistics.median(f.tps for f in side) for side in (theirs, ours)]
    cpu = [statistics.median(f.cpu_us for f in side) for side in (theirs, ours)]
    print(
        f"{terminals:3} terminals: BenchBase {rates[0]:8,.0f} TPS, {cpu[0]:5.1f} µs of client CPU;"
        f" proveout {rates[1]:8,.0f} TPS, {cpu[1]:5.1f} µs;"
        f" rate {rates[1] / rates[0]:.2f} x, CPU {cpu[1] / cpu[0]:.2f} x",
        flush=True,
    )
    return {"terminals": terminals, "tps": rates, "cpu_us": cpu, "tps_ratio": rates[1] / rates[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="BenchBase's distribution for PostgreSQL, unpacked")
    parser.add_argument("--java", default="java", help="a Java that runs it")
    parser.add_argument("--terminals", type=int, nargs="+", default=[4, 64])
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    lines = asyncio.run(compare(options))
    print("target: rate >= 1.30 x BenchBase's")
    if options.json:
        options.json.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
