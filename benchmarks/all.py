"""Run the benchmarks one after the other, print each figure with its target and whether it is met, and keep the figures
in `benchmarks/results.json`, from which docs/generate.py makes the tables of the pages.

    python benchmarks/all.py [--quick] [--only NAME,…] [--rebase] [--benchbase FOLDER --java JAVA] [--go-tpc PROGRAM]

Each benchmark runs proveout and its peer in the same run, in turn, and its figures are medians. The new figures take
the place of the benchmark's older figures; those that the file had first stay beside them, as the state before, until
`--rebase`. A benchmark that failed, or whose programs are not installed, keeps its older figures, and the others
continue. The exit code is 0 for any figures, and 1 when a benchmark did not run to its end. No other program should run
on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import operator
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
COMPARE = {"<": operator.lt, "<=": operator.le, ">=": operator.ge}
Rows = Mapping[str, Mapping[str, float]]
"""Values by row and by the title of their column."""
Line = Mapping[str, Any]
"""An object that a benchmark writes with `--json`."""


@dataclass(frozen=True)
class Figure:
    """A column: its title, the target (`>= 0.95`; "" for none), and the format of its values."""

    title: str
    target: str = ""
    form: str = ".2f"

    def met(self, value: float) -> bool | None:
        """Whether a value meets the target; None when there is none."""
        if not self.target:
            return None
        sign, limit = self.target.split()
        return bool(COMPARE[sign](value, float(limit)))


@dataclass(frozen=True)
class Benchmark:
    """The figures of a benchmark that are kept."""

    module: str
    """`folder/module` below benchmarks/."""
    row: str
    """The name of a row, with keys of its line in braces."""
    figures: Mapping[str, Figure]
    """The columns, by the key of a line; dots lead into what it holds. A row may lack some."""
    runs: tuple[tuple[str, ...], ...] = ((),)
    """The options of each run; the rows of all are kept."""
    quick: tuple[str, ...] = ()
    lines: Callable[[Any], Any] = lambda found: found
    """The lines of what was written: one, or a list."""
    needs: tuple[str, ...] = ()
    """Programs, and modules of Python, without which it is left out."""

    def rows(self, found: Any) -> dict[str, dict[str, float]]:
        """The kept figures of one run, by row."""
        lines = self.lines(found)
        kept: dict[str, dict[str, float]] = {}
        for line in lines if isinstance(lines, list) else [lines]:
            values = {figure.title: _of(line, key) for key, figure in self.figures.items()}
            kept[self.row.format_map(line)] = {title: value for title, value in values.items() if value is not None}
        return kept

    @property
    def able(self) -> bool:
        """Whether all that it needs is installed."""
        return all(which(name) or find_spec(name) for name in self.needs)


def _of(line: Line, key: str) -> float | None:
    found = reduce(lambda of, name: of.get(name) if isinstance(of, Mapping) else None, key.split("."), line)
    return None if found is None else float(f"{found:.4g}")


def _several(found: dict[str, Any]) -> list[Line]:
    """The lines of loads.py: eight loads, and one of as many threads."""
    sides = {"8 x 64": "several", "1 x 512": "one"}
    return [
        {"name": name, **{key: values[side] for key, values in found["medians"].items()}}
        for name, side in sides.items()
    ]


def _placed(found: list[dict[str, Any]]) -> list[Line]:
    """The lines of pgbench.py; of an open load the rate is offered, and no target."""
    for line in found:
        line["place"] = {"one": "on one core", "split": "on a core each"}[line["place"]]
        if line["rate"]:
            line |= {"mix": f"{line['mix']}, {line['rate']:,.0f}/s", "held": line.pop("tps_ratio")}
    return found


SIZES = ("first", "second", "third")


def _by_size(found: list[dict[str, Any]]) -> list[Line]:
    """The lines of growth.py: one for each command, with its three sizes."""
    lines: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in found:
        if line["size"]:
            lines.setdefault((line["part"], line["command"]), []).append(line)
    return [
        {
            "name": f"{command}: {part}, " + ", ".join(f"{one['size']:,}" for one in each),
            **{key: dict(zip(SIZES, (one[key] for one in each), strict=True)) for key in ("cpu_s", "memory_mb")},
            **{key: each[-1][key] for key in ("exponent_cpu", "exponent_memory")},
        }
        for (part, command), each in lines.items()
    ]


RATE, CPU_US = Figure("rate", ">= 1.00"), Figure("CPU, µs", "", ".2f")
PGBENCH = {
    "tps_ratio": RATE,
    "tps_ratios.C": Figure("rate beside C"),
    "held": Figure("rate of an open load"),
    "cpu_ratio": Figure("client CPU", "<= 0.95"),
    "cpu_ratios.C": Figure("client CPU beside C", "<= 1.15"),
    "sides.pgbench.tps": Figure("pgbench, TPS", "", ",.0f"),
    "sides.ours.tps": Figure("proveout, TPS", "", ",.0f"),
    "sides.pgbench.cpu_us": Figure("pgbench, CPU µs"),
    "sides.ours.cpu_us": Figure("proveout, CPU µs"),
    "sides.ours.merging_us": Figure("of it merging, µs"),
}


def _pgbench(section: str, *options: str, rounds: str = "9") -> Benchmark:
    return Benchmark(
        "load/pgbench",
        "{mix}, {connections}, {place}",
        PGBENCH,
        (("--only", section, *options),),
        ("--seconds", "1", "--rounds", rounds),
        _placed,
    )


FEW = ("--connections", "4,64")
BENCHMARKS: dict[str, Benchmark] = {
    "pgbench-closed": _pgbench("closed", *FEW),
    "pgbench-connections": _pgbench("closed", "--connections", "1,16,256,1000", rounds="3"),
    "pgbench-tpcb": _pgbench("tpcb", *FEW),
    "pgbench-tpcb-connections": _pgbench("tpcb", "--connections", "1,16,256,1000", rounds="3"),
    "pgbench-open": _pgbench("open"),
    "pgbench-tls": _pgbench("tls", *FEW),
    "sysbench": Benchmark(
        "load/sysbench",
        "{script}, {connections}",
        {
            "tps_ratio": RATE,
            "cpu_ratio": Figure("client CPU", "<= 1.00"),
            "sysbench_tps": Figure("sysbench, TPS", "", ",.0f"),
            "proveout_tps": Figure("proveout, TPS", "", ",.0f"),
            "sysbench_cpu_us": Figure("sysbench, CPU µs", "", ".1f"),
            "proveout_cpu_us": Figure("proveout, CPU µs", "", ".1f"),
        },
        (("--core", "0"),),
        ("--seconds", "2", "--rounds", "5"),
        needs=("sysbench",),
    ),
    "sqlite_loop": Benchmark(
        "load/sqlite_loop",
        "one SELECT by key",
        {
            "tps_ratio": Figure("rate", ">= 0.70"),
            "loop_tps": Figure("loop in C, TPS", "", ",.0f"),
            "proveout_tps": Figure("proveout, TPS", "", ",.0f"),
            "loop_cpu_us": Figure("loop in C, CPU µs"),
            "proveout_cpu_us": Figure("proveout, CPU µs"),
        },
        quick=("--seconds", "1", "--rounds", "5"),
        needs=("gcc",),
    ),
    "duckdb_loop": Benchmark(
        "load/duckdb_loop",
        "a grouped sum",
        {
            "tps_ratio": Figure("rate", ">= 0.99", ".3f"),
            "loop_ms": Figure("bare loop, ms"),
            "proveout_ms": Figure("proveout, ms"),
        },
        quick=("--seconds", "2", "--rounds", "5"),
        needs=("duckdb",),
    ),
    "overhead": Benchmark(
        "load/overhead",
        "one SELECT",
        {"overhead_ns": Figure("engine over the bare driver loop, ns", "<= 1000", ",.0f")},
    ),
    "variants": Benchmark(
        "load/variants",
        "{mix}: {way}",
        {"rate": Figure("rate"), "cpu": Figure("client CPU"), "tps": Figure("TPS", "", ",.0f"), "cpu_us": CPU_US},
        quick=("--seconds", "2", "--rounds", "3"),
    ),
    "pacing": Benchmark(
        "load/pacing",
        "{rate:,.0f}/s",
        {
            "p99_us": Figure("lag p99, µs", "< 1000", ",.0f"),
            "p50_us": Figure("lag p50, µs", "", ",.0f"),
            "achieved": Figure("achieved", ">= 0.99", ".3f"),
        },
        quick=("--seconds", "2"),
    ),
    "memory": Benchmark(
        "load/memory",
        "50,000/s",
        {
            "worker_mb": Figure("growth of a worker, MB", "< 20", ".1f"),
            "agent_mb": Figure("growth of the agent, MB", "", ".1f"),
        },
        (("--minutes", "2"),),
        ("--minutes", "0.5"),
    ),
    "loads": Benchmark(
        "load/loads",
        "{name}",
        {
            "workers_mb": Figure("load processes, MB", "", ".0f"),
            "agent_mb": Figure("agent, MB", "", ".0f"),
            "skew_ms": Figure("latest start after T0, ms", "< 50", ".1f"),
            "merging_us": Figure("agent, CPU µs of a transaction"),
            "live_ms": Figure("coordinator, CPU ms of a second", "", ".0f"),
            "summary_ms": Figure("its CPU ms of the summary", "", ".0f"),
        },
        quick=("--seconds", "3", "--rounds", "1"),
        lines=_several,
    ),
    "custom_sql": Benchmark(
        "load/custom_sql",
        "client CPU beside the built-in workload",
        {
            "ratios.one": Figure("one statement, client alone", "<= 1.10"),
            "ratios.several": Figure("four statements, client alone"),
            "ratios.cpu": Figure("one statement, PostgreSQL"),
        },
        quick=("--rounds", "3", "--seconds", "1"),
    ),
    "benchbase": Benchmark(
        "load/benchbase",
        "{terminals} terminals",
        {"tps_ratio": Figure("rate", ">= 1.30")},
        quick=("--seconds", "5"),
    ),
    "gotpc": Benchmark(
        "load/gotpc",
        "{name}",
        {"nopm": Figure("NOPM beside go-tpc")},
        quick=("--seconds", "8"),
        lines=lambda found: [{"name": name, "nopm": ratio} for name, ratio in found["ratios"].items()],
    ),
    "oracle_client": Benchmark(
        "oracle/oracle_client",
        "{connections} connections, answers after {answer_us:.0f} µs",
        {
            "cpu_ratio": Figure("client CPU", "<= 1.20"),
            "ours.cpu_us": Figure("proveout, CPU µs", "<= 60", ".1f"),
            "bare.cpu_us": Figure("bare, CPU µs", "", ".1f"),
            "trips.ours": Figure("round trips"),
            "trips.bare": Figure("round trips, bare"),
        },
        quick=("--seconds", "0.6", "--rounds", "5"),
    ),
    "mysql_clients": Benchmark(
        "load/mysql_clients",
        "{client}, {statement}, {connections}",
        {"tps": Figure("TPS", "", ",.0f"), "cpu_us": Figure("CPU, µs", "", ".1f")},
        quick=("--seconds", "1", "--rounds", "3"),
        needs=("mariadbd", "MySQLdb"),
    ),
    "psql_copy": Benchmark(
        "populate/psql_copy",
        "{name}",
        {
            "is.ratios.\\copy.rows_only": Figure("rows, beside one \\copy", ">= 0.80"),
            "is.ratios.\\copy.ready": Figure("until ready", ">= 0.80"),
            "is.ratios.\\copy x 2.rows_only": Figure("rows, beside two \\copy", ">= 1.00"),
            "is.ratios.\\copy x 2.ready": Figure("until ready, of two", ">= 1.00"),
        },
        tuple(("--workload", name, "--workers", "2") for name in ("hlr", "tptbm", "prepaid", "tprocc")),
        ("--rounds", "2"),  # with a fifth of the rows the start of workers would dominate
        lambda found: {"name": found["workload"], "is": found},
    ),
    "client_hosts": Benchmark(
        "populate/client_hosts",
        "two hosts beside one",
        {"ratios.sink": Figure("into a sink", ">= 1.80"), "ratios.postgres": Figure("into PostgreSQL")},
        quick=("--scale", "0.3", "--rounds", "2"),
    ),
    "bulk_paths": Benchmark(
        "populate/bulk_paths",
        "{engine}",
        {"ratio.rows_only": Figure("rows", ">= 0.80"), "ratio.ready": Figure("until ready", ">= 0.80")},
        quick=("--rounds", "2"),
        lines=lambda found: [line | {"ratio": next(iter(line["ratios"].values()))} for line in found],
    ),
    "merge": Benchmark(
        "fabric/merge",
        "{arrival}, {rate:,}/s of a worker",
        {"percent": Figure("% of a core", "< 10", ".1f"), "mb_per_s": Figure("to the driver, MB/s", "", ".1f")},
        lines=lambda found: [line | {"percent": 100 * line["core_fraction"]} for line in found],
    ),
    "pool_ray": Benchmark(
        "load/pool_ray",
        "{workers} workers, {kind}",
        {
            "ratio": Figure("ray / local"),
            "low": Figure("low end of its 95 % interval"),
            "high": Figure("high end", ">= 1.00"),
            "local_tps": Figure("local, TPS", "", ",.0f"),
            "ray_tps": Figure("ray, TPS", "", ",.0f"),
        },
        quick=("--seconds", "2", "--pairs", "3", "--workers", "2"),
        lines=lambda found: [line | {"kind": "closed" if line["arrival"] == "closed" else "open"} for line in found],
        needs=("ray",),
    ),
    "collectors": Benchmark(
        "fabric/collectors",
        "capture os, 1 Hz",
        {"look": Figure("reading, % of a core", "< 1"), "whole": Figure("with the messages, % of a core")},
        quick=("--seconds", "10"),
        lines=lambda found: {
            "look": 100 * found["look_core_fraction"],
            "whole": 100 * found["process_core_fraction"],
        },
    ),
    "tui_cost": Benchmark(
        "fabric/tui_cost",
        "{hosts:,} hosts, pane {pane}",
        {"percent": Figure("% of a core", "", ".1f")},
        tuple(("--pane", pane) for pane in ("1", "4")),
        ("--seconds", "10"),
    ),
    "live_cost": Benchmark("fabric/live_cost", "{agents} load agents", {"percent": Figure("% of a core", "", ".1f")}),
    "scale_agents": Benchmark(
        "fabric/scale_agents",
        "{agents:,} agents{checks}",
        {
            "connect_s": Figure("all connected, s"),
            "one_task_s": Figure("first task at all, s", "<= 1"),
            "dispatch_s": Figure("both at all, s", "<= 1"),
            "written_cpu_s": Figure("CPU of writing them, s"),
            "t0_p99_ms": Figure("T0 p99, ms", "<= 5", ".1f"),
            "skew_p99_ms": Figure("load after T0 p99, ms", "<= 5", ".1f"),
            "percent": Figure("coordinator, % of a core", "<= 40", ".0f"),
            "mb": Figure("its memory, MB", "<= 400", ".0f"),
        },
        lines=lambda found: [
            line
            | {"percent": 100 * line["cpu_fraction"], "mb": line["rss_bytes"] / 1e6}
            | {"checks": ", without their own checks" if line["light"] else ""}
            for line in found
        ],
        runs=((), ("--light", "--agents", "1000")),
    ),
    "first_result": Benchmark(
        "plans/first_result",
        "",
        {
            "commands.check.seconds": Figure("check, s", "<= 0.25"),
            "commands.check.cpu_seconds": Figure("CPU, s"),
            "commands.agents up.seconds": Figure("agents up, s", "<= 0.7"),
            "commands.report.seconds": Figure("report, s", "<= 1.5"),
            "commands.report.cpu_seconds": Figure("its CPU, s"),
        },
        quick=("--rounds", "3", "--iterations", "20"),
    ),
    "growth": Benchmark(
        "plans/growth",
        "{name}",
        {
            **{f"cpu_s.{size}": Figure(f"CPU s, {size} size") for size in SIZES},
            "exponent_cpu": Figure("exponent", "<= 1.1"),
            **{f"memory_mb.{size}": Figure(f"MB, {size} size", "", ".0f") for size in SIZES},
            "exponent_memory": Figure("exponent of memory", "<= 1.1"),
        },
        quick=("--sizes", "0.01,0.033,0.1"),
        lines=_by_size,
    ),
}


def measured(benchmark: Benchmark, options: tuple[str, ...]) -> Any:
    """Run one benchmark, with its output passed on; the object of its `--json`; None when it failed."""
    print(f"== {benchmark.module} {' '.join(options)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        argv = [sys.executable, str(HERE / f"{benchmark.module}.py"), "--json", str(figures), *options]
        status = subprocess.run(argv, check=False).returncode
        print(flush=True)
        if status == 0 and figures.exists():
            return json.loads(figures.read_text())
    print(f"{benchmark.module} ended with exit code {status}", flush=True)
    return None


def entry(benchmark: Benchmark, rows: Rows, *, quick: bool) -> dict[str, Any]:
    """The object of one benchmark in the file."""
    shown = {title for row in rows.values() for title in row}
    commit = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], cwd=HERE, stdout=subprocess.PIPE, text=True, check=True
    )
    return {
        "commit": commit.stdout.strip(),
        "machine": f"{len(os.sched_getaffinity(0))} cores of {_processor()}",
        "quick": quick,
        "figures": {one.title: [one.target, one.form] for one in benchmark.figures.values() if one.title in shown},
        "rows": rows,
    }


def _processor() -> str:
    named = (line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines())
    return next((name.strip() for key, _, name in named if key.startswith("model name")), platform.machine())


def kept(old: dict[str, Any], new: dict[str, Any], *, rebase: bool) -> dict[str, Any]:
    """`new`, beside the figures before it: those that the file had first, or with `rebase` last."""
    before = old if rebase or "before" not in old else old["before"]
    return new | {"before": {name: before[name] for name in ("commit", "rows")}} if before else new


def table(
    name: str, benchmark: Benchmark, rows: Mapping[str, Mapping[str, float]]
) -> Iterator[tuple[str, bool | None]]:
    """A line for each figure, and whether it meets its target."""
    says = {True: "met", False: "MISSED", None: ""}
    of = {one.title: one for one in benchmark.figures.values()}
    for row, values in rows.items():
        for title, value in values.items():
            figure = of[title]
            met = figure.met(value)
            label = ": ".join(filter(None, (name, row, title)))
            yield f"{label:88}{value:>10{figure.form}}  {figure.target:10}  {says[met]}".rstrip(), met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter measurements and less data; noisier")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(BENCHMARKS), metavar="NAME,…")
    parser.add_argument("--rebase", action="store_true", help="the figures in the file become those before")
    parser.add_argument("--benchbase", type=Path, help="BenchBase's distribution for PostgreSQL, unpacked")
    parser.add_argument("--java", default="java", help="the Java that runs it")
    parser.add_argument("--go-tpc", type=Path, help="the program go-tpc")
    options = parser.parse_args()
    if unknown := set(options.only) - set(BENCHMARKS):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    peers = {"benchbase": options.benchbase and (str(options.benchbase), "--java", options.java)}
    peers["gotpc"] = options.go_tpc and (str(options.go_tpc),)
    lines, failed = list[tuple[str, bool | None]](), list[str]()
    for name in options.only:
        benchmark = BENCHMARKS[name]
        if not benchmark.able or not peers.get(name, True):
            print(f"{name}: left out, because what it needs is not installed or not named", flush=True)
            continue
        more = (*(peers.get(name) or ()), *(benchmark.quick if options.quick else ()))
        found = [measured(benchmark, (*run, *more)) for run in benchmark.runs]
        if None in found:
            failed.append(name)
            continue
        rows = {row: values for one in found for row, values in benchmark.rows(one).items()}
        lines += table(name, benchmark, rows)
        results = json.loads(RESULTS.read_text())
        new = entry(benchmark, rows, quick=options.quick)
        results[name] = kept(results.get(name, {}), new, rebase=options.rebase)
        ordered = {one: results[one] for one in BENCHMARKS if one in results}
        RESULTS.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")
    print("\n".join(line for line, _ in lines))
    judged = [met for _, met in lines if met is not None]
    print(f"{sum(judged)} of {len(judged)} targets met; the figures are in {RESULTS.name}: python docs/generate.py")
    for name in failed:
        print(f"{name}: failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
