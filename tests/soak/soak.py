"""The long tests of reliability, part by part: `make soak`, or `python tests/soak/soak.py PART … [--count N]`.

Each part prints one line per failure and one line with its figure, and the exit code is 1 when anything failed. What the parts
show stands in docs/reliability.md, and each has a short version in the test-suite.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "fabric"))
sys.path.insert(0, str(Path(__file__).parent))

import broken_lines
import kill_points
from kill_points import Point

HERE = Path(__file__).parent

Part = Callable[[int], tuple[str, list[str]]]


def _points(who: str, count: int) -> Iterable[int]:
    """`count` boundaries spread over all that a run has."""
    with tempfile.TemporaryDirectory() as folder:
        all_of_them = int(kill_points.die(Point(who, 0), Path(folder)).boundary.split()[0])
    step = max(1.0, all_of_them / count)
    return sorted({round(1 + number * step) for number in range(count) if 1 + number * step <= all_of_them})


def _die(who: str, count: int) -> tuple[str, list[str]]:
    failures, longest_s, boundaries, points = [], 0.0, set(), 0
    for at in _points(who, count):
        with tempfile.TemporaryDirectory() as folder:
            death = kill_points.die(Point(who, at), Path(folder))
        if not death.boundary and death.codes == (0,):
            continue  # a run says more or less, by its samples: this one had ended before
        points += 1
        longest_s = max(longest_s, death.orphans_s)
        boundaries.add(death.boundary.partition(" ")[2])
        failures += [f"{death.boundary}: {wrong}" for wrong in death.wrongs]
    named = ", ".join(sorted(boundaries))
    return f"killed at {points} points ({named}); processes were left for {longest_s:.1f} s at most", failures


def seeds(count: int) -> tuple[str, list[str]]:
    """Simulated histories (promise 13)."""
    argv = [sys.executable, str(HERE.parent / "simulation" / "seeds.py"), "--count", str(count)]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    return ended.stdout.strip().splitlines()[-3], [] if ended.returncode == 0 else [ended.stdout + ended.stderr]


PARTS: dict[str, tuple[Part, int]] = {
    "seeds": (seeds, 10_000),
    "agent": (lambda count: _die("agents", count), 48),
    "coordinator": (lambda count: _die("coordinator", count), 1000),
    "kills": (lambda count: asyncio.run(broken_lines.kills(count)), 200),
    "cuts": (lambda count: asyncio.run(broken_lines.cuts(count)), 200),
    "retries": (lambda count: asyncio.run(broken_lines.retries(count)), 1000),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help="all of them when none is named")
    parser.add_argument("--count", type=int, help="instead of a part's own")
    given = parser.parse_args()
    failed = False
    for name in given.part or PARTS:
        part, count = PARTS[name]
        began_s = time.monotonic()
        figure, failures = part(given.count or count)
        for failure in failures:
            print(f"{name}: FAILED {failure}", flush=True)
        failed = failed or bool(failures)
        print(f"{name}: {figure}; {len(failures)} failures; {time.monotonic() - began_s:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
