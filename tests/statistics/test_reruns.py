"""The whole chain of an iteration that may be void: seconds -> findings -> the rule of reruns -> the rung's estimate.

A system stalls for a moment at regular intervals. Its true throughput includes the stalls; an iteration begins at any
moment between two of them. A rule that reruns what the stalls disturbed keeps the iterations that they missed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from test_validity import judged, ladder

from proveout.coordinator.results.results import ladder_metrics
from proveout.coordinator.schedule.ladders import settled
from proveout.proto.events import IterationFinished, IterationId

pytestmark = pytest.mark.slow

STAGE = ladder(repeat=5, retries=3)
WINDOW_S = 10
RATE = 1000.0
Rule = Callable[[IterationFinished], IterationFinished]


def stalling(start_s: float, period_s: float, stall_s: float, generator: np.random.Generator) -> list[int]:
    """Transactions by second of a window that begins `start_s` after the end of a stall."""
    fine = np.arange(WINDOW_S * 100) / 100.0 + start_s
    works = (fine % period_s) < period_s - stall_s
    share = works.reshape(WINDOW_S, 100).mean(axis=1)
    return [int(count) for count in np.round(RATE * share * (1.0 + 0.02 * generator.standard_normal(WINDOW_S)))]


def as_judged(item: IterationFinished) -> IterationFinished:
    return item


def as_before(item: IterationFinished) -> IterationFinished:
    """Void by what the system did, as before: variation, and an outage."""
    broken = any(not f.ok and f.check.startswith(("variation", "outage")) for f in item.findings)
    return replace(item, valid=item.valid and not broken)


def bias(rule: Rule, period_s: float, stall_s: float, runs: int = 24) -> float:
    """The relative error of the mean of the rung's mean throughput; starts are spread evenly over the period."""
    generator = np.random.default_rng([20261122, round(period_s), round(10 * stall_s)])
    count = runs * STAGE.repeat  # one start each, evenly spread, where nothing is run again
    starts = itertools.cycle(generator.permutation(count) * period_s / count)
    means = []
    for _ in range(runs):
        finished: list[IterationFinished] = []
        for repeat in range(1, STAGE.repeat + 1):
            tries: list[IterationFinished] = []
            while not settled(STAGE, tuple(tries)):
                found = judged(STAGE, per_second=stalling(float(next(starts)), period_s, stall_s, generator))
                slot = IterationId(stage="l", rung=4, repeat=repeat, attempt=len(tries) + 1)
                tries.append(rule(replace(found, id=slot)))
            finished += tries
        means.append(ladder_metrics(finished)["rungs"]["4"]["tps"]["mean"])
    return float(np.mean(means)) / (RATE * (1.0 - stall_s / period_s)) - 1.0


@pytest.mark.parametrize(("period_s", "stall_s"), [(20.0, 2.0), (15.0, 2.5)])
def test_periodic_stalls_are_in_the_mean(period_s: float, stall_s: float) -> None:
    """The error is that of the simulation alone: stated 1 %, and with the rule as it was far more."""
    assert abs(bias(as_judged, period_s, stall_s)) <= 0.01
    assert bias(as_before, period_s, stall_s) >= 0.06, "the simulation shows the bias of reruns"
