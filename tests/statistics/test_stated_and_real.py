"""A short form of `benchmarks/statistics.py`: one row of each statement holds within three standard deviations of its
trials, whose seeds are fixed; `make soak` takes all rows and more trials, and four deviations."""

from __future__ import annotations

import math

import pytest
import thorough
from simulated_queues import Queue, Sink, answer, search
from stated_and_real import Measured, Row, rows

from proveout.coordinator.schedule.rate_search import Answer
from proveout.dsl.plan.stages import Search, SearchBounds

SIGMAS = 4.0 if thorough.THOROUGH else 3.0
DAILY = {
    "interval holds the truth, 2 repeats of 10 s": 200,
    "interval holds the truth, 3 repeats, normal": 400,
    "interval holds the truth, 5 repeats, lognormal": 200,
    "interval holds the truth, 10 repeats, one bad repeat in ten": 200,
    "`peak.tps` lower bound above the truth, 7 equal rungs, 3 repeats": 100,
    "`p99 at the peak` of the first screen ends below the truth, 7 equal rungs, 3 repeats": 30,
    "true +3 % shown by interleaved ladders that share a drift of 3 %, 5 repeats": 40,
    "equal systems, 5 repeats: `>` passes": 40,
    "true +5 % shown by `ratio`, 5 repeats": 40,
    "`ratio` of equal systems, interleaved under drift, 3 repeats: shown different": 40,
    "equal transactions of one rung whose repeats differ by 20 %, 3 repeats: shown different": 40,
    "true +10 % of one of them shown, 5 repeats": 40,
    "interference of a load: interval holds the ratio, a straight drift of 10 %, 5 repeats": 100,
    "`versus`: interval holds the ratio of equal loads, drift and a neighbour, 1 repeat of 30 s": 100,
    "`compare` of two equal systems, 2 rungs: throughput flagged, 3 repeats": 40,
    "`compare` of two equal systems, 5 rungs: any of 130 numbers flagged, 3 repeats": 16,
    "`compare` of 1 run a side that differ by 2.0%, 12 earlier ones: flagged": 40,
    "`compare` of 3 runs a side that differ by 2.0%, 0 earlier ones: flagged": 40,
    "`compare` of 3 runs a side that differ by 1 %, 12 earlier ones: 5 % better shown": 20,
    "`--fail-if 'tps.change.upper < 0'`, equal systems, 3 repeats": 40,
    "`compare`, all numbers but throughput 30 % higher, 5 rungs: throughput flagged, 5 repeats": 10,
    "`compare`, 5 of 26 numbers at 1 of 5 rungs 20 % higher: throughput called better there, 5 repeats": 10,
    "range of the repeats that would decide it holds the true 8, 5 repeats": 40,
    "range of the repeats that would decide it holds that there is none, at the limit, 3 repeats": 40,
    "a largest number of repeats is named where the value is the limit, 3 repeats": 40,
    "verdict on a value at its limit decided, auto(3..10)": 40,
    "`ratio` of equal ladders in turns decided, auto(3..10)": 20,
    "verdict decided, 1 deviations from the limit, auto(3..10)": 20,
    "repeats of 10 that auto(3..10) takes for 1 verdict 0 deviations away": 10,
    "repeats of 10 that auto(3..10) takes for 3 verdicts 2 deviations away": 6,
    "ended as futile, 0 deviations from the limit: 10 repeats would have decided it": 20,
    "chance that a verdict 1.5 deviations away is decided, by 1 earlier run of 5 repeats: not above the true one": 40,
    "smallest change that 5 repeats show, by 3 earlier runs of 5 repeats: shown with 80 %": 30,
    "independent iterations reported to follow each other, 1 rung, 10 repeats": 40,
    "iterations with a correlation of 0.5 reported, 1 rung, 10 repeats": 40,
    "a warm-up of 27 % over the ladder reported, 3 rungs, 3 repeats": 40,
    "`age_s.avg` within a tenth of the truth, a query waits for 1 to 4 of 10 s": 40,
    "`age_s.max` within a tenth of the truth, queries fail for 1 to 4 of 10 s": 40,
    "outage by a fault of 1 s, after an unrelated stall of 1 s, within 0.1 s": 12,
    "outage by a fault that leaves 1 % of the throughput for 3 s, within 0.3 s": 12,
    "a fault without effect has a time to recover, 100/s": 12,
    "a phase without effect has a time to recover, 20/s": 200,
    "`lag.slope_upper` below the true growth at 5 % overload, 20 readings": 200,
    "rate that a search finds above the true one, p99 <= 20 ms": 12,
    "rate that a search finds below 90 % of the true one, p99 <= 20 ms": 12,
    "interval of the rate of a search holds the true one, p99 <= 20 ms": 12,
    "capacity fluctuates by 10%: rate that a search finds above the true one": 12,
    "capacity fluctuates by 10%: rate that a search finds as a share of the true one": 12,
    "capacity fluctuates by 20%: rate that a search finds, undecided": 12,
    "capacity fluctuates by 10%: rate that a search finds, probes of 60": 12,
    "`trend` of 20 equal runs shows a change of level": 40,
    "`trend` of 100 equal runs shows a change of spread": 20,
    "`trend` takes one odd run of 10 sigma, 30 of 60, for a change of level": 20,
    "`trend` finds a step of 2 sigma at 10 of 20 runs": 40,
    "`trend` takes a spread x4, 30 of 60, for a change of level": 20,
    "`trend` finds a spread x4, 30 of 60": 20,
    "interval of a shown change of 2% holds it, cv 1%, 3 later runs": 20,
}
"""The rows of the daily suite, one of each statement, with their trials: fewer where one takes long."""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row.name, marks=() if row.name in DAILY else pytest.mark.soak) for row in rows()]
)
def test_a_statement_holds(row: Row) -> None:
    trials = thorough.count(200, DAILY.get(row.name, 40))
    found = row.measure(trials)
    assert (found.trials + found.left_out) % trials == 0, "shares of a whole count its parts"
    assert row.holds(found, SIGMAS), f"stated {row.stated:.1%}, bound {row.bound:.1%}, real {found.share:.1%}"
    assert "1 repeat " in row.name or not math.isnan(found.share), "only one repeat states nothing"


def test_the_daily_rows_are_rows_of_the_table() -> None:
    assert DAILY.keys() <= {row.name for row in rows()}


@pytest.mark.parametrize(("at_least", "hits", "holds"), [(True, 162, False), (False, 20, True), (False, 40, False)])
def test_a_share_on_the_wrong_side_of_its_bound_does_not_hold(at_least: bool, hits: int, holds: bool) -> None:
    bound = 0.93 if at_least else 0.05
    row = Row(name="", stated=bound, bound=bound, at_least=at_least, measure=lambda _: Measured(hits=0, trials=0))
    assert row.holds(Measured(hits=hits, trials=200)) is holds


# ---- searches of queues whose true highest rate is known, and of a sink of capacity μ, which lags by 1 - μ/λ seconds
# more each second above μ; ADR 64 has the figures of more searches


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
