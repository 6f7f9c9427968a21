"""The load engine on SQLite beside a loop in C: the same prepared SELECT by key, the same keys, on the same file, one
connection each, in one run, A B A B; ratios of medians.

    python benchmarks/load/sqlite_loop.py [--seconds 2] [--rounds 7] [--json FILE]

The loop (sqlite_loop.c) binds, steps, reads all columns and resets; it draws no keys, reads no clock for a statement
and records nothing. It is compiled with gcc against the system's SQLite, whose version may differ from the one in
apsw. Needs gcc and libsqlite3-dev. CPU is the client's, user and system, which on SQLite contains the database: ours
with the agent process that merges.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path

from harness import Context, Figures, run

from proveout.agent.engines.handlers import start_system
from proveout.agent.load.loop.terminal import stream_of
from proveout.agent.load.populate import populate
from proveout.agent.sandbox.privileges import Privileges
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.topology import System
from proveout.dsl.workloads.kinds import build
from proveout.dsl.workloads.sql import Custom
from proveout.proto.wire.tasks import PopulateSystem, StartSystem

ROWS = 100_000
KEYS = 1 << 18
SQL = "SELECT k, c FROM item WHERE id = :id"
SEED = 7
TARGET = 0.7


def stated() -> Workload:
    table = {
        "rows": ROWS,
        "create": "CREATE TABLE item (id integer PRIMARY KEY, k integer NOT NULL, c text NOT NULL)",
        "columns": {"id": {"sequence": 1}, "k": {"uniform": [1, ROWS]}, "c": {"text": 60}},
    }
    entry = {"binds": {"id": {"uniform": [1, ROWS]}}, "statements": {"select": {"sql": SQL, "expect_rows": "some"}}}
    model = Custom.model_validate({"tables": {"item": table}, "transactions": {"read": entry}})
    return Workload(name="stated", kind="sql", parameters=to_values(model))


def write_keys(file: Path) -> None:
    """Write the keys of our only terminal."""
    (requests,) = build(stated()).keys(stream_of(SEED, 0))
    keys = [arguments[0] for _, arguments in islice(iter(requests, None), KEYS)]
    file.write_bytes(struct.pack(f"{KEYS}q", *keys))


def compiled(folder: Path) -> Path:
    """The loop in C."""
    gcc = shutil.which("gcc") or sys.exit("gcc is not installed")
    source, program = Path(__file__).with_suffix(".c"), folder / "sqlite_loop"
    done = subprocess.run([gcc, "-O2", "-o", program, source, "-lsqlite3"], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"the loop was not compiled (libsqlite3-dev?): {done.stderr.strip()[-1000:]}")
    return program


def give(file: Path) -> None:
    """Where this is run by root, the load is another user's: let that one write the file."""
    if os.geteuid() == 0:
        user = Privileges.for_engine("sqlite")
        file.parents[2].chmod(0o755)
        for path in (file.parent, *file.parent.iterdir()):
            os.chown(path, user.uid, user.gid)


def loop(program: Path, file: str, keys: Path, seconds: float) -> Figures:
    """The loop in C for some seconds."""
    argv = [program, file, SQL, keys, str(seconds)]
    done, taken_s, cpu_s, _ = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    return Figures(int(done) / float(taken_s), float(cpu_s) / int(done) * 1e6)


async def compare(seconds: float, rounds: int) -> dict[str, float]:
    """Rounds of the loop, ours."""
    theirs: list[Figures] = []
    ours: list[Figures] = []
    with tempfile.TemporaryDirectory(prefix="proveout-bench-") as folder:
        program, keys, context = compiled(Path(folder)), Path(folder) / "keys", Context(Path(folder))
        write_keys(keys)
        system = System(name="file", engine="sqlite", host="here", provision="embedded")
        try:
            started = await start_system(context, StartSystem(system=system, data_root=f"{folder}/data"))
            endpoint = started.endpoint
            give(Path(endpoint.dsn))
            await populate(context, PopulateSystem(workload=stated(), endpoint=endpoint, workers=1))
            for _ in range(rounds):
                theirs.append(await asyncio.to_thread(loop, program, endpoint.dsn, keys, seconds))
                options = {"connections": 1, "seconds": seconds, "seed": SEED, "workers": 1}
                ours.append(await run(context, endpoint, stated(), **options))
        finally:
            await asyncio.shield(context.close())
    tps, cpu_us = (
        [statistics.median(getattr(f, of) for f in side) for side in (theirs, ours)] for of in ("tps", "cpu_us")
    )
    return {
        "loop_tps": tps[0],
        "proveout_tps": tps[1],
        "tps_ratio": statistics.median(b.tps / a.tps for a, b in zip(theirs, ours, strict=True)),
        "loop_cpu_us": cpu_us[0],
        "proveout_cpu_us": cpu_us[1],
        "cpu_ratio": statistics.median(b.cpu_us / a.cpu_us for a, b in zip(theirs, ours, strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="The load engine on SQLite beside a loop in C: rate and CPU.")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each measurement")
    parser.add_argument("--rounds", type=int, default=7, help="measurements of each, taken in turn; the median counts")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    figures = asyncio.run(compare(arguments.seconds, arguments.rounds))
    print(f"{'':12}{'loop in C':>12}{'proveout':>12}{'ratio':>8}")
    print(f"{'a second':12}{figures['loop_tps']:12,.0f}{figures['proveout_tps']:12,.0f}{figures['tps_ratio']:8.2f}")
    print(f"{'CPU, µs':12}{figures['loop_cpu_us']:12.2f}{figures['proveout_cpu_us']:12.2f}{figures['cpu_ratio']:8.2f}")
    print(f"ratios are medians of the rounds' own; target: rate >= {TARGET:.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
