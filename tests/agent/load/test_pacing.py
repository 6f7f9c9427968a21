"""The due times of transactions: hand-computed tables, and properties of every share and schedule. Rates that change are
in `test_intensity`."""

from __future__ import annotations

import dataclasses
from itertools import islice, pairwise, takewhile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proveout.agent.load.loop.terminal import dealt
from proveout.agent.load.pacing import Pacing, Timeline
from proveout.coordinator.measure.load_merge import load_shares
from proveout.dsl.plan.phases import Level
from proveout.dsl.plan.stages import Windows
from proveout.proto.wire.tasks import LoadShare

MS = 1_000_000
RATES = st.floats(1.0, 5_000.0)
DISTRIBUTIONS = st.sampled_from(["constant", "poisson"])


def due(pacing: Pacing, terminal: int, count: int) -> list[int]:
    return list(islice(pacing.fire_times(terminal), count))


def share(total: int, low: float, high: float | None, measure_s: float, distribution: str) -> LoadShare:
    """All terminals of a load at one rate, or at one that changes to another over the window."""
    levels = () if high is None else (Level(for_s=measure_s, at_s=(0.0, measure_s), values=(low, high)),)
    return LoadShare(first=0, count=total, total=total, rate=low, levels=levels, distribution=distribution)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("terminal", "total", "rate", "ramp_s", "expected_ms"),
    [
        (0, 1, 1000.0, 0.0, [0, 1, 2, 3]),
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


def test_a_day_at_a_million_a_second_does_not_drift() -> None:
    pacing = Pacing(total=64, rate=1e6, ramp_s=0.0)
    arrival = 86_400 * 10**6 + 5
    assert round(float(pacing.due_s(np.array([float(arrival)]))[0]) * 1e9) == pytest.approx(arrival * 1000, abs=20)


def test_poisson_terminals_and_seeds_differ_and_repeat() -> None:
    pacing = Pacing(total=2, rate=10.0, ramp_s=0.0, distribution="poisson", seed=1)
    assert due(pacing, 0, 50) == due(pacing, 0, 50)
    assert due(pacing, 0, 50) != due(pacing, 1, 50)
    assert due(pacing, 0, 50) != due(dataclasses.replace(pacing, seed=2), 0, 50)


def test_closed_terminals_start_over_the_first_half_of_the_ramp() -> None:
    pacing = Pacing.of(
        LoadShare(first=0, count=4, total=4), Windows(ramp_up_s=2.0, measure_s=5.0, ramp_down_s=1.0), seed=1
    )
    assert not pacing.is_open
    assert [pacing.start_ns(terminal) / MS for terminal in range(4)] == [0, 250, 500, 750]


def test_windows_include_their_first_instant_and_exclude_their_last() -> None:
    timeline = Timeline.of(Windows(ramp_up_s=1.5, measure_s=2.0, ramp_down_s=0.5), 7)
    edges = (timeline.measure_start_ns, timeline.measure_end_ns, timeline.end_ns)
    assert edges == (1_500_000_007, 3_500_000_007, 4_000_000_007)
    instants = (edges[0] - 1, edges[0], edges[1] - 1, edges[1])
    assert [timeline.window(at) for at in instants] == ["ramp_up", "measure", "measure", "ramp_down"]


@given(
    st.integers(1, 40),
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    RATES,
    st.none() | RATES,
    st.floats(0.0, 5.0),
    DISTRIBUTIONS,
)
@settings(max_examples=60)
def test_any_split_into_agents_and_workers_gives_exactly_the_schedule(
    total: int, workers: list[int], low: float, high: float | None, up_s: float, distribution: str
) -> None:
    """The union over agents, workers and terminals equals the schedule of one agent with one worker, each arrival once."""
    whole_share = share(total, low, high, 2.0, distribution)
    windows = Windows(ramp_up_s=up_s, measure_s=2.0, ramp_down_s=0.0)
    pacing = Pacing.of(whole_share, windows, seed=4)
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
        single = Pacing.of(dataclasses.replace(whole_share, total=1, count=1), windows, seed=4)
        assert whole == due(single, 0, 6 * total)


@given(st.integers(1, 9), RATES, st.none() | RATES, DISTRIBUTIONS, st.floats(0.0, 2.0), st.floats(0.0, 2.0))
@settings(max_examples=60)
def test_due_times_never_decrease_and_are_the_same_in_bulk(
    total: int, low: float, high: float | None, distribution: str, begin_s: float, end_s: float
) -> None:
    windows = Windows(ramp_up_s=0.5, measure_s=1.0, ramp_down_s=0.5)
    pacing = Pacing.of(share(total, low, high, 1.0, distribution), windows, seed=4)
    first_ns, end_ns = round(begin_s * 1e9), round(end_s * 1e9)
    for terminal in (0, total - 1):
        fired = list(takewhile(lambda ns: ns < end_ns, pacing.fire_times(terminal)))
        assert all(earlier <= later for earlier, later in pairwise([0, *fired]))
        in_bulk = [ns for batch in pacing.due_between(terminal, first_ns, end_ns) for ns in batch.tolist()]
        assert in_bulk == [ns for ns in fired if ns >= first_ns]
