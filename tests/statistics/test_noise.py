"""Detection promised against detection observed: the statements of a noise record, through the chain that compares runs.

Each trial makes the iterations of two ladders with known components, takes `ladder_metrics` of both and their `ratio`,
as `compare` and verdicts do. A change is shown when the interval of the ratio leaves out 1. Bounds are 4 standard
errors of the trials.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import thorough
from recorded_runs import iteration

from proveout.coordinator.noise import ArmDifference, Components, Spread, showing
from proveout.coordinator.results.results import ladder_metrics
from proveout.core import statistics
from proveout.core.statistics import POWER

TRIALS = thorough.count(1200, 150)
BETWEEN, WITHIN = 0.02, 0.015
ERROR = 4.0 * math.sqrt(POWER * (1.0 - POWER) / TRIALS)


pytestmark = pytest.mark.thorough


def known() -> Components:
    """Components with known variances, as after a very long noise run."""
    between, within, both = (Spread(value=v, lower=v, upper=v) for v in (BETWEEN, WITHIN, math.hypot(BETWEEN, WITHIN)))
    arms = ArmDifference(mean=0.0, lower=0.0, upper=0.0, confidence=0.95)
    total = {"iteration_total": within, "repeat_total": both}
    about = {"repeats": 1000, "window_s": 10.0, "second": None, "arms": arms}
    return Components(repeat=between, iteration=within, **total, **about)


def observed(change: float, repeats: int, seed: int, *, paired: bool = False) -> float:
    """The share of trials in which two runs of `repeats` show the change; `paired`: two interleaved ladders."""
    generator = np.random.default_rng(seed)
    shown = 0
    for _ in range(TRIALS):
        trees = []
        shared = generator.normal(0.0, BETWEEN, repeats)
        for factor in (1.0, 1.0 + change):
            logs = shared + generator.normal(0.0, WITHIN, repeats)
            shared = shared if paired else generator.normal(0.0, BETWEEN, repeats)
            found = [iteration(4, i + 1, 1000.0 * factor * math.exp(value)) for i, value in enumerate(logs)]
            trees.append(ladder_metrics(found, block="run/a" if paired else "")["rungs"]["4"]["tps"])
        ratio = statistics.ratio(trees[1], trees[0])
        shown += ratio.get("lower", 0.0) > 1.0 or ratio.get("upper", math.inf) < 1.0
    return shown / TRIALS


@pytest.mark.parametrize("repeats", [3, 14])
def test_the_smallest_change_is_shown_as_often_as_promised(repeats: int) -> None:
    change = showing(known(), repeats, 10.0)
    assert change is not None
    assert abs(observed(change, repeats, seed=repeats) - POWER) < ERROR


def test_interleaved_ladders_show_the_change_as_often_as_promised(repeats: int = 5) -> None:
    change = showing(known(), repeats, 10.0, paired=True)
    assert change is not None
    assert abs(observed(change, repeats, seed=20 + repeats, paired=True) - POWER) < ERROR
