"""Stated against real: the levels of intervals, false alarms and detection that the program states, beside the shares
that seeded simulations of whole runs give.

    python benchmarks/statistics.py [--trials N] [--only TEXT] [--json FILE]

The simulated systems have known true numbers; results, verdicts and comparisons are the program's own. With 2,000
trials it takes most of an hour on two cores, with 200 about six minutes. `±` is the Monte Carlo error (two standard
deviations) of the real share. `not stated` is the share of trials in which the program gives no interval. The exit code
is 1 when a statement does not hold within four standard deviations.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# This file has the name of a module of the standard library, which others import.
sys.path[:] = [folder for folder in sys.path if Path(folder or ".").resolve() != HERE]
sys.path[:0] = [str(HERE.parent / "tests" / folder) for folder in ("statistics", "coordinator")]

import argparse  # noqa: E402
import json  # noqa: E402
import math  # noqa: E402
import os  # noqa: E402
import time  # noqa: E402
from concurrent.futures import ProcessPoolExecutor  # noqa: E402

from stated_and_real import Measured, Row, rows  # noqa: E402


def main() -> int:
    """Print the table; 1 when a statement does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000, help="simulated runs for each row (2000)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows whose name contains TEXT")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    began_s = time.monotonic()
    chosen = [index for index, row in enumerate(rows()) if options.only in row.name]
    if not chosen:
        parser.error(f"no row contains {options.only!r}")
    print(f"{'':88} {'stated':>9} {'real':>7} {'±':>6} {'not stated':>10}")
    found: list[tuple[Row, Measured]] = []
    with ProcessPoolExecutor(os.cpu_count() or 1) as pool:
        for index, measured in zip(chosen, pool.map(_measure, chosen, [options.trials] * len(chosen)), strict=True):
            row = rows()[index]
            print(_line(row, measured), flush=True)
            found.append((row, measured))
    wrong = [row.name for row, measured in found if not row.holds(measured)]
    print(f"{len(found) - len(wrong)} of {len(found)} statements hold, {time.monotonic() - began_s:.0f} s")
    if options.json:
        data = [_data(row, measured) for row, measured in found]
        options.json.write_text(json.dumps(data, indent=1) + "\n")
    return 1 if wrong else 0


def _measure(index: int, trials: int) -> Measured:
    row = rows()[index]
    return row.measure(max(int(trials * row.weight), 50))


def _line(row: Row, measured: Measured) -> str:
    stated = f"{'>=' if row.at_least else '<='} {row.stated:.1%}"
    total = measured.trials + measured.left_out
    silent = f"{measured.left_out / total:10.0%}"
    if math.isnan(measured.share):
        return f"{row.name:88} {stated:>9} {'-':>7} {'-':>6} {silent}"
    error = 2.0 * math.sqrt(measured.share * (1.0 - measured.share) / measured.trials)
    mark = "" if row.holds(measured) else "  does not hold"
    return f"{row.name:88} {stated:>9} {measured.share:7.1%} {error:6.1%} {silent}{mark}"


def _data(row: Row, measured: Measured) -> dict[str, object]:
    return {
        "name": row.name,
        "stated": row.stated,
        "bound": row.bound,
        "at_least": row.at_least,
        "real": None if math.isnan(measured.share) else measured.share,
        "trials": measured.trials,
        "left_out": measured.left_out,
        "holds": row.holds(measured),
    }


if __name__ == "__main__":
    sys.exit(main())
