"""The load engine beside pgbench: the same statements, weights and connections, in one run, A B A B; ratios of medians.

    python benchmarks/load/pgbench.py [--seconds 3] [--rounds 9] [--connections 4 64] [--json FILE]

Both run closed, with prepared statements, two processes or threads, against one embedded PostgreSQL with
synchronous_commit off on this machine. CPU is the client's, user and system: ours with the agent process that merges,
pgbench's without its start. Where pgbench cannot say the same thing it gets the cheaper one: it pads the number of a
subscriber in the server, commits what we roll back, and inserts with ON CONFLICT, because an error would end its
client.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from harness import Figures, postgres, run, workload

from proveout.agent.engines.postgres.installation import find_installation
from proveout.dsl.workloads.hlr import statements as hlr
from proveout.dsl.workloads.hlr.parameters import HLR_WEIGHTS
from proveout.proto.wire.tasks import Endpoint

SUBSCRIBERS = 100_000
MIXES: Mapping[str, Mapping[str, float]] = {"HLR mix": HLR_WEIGHTS, "one SELECT": {"GetBasicSubscriberData": 1.0}}


def pg(statement: hlr.Statement, *values: str) -> str:
    """A statement of ours in pgbench's placeholders."""
    return re.sub(r"\$(\d)", lambda match: values[int(match[1]) - 1], statement.text["postgres"])


def scripts() -> dict[str, str]:
    """The seven transactions for pgbench."""
    s_id = f"\\set s random(1, {SUBSCRIBERS})\n"
    kind, start = "\\set t random(1, 4)\n", "\\set b 8 * random(0, 2)\n"
    find = pg(hlr.FIND_NUMBER, "lpad(:s::text, 15, '0')") + " \\gset\n"
    insert = (
        "INSERT INTO call_forwarding (s_id, sf_type, start_time, end_time, numberx)"
        " SELECT s_id, sf_type, :b, :e, :n FROM special_facility WHERE s_id = :s_id AND sf_type = :t"
        " ON CONFLICT DO NOTHING;\n"
    )
    number = "\\set n random(100000000000000, 999999999999999)\n"
    return {
        "GetBasicSubscriberData": s_id + pg(hlr.GET_SUBSCRIBER, ":s") + ";\n",
        "GetAccessData": s_id + kind + pg(hlr.GET_ACCESS, ":s", ":t") + ";\n",
        "GetNewDestination": s_id
        + kind
        + start
        + "\\set e random(1, 24)\n"
        + pg(hlr.GET_DESTINATION, ":s", ":t", ":b", ":e")
        + ";\n",
        "UpdateSubscriberData": s_id
        + kind
        + "\\set v random(0, 1)\n\\set d random(0, 255)\nBEGIN;\n"
        + pg(hlr.SET_BIT, ":v", ":s")
        + ";\n"
        + pg(hlr.SET_DATA_A, ":d", ":s", ":t")
        + ";\nCOMMIT;\n",
        "UpdateLocation": s_id
        + "\\set l random(1, 4294967295)\nBEGIN;\n"
        + find
        + pg(hlr.SET_LOCATION, ":l", ":s_id")
        + ";\nCOMMIT;\n",
        "InsertCallForwarding": s_id
        + kind
        + start
        + "\\set e random(1, 24)\n"
        + number
        + "BEGIN;\n"
        + find
        + pg(hlr.GET_FACILITIES, ":s_id")
        + ";\n"
        + insert
        + "COMMIT;\n",
        "DeleteCallForwarding": s_id
        + kind
        + start
        + "BEGIN;\n"
        + find
        + pg(hlr.DELETE_FORWARDING, ":s_id", ":t", ":b")
        + ";\nCOMMIT;\n",
    }


class Pgbench:
    """pgbench on scripts in a folder."""

    def __init__(self, folder: Path, endpoint: Endpoint) -> None:
        self._folder, self._dsn = folder, endpoint.dsn
        self._program = str(find_installation().programs / "pgbench")
        for name, text in scripts().items():
            (folder / name).write_text(text)

    def run(self, weights: Mapping[str, float], connections: int, seconds: int) -> Figures:
        """Run for some seconds; CPU without what starting and connecting costs."""
        tps, cpu_s, count = self._run(weights, connections, "-T", str(seconds))
        _, start_s, _ = self._run(weights, connections, "-t", "1")
        return Figures(tps, (cpu_s - start_s) / count * 1e6)

    def _run(self, weights: Mapping[str, float], connections: int, *length: str) -> tuple[float, float, int]:
        files = [arg for name, weight in weights.items() for arg in ("-f", f"{self._folder / name}@{weight:.0f}")]
        argv = [self._program, "-n", "-M", "prepared", "-j", "2", "-c", str(connections), *length, *files, self._dsn]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            sys.exit(f"pgbench failed: {done.stderr.strip()[-2000:]}")
        tps = re.search(r"tps = ([\d.]+)", done.stdout)
        count = re.search(r"actually processed: (\d+)", done.stdout)
        assert tps and count, done.stdout
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return float(tps[1]), cpu_s, int(count[1])


async def compare(arguments: argparse.Namespace) -> list[dict[str, object]]:
    """Every mix at every number of connections: rounds of pgbench, ours."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        async with postgres(workload(SUBSCRIBERS, HLR_WEIGHTS)) as (context, endpoint):
            pgbench, seed = Pgbench(Path(folder), endpoint), 0
            for name, weights in MIXES.items():
                for connections in arguments.connections:
                    theirs, ours = [], []
                    for _ in range(arguments.rounds):
                        theirs.append(await asyncio.to_thread(pgbench.run, weights, connections, arguments.seconds))
                        seed += 1
                        mine = workload(SUBSCRIBERS, weights)
                        ours.append(
                            await run(
                                context, endpoint, mine, connections=connections, seconds=arguments.seconds, seed=seed
                            )
                        )
                    lines.append(line(name, connections, theirs, ours))
                    print(text(lines[-1]), flush=True)
    return lines


def line(mix: str, connections: int, theirs: list[Figures], ours: list[Figures]) -> dict[str, object]:
    """Medians of both, and the ratios ours / pgbench."""
    tps = [statistics.median(f.tps for f in side) for side in (theirs, ours)]
    cpu_us = [statistics.median(f.cpu_us for f in side) for side in (theirs, ours)]
    return {
        "mix": mix,
        "connections": connections,
        "pgbench_tps": tps[0],
        "proveout_tps": tps[1],
        "tps_ratio": tps[1] / tps[0],
        "pgbench_cpu_us": cpu_us[0],
        "proveout_cpu_us": cpu_us[1],
        "cpu_ratio": cpu_us[1] / cpu_us[0],
        "merging_us": statistics.median(f.merging_us for f in ours),
    }


HEAD = (
    f"{'':12}{'conns':>6}{'pgbench':>12}{'proveout':>12}{'rate':>8}{'pgbench':>12}{'proveout':>12}"
    f"{'CPU':>8}{'merging':>10}"
)
UNITS = f"{'':12}{'':>6}{'tps':>12}{'tps':>12}{'ratio':>8}{'CPU µs':>12}{'CPU µs':>12}{'ratio':>8}{'CPU µs':>10}"


def text(of: Mapping[str, object]) -> str:
    """A row of the table."""
    return (
        f"{of['mix']:12}{of['connections']:>6}{of['pgbench_tps']:>12,.0f}{of['proveout_tps']:>12,.0f}"
        f"{of['tps_ratio']:>8.2f}{of['pgbench_cpu_us']:>12.1f}{of['proveout_cpu_us']:>12.1f}"
        f"{of['cpu_ratio']:>8.2f}{of['merging_us']:>10.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="The load engine beside pgbench: rate and client CPU, as ratios.")
    parser.add_argument("--seconds", type=int, default=3, help="length of each measurement")
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each, taken in turn; the median counts")
    parser.add_argument("--connections", type=int, nargs="+", default=[4, 64])
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    print(HEAD, UNITS, sep="\n")
    lines = asyncio.run(compare(arguments))
    print("ratios are ours over pgbench's; targets: rate >= 0.95, CPU <= 1.30")
    if arguments.json:
        arguments.json.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
