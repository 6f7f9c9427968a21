"""Searches of queues whose true highest rate is known: the program's own search, judgement of probes and bounds.

A sink of capacity μ lags by 1 - μ/λ seconds more each second above μ. Rows of `stated_and_real` have the rates and
intervals of searches by response times; ADR 64 has the figures of more searches.
"""

from __future__ import annotations

import pytest
from simulated_queues import Queue, Sink, answer, search

from proveout.coordinator.schedule.rate_search import Answer
from proveout.dsl.plan.stages import Search, SearchBounds


def searched(system: Queue | Sink, stage: Search, searches: int) -> list[Answer]:
    return [answer(system, stage, seed) for seed in range(searches)]


@pytest.mark.parametrize(
    ("system", "accept", "true_rate"),
    [
        (Queue(), "errors.fraction < 0.001", 1000.0),  # of which the bounds of lateness leave most
        (Sink(), "lag.slope_upper <= 0.02 && errors.fraction < 0.001", 1000.0 / 0.98),
    ],
)
def test_the_rate_found_is_below_the_true_one_and_not_far(system: Queue | Sink, accept: str, true_rate: float) -> None:
    for found in searched(system, search(accept), 8):
        assert found.rate is not None
        assert 0.87 * true_rate <= found.rate <= true_rate
        assert found.upper is None or found.upper >= 0.95 * true_rate


def test_pauses_in_windows_that_do_not_span_them_are_undecided_and_longer_windows_decide() -> None:
    """A pause of 0.3 s every 5 s takes 6 % of the capacity."""
    queue, bounds = Queue(pause_s=0.3), SearchBounds(lateness_p99_ms_max=500.0)
    short = searched(queue, search("errors.fraction < 0.001", bounds=bounds), 8)
    assert all(found.rate is None or found.rate <= queue.effective for found in short)
    assert sum(found.outcome == "undecided" for found in short) >= 6
    whole = searched(queue, search("errors.fraction < 0.001", window_s=60.0, bounds=bounds), 2)
    assert all(0.9 * queue.effective <= (found.rate or 0.0) <= queue.effective for found in whole)
