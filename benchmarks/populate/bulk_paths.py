"""The speed of loading HLR's population into SQLite, MariaDB and the TNS server of the tests, compared with each
engine's own bulk path; one run.

    python benchmarks/populate/bulk_paths.py [--engines sqlite,mysql,oracle] [--scale X] [--rounds N] [--json FILE]

proveout's side is the whole populate task: it starts worker processes, generates rows while it loads them, creates keys
and indexes, and counts the rows. The peer loads the same rows from prepared files, in the same order, and then runs the
same statements:

- sqlite (100,000 subscribers at scale 1): the `sqlite3` shell's `.import` of CSV files, with the same pragmas;
- mysql (100,000): the `mariadb` client's LOAD DATA LOCAL INFILE of files, one connection, with the same checks off;
- oracle (2,000): a bare python-oracledb connection, `executemany` of prepared rows, as many per call as proveout. The
  server is the TNS server of tests/wire with a PostgreSQL: the ratio is the cost of proveout's part above driver and
  protocol, and does not apply to Oracle Database.

The sides take turns, and so does the first side of a round; medians are printed. An engine whose programs are not
installed is left out with a message.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
from psql_copy import Context, Timings, report, workload_of

from proveout.agent.engines.mysql import dsn as mysql_dsn
from proveout.agent.engines.mysql.populate import CHUNK_UNITS as CHUNK_OF_MYSQL
from proveout.agent.engines.mysql.populate import SETTINGS, MysqlLoader, as_csv
from proveout.agent.engines.mysql.provision import Server
from proveout.agent.engines.oracle.driver import open_connection
from proveout.agent.engines.oracle.populate import CHUNK_UNITS, OracleLoader
from proveout.agent.engines.row_values import plain_rows
from proveout.agent.engines.sqlite.populate import SqliteLoader
from proveout.agent.load.populate import populate
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.topology import System
from proveout.dsl.workloads.base import Population
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.tasks import Endpoint, PopulateSystem

sys.path.append(str(Path(__file__).resolve().parents[1] / "load"))

from harness import tns_server

UNPRIVILEGED = 65534
UNITS = {"sqlite": 100_000, "mysql": 100_000, "oracle": 2_000}
WORKERS = {"sqlite": 1, "mysql": 2, "oracle": 1}
"""Workers of proveout: SQLite has one writer; two for a server on two cores; one for the TNS server, as its peer."""


Loader = SqliteLoader | MysqlLoader | OracleLoader


@dataclass(frozen=True)
class Peer:
    """An engine's bulk path: its name, and a function that loads the rows into existing empty tables."""

    dsn: str
    name: str
    load: Callable[[], None]
    maker: Callable[[str, Population], Loader]


@contextmanager
def sqlite(folder: Path, population: Population) -> Iterator[Peer]:
    """Yield a database file with the import of the `sqlite3` shell."""
    dsn = str(folder / "data.sqlite")
    apsw.Connection(dsn).pragma("journal_mode", "WAL")
    if os.getuid() == 0:  # an agent of root works on a file as its owner, and not as root
        for path in (folder, Path(dsn)):
            os.chown(path, UNPRIVILEGED, UNPRIVILEGED)
    for table in population.tables:
        with (folder / table.name).open("w", newline="") as file:
            csv.writer(file).writerows(plain_rows(table, 1, population.units))
    lines = ["PRAGMA synchronous = OFF;", ".mode csv"]
    lines += [f".import '{folder / table.name}' {table.name}" for table in population.tables]
    text = "\n".join(lines)
    argv = ["sqlite3", "-bail", dsn]
    quiet = subprocess.DEVNULL  # the shell prints the journal mode
    yield Peer(
        dsn,
        "sqlite3 .import",
        lambda: _done(subprocess.run(argv, input=text, text=True, check=True, stdout=quiet)),
        SqliteLoader,
    )


@contextmanager
def mysql(folder: Path, population: Population) -> Iterator[Peer]:
    """Yield an embedded MariaDB with its client."""
    for table in population.tables:
        with (folder / table.name).open("wb") as file:
            for first in range(1, population.units + 1, CHUNK_OF_MYSQL):
                rows = table.rows(first, min(CHUNK_OF_MYSQL, population.units - first + 1))
                file.write(as_csv(table.columns, rows))
    settings = (("innodb_buffer_pool_size", "512M"),)
    system = System(name="db", engine="mysql", host="local", provision="embedded", settings=settings)
    server = Server(system, folder / "data")
    try:
        dsn = server.start().dsn
        yield Peer(dsn, "mariadb LOAD DATA", lambda: load_data(dsn, population, folder), MysqlLoader)
    finally:
        server.close(keep_data=False)


def load_data(dsn: str, population: Population, folder: Path) -> None:
    """Load the files of a folder with the mariadb client, table after table on one connection."""
    address = mysql_dsn.parse(dsn)
    statements = [
        *SETTINGS,
        *(
            f"LOAD DATA LOCAL INFILE '{folder / table.name}' INTO TABLE {table.name} CHARACTER SET utf8mb4"
            " FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"' ESCAPED BY ''"
            for table in population.tables
        ),
    ]
    argv = ["mariadb", "--no-defaults", "--local-infile=1", f"--socket={address.unix_socket}", f"--user={address.user}"]
    environment = os.environ | {"MYSQL_PWD": address.password}
    subprocess.run([*argv, str(address.database)], input=";\n".join(statements), text=True, check=True, env=environment)


@contextmanager
def oracle(folder: Path, population: Population) -> Iterator[Peer]:
    """Yield the TNS server with a bare connection of the driver; rows are in memory, in lists as long as proveout's."""
    made = [
        (table, list(plain_rows(table, first, min(CHUNK_UNITS, population.units - first + 1), dated=True)))
        for table in population.tables
        for first in range(1, population.units + 1, CHUNK_UNITS)
    ]
    with tns_server() as dsn:

        def load() -> None:
            connection = open_connection(dsn)
            for table, rows in made:
                marks = ", ".join(f":p{place}" for place in range(1, len(table.columns) + 1))
                names = ", ".join(name for name, _ in table.columns)
                with connection.cursor() as cursor:
                    cursor.executemany(f"INSERT INTO {table.name} ({names}) VALUES ({marks})", rows)
            connection.commit()
            connection.close()

        yield Peer(dsn, "python-oracledb executemany", load, OracleLoader)


ENGINES = {"sqlite": sqlite, "mysql": mysql, "oracle": oracle}


def _done(_: object) -> None: ...


def ours(engine: str, peer: Peer, workload: Workload, timings: Timings) -> int:
    """Load with the populate task; return the number of rows."""
    context, started = Context(), time.monotonic()
    endpoint = Endpoint(system="db", engine=engine, dsn=peer.dsn)
    spec = PopulateSystem(workload=workload, endpoint=endpoint, workers=WORKERS[engine])
    populated = asyncio.run(populate(context, spec))
    timings.ready.append(time.monotonic() - started)
    timings.rows_only.append(context.rows_in - started)
    return sum(table.rows for table in populated.tables)


def theirs(engine: str, peer: Peer, population: Population, timings: Timings) -> int:
    """Load with the engine's bulk path between the same statements; return the number of rows."""
    loader = peer.maker(peer.dsn, population)
    loader.prepare()
    started = time.monotonic()
    peer.load()
    timings.rows_only.append(time.monotonic() - started)
    for phase in population.after[engine]:  # type: ignore[index]
        for statement in phase:
            loader.execute(statement)
    loader.settle()
    timings.ready.append(time.monotonic() - started)
    rows = sum(loader.count(table.name) for table in population.tables)
    loader.close()
    return rows


def measured(engine: str, scale: float, rounds: int) -> dict[str, Any]:
    """Run the rounds of one engine; return its figures."""
    workload = workload_of("hlr", round(UNITS[engine] * scale))
    population = build(workload).population
    with tempfile.TemporaryDirectory(prefix="proveout-bench-") as name, ENGINES[engine](Path(name), population) as peer:
        sides = [Timings("proveout"), Timings(peer.name)]
        for number in range(rounds):
            turns = [
                lambda: ours(engine, peer, workload, sides[0]),
                lambda: theirs(engine, peer, population, sides[1]),
            ]
            found = {turn() for turn in (turns if number % 2 == 0 else reversed(turns))}
            assert len(found) == 1, f"the sides loaded different rows: {found}"
    return report(sides, found.pop(), workload, WORKERS[engine]) | {"engine": engine}


def missing(engine: str) -> str:
    """Return the missing programs of an engine; "" when all are installed."""
    programs = {"sqlite": ("sqlite3",), "mysql": ("mariadb", "mariadbd"), "oracle": ()}[engine]
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    return ", ".join(program for program in programs if shutil.which(program, path=path) is None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", type=lambda text: text.split(","), default=list(ENGINES), metavar="NAME,…")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    figures = []
    for engine in options.engines:
        if lacking := missing(engine):
            print(f"{engine}: left out, not installed: {lacking}")
            continue
        print(f"-- {engine}")
        figures.append(measured(engine, options.scale, options.rounds))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
