"""The cost of MySQL clients: proveout's, PyMySQL and mysqlclient, one SELECT by key on an embedded MariaDB, with 4 and
64 connections.

    python benchmarks/load/mysql_clients.py [--seconds 2] [--rounds 5] [--json FILE]

proveout's waits for all connections with one epoll; the other two block, so they have a thread for each connection.
Statements are those of the HLR workload: `narrow` gives 4 columns, `wide` 34. Rounds are taken in turn; medians are
printed. mysqlclient is left out where it is not installed (building it needs a C compiler and libmariadb-dev). CPU is
of this process, all threads.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import select
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from harness import Context, workload

from proveout.agent.engines.mysql import dsn as mysql_dsn
from proveout.agent.engines.mysql.driver import MysqlDriver
from proveout.agent.engines.mysql.provision import Server
from proveout.agent.load.populate import populate
from proveout.dsl.plan.topology import System
from proveout.dsl.workloads.base import Statement
from proveout.dsl.workloads.hlr import HLR_WEIGHTS, Hlr
from proveout.dsl.workloads.hlr_workload import HlrWorkload
from proveout.proto.wire.tasks import Endpoint, PopulateSystem

SUBSCRIBERS = 20_000
WIDE, NARROW = (kind.statements[0] for kind in HlrWorkload(Hlr()).transactions[:2])
STATEMENTS = {"narrow": NARROW, "wide": WIDE}


def ours(dsn: str, statement: Statement, connections: int, seconds: float) -> tuple[float, float]:
    """Measure (transactions a second, CPU µs a transaction) of proveout's wire sessions on one epoll."""
    sessions = [MysqlDriver().connect(dsn) for _ in range(connections)]
    prepared = {session.fileno(): (session, session.prepare(statement)) for session in sessions}
    poll = select.epoll()
    key = 0
    width = len(statement.arguments)
    for fd, (session, ready) in prepared.items():
        poll.register(fd, select.EPOLLIN)
        session.send(ready, (fd, 1)[:width])
    count = 0
    began, cpu = time.monotonic(), time.process_time()
    while (now := time.monotonic()) < began + seconds:
        for fd, _ in poll.poll():
            session, ready = prepared[fd]
            if session.receive():
                count += 1
                key = key % SUBSCRIBERS + 1
                session.send(ready, (key, 1)[:width])
    spent = time.process_time() - cpu
    for session in sessions:
        session.close()
    return count / (now - began), spent / count * 1e6


def blocking(connect: Callable[[], Any], statement: Statement, connections: int, seconds: float) -> tuple[float, float]:
    """The same for a DB-API client, a thread for each connection."""
    text = statement.text["mysql"]
    for number in range(1, len(statement.arguments) + 1):
        text = text.replace(f"${number}", "%s")
    width = len(statement.arguments)
    counts = [0] * connections
    opened = [connect() for _ in range(connections)]
    begin = threading.Barrier(connections + 1)
    over = threading.Event()

    def work(index: int) -> None:
        cursor, key = opened[index].cursor(), index
        begin.wait()
        while not over.is_set():
            key = key % SUBSCRIBERS + 1
            cursor.execute(text, (key, 1)[:width])
            cursor.fetchall()
            counts[index] += 1

    threads = [threading.Thread(target=work, args=(index,)) for index in range(connections)]
    for thread in threads:
        thread.start()
    begin.wait()
    began, cpu = time.monotonic(), time.process_time()
    over.wait(seconds)
    count, spent, took = sum(counts), time.process_time() - cpu, time.monotonic() - began
    over.set()
    for thread, connection in zip(threads, opened, strict=True):
        thread.join()
        connection.close()
    return count / took, spent / count * 1e6


def clients(dsn: str) -> dict[str, Callable[[Statement, int, float], tuple[float, float]]]:
    address = mysql_dsn.parse(dsn)
    found: dict[str, Callable[[Statement, int, float], tuple[float, float]]] = {
        "ours": lambda *given: ours(dsn, *given),
        f"PyMySQL {metadata.version('PyMySQL')}": lambda *given: blocking(lambda: mysql_dsn.connect(address), *given),
    }
    try:
        import MySQLdb
    except ImportError:
        print("mysqlclient is not installed: left out")
        return found

    def by_c() -> Any:
        return MySQLdb.connect(
            user=address.user,
            password=address.password,
            database=address.database,
            unix_socket=address.unix_socket,
            autocommit=True,
        )

    found[f"mysqlclient {metadata.version('mysqlclient')}"] = lambda *given: blocking(by_c, *given)
    return found


@contextmanager
def server() -> Iterator[str]:
    """The dsn of a MariaDB with HLR data."""
    with tempfile.TemporaryDirectory(prefix="proveout-bench-") as folder:
        system = System(name="bench", engine="mysql", host="local", provision="embedded")
        running = Server(system, Path(folder))
        try:
            endpoint: Endpoint = running.start()
            spec = PopulateSystem(workload=workload(SUBSCRIBERS, HLR_WEIGHTS), endpoint=endpoint, workers=2)
            asyncio.run(populate(Context(Path(folder)), spec))
            yield endpoint.dsn
        finally:
            running.close(keep_data=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    figures = []
    print(f"{'':32}{'tx/s':>10}{'CPU µs/tx':>12}")
    with server() as dsn:
        candidates = clients(dsn)
        for width, statement in STATEMENTS.items():
            for connections in (4, 64):
                taken: dict[str, list[tuple[float, float]]] = {name: [] for name in candidates}
                for _ in range(options.rounds):
                    for name, measure in candidates.items():
                        taken[name].append(measure(statement, connections, options.seconds))
                for name, values in taken.items():
                    tps = statistics.median(value[0] for value in values)
                    cpu_us = statistics.median(value[1] for value in values)
                    figures.append(
                        {"client": name, "statement": width, "connections": connections, "tps": tps, "cpu_us": cpu_us}
                    )
                    print(f"{width:7}{connections:3}  {name:20}{tps:10,.0f}{cpu_us:12.1f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
