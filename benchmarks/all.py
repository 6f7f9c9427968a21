"""Run every benchmark one after the other, and print all ratios in one table with their targets and whether they are
met.

    python benchmarks/all.py [--quick] [--only PART,…] [--benchbase FOLDER --java JAVA] [--go-tpc PROGRAM] [--json FILE]

Parts: engine, population, pools, commands, peers (BenchBase and go-tpc). Each benchmark runs proveout and its peer in
the same run, in turn, and prints medians. A failed benchmark is a line of the table, and the others continue. The exit
code is 0 for any figures, and 1 when a benchmark did not run to its end. No other program should run on the machine
meanwhile.
"""

from __future__ import annotations

import argparse
import json
import operator
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

HERE = Path(__file__).resolve().parent
COMPARE = {"<": operator.lt, "<=": operator.le, ">=": operator.ge}


@dataclass(frozen=True)
class Row:
    """A line of the table: the name, the value with its format, and the target (`>= 0.95`; "" for none)."""

    name: str
    value: float
    target: str = ""
    form: str = ".2f"

    @property
    def met(self) -> bool | None:
        """Whether the value meets the target; None when it has none."""
        if not self.target:
            return None
        sign, limit = self.target.split()
        return bool(COMPARE[sign](self.value, float(limit)))


QUICK: dict[str, tuple[str, ...]] = {
    "load/sysbench": ("--seconds", "2", "--rounds", "5"),
    "load/sqlite_loop": ("--seconds", "1", "--rounds", "5"),
    "load/duckdb_loop": ("--seconds", "2", "--rounds", "5"),
    "load/pgbench": ("--seconds", "3", "--rounds", "9"),
    "populate/psql_copy": ("--rounds", "2"),  # with a fifth of the rows the start of workers would dominate
    "load/custom_sql": ("--rounds", "3", "--seconds", "1"),
    "load/pacing": ("--seconds", "2"),
    "oracle/oracle_client": ("--seconds", "0.6", "--rounds", "3"),
    "load/loads": ("--seconds", "3", "--rounds", "1"),
    "load/pool_ray": ("--seconds", "2", "--pairs", "3", "--workers", "2"),
    "load/mysql_clients": ("--seconds", "1", "--rounds", "3"),
    "populate/bulk_paths": ("--rounds", "2"),
    "populate/client_hosts": ("--scale", "0.3", "--rounds", "2"),
    "plans/first_result": ("--rounds", "3", "--iterations", "20"),
    "load/benchbase": ("--seconds", "5"),
    "load/gotpc": ("--seconds", "8"),
}
MEMORY_MINUTES = {False: "2", True: "0.5"}


class Bench:
    """Runs benchmarks, in full or quickly; `failed` are those that did not run to their end."""

    def __init__(self, *, quick: bool) -> None:
        self.quick = quick
        self.failed: list[str] = []

    def __call__(self, name: str, *options: str) -> Any:
        """Run one benchmark, named `folder/module`, with its output passed on; its figures."""
        print(f"== {name}", flush=True)
        more = QUICK.get(name, ()) if self.quick else ()
        with tempfile.TemporaryDirectory() as folder:
            figures = Path(folder) / "figures.json"
            argv = [sys.executable, str(HERE / f"{name}.py"), "--json", str(figures), *options, *more]
            status = subprocess.run(argv, check=False).returncode
            print(flush=True)
            if status == 0 and figures.exists():
                return json.loads(figures.read_text())
        print(f"{name} ended with exit code {status}", flush=True)
        self.failed.append(" ".join((name, *options)))
        return None


def engine(bench: Bench) -> Iterator[Row]:
    """The load engine compared with pgbench and with a bare loop; its pacing, its memory, custom SQL."""
    for line in bench("load/pgbench", "--connections", "4,64") or ():
        offered = f" {line['rate']:,.0f}/s" if line["rate"] else ""
        place = f"{line['place']}: {line['section']} {line['mix']}{offered}, {line['connections']} connections"
        label = f"{place}, beside pgbench"
        yield Row(f"rate: {label}", line["tps_ratio"], "" if offered else f">= {line['rate_min']:.2f}")
        yield Row(f"client CPU: {label}", line["cpu_ratio"], f"<= {line['cpu_max']:.2f}")
        if bound := line["cpu_ratios"].get("C"):
            yield Row(f"client CPU: {place}, beside a loop in C", bound, "<= 1.15")
    if which("sysbench"):
        for line in bench("load/sysbench") or ():
            label = f"{line['script']}, {line['connections']} connections, beside sysbench on MariaDB"
            yield Row(f"rate: {label}", line["tps_ratio"], ">= 1.00")
            yield Row(f"client CPU: {label}", line["cpu_ratio"], "<= 1.00")
    if which("gcc") and (found := bench("load/sqlite_loop")):
        yield Row("rate: one SELECT by key on SQLite, beside a loop in C", found["tps_ratio"], ">= 0.70")
    if find_spec("duckdb") and (found := bench("load/duckdb_loop")):
        yield Row("rate: a query of milliseconds on DuckDB, beside a bare loop", found["tps_ratio"], ">= 0.99", ".3f")
    if overhead := bench("load/overhead"):
        yield Row("engine over the bare driver loop, ns", overhead["overhead_ns"], "<= 1000", ",.0f")
    for line in bench("load/pacing") or ():
        held = line["achieved"] >= 0.99
        label = f"open arrival at {line['rate']:,.0f}/s: lag p99, us" + ("" if held else " (rate not held)")
        yield Row(label, line["p99_us"], "< 1000" if held else "", ",.0f")
    minutes = MEMORY_MINUTES[bench.quick]
    if memory := bench("load/memory", "--minutes", minutes):
        yield Row(f"worker's growth in {minutes} min at 50,000/s, MB", memory["worker_mb"], "< 20", ".1f")
    if together := bench("load/loads"):
        label = "8 loads x 64 threads beside 1 x 512"
        medians = together["medians"]
        yield Row(f"memory of the load processes: {label}", medians["workers_mb"]["ratio"])
        yield Row("   CPU of merging a transaction in the agent", medians["merging_us"]["ratio"])
        yield Row("   CPU of the summary of an iteration", medians["summary_ms"]["ratio"])
        yield Row("   start skew of 8 loads x 64 threads, ms", medians["skew_ms"]["several"], "< 50", ".1f")
    if stated := bench("load/custom_sql"):
        label = "one SELECT stated in a plan (kind: sql), client CPU, beside built in"
        yield Row(label, stated["ratios"]["one"], "<= 1.10")
        yield Row("four statements with a result passed on, likewise", stated["ratios"]["several"])
    for line in bench("oracle/oracle_client") or ():
        label = f"{line['connections']} connections, answers after {line['answer_us']:.0f} us"
        yield Row(f"Oracle, client CPU beside python-oracledb: {label}", line["cpu_ratio"], "<= 1.20")
        yield Row("   CPU of a transaction, us", line["ours"]["cpu_us"], "<= 60", ".1f")


def population(bench: Bench) -> Iterator[Row]:
    """Populations compared with the engines' own bulk paths."""
    for workload in ("hlr", "tptbm", "prepaid", "tprocc"):
        found = bench("populate/psql_copy", "--workload", workload) or {"ratios": {}}
        for name, ratio in found["ratios"].items():
            target = ">= 0.80" if name == r"\copy" else ">= 1.00"
            yield Row(f"{workload}: rows loaded a second, beside {name}", ratio["rows_only"], target)
            yield Row(f"{workload}: until ready, beside {name}", ratio["ready"], target)
    hosts = bench("populate/client_hosts") or {"ratios": {}}
    for into, ratio in hosts["ratios"].items():
        target = ">= 1.80" if into == "sink" else ""
        yield Row(f"hlr: rows loaded a second from two client hosts, beside one: {into}", ratio, target)
    for found in bench("populate/bulk_paths") or ():
        for name, ratio in found["ratios"].items():
            yield Row(f"hlr: rows loaded a second, beside {name}", ratio["rows_only"], ">= 0.80")
            yield Row(f"hlr: until ready, beside {name}", ratio["ready"], ">= 0.80")


def pools(bench: Bench) -> Iterator[Row]:
    """Merging, and Ray compared with local processes."""
    for line in bench("fabric/merge") or ():
        label = f"merging 1,000 workers x 8 types, {line['arrival']}, {line['rate']:,}/s each, % of a core"
        yield Row(label, 100 * line["core_fraction"], "< 10", ".1f")
    if find_spec("ray"):
        for line in bench("load/pool_ray") or ():
            label = f"pool ray beside local, {line['workers']} workers, {line['arrival']}, rate"
            yield Row(label, line["ratio"])
            yield Row("   the upper end of its 95 % interval", line["high"], ">= 1.00")


def commands(bench: Bench) -> Iterator[Row]:
    """The time of commands beside the measurement."""
    if found := bench("plans/first_result"):
        for what, figures in found["commands"].items():
            yield Row(f"{what}: elapsed time, s", figures["seconds"], f"<= {found['targets_s'][what]}")
            yield Row("   CPU time, s", figures["cpu_seconds"])


def peers(bench: Bench, options: argparse.Namespace) -> Iterator[Row]:
    """Other programs, where they are installed."""
    if options.benchbase:
        for line in bench("load/benchbase", str(options.benchbase), "--java", options.java) or ():
            label = f"HLR beside BenchBase's TATP, {line['terminals']} terminals, rate"
            yield Row(label, line["tps_ratio"], ">= 1.30")
    if options.go_tpc:
        found = bench("load/gotpc", str(options.go_tpc)) or {"ratios": {}}
        for name, ratio in found["ratios"].items():
            if name != "go-tpc":
                yield Row(f"TPROC-C beside go-tpc, {name}, NOPM", ratio)


def table(rows: list[Row], failed: list[str]) -> Iterator[str]:
    says = {True: "met", False: "MISSED", None: ""}
    yield f"{'':74}{'ratio':>10}  {'target':10}"
    for row in rows:
        yield f"{row.name:74}{row.value:>10{row.form}}  {row.target:10}  {says[row.met]}"
    for name in failed:
        yield f"{name:74}{'failed':>10}"
    judged = [row.met for row in rows if row.met is not None]
    yield f"{sum(judged)} of {len(judged)} targets met" + (f"; {len(failed)} benchmarks failed" if failed else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter measurements and less data; noisier")
    parts = ("engine", "population", "pools", "commands", "peers")
    parser.add_argument("--only", type=lambda text: text.split(","), default=parts, metavar="PART,…")
    parser.add_argument("--benchbase", type=Path, help="BenchBase's distribution for PostgreSQL, unpacked")
    parser.add_argument("--java", default="java", help="the Java that runs it")
    parser.add_argument("--go-tpc", type=Path, help="the program go-tpc")
    parser.add_argument("--json", type=Path, help="write the table here as well")
    options = parser.parse_args()
    if unknown := set(options.only) - set(parts):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    bench = Bench(quick=options.quick)
    of_parts = {
        "engine": engine,
        "population": population,
        "pools": pools,
        "commands": commands,
        "peers": lambda one: peers(one, options),
    }
    rows = [row for part in parts if part in options.only for row in of_parts[part](bench)]
    print("\n".join(table(rows, bench.failed)))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) | {"met": row.met} for row in rows], indent=1) + "\n")
    sys.exit(1 if bench.failed else 0)


if __name__ == "__main__":
    main()
