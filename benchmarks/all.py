"""Every benchmark one after the other, and all ratios in one table at the end.

    python benchmarks/all.py [--quick]

Each runs ours and the peer in the same run, in turn, and prints medians. The exit code is 0 whatever the figures are: a
benchmark measures, it does not judge. Let nothing else run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
QUICK = {
    "load_pgbench": ("--seconds", "2", "--rounds", "3"),
    "populate": ("--scale", "0.2"),
    "custom_sql": ("--rounds", "3", "--seconds", "1"),
}


def run(name: str, *options: str) -> Any:
    """Run one benchmark, its output passed on; its figures."""
    print(f"== {name}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        subprocess.run([sys.executable, str(HERE / f"{name}.py"), "--json", str(figures), *options], check=True)
        print(flush=True)
        return json.loads(figures.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter measurements and less data; noisier")
    quick = parser.parse_args().quick
    rows: list[tuple[str, str, str]] = []
    for line in run("load_pgbench", *(QUICK["load_pgbench"] if quick else ())):
        label = f"{line['mix']}, {line['connections']} connections, beside pgbench"
        rows.append((f"rate: {label}", f"{line['tps_ratio']:.2f}", ">= 0.95"))
        rows.append((f"client CPU: {label}", f"{line['cpu_ratio']:.2f}", "<= 1.30"))
    overhead = run("load_overhead")
    rows.append(("engine over the bare driver loop, ns", f"{overhead['overhead_ns']:,.0f}", "<= 1,000"))
    for workload in ("hlr", "tptbm", "prepaid", "tprocc"):
        figures = run("populate", "--workload", workload, *(QUICK["populate"] if quick else ()))
        for name, ratio in figures["ratios"].items():
            target = ">= 0.80" if name == r"\copy" else ""
            rows.append((f"{workload}: rows loaded a second, beside {name}", f"{ratio['rows_only']:.2f}", target))
            rows.append((f"{workload}: until ready, beside {name}", f"{ratio['ready']:.2f}", target))
    stated = run("custom_sql", *(QUICK["custom_sql"] if quick else ()))["ratios"]
    rows.append(
        ("one SELECT stated in a plan (kind: sql), client CPU, beside built in", f"{stated['one']:.2f}", "<= 1.10")
    )
    rows.append(("four statements with a result passed on, likewise", f"{stated['several']:.2f}", ""))
    print(f"{'':66}{'ratio':>8}  target")
    for name, ratio, target in rows:
        print(f"{name:66}{ratio:>8}  {target}")


if __name__ == "__main__":
    main()
