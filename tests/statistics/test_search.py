"""Searches of queues whose true highest rate is known: the program's own search, judgement of probes and bounds.

The *true rate* is the highest at which the condition and the bounds hold in the long run. An M/M/1 queue of capacity μ
under Poisson arrivals at λ has P(response > t) = exp(-(μ-λ) t) and P(lateness > t) = λ/μ exp(-(μ-λ) t). A sink of
capacity μ lags by 1 - μ/λ seconds more each second above μ. Stated: the rate found is above the true one in at most 5 %
of searches, and below 90 % of it in at most 5 %; bounds are 4 standard errors above that. ADR 64 has the figures of more
searches.
"""

from __future__ import annotations

import math

import pytest
from simulated_queues import Queue, Sink, answer, search

from proveout.coordinator.schedule.rate_search import Answer
from proveout.core.search_interval import CONFIDENCE, confirmed, ends
from proveout.dsl.plan.stages import Search, SearchBounds

pytestmark = pytest.mark.slow

CAPACITY = 1000.0
SEARCHES = 24
STATED = 0.05
LATENESS_S = 0.1


def allowed(searches: int) -> float:
    """The count that a stated 5 % reaches with 4 standard errors."""
    return searches * STATED + 4.0 * math.sqrt(searches * STATED * (1.0 - STATED))


def true_rate_of_lateness() -> float:
    """The highest rate whose lateness has a 99th percentile of 100 ms, by bisection."""
    low, high = 1.0, CAPACITY * (1.0 - 1e-9)
    for _ in range(100):
        middle = (low + high) / 2.0
        holds = math.log(100.0 * middle / CAPACITY) / (CAPACITY - middle) <= LATENESS_S
        low, high = (middle, high) if holds else (low, middle)
    return low


CASES: dict[str, tuple[Queue | Sink, Search, float]] = {
    "bounds": (Queue(), search("errors.fraction < 0.001"), true_rate_of_lateness()),
    "response": (Queue(), search("response.p99_us <= ms(50)"), CAPACITY - math.log(100.0) / 0.05),
    "lag": (Sink(), search("lag.slope_upper <= 0.02 && errors.fraction < 0.001"), CAPACITY / 0.98),
}


def searched(system: Queue | Sink, stage: Search, searches: int) -> list[Answer]:
    return [answer(system, stage, seed) for seed in range(searches)]


@pytest.fixture(scope="module")
def answers() -> dict[str, list[tuple[Answer, float]]]:
    """The answers of each case with the true rate."""
    return {
        name: [(found, true) for found in searched(system, stage, SEARCHES)]
        for name, (system, stage, true) in CASES.items()
    }


def test_the_rate_found_is_seldom_above_the_true_one(answers: dict[str, list[tuple[Answer, float]]]) -> None:
    every = [pair for pairs in answers.values() for pair in pairs]
    assert sum(found.rate is not None and found.rate > true for found, true in every) <= allowed(len(every))


def test_the_rate_found_is_seldom_below_nine_tenths_of_the_true_one(
    answers: dict[str, list[tuple[Answer, float]]],
) -> None:
    every = [pair for pairs in answers.values() for pair in pairs]
    assert all(found.outcome in ("found", "undecided") for found, _ in every)
    assert sum(found.rate is None for found, _ in every) <= allowed(len(every))
    assert sum((found.rate or 0.0) < 0.9 * true for found, true in every) <= allowed(len(every))


def test_the_upper_end_is_seldom_below_the_true_rate(answers: dict[str, list[tuple[Answer, float]]]) -> None:
    every = [pair for pairs in answers.values() for pair in pairs]
    assert sum(found.upper is not None and found.upper < true for found, true in every) <= allowed(len(every))
    assert sum(found.upper is None for found, _ in every) <= len(every) / 4


def test_the_interval_of_the_answer_holds_the_true_rate(answers: dict[str, list[tuple[Answer, float]]]) -> None:
    """Stated: 90 %."""
    every = [(found, true) for pairs in answers.values() for found, true in pairs if found.rate is not None]
    intervals = [(confirmed(found.rate or 0.0, found.upper, found.confirmations), true) for found, true in every]
    assert all("lower" in estimate for estimate, _ in intervals)
    holds = sum(low <= true <= high for estimate, true in intervals for low, high in [ends(estimate) or (0.0, 0.0)])
    missed, stated = len(intervals) - holds, 1.0 - CONFIDENCE
    assert missed <= len(intervals) * stated + 4.0 * math.sqrt(len(intervals) * stated * (1.0 - stated))


def test_pauses_in_windows_that_do_not_span_them_are_undecided_and_longer_windows_decide() -> None:
    """A pause of 0.3 s every 5 s takes 6 % of the capacity."""
    queue, bounds = Queue(pause_s=0.3), SearchBounds(lateness_p99_ms_max=500.0)
    short = searched(queue, search("errors.fraction < 0.001", bounds=bounds), 8)
    assert all(found.rate is None or found.rate <= queue.effective for found in short)
    assert sum(found.outcome == "undecided" for found in short) >= 6
    whole = searched(queue, search("errors.fraction < 0.001", window_s=60.0, bounds=bounds), 4)
    assert all(0.9 * queue.effective <= (found.rate or 0.0) <= queue.effective for found in whole)
