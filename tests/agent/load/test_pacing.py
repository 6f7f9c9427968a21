"""The due times of transactions: hand-computed tables, and properties of every share and schedule."""

from __future__ import annotations

import dataclasses
from itertools import islice, pairwise, takewhile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proveout.agent.load.loop.terminal import dealt
from proveout.agent.load.pacing import Pacing, Timeline
from proveout.coordinator.load_shares import load_shares
from proveout.dsl.plan.phases import Level
from proveout.dsl.plan.stages import Windows
from proveout.proto.wire.tasks import LoadShare

MS = 1_000_000


def due(pacing: Pacing, terminal: int, count: int) -> list[int]:
    return list(islice(pacing.fire_times(terminal), count))


@pytest.mark.parametrize(
    ("terminal", "total", "rate", "ramp_s", "expected_ms"),
    [
        (0, 1, 1000.0, 0.0, [0, 1, 2, 3]),
        (0, 4, 1000.0, 0.0, [0, 4, 8, 12]),
        (3, 4, 1000.0, 0.0, [3, 7, 11, 15]),
        (1, 2, 0.5, 0.0, [2000, 6000, 10000, 14000]),
        # the rate grows to 100/s over 2 s: 100 arrivals are due in that time, arrival n at sqrt(n / 25) s
        (0, 25, 100.0, 2.0, [0, 1000, 1414.214, 1732.051, 2000, 2250, 2500]),
    ],
)
def test_constant_arrivals(terminal: int, total: int, rate: float, ramp_s: float, expected_ms: list[float]) -> None:
    pacing = Pacing(total=total, rate=rate, ramp_s=ramp_s)
    got = [ns / MS for ns in due(pacing, terminal, len(expected_ms))]
    assert got == pytest.approx(expected_ms, abs=0.001)


@given(st.integers(1, 97), st.floats(0.01, 1e6), st.floats(0, 30))
@settings(max_examples=60, deadline=None)
def test_the_shares_of_all_terminals_are_the_whole_schedule(total: int, rate: float, ramp_s: float) -> None:
    pacing = Pacing(total=total, rate=rate, ramp_s=ramp_s)
    whole = due(Pacing(total=1, rate=rate, ramp_s=ramp_s), 0, 8 * total)
    shared = sorted(ns for terminal in range(total) for ns in due(pacing, terminal, 8))
    assert shared == whole


@given(st.integers(1, 50), st.floats(0.1, 1e5), st.sampled_from(["constant", "poisson"]), st.integers(0, 49))
@settings(max_examples=60, deadline=None)
def test_due_times_never_decrease(total: int, rate: float, distribution: str, terminal: int) -> None:
    pacing = Pacing(total=total, rate=rate, ramp_s=1.0, distribution=distribution, seed=3)  # type: ignore[arg-type]
    times = due(pacing, terminal % total, 3000)
    assert times[0] >= 0
    assert all(earlier <= later for earlier, later in pairwise(times))


def test_a_day_at_a_million_a_second_does_not_drift() -> None:
    pacing = Pacing(total=64, rate=1e6, ramp_s=0.0)
    arrival = 86_400 * 10**6 + 5
    assert round(float(pacing.due_s(np.array([float(arrival)]))[0]) * 1e9) == pytest.approx(arrival * 1000, abs=20)


def test_poisson_has_the_rate_and_the_variance_of_poisson() -> None:
    pacing = Pacing(total=8, rate=1000.0, ramp_s=0.0, distribution="poisson", seed=11)
    times = np.sort(np.concatenate([np.array(due(pacing, terminal, 3000)) for terminal in range(8)]))
    per_10_ms = np.bincount((times[times < 2_000_000_000] // (10 * MS)).astype(np.int64), minlength=200)
    assert per_10_ms.mean() == pytest.approx(10, rel=0.1)
    assert per_10_ms.var() == pytest.approx(10, rel=0.4)


def test_poisson_ramps_too() -> None:
    pacing = Pacing(total=4, rate=1000.0, ramp_s=2.0, distribution="poisson", seed=5)
    times = np.concatenate([np.array(due(pacing, terminal, 2000)) for terminal in range(4)])
    first, second = np.count_nonzero(times < 10**9), np.count_nonzero((times >= 10**9) & (times < 2 * 10**9))
    assert first == pytest.approx(250, rel=0.2)
    assert second == pytest.approx(750, rel=0.15)


def test_poisson_terminals_and_seeds_differ_and_repeat() -> None:
    pacing = Pacing(total=2, rate=10.0, ramp_s=0.0, distribution="poisson", seed=1)
    assert due(pacing, 0, 50) == due(pacing, 0, 50)
    assert due(pacing, 0, 50) != due(pacing, 1, 50)
    other = Pacing(total=2, rate=10.0, ramp_s=0.0, distribution="poisson", seed=2)
    assert due(pacing, 0, 50) != due(other, 0, 50)


def test_closed_terminals_start_over_the_first_half_of_the_ramp() -> None:
    share = LoadShare(first=0, count=4, total=4)
    pacing = Pacing.of(share, Windows(ramp_up_s=2.0, measure_s=5.0, ramp_down_s=1.0), seed=1)
    assert not pacing.is_open
    assert [pacing.start_ns(terminal) / MS for terminal in range(4)] == [0, 250, 500, 750]


def test_windows_include_their_first_instant_and_exclude_their_last() -> None:
    timeline = Timeline.of(Windows(ramp_up_s=1.5, measure_s=2.0, ramp_down_s=0.5), 7)
    edges = (timeline.measure_start_ns, timeline.measure_end_ns, timeline.end_ns)
    assert edges == (1_500_000_007, 3_500_000_007, 4_000_000_007)
    assert [timeline.measures(at) for at in (edges[0] - 1, edges[0], edges[1] - 1, edges[1])] == [
        False,
        True,
        True,
        False,
    ]


# ---- rates that change over the measure window ----------------------------------------------------------------------

RATES = st.floats(1.0, 5_000.0)
SECONDS = st.floats(0.5, 20.0)


def line(low: float, high: float | None, measure_s: float) -> tuple[Level, ...]:
    return () if high is None else (Level(for_s=measure_s, at_s=(0.0, measure_s), values=(low, high)),)


def ramping(
    total: int, low: float, high: float, up_s: float, measure_s: float, distribution: str = "constant"
) -> Pacing:
    share = LoadShare(
        first=0,
        count=total,
        total=total,
        rate=low,
        levels=line(low, high, measure_s),
        distribution=distribution,  # type: ignore[arg-type]
    )
    return Pacing.of(share, Windows(ramp_up_s=up_s, measure_s=measure_s, ramp_down_s=1.0), seed=9)


def arrived(low: float, high: float, up_s: float, measure_s: float, until_s: float) -> float:
    """The integral of the rate from T0, by trapezoids between its corners: 0, `low` from half of the ramp-up, `high` after
    the window."""
    corners = [(0.0, 0.0), (up_s / 2, low), (up_s, low), (up_s + measure_s, high), (1e9, high)]
    area = 0.0
    for (begin, rate), (end, rate_then) in pairwise(corners):
        stop = min(end, until_s)
        if stop > begin:
            rate_at_stop = rate + (rate_then - rate) * (stop - begin) / (end - begin)
            area += (stop - begin) * (rate + rate_at_stop) / 2
    return area


@pytest.mark.parametrize(
    ("low", "high", "expected_ms"),
    [
        # x = 2n / (1 + sqrt(1 + n)): from 1/s to 5/s over 8 s, arrivals by t: t + t²/4
        (1.0, 5.0, [0, 828.427, 1464.102, 2000, 2472.136]),
        # falling from 4/s to 2/s over 4 s: 4t - t²/4, so arrival n at 8 - sqrt(64 - 4n) s
        (4.0, 2.0, [0, 254.033, 516.685, 788.897, 1071.797]),
        (2.0, 2.0, [0, 500, 1000, 1500, 2000]),
    ],
)
def test_ramps_have_the_rate_s_integral(low: float, high: float, expected_ms: list[float]) -> None:
    pacing = ramping(1, low, high, 0.0, 8.0 if high > low else 4.0)
    got = [ns / MS for ns in due(pacing, 0, len(expected_ms))]
    assert got == pytest.approx(expected_ms, abs=0.001)


@given(RATES, RATES, st.floats(0.0, 10.0), SECONDS, st.integers(0, 200_000))
@settings(max_examples=200, deadline=None)
def test_every_arrival_of_a_ramp_is_due_when_that_many_have_arrived(
    low: float, high: float, up_s: float, measure_s: float, arrival: int
) -> None:
    pacing = ramping(1, low, high, up_s, measure_s)
    due_s = float(pacing.due_s(np.array([float(arrival)]))[0])
    assert arrived(low, high, up_s, measure_s, due_s) == pytest.approx(arrival, rel=1e-9, abs=1e-6)


@given(
    st.integers(1, 40),
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    RATES,
    st.none() | RATES,
    st.floats(0.0, 5.0),
    st.sampled_from(["constant", "poisson"]),
)
@settings(max_examples=100, deadline=None)
def test_any_split_into_agents_and_workers_gives_exactly_the_schedule(
    total: int, workers: list[int], low: float, high: float | None, up_s: float, distribution: str
) -> None:
    """The union over agents, workers and terminals equals the schedule of one agent with one worker, each arrival once."""
    share = LoadShare(
        first=0,
        count=total,
        total=total,
        rate=low,
        levels=line(low, high, 2.0),
        distribution=distribution,  # type: ignore[arg-type]
    )
    windows = Windows(ramp_up_s=up_s, measure_s=2.0, ramp_down_s=0.0)
    pacing = Pacing.of(share, windows, seed=4)
    whole = sorted(ns for terminal in range(total) for ns in due(pacing, terminal, 6))
    clients = [f"client{number}" for number in range(len(workers))]
    split = [
        ns
        for host, part in load_shares(clients, total, low).items()
        for hand in dealt(part.first, part.count, workers[clients.index(host)])
        for terminal in hand
        for ns in due(pacing, terminal, 6)
    ]
    assert sorted(split) == whole
    if distribution == "constant":
        single = Pacing.of(dataclasses.replace(share, total=1, count=1), windows, seed=4)
        assert whole == due(single, 0, 6 * total)


def test_a_poisson_ramp_has_as_many_arrivals_as_its_rate_s_integral() -> None:
    pacing = ramping(4, 100.0, 1900.0, 0.0, 4.0, "poisson")
    times = np.concatenate([np.array(due(pacing, terminal, 4000)) for terminal in range(4)])
    for begin, end in pairwise(range(5)):
        expected = arrived(100.0, 1900.0, 0.0, 4.0, end) - arrived(100.0, 1900.0, 0.0, 4.0, begin)
        counted = np.count_nonzero((times >= begin * 10**9) & (times < end * 10**9))
        assert counted == pytest.approx(expected, abs=5 * expected**0.5)


@given(
    st.integers(1, 9),
    RATES,
    st.none() | RATES,
    st.sampled_from(["constant", "poisson"]),
    st.floats(0.0, 2.0),
    st.floats(0.0, 2.0),
)
@settings(max_examples=60, deadline=None)
def test_arrivals_that_were_not_started_are_counted_by_the_schedule(
    total: int, low: float, high: float | None, distribution: str, begin_s: float, end_s: float
) -> None:
    share = LoadShare(
        first=0,
        count=total,
        total=total,
        rate=low,
        levels=line(low, high, 1.0),
        distribution=distribution,  # type: ignore[arg-type]
    )
    pacing = Pacing.of(share, Windows(ramp_up_s=0.5, measure_s=1.0, ramp_down_s=0.5), seed=4)
    first_ns, end_ns = round(begin_s * 1e9), round(end_s * 1e9)
    for terminal in (0, total - 1):
        fired = takewhile(lambda ns: ns < end_ns, pacing.fire_times(terminal))
        due = [ns for batch in pacing.due_between(terminal, first_ns, end_ns) for ns in batch.tolist()]
        assert due == [ns for ns in fired if ns >= first_ns]
