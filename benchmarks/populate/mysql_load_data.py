"""HLR's rows into an embedded MariaDB: our population beside the mariadb client's LOAD DATA LOCAL INFILE of ready-made
files.

    python benchmarks/populate/mysql_load_data.py [--subscribers 50000] [--rounds 3] [--json FILE]

Ours makes the rows while it loads them, with one and with two workers; the client finds them in files, in the same
order and form, and loads table after table on one connection, foreign keys and unique checks off as ours has them. The
same tables, rows only: the index and the statistics that follow are the same statements for both. Rounds are taken in
turn; medians are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from psql_copy import workload_of

from proveout.agent.engines.mysql import dsn as mysql_dsn
from proveout.agent.engines.mysql.populate import CHUNK_UNITS, SETTINGS, MysqlLoader
from proveout.agent.engines.mysql.provision import Server
from proveout.agent.engines.row_values import as_csv
from proveout.agent.load.populate_jobs import slices
from proveout.dsl.plan.topology import System
from proveout.dsl.workloads.base import Population
from proveout.dsl.workloads.kinds import build


def write_files(population: Population, folder: Path) -> int:
    """A file for each table; rows in all of them."""
    rows = 0
    for table in population.tables:
        with (folder / table.name).open("wb") as file:
            for first in range(1, population.units + 1, CHUNK_UNITS):
                made = table.rows(first, min(CHUNK_UNITS, population.units - first + 1))
                rows += len(made[0])
                file.write(as_csv(table.columns, made))
    return rows


def by_client(client: str, dsn: str, population: Population, folder: Path) -> None:
    address = mysql_dsn.parse(dsn)
    statements = [*SETTINGS]
    for table in population.tables:
        statements.append(
            f"LOAD DATA LOCAL INFILE '{folder / table.name}' INTO TABLE {table.name} CHARACTER SET utf8mb4"
            " FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"' ESCAPED BY ''"
        )
    argv = [client, "--no-defaults", "--local-infile=1", f"--socket={address.unix_socket}", f"--user={address.user}"]
    environment = os.environ | {"MYSQL_PWD": address.password}
    subprocess.run([*argv, str(address.database)], input=";\n".join(statements), text=True, check=True, env=environment)


def by_us(dsn: str, population: Population, workers: int) -> None:
    """Slices as a population's workers take them. Threads, not processes: making the rows is numpy's and Arrow's."""
    jobs = [(table, *part) for part in slices(population.units) for table in population.tables]
    taking = threading.Lock()

    def work(loader: MysqlLoader) -> None:
        while True:
            with taking:
                if not jobs:
                    return
                table, first, count = jobs.pop(0)
            loader.load(table, first, count, lambda _: None)

    loaders = [MysqlLoader(dsn, population) for _ in range(workers)]
    threads = [threading.Thread(target=work, args=(loader,)) for loader in loaders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for loader in loaders:
        loader.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subscribers", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    client = shutil.which("mariadb")
    if client is None:
        raise SystemExit("the mariadb client is not installed (Debian: apt-get install mariadb-client)")
    population = build(workload_of("hlr", options.subscribers)).population
    taken: dict[str, list[float]] = {"mariadb client": [], "ours, 1 worker": [], "ours, 2 workers": []}
    with tempfile.TemporaryDirectory(prefix="proveout-bench-") as name:
        folder = Path(name)
        rows = write_files(population, folder)
        server = Server(System(name="bench", engine="mysql", host="local", provision="embedded"), folder / "data")
        try:
            dsn = server.start().dsn
            ways = dict(
                zip(
                    taken,
                    (
                        lambda: by_client(client, dsn, population, folder),
                        lambda: by_us(dsn, population, 1),
                        lambda: by_us(dsn, population, 2),
                    ),
                    strict=True,
                )
            )
            for _ in range(options.rounds):
                for way, load in ways.items():
                    maker = MysqlLoader(dsn, population)
                    maker.prepare()
                    began = time.monotonic()
                    load()
                    taken[way].append(rows / (time.monotonic() - began))
                    assert sum(maker.count(table.name) for table in population.tables) == rows
                    maker.close()
        finally:
            server.close(keep_data=False)
    figures = {way: statistics.median(rates) for way, rates in taken.items()}
    for way, rate in figures.items():
        print(f"{way:18}{rate:12,.0f} rows/s{rate / figures['mariadb client']:8.2f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
