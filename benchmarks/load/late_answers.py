"""Recorded beside true p50 of 64 connections whose client is delayed, and whether `client-handling` shows it.

    python benchmarks/load/late_answers.py [--seconds 3] [--only TEXT]

A server of PostgreSQL's protocol keeps its own times: from the kernel's receive time stamp of a request to the send of
its answer. The client is delayed although it uses little CPU. The exit code is 1 when the recorded p50 is more than a
tenth above the true one and the finding is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "agent" / "load"))

from late_answers import CASES, measure, table


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each measure window (3)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name contains TEXT")
    options = parser.parse_args()
    rows = [(case, asyncio.run(measure(case, options.seconds))) for case in CASES if options.only in case.name]
    print(table(rows))
    return int(any(one.ratio > 1.1 and not one.found for _, one in rows))


if __name__ == "__main__":
    sys.exit(main())
