"""The load engine on DuckDB beside a bare loop of DuckDB's client for Python: the same query of some milliseconds, the
same file, one connection each and one thread of DuckDB, in one run, A B A B; the median of the rounds' ratios.

    python benchmarks/load/duckdb_loop.py [--seconds 3] [--rounds 9] [--json FILE]

The loop executes and fetches all rows in a process of its own; ours draws, paces, records and sends its records to the
agent too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import Context, run
from sqlite_loop import give

from proveout.agent.engines.handlers import start_system
from proveout.agent.load.populate import populate
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.topology import System
from proveout.dsl.rules import settings
from proveout.dsl.workloads.kinds import build
from proveout.dsl.workloads.sql import Custom
from proveout.proto.wire.tasks import PopulateSystem, StartSystem

ROWS = 500_000
SQL = "SELECT g, count(*), sum(v) FROM item WHERE v > :low GROUP BY g ORDER BY g"
TARGET = 0.99
LOOP = """
import sys, time, random, duckdb
path, sql, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
connection = duckdb.connect(path, read_only=True, config={"threads": 1})
(statement,) = connection.extract_statements(sql)
random.seed(7)
done, began = 0, time.monotonic()
while (now := time.monotonic()) < began + seconds:
    connection.execute(statement, (random.randint(1, 1000),)).fetchall()
    done += 1
print(done / (now - began))
"""


def stated() -> Workload:
    table = {
        "rows": ROWS,
        "create": "CREATE TABLE item (id integer, g integer, v integer)",
        "columns": {"id": {"sequence": 1}, "g": {"uniform": [1, 100]}, "v": {"uniform": [1, 1_000_000]}},
    }
    entry = {"binds": {"low": {"uniform": [1, 1000]}}, "statements": {"sums": {"sql": SQL, "expect_rows": "some"}}}
    model = Custom.model_validate({"tables": {"item": table}, "transactions": {"sums": entry}})
    return Workload(name="stated", kind="sql", parameters=to_values(model))


def loop(path: str, seconds: float) -> float:
    """Queries a second of the bare loop."""
    sql = build(stated()).transactions[0].statements[0].text["duckdb"]
    argv = [sys.executable, "-c", LOOP, path, sql, str(seconds)]
    return float(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)


async def compare(seconds: float, rounds: int) -> dict[str, float]:
    """Rounds of the loop, ours."""
    theirs: list[float] = []
    ours: list[float] = []
    with tempfile.TemporaryDirectory(prefix="proveout-bench-") as folder:
        context = Context(Path(folder))
        system = System(name="file", engine="duckdb", host="here", provision="embedded", settings=(("threads", "1"),))
        try:
            started = await start_system(context, StartSystem(system=system, data_root=f"{folder}/data"))
            path, _ = settings.split_dsn(started.endpoint.dsn)
            give(Path(path))
            await populate(context, PopulateSystem(workload=stated(), endpoint=started.endpoint, workers=1))
            for number in range(rounds):
                theirs.append(await asyncio.to_thread(loop, path, seconds))
                figures = await run(
                    context, started.endpoint, stated(), connections=1, seconds=seconds, seed=number + 1, workers=1
                )
                ours.append(figures.tps)
        finally:
            await asyncio.shield(context.close())
    return {
        "loop_ms": 1e3 / statistics.median(theirs),
        "proveout_ms": 1e3 / statistics.median(ours),
        "tps_ratio": statistics.median(b / a for a, b in zip(theirs, ours, strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="The load engine on DuckDB beside a bare loop of its client.")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each measurement")
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each, taken in turn; the median counts")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    figures = asyncio.run(compare(arguments.seconds, arguments.rounds))
    print(
        f"bare loop {figures['loop_ms']:.3f} ms a query, proveout {figures['proveout_ms']:.3f} ms,"
        f" rate ratio {figures['tps_ratio']:.3f}; target: >= {TARGET:.2f}"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
