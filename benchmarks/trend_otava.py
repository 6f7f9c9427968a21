"""Change points of `proveout trend` compared with those of Apache Otava, on the same histories: `python
benchmarks/trend_otava.py [--histories N] [--only TEXT] [--json FILE]`.

First, histories of 20, 60 and 100 runs of one repeat whose standard deviation is sigma = 1 %: A/A, steps of sigmas, one
odd run, and a larger spread from a run on. Then, histories of 100 runs of 3 repeats: A/A, and with a step of 1, 2 or
5 % at run 50. The repeats of a run have a CV of 1, 2 or 3 %, and the means of runs have an additional standard
deviation of 1 %; `correlated`: neighbouring runs correlate by 0.5. Otava receives the means of all runs of a history at
once, with its defaults (window 50, p <= 0.001), not its incremental mode; `proveout trend` decides run by run from the
runs so far, also where it looks at a history of 20. Printed per case:

- false: the share of histories with a false change of level: any without a step (with an odd run, one within 5 runs of
  it), else one more than 5 runs away from the step;
- found: the share of histories with a change of level within 5 runs of the step, with a larger spread one of spread
  (not available for Otava);
- delay: the mean number of runs from the step until it was shown (not available for Otava, which sees the whole
  history).

Otava needs older numpy and scipy than `constraints.txt` has, so it gets an environment of its own: `python -m venv
otava && otava/bin/pip install -e '.[benchmark]'`. Without it its columns are empty, and the first line has the reason.
"""

from __future__ import annotations

import sys
from pathlib import Path

# `statistics.py` of this folder has the name of a module of the standard library, which others import.
sys.path[:] = [folder for folder in sys.path if Path(folder or ".").resolve() != Path(__file__).resolve().parent]

import argparse  # noqa: E402
import json  # noqa: E402
from collections.abc import Callable  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402

from proveout.coordinator.history import metric_history  # noqa: E402

NEAR, BETWEEN = 5, 0.01
Detect = Callable[[np.ndarray], tuple[list[tuple[int, int | None]], list[int]]]
"""Repeats, runs x repeats -> places of changes of level with the runs that showed them, and places of spreads."""


@dataclass(frozen=True)
class Case:
    """Histories of one kind: from run `at` on a relative `step` and the spread times `spread`, or at run `at` an `odd`
    run by so many standard deviations; `cv` and `repeats` of each run."""

    name: str
    runs: int = 100
    at: int = 50
    step: float = 0.0
    odd: float = 0.0
    spread: float = 1.0
    cv: float = 0.0
    repeats: int = 1
    correlation: float = 0.0


def cases() -> list[Case]:
    """The rows of the table."""
    sigmas = [(20, 10, 2), (20, 15, 2), (20, 15, 3), (60, 30, 2), (100, 50, 1), (100, 50, 2)]
    percents = [(0.01, 0.0), (0.02, 0.0), (0.03, 0.0), (0.01, 0.5)]
    return [
        *(Case(f"A/A, {runs} runs", runs=runs) for runs in (20, 60, 100)),
        *(Case(f"{n} sigma at {at} of {runs}", runs, at, step=np.expm1(n * BETWEEN)) for runs, at, n in sigmas),
        *(Case(f"odd run, {n} sigma, 30 of 60", 60, 30, odd=n) for n in (7, 10, 20)),
        *(
            Case(f"spread x{n} at {runs // 2} of {runs}", runs, runs // 2, spread=n)
            for runs in (60, 100)
            for n in (2, 4)
        ),
        *(
            Case(f"{step:.0%}, cv {cv:.0%}, correlated {r:g}", step=step, cv=cv, repeats=3, correlation=r)
            for cv, r in percents
            for step in (0.0, 0.01, 0.02, 0.05)
        ),
    ]


def history(random: np.random.Generator, one: Case) -> np.ndarray:
    """The repeats of each run, runs x repeats."""
    noise = random.standard_normal(one.runs)
    for run in range(1, one.runs):
        noise[run] = one.correlation * noise[run - 1] + np.sqrt(1.0 - one.correlation**2) * noise[run]
    after = np.arange(one.runs) >= one.at
    level = BETWEEN * noise * np.where(after, one.spread, 1.0) + np.where(after, np.log1p(one.step), 0.0)
    if one.odd:
        level[one.at] += one.odd * BETWEEN
    return 1000.0 * np.exp(level[:, None] + one.cv * random.standard_normal((one.runs, one.repeats)))


def ours(repeats: np.ndarray) -> tuple[list[tuple[int, int | None]], list[int]]:
    """The changes of `proveout trend`."""
    points = [metric_history.point(list(map(float, run))) for run in repeats]
    found = metric_history.detect([one for one in points if one is not None])
    return [(one.index, one.decided) for one in found.changes], [one.index for one in found.spread_changes]


def otava() -> Detect | None:
    """Otava's detection over the means of the runs; None where it is not installed."""
    try:
        from otava.analysis import compute_change_points
    except ImportError:
        return None

    def detect(repeats: np.ndarray) -> tuple[list[tuple[int, int | None]], list[int]]:
        found, _ = compute_change_points(list(map(float, repeats.mean(axis=1))))
        return [(int(change.index), None) for change in found], []

    return detect


def measure(detect: Detect, histories: int, one: Case) -> dict[str, Any]:
    """The shares of one case; every program gets the same histories."""
    random = np.random.default_rng([*one.name.encode(), 2026])
    false = found = 0
    delays: list[int] = []
    for _ in range(histories):
        levels, spreads = detect(history(random, one))
        near = [(at, shown) for at, shown in levels if abs(at - one.at) <= NEAR]
        false += len(near) < len(levels) if one.step else bool(near if one.odd else levels)
        found += bool(near) if one.step else any(abs(at - one.at) <= NEAR for at in spreads)
        delays += [shown - one.at for _, shown in near[:1] if one.step and shown is not None]
    finds = one.step or (one.spread != 1.0 and detect is ours)
    return {
        "false": false / histories,
        "found": found / histories if finds else None,
        "delay": float(np.mean(delays)) if delays else None,
    }


def cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--histories", type=int, default=100)
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows whose name contains TEXT")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    peer = otava()
    if peer is None:
        sys.stdout.write("apache-otava is not installed: its columns are empty (pip install '.[benchmark]')\n")
    programs: dict[str, Detect | None] = {"ours": ours, "otava": peer}
    heads = [*(f"{name} {what}" for name in programs for what in ("false", "found")), "delay"]
    sys.stdout.write(f"{'':28}" + "  ".join(f"{head:>11}" for head in heads) + "\n")
    results = []
    for one in cases():
        if arguments.only not in one.name:
            continue
        found = {
            name: measure(detect, arguments.histories, one) if detect else None for name, detect in programs.items()
        }
        results.append({"case": one.name, **found})
        shown = []
        for shares in found.values():
            shown += [cell(shares["false"], ".1%"), cell(shares["found"], ".1%")] if shares else ["", ""]
        shown.append(cell((found["ours"] or {}).get("delay"), ".1f"))
        sys.stdout.write(f"{one.name:28}" + "  ".join(f"{part:>11}" for part in shown) + "\n")
        sys.stdout.flush()
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
