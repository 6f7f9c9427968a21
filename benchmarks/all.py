"""Every benchmark one after the other, and all ratios in one table at the end.

    python benchmarks/all.py [--quick] [--benchbase FOLDER --java JAVA] [--go-tpc PROGRAM]

Each runs ours and the peer in the same run, in turn, and prints medians. The exit code is 0 whatever the figures are: a
benchmark measures, it does not judge. Let nothing else run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
Row = tuple[str, str, str]

QUICK: dict[str, tuple[str, ...]] = {
    "load_pgbench": ("--seconds", "3", "--rounds", "9"),
    "populate": ("--scale", "0.2"),
    "custom_sql": ("--rounds", "3", "--seconds", "1"),
    "pacing": ("--seconds", "2"),
    "pool_ray": ("--seconds", "2", "--pairs", "3", "--workers", "2"),
    "mysql_clients": ("--seconds", "1", "--rounds", "3"),
    "mysql_populate": ("--subscribers", "20000"),
    "load_benchbase": ("--seconds", "5"),
    "tprocc_gotpc": ("--seconds", "8"),
}
MEMORY_MINUTES = {False: "2", True: "0.5"}


class Bench:
    """Runs benchmarks, in full or quickly."""

    def __init__(self, *, quick: bool) -> None:
        self.quick = quick

    def __call__(self, name: str, *options: str) -> Any:
        """Run one benchmark, its output passed on; its figures."""
        print(f"== {name}", flush=True)
        more = QUICK.get(name, ()) if self.quick else ()
        with tempfile.TemporaryDirectory() as folder:
            figures = Path(folder) / "figures.json"
            argv = [sys.executable, str(HERE / f"{name}.py"), "--json", str(figures), *options, *more]
            subprocess.run(argv, check=True)
            print(flush=True)
            return json.loads(figures.read_text())


def engine(bench: Bench) -> Iterator[Row]:
    """The load engine beside pgbench, over a bare loop, its pacing, its memory, custom SQL."""
    for line in bench("load_pgbench"):
        label = f"{line['mix']}, {line['connections']} connections, beside pgbench"
        yield f"rate: {label}", f"{line['tps_ratio']:.2f}", ">= 0.95"
        yield f"client CPU: {label}", f"{line['cpu_ratio']:.2f}", "<= 1.30"
    yield "engine over the bare driver loop, ns", f"{bench('load_overhead')['overhead_ns']:,.0f}", "<= 1,000"
    for line in bench("pacing"):
        held = line["achieved"] >= 0.99
        label = f"open arrival at {line['rate']:,.0f}/s: lag p99, µs" + ("" if held else " (rate not held)")
        yield label, f"{line['p99_us']:,.0f}", "< 1,000" if held else ""
    minutes = MEMORY_MINUTES[bench.quick]
    memory = bench("memory", "--minutes", minutes)
    yield f"worker's growth in {minutes} min at 50,000/s, MB", f"{memory['worker_mb']:.1f}", "< 20"
    stated = bench("custom_sql")["ratios"]
    yield "one SELECT stated in a plan (kind: sql), client CPU, beside built in", f"{stated['one']:.2f}", "<= 1.10"
    yield "four statements with a result passed on, likewise", f"{stated['several']:.2f}", ""


def population(bench: Bench) -> Iterator[Row]:
    """Populations beside the engines' own bulk paths."""
    for workload in ("hlr", "tptbm", "prepaid", "tprocc"):
        for name, ratio in bench("populate", "--workload", workload)["ratios"].items():
            target = ">= 0.80" if name == r"\copy" else ""
            yield f"{workload}: rows loaded a second, beside {name}", f"{ratio['rows_only']:.2f}", target
            yield f"{workload}: until ready, beside {name}", f"{ratio['ready']:.2f}", target
    if shutil.which("mariadbd") or Path("/usr/sbin/mariadbd").exists():
        rates = bench("mysql_populate")
        peer = rates.pop("mariadb client")
        for name, rate in rates.items():
            yield f"hlr on MariaDB: {name}, beside its client", f"{rate / peer:.2f}", ">= 0.80"


def pools(bench: Bench) -> Iterator[Row]:
    """Merging, and Ray beside local processes."""
    for line in bench("merge"):
        label = f"merging 1,000 workers x 8 types, {line['arrival']}, {line['rate']:,}/s each, of a core"
        yield label, f"{line['core_fraction']:.1%}", "< 10 %"
    if find_spec("ray"):
        for line in bench("pool_ray"):
            yield f"pool ray beside local, {line['workers']} workers, rate", f"{line['ratio']:.2f}", ""


def peers(bench: Bench, options: argparse.Namespace) -> Iterator[Row]:
    """Other programs, where they were built."""
    if options.benchbase:
        for line in bench("load_benchbase", str(options.benchbase), "--java", options.java):
            yield (
                f"HLR beside BenchBase's TATP, {line['terminals']} terminals, rate",
                f"{line['tps_ratio']:.2f}",
                ">= 1.30",
            )
    if options.go_tpc:
        for name, ratio in bench("tprocc_gotpc", str(options.go_tpc))["ratios"].items():
            if name != "go-tpc":
                yield f"TPROC-C beside go-tpc, {name}, NOPM", f"{ratio:.2f}", ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter measurements and less data; noisier")
    parser.add_argument("--benchbase", type=Path, help="BenchBase's distribution for PostgreSQL, unpacked")
    parser.add_argument("--java", default="java", help="the Java that runs it")
    parser.add_argument("--go-tpc", type=Path, help="the program go-tpc")
    options = parser.parse_args()
    bench = Bench(quick=options.quick)
    rows = [*engine(bench), *population(bench), *pools(bench), *peers(bench, options)]
    print(f"{'':74}{'ratio':>9}  target")
    for name, ratio, target in rows:
        print(f"{name:74}{ratio:>9}  {target}")


if __name__ == "__main__":
    main()
