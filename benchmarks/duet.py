"""Loads in turns (`versus`) beside ladders in turns (`order: interleaved`): the width of the interval of a ratio for
the time that it takes, on a machine with a neighbour.

    python benchmarks/duet.py [--difference 0 1 2 5] [--rounds N] [--neighbours N]

An embedded PostgreSQL has a query whose work is known, and one with so many per cent more of it. Both methods compare
them in one run; a neighbour is a process that uses a core for random times, 2 s on average, with pauses as long. Each
window of `versus` gives an interval, and so do each 4 of them, and each 8 repeats of the two ladders. Printed: the mean
half of the interval in per cent, the seconds that it took with ramps and overhead, `s for 1 %`, the seconds that an
interval of ± 1 % would take (a width falls with the root of the time), and how often the second query is called slower,
or faster. Of an equal pair both are false alarms.
"""

from __future__ import annotations

import sys
from pathlib import Path

# A neighbour of this file has the name of a module of the standard library, which others import.
sys.path[:] = [folder for folder in sys.path if Path(folder or ".").resolve() != Path(__file__).resolve().parent]

import argparse  # noqa: E402
import math  # noqa: E402
import multiprocessing  # noqa: E402
import random  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Iterator, Sequence  # noqa: E402
from statistics import fmean  # noqa: E402
from typing import Any  # noqa: E402

import proveout  # noqa: E402
from proveout.coordinator.results.results import rung_tree  # noqa: E402
from proveout.core import statistics  # noqa: E402
from proveout.proto.events import IterationFinished  # noqa: E402

ROWS = 20_000
REPEATS, WINDOWS = 8, 4
ON_S = 2.0
PLAN = """
proveout: 1
name: duet
topology:
  hosts: {{here: {{roles: [server, client], address: local}}}}
  systems: {{db: {{engine: postgres, host: here, provision: embedded}}}}
workloads:
  one: {{kind: sql, transactions: {{count: {{statements: {{q: "SELECT count(*) FROM generate_series(1, {one})"}}}}}}}}
  two: {{kind: sql, transactions: {{count: {{statements: {{q: "SELECT count(*) FROM generate_series(1, {two})"}}}}}}}}
stages:
  - ladder:
      id: duet
      loads: {{one: {{workload: one, target: db}}, two: {{workload: two, target: db}}}}
      versus: 500ms
      threads: [1]
      measure: 10s
      repeat: {windows}
  - ladder: {{id: first, workload: one, target: db, threads: [1], measure: 4s, repeat: {repeats}}}
  - ladder:
      id: second
      order: interleaved
      with: first
      workload: two
      target: db
      threads: [1]
      measure: 4s
      repeat: {repeats}
"""


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--difference", type=float, nargs="+", default=[0, 1, 2, 5], metavar="PER CENT")
    parser.add_argument("--rounds", type=int, default=3, help="intervals of ladders in turns; four times of `versus`")
    parser.add_argument("--neighbours", type=int, default=1, help="processes that use a core now and then (1)")
    options = parser.parse_args()
    print(f"{'':24}{'intervals':>10}{'± %':>8}{'s each':>8}{'s for 1 %':>11}{'slower':>8}{'faster':>8}")
    crowd = [multiprocessing.Process(target=burn, args=(seed,), daemon=True) for seed in range(options.neighbours)]
    for one in crowd:
        one.start()
    try:
        for difference in options.difference:
            found = measured(difference, options.rounds)
            for name, row in found.items():
                print(f"{f'{difference:g} %, {name}':24}{line(row)}", flush=True)
    finally:
        for one in crowd:
            one.terminate()
    return 0


def burn(seed: int) -> None:
    """Use a core for random times."""
    drawn = random.Random(seed)
    while True:
        until = time.monotonic() + drawn.expovariate(1.0 / ON_S)
        while time.monotonic() < until:
            pass
        time.sleep(drawn.expovariate(1.0 / ON_S))


def measured(difference: float, rounds: int) -> dict[str, list[tuple[dict[str, Any], float]]]:
    """By method the ratios, second over first, each with the seconds that it took."""
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "duet.yaml"
        two = round(ROWS * (1.0 + difference / 100.0))
        plan.write_text(PLAN.format(one=ROWS, two=two, windows=WINDOWS * rounds, repeats=REPEATS * rounds))
        run = proveout.run(plan, runs_dir=folder)
        stages = {name: sorted(stage.iterations, key=by_time) for name, stage in run.stages.items()}
    duet, took_s = [one for one in stages["duet"] if one.valid], spacing(stages["duet"])
    in_slices = [(rung_tree([one], run="r")["loads"]["two"]["versus"]["tps_ratio"], took_s) for one in duet]
    together = [
        (rung_tree(duet[begin : begin + WINDOWS], run="r")["loads"]["two"]["versus"]["tps_ratio"], WINDOWS * took_s)
        for begin in range(0, len(duet), WINDOWS)
    ]
    each_s = 2.0 * spacing(sorted([*stages["first"], *stages["second"]], key=by_time))
    in_turns = list(of_groups(stages["first"], stages["second"], each_s))
    return {"slices, one window": in_slices, f"slices, {WINDOWS} windows": together, "ladders in turns": in_turns}


def by_time(one: IterationFinished) -> float:
    return one.started_unix_s


def spacing(iterations: Sequence[IterationFinished]) -> float:
    """The seconds from one iteration to the next."""
    return (iterations[-1].started_unix_s - iterations[0].started_unix_s) / (len(iterations) - 1)


def of_groups(
    first: Sequence[IterationFinished], second: Sequence[IterationFinished], each_s: float
) -> Iterator[tuple[dict[str, Any], float]]:
    """The ratio of each `REPEATS` repeats, in pairs."""
    for begin in range(0, len(first), REPEATS):
        own, base = (
            rung_tree([one for one in side[begin : begin + REPEATS] if one.valid], block="b")["tps"]
            for side in (second, first)
        )
        yield statistics.ratio(own, base), REPEATS * each_s


def line(found: Sequence[tuple[dict[str, Any], float]]) -> str:
    """The cells of a method."""
    known = [(one, seconds) for one, seconds in found if "lower" in one]
    halves = [100.0 * math.log(one["upper"] / one["lower"]) / 2.0 for one, _ in known]
    each_s = fmean(seconds for _, seconds in known)
    needed_s = each_s * fmean(half**2 for half in halves)
    slower, faster = (sum(one["upper"] < 1.0 for one, _ in known), sum(one["lower"] > 1.0 for one, _ in known))
    return f"{len(known):10}{fmean(halves):8.2f}{each_s:8.0f}{needed_s:11.0f}{slower:8}{faster:8}"


if __name__ == "__main__":
    sys.exit(main())
