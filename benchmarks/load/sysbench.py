"""The load engine beside sysbench on MariaDB: the same statements, tables and connections, in one run, A B A B;
ratios of medians.

    python benchmarks/load/sysbench.py [--seconds 3] [--rounds 9] [--connections 4 64] [--workers 2] [--core N]
        [--json FILE]

Both run closed, with prepared statements, against one embedded MariaDB on this machine over
its Unix socket, with innodb_flush_log_at_trx_commit off. `point select` is oltp_point_select; `read/write` is
oltp_read_write without its range statements: BEGIN, a SELECT, two UPDATEs and COMMIT. Ours are the same texts as
`kind: sql`. sysbench always has a thread for each connection, ours `--workers` processes. CPU is the client's, user and
system: ours with the agent process that merges, sysbench's without its start. Needs sysbench.

With few connections the rates depend on where the kernel places clients and server threads: a wake-up on another core
costs more than the transaction. `--core` puts server and clients on one core, which shows what the clients themselves
cost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from harness import WORKERS, Context, Figures, run, worker_count

from proveout.agent.engines.mysql import dsn as mysql_dsn
from proveout.agent.engines.mysql.provision import Server
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.topology import System
from proveout.dsl.workloads.sql import Custom

ROWS = 100_000
KEY = {"uniform": [1, ROWS]}
SELECT = {"sql": "SELECT c FROM sbtest1 WHERE id=:id", "expect_rows": "some"}
POINT = {"binds": {"id": KEY}, "statements": {"select": SELECT}}
READ_WRITE = {
    "binds": {"id": KEY, "k_id": KEY, "c_id": KEY, "c": {"text": 119, "alphabet": "0123456789-"}},
    "statements": {
        "select": SELECT,
        "index": {"sql": "UPDATE sbtest1 SET k=k+1 WHERE id=:k_id", "expect_rows": "any"},
        "other": {"sql": "UPDATE sbtest1 SET c=:c WHERE id=:c_id", "expect_rows": "any"},
    },
}
SCRIPTS: Mapping[str, tuple[dict[str, object], tuple[str, ...]]] = {
    "point select": (POINT, ("oltp_point_select",)),
    "read/write": (
        READ_WRITE,
        ("oltp_read_write", "--point-selects=1", "--range-selects=off", "--delete-inserts=0"),
    ),
}
SETTINGS = (
    ("innodb_flush_log_at_trx_commit", "0"),
    ("innodb_buffer_pool_size", "256M"),
    ("innodb_log_file_size", "1G"),
)


def stated(name: str) -> Workload:
    model = Custom.model_validate({"transactions": {name.replace(" ", "_").replace("/", "_"): SCRIPTS[name][0]}})
    return Workload(name="stated", kind="sql", parameters=to_values(model))


class Sysbench:
    """sysbench on one server."""

    def __init__(self, dsn: str) -> None:
        address = mysql_dsn.parse(dsn)
        self._program = shutil.which("sysbench") or sys.exit("sysbench is not installed: apt-get install sysbench")
        self._common = (
            "--db-driver=mysql",
            f"--mysql-socket={address.unix_socket}",
            f"--mysql-user={address.user}",
            f"--mysql-password={address.password}",
            f"--mysql-db={address.database}",
            f"--table-size={ROWS}",
            "--rand-type=uniform",
        )

    def prepare(self) -> None:
        self._call("oltp_common", "prepare")

    def run(self, script: tuple[str, ...], connections: int, seconds: int, seed: int) -> Figures:
        """Run for some seconds; CPU without what starting and connecting costs."""
        load = (*script, f"--threads={connections}", f"--rand-seed={seed}")
        count, seconds_s, cpu_s = self._run(*load, f"--time={seconds}", "--events=0")
        _, _, start_s = self._run(*load, "--time=0", f"--events={connections}")
        return Figures(count / seconds_s, (cpu_s - start_s) / count * 1e6)

    def _run(self, *arguments: str) -> tuple[int, float, float]:
        """(transactions, seconds, CPU seconds)."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        text = self._call(*arguments, "run")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        count, taken = re.search(r"transactions: +(\d+)", text), re.search(r"total time: +([\d.]+)s", text)
        assert count and taken, text
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return int(count[1]), float(taken[1]), cpu_s

    def _call(self, script: str, *arguments: str) -> str:
        argv = [self._program, script, *self._common, *arguments]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"sysbench failed: {(done.stderr or done.stdout).strip()[-2000:]}")
        return done.stdout


async def compare(arguments: argparse.Namespace) -> list[dict[str, object]]:
    """Every script at every number of connections: rounds of sysbench, ours."""
    lines = []
    with tempfile.TemporaryDirectory(prefix="proveout-bench-") as folder:
        system = System(name="bench", engine="mysql", host="here", provision="embedded", settings=SETTINGS)
        server, context, seed = Server(system, Path(folder)), Context(Path(folder)), 0
        try:
            endpoint = server.start()
            sysbench = Sysbench(endpoint.dsn)
            sysbench.prepare()
            for name, (_, script) in SCRIPTS.items():
                for connections in arguments.connections:
                    theirs, ours = [], []
                    for _ in range(arguments.rounds):
                        seed += 1
                        peer = (script, connections, arguments.seconds, seed)
                        theirs.append(await asyncio.to_thread(sysbench.run, *peer))
                        load = run(
                            context,
                            endpoint,
                            stated(name),
                            connections=connections,
                            seconds=arguments.seconds,
                            seed=seed,
                            workers=arguments.workers,
                        )
                        ours.append(await load)
                    lines.append(line(name, connections, theirs, ours))
                    print(text(lines[-1]), flush=True)
        finally:
            await asyncio.shield(context.close())
            server.close(keep_data=False)
    return lines


def line(script: str, connections: int, theirs: list[Figures], ours: list[Figures]) -> dict[str, object]:
    """Medians of both, and the ratios ours / sysbench."""
    tps = [statistics.median(f.tps for f in side) for side in (theirs, ours)]
    cpu_us = [statistics.median(f.cpu_us for f in side) for side in (theirs, ours)]
    return {
        "script": script,
        "connections": connections,
        "sysbench_tps": tps[0],
        "proveout_tps": tps[1],
        "tps_ratio": tps[1] / tps[0],
        "sysbench_cpu_us": cpu_us[0],
        "proveout_cpu_us": cpu_us[1],
        "cpu_ratio": cpu_us[1] / cpu_us[0],
        "merging_us": statistics.median(f.merging_us for f in ours),
    }


HEAD = (
    f"{'':14}{'conns':>6}{'sysbench':>12}{'proveout':>12}{'rate':>8}{'sysbench':>12}{'proveout':>12}"
    f"{'CPU':>8}{'merging':>10}\n"
    f"{'':14}{'':>6}{'tps':>12}{'tps':>12}{'ratio':>8}{'CPU µs':>12}{'CPU µs':>12}{'ratio':>8}{'CPU µs':>10}"
)


def text(of: Mapping[str, object]) -> str:
    """A row of the table."""
    return (
        f"{of['script']:14}{of['connections']:>6}{of['sysbench_tps']:>12,.0f}{of['proveout_tps']:>12,.0f}"
        f"{of['tps_ratio']:>8.2f}{of['sysbench_cpu_us']:>12.1f}{of['proveout_cpu_us']:>12.1f}"
        f"{of['cpu_ratio']:>8.2f}{of['merging_us']:>10.2f}"
    )


def core(text: str) -> int:
    cores = os.sched_getaffinity(0)
    if not text.isdecimal() or int(text) not in cores:
        raise argparse.ArgumentTypeError(f"{text!r} is none of the cores {', '.join(map(str, sorted(cores)))}")
    return int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description="The load engine beside sysbench on MariaDB: rate and client CPU.")
    parser.add_argument("--seconds", type=int, default=3, help="length of each measurement")
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each, taken in turn; the median counts")
    parser.add_argument("--connections", type=int, nargs="+", default=[4, 64])
    parser.add_argument("--workers", type=worker_count, default=WORKERS, help="our processes, at most --connections")
    parser.add_argument("--core", type=core, help="run the server and both clients on this core only")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    if arguments.core is not None:
        os.sched_setaffinity(0, {arguments.core})
    print(HEAD)
    lines = asyncio.run(compare(arguments))
    print("ratios are ours over sysbench's; targets: rate >= 1.00, CPU <= 1.00")
    if arguments.json:
        arguments.json.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
