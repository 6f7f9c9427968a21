"""Change points of `proveout trend` compared with those of Apache Otava, on the same histories: `python
benchmarks/trend_otava.py [--histories N] [--json FILE]`.

Histories of 100 runs of 3 repeats: A/A, and with a step of 1, 2 or 5 % at run 50. The repeats of a run have a CV of 1,
2 or 3 %, and the means of runs have an additional standard deviation of 1 %; `correlated`: neighbouring runs correlate
by 0.5. Otava receives the means of all runs of a history at once, with its defaults (window 50, p <= 0.001), not its
incremental mode; `proveout trend` decides run by run from the runs so far. Printed per case:

- false: the share of histories with a false change point: any in an A/A history, else one more than 5 runs away from
  the step;
- found: the share of histories with a change point within 5 runs of the step;
- delay: the mean number of runs from the step until it was shown (not available for Otava, which sees the whole
  history).

Otava needs older numpy and scipy than `constraints.txt` has, so it gets an environment of its own: `python -m venv
otava && otava/bin/pip install -e '.[benchmark]'`. Without it its columns are empty, and the first line has the reason.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from proveout.coordinator.history import change_points

RUNS, AT, NEAR, REPEATS, BETWEEN = 100, 50, 5, 3, 0.01
Detect = Callable[[np.ndarray], list[tuple[int, int | None]]]


def history(random: np.random.Generator, step: float, cv: float, correlation: float) -> np.ndarray:
    """The repeats of each run, runs × repeats."""
    noise = random.standard_normal(RUNS)
    for run in range(1, RUNS):
        noise[run] = correlation * noise[run - 1] + np.sqrt(1.0 - correlation**2) * noise[run]
    level = BETWEEN * noise + np.where(np.arange(RUNS) >= AT, np.log1p(step), 0.0)
    return 1000.0 * np.exp(level[:, None] + cv * random.standard_normal((RUNS, REPEATS)))


def ours(repeats: np.ndarray) -> list[tuple[int, int | None]]:
    """Places and the runs that showed them."""
    points = [change_points.point(list(map(float, run))) for run in repeats]
    found = change_points.detect([one for one in points if one is not None])
    return [(change.index, change.decided) for change in found.changes]


def otava() -> Detect | None:
    """Otava's detection over the means of the runs; None where it is not installed."""
    try:
        from otava.analysis import compute_change_points
    except ImportError:
        return None

    def detect(repeats: np.ndarray) -> list[tuple[int, int | None]]:
        found, _ = compute_change_points(list(map(float, repeats.mean(axis=1))))
        return [(int(change.index), None) for change in found]

    return detect


def case(detect: Detect, histories: int, step: float, cv: float, correlation: float) -> dict[str, Any]:
    """The shares of one case; every program gets the same histories."""
    random = np.random.default_rng([round(step * 1000), round(cv * 1000), round(correlation * 10), 2026])
    false = found = 0
    delays: list[int] = []
    for _ in range(histories):
        places = detect(history(random, step, cv, correlation))
        near = [(at, shown) for at, shown in places if step and abs(at - AT) <= NEAR]
        false += len(near) < len(places)
        found += bool(near)
        delays += [shown - AT for _, shown in near[:1] if shown is not None]
    return {
        "false": false / histories,
        "found": found / histories if step else None,
        "delay": float(np.mean(delays)) if delays else None,
    }


def cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--histories", type=int, default=100)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    peer = otava()
    if peer is None:
        sys.stdout.write("apache-otava is not installed: its columns are empty (pip install '.[benchmark]')\n")
    programs: dict[str, Detect | None] = {"ours": ours, "otava": peer}
    heads = (
        "step",
        "cv",
        "correlated",
        *(f"{name} {what}" for name in programs for what in ("false", "found")),
        "delay",
    )
    sys.stdout.write("  ".join(f"{head:>11}" for head in heads) + "\n")
    results = []
    cases = [(step, cv, 0.0) for cv in (0.01, 0.02, 0.03) for step in (0.0, 0.01, 0.02, 0.05)]
    for step, cv, correlation in [*cases, *((step, 0.01, 0.5) for step in (0.0, 0.01, 0.02, 0.05))]:
        found = {
            name: case(detect, arguments.histories, step, cv, correlation) if detect else None
            for name, detect in programs.items()
        }
        results.append({"step": step, "cv": cv, "correlation": correlation, **found})
        shown = [f"{step:.0%}", f"{cv:.0%}", f"{correlation:g}"]
        for one in found.values():
            shown += [cell(one["false"], ".0%"), cell(one["found"], ".0%")] if one else ["", ""]
        shown.append(cell((found["ours"] or {}).get("delay"), ".1f"))
        sys.stdout.write("  ".join(f"{part:>11}" for part in shown) + "\n")
        sys.stdout.flush()
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
