"""The due times of transactions at a level that may change: hand-computed tables, properties of every share, level and
schedule, and the active threads of closed loads."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import islice, pairwise, takewhile
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proveout.agent.load.loop.terminal import dealt
from proveout.agent.load.pacing import NEVER_NS, NEVER_S, Intensity, Pacing, Timeline
from proveout.coordinator.measure.load_merge import load_shares
from proveout.dsl.plan.phases import Level, edges_s, level_at, mean_level
from proveout.dsl.plan.stages import Windows
from proveout.proto.wire.tasks import LoadShare

S, MS = 10**9, 10**6


def constant(for_s: float, value: float) -> Level:
    return Level(for_s=for_s, values=(value,))


def line(for_s: float, low: float, high: float) -> Level:
    return Level(for_s=for_s, at_s=(0.0, for_s), values=(low, high))


def wave(for_s: float, mean: float, share: float, periods: float) -> Level:
    return Level(for_s=for_s, values=(mean,), amplitude=mean * share, period_s=for_s / periods)


def table(lengths: list[float], values: list[float], *, steps: bool) -> Level:
    edges = [0.0, *np.cumsum(lengths).tolist()]
    return Level(for_s=edges[-1] + 1.0, at_s=tuple(edges), values=tuple(values[: len(edges)]), steps=steps)


LENGTHS = st.floats(0.1, 50.0).map(lambda value: round(value, 3))
VALUES = st.floats(0.0, 20_000.0).map(lambda value: round(value, 3))
TABLES = st.builds(
    table, st.lists(LENGTHS, min_size=1, max_size=8), st.lists(VALUES, min_size=9, max_size=9), steps=st.booleans()
)
WAVES = st.builds(wave, LENGTHS, st.floats(1.0, 5000.0), st.floats(0.0, 1.0), st.floats(0.3, 30.0))
LEVELS = st.builds(constant, LENGTHS, VALUES) | st.builds(line, LENGTHS, VALUES, VALUES) | WAVES | TABLES
RATES = st.floats(1.0, 5_000.0)
STEADY = st.builds(constant, st.just(2.0), RATES) | st.builds(line, st.just(2.0), RATES, RATES)
DISTRIBUTIONS = st.sampled_from(["constant", "poisson"])


def windows(levels: Sequence[Level], up_s: float) -> Windows:
    phases = tuple((f"p{number}", level.for_s) for number, level in enumerate(levels))
    return Windows(ramp_up_s=up_s, measure_s=sum(level.for_s for level in levels), ramp_down_s=1.0, phases=phases)


def pacing(
    levels: Sequence[Level], *, total: int = 1, up_s: float = 2.0, is_open: bool = True, distribution: Any = "constant"
) -> Pacing:
    rate = levels[0].first if is_open else None
    share = LoadShare(first=0, count=total, total=total, rate=rate, levels=tuple(levels), distribution=distribution)
    return Pacing.of(share, windows(levels, up_s), seed=7)


def due(pacing: Pacing, terminal: int, count: int) -> list[int]:
    return list(islice(pacing.fire_times(terminal), count))


def due_ns(one: Pacing, until_ns: int) -> np.ndarray:
    parts = [part for terminal in range(one.total) for part in one.due_between(terminal, 0, until_ns)]
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, dtype=np.int64)


def integral(intensity: Intensity, seconds: npt.ArrayLike) -> np.ndarray:
    """Λ(t): of a rate the number of arrivals that are due before these instants."""
    at = np.asarray(seconds, dtype=np.float64)
    row = np.searchsorted(intensity._begins, at, side="right") - 1
    return np.asarray(intensity._before[row] + intensity._area(row, at - intensity._begins[row]))


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
    got = due(Pacing(total=total, rate=rate, ramp_s=ramp_s), terminal, len(expected_ms))
    assert [ns / MS for ns in got] == pytest.approx(expected_ms, abs=0.001)


def test_a_day_at_a_million_a_second_does_not_drift() -> None:
    pacing = Pacing(total=64, rate=1e6, ramp_s=0.0)
    arrival = 86_400 * 10**6 + 5
    assert round(float(pacing.due_s(np.array([float(arrival)]))[0]) * 1e9) == pytest.approx(arrival * 1000, abs=20)


def test_poisson_terminals_and_seeds_differ_and_repeat() -> None:
    pacing = Pacing(total=2, rate=10.0, ramp_s=0.0, distribution="poisson", seed=1)
    assert due(pacing, 0, 50) == due(pacing, 0, 50)
    assert due(pacing, 0, 50) != due(pacing, 1, 50)
    assert due(pacing, 0, 50) != due(dataclasses.replace(pacing, seed=2), 0, 50)


def test_windows_include_their_first_instant_and_exclude_their_last() -> None:
    timeline = Timeline.of(Windows(ramp_up_s=1.5, measure_s=2.0, ramp_down_s=0.5), 7)
    edges = (timeline.measure_start_ns, timeline.measure_end_ns, timeline.end_ns)
    assert edges == (1_500_000_007, 3_500_000_007, 4_000_000_007)
    instants = (edges[0] - 1, edges[0], edges[1] - 1, edges[1])
    assert [timeline.window(at) for at in instants] == ["ramp_up", "measure", "measure", "ramp_down"]


@given(st.integers(1, 40), st.lists(st.integers(1, 9), min_size=1, max_size=5), STEADY, st.floats(0, 5), DISTRIBUTIONS)
@settings(max_examples=60)
def test_any_split_into_agents_and_workers_gives_exactly_the_schedule(
    total: int, workers: list[int], level: Level, up_s: float, distribution: str
) -> None:
    one = pacing([level], total=total, up_s=up_s, distribution=distribution)
    clients = [f"client{number}" for number in range(len(workers))]
    split = [
        ns
        for host, part in load_shares(clients, total, level.first).items()
        for hand in dealt(part.first, part.count, workers[clients.index(host)])
        for terminal in hand
        for ns in due(one, terminal, 6)
    ]
    assert sorted(split) == sorted(ns for terminal in range(total) for ns in due(one, terminal, 6))


@given(st.integers(1, 9), STEADY, DISTRIBUTIONS, st.integers(0, 2 * S), st.integers(0, 2 * S))
@settings(max_examples=60)
def test_due_times_never_decrease_and_are_the_same_in_bulk(
    total: int, level: Level, distribution: str, first_ns: int, end_ns: int
) -> None:
    one = pacing([level], total=total, up_s=0.5, distribution=distribution)
    for terminal in (0, total - 1):
        fired = list(takewhile(lambda ns: ns < end_ns, one.fire_times(terminal)))
        assert all(earlier <= later for earlier, later in pairwise([0, *fired]))
        in_bulk = [ns for batch in one.due_between(terminal, first_ns, end_ns) for ns in batch.tolist()]
        assert in_bulk == [ns for ns in fired if ns >= first_ns]


# ---- levels that change ----------------------------------------------------------------------------------------------


@given(st.lists(LEVELS, min_size=1, max_size=5), st.floats(0.0, 5.0))
@settings(max_examples=30)
def test_the_inverse_is_that_of_the_integral(levels: list[Level], up_s: float) -> None:
    intensity = pacing(levels, up_s=up_s).intensity
    whole = float(integral(intensity, up_s + sum(level.for_s for level in levels)))
    numbers = np.linspace(0.0, whole * 0.999, 200)
    at_s = intensity.inverse(numbers)
    assert np.all(np.diff(at_s) >= 0.0)
    assert integral(intensity, at_s) == pytest.approx(numbers, abs=1e-5)
    positive = [level_at(levels, at - up_s) > 1.0 and at > up_s for at in at_s]
    nudged = integral(intensity, at_s + 1e-9)
    assert np.all(nudged[positive] >= numbers[positive] - 1e-9), "a nanosecond later it would be due"


@given(st.lists(LEVELS, min_size=1, max_size=3))
@settings(max_examples=20)
def test_the_integral_is_that_of_the_levels(levels: list[Level]) -> None:
    intensity = pacing(levels, up_s=0.0).intensity
    for (_, begin, end), level in zip(edges_s(windows(levels, 0.0).phases), levels, strict=True):
        area = float(integral(intensity, end) - integral(intensity, begin))
        assert area == pytest.approx(level.area, rel=1e-9, abs=1e-6)
        grid = np.linspace(0.0, level.for_s, 2_001)
        summed = sum(level.at(x) for x in (grid[1:] + grid[:-1]) / 2.0) * level.for_s / 2_000
        tolerance = level.for_s / 2_000 * (level.highest + 1.0) * (len(level.values) + 1)
        assert summed == pytest.approx(level.area, abs=tolerance)
    length_s = sum(level.for_s for level in levels)
    assert mean_level(levels) == pytest.approx(float(integral(intensity, length_s)) / length_s, rel=1e-9)


@given(st.lists(LEVELS, min_size=2, max_size=4), st.integers(1, 7), st.sampled_from([0.0, 0.7, 2.0]))
@settings(max_examples=30)
def test_each_phase_has_the_arrivals_of_its_integral_for_any_number_of_terminals(
    levels: list[Level], total: int, up_s: float
) -> None:
    levels = [level.scaled(0.02) for level in levels]
    one = pacing(levels, total=total, up_s=up_s)
    timeline = Timeline.of(windows(levels, up_s), 0)
    times = due_ns(one, timeline.end_ns)
    assert np.array_equal(times, due_ns(pacing(levels, up_s=up_s), timeline.end_ns))
    for _, start_ns, end_ns in timeline.phases:
        counted = np.count_nonzero((times >= start_ns) & (times < end_ns))
        before, after = integral(one.intensity, [start_ns / 1e9, end_ns / 1e9])
        assert abs(counted - (after - before)) < 1.0 + 1e-6


def test_poisson_phases_have_the_mean_and_the_variance_of_poisson() -> None:
    levels = [constant(2.0, 1000.0), constant(2.0, 4000.0), wave(4.0, 2000.0, 0.5, 2.0)]
    times = due_ns(pacing(levels, total=8, up_s=0.0, distribution="poisson"), 8 * S)
    edges = np.arange(0, 8 * S + 1, S // 100)
    counted = np.histogram(times, edges)[0]
    expected = np.diff(integral(pacing(levels, up_s=0.0).intensity, edges / 1e9))
    for begin, end in ((0, 200), (200, 400), (400, 800)):
        assert counted[begin:end].sum() == pytest.approx(expected[begin:end].sum(), rel=0.06)
    assert ((counted - expected) ** 2 / expected).mean() == pytest.approx(1.0, abs=0.2)


def test_a_phase_without_load_has_no_arrivals_and_the_last_one_may_end_them() -> None:
    one = pacing([constant(1.0, 100.0), constant(5.0, 0.0), line(2.0, 0.0, 100.0), constant(1.0, 0.0)], up_s=0.0)
    times = due_ns(one, 20 * S)
    assert np.histogram(times, [0, S, 6 * S, 20 * S])[0].tolist() == [100, 0, 100]
    assert one.due_s(np.array([200.0]))[0] == NEVER_S
    assert list(one.due_between(0, 8 * S, NEVER_NS)) == []


# ---- closed loads ----------------------------------------------------------------------------------------------------

FEW = st.integers(0, 12).map(float)
THREADS = (
    st.builds(constant, LENGTHS, FEW)
    | st.builds(line, LENGTHS, FEW, FEW)
    | st.builds(wave, LENGTHS, st.floats(1.0, 6.0), st.floats(0.0, 1.0), st.floats(0.3, 9.0))
)


def test_closed_terminals_start_over_the_first_half_of_the_ramp() -> None:
    one = pacing([constant(5.0, 4.0)], total=4, is_open=False)
    assert not one.is_open
    assert [one.start_ns(terminal) / MS for terminal in range(4)] == [0, 250, 500, 750]


@given(st.lists(THREADS, min_size=1, max_size=5), st.integers(1, 12))
@settings(max_examples=20)
def test_a_terminal_is_active_while_it_is_below_the_level(levels: list[Level], total: int) -> None:
    one = pacing(levels, total=total, up_s=1.0, is_open=False)
    changes = np.array([1.0, *(1.0 + end for _, _, end in edges_s(windows(levels, 1.0).phases))])
    for terminal in range(total):
        activity = one.activity(terminal)
        assert activity is not None
        spans = list(zip(activity.begins, activity.ends, strict=True))
        assert all(begin < end for begin, end in spans)
        assert all(end < begin for (_, end), (begin, _) in pairwise(spans))
        edges = np.array([edge for span in spans for edge in span] or [-S]) / 1e9
        for at in np.linspace(0.0, 1.0 + changes[-1], 101):
            level = level_at(levels, at - 1.0)
            if min(np.abs(edges - at).min(), np.abs(changes - at).min()) < 1e-6 or abs(level - terminal) < 1e-9:
                continue
            assert (activity.from_ns(round(at * 1e9)) == round(at * 1e9)) == (terminal < level), (terminal, at, level)


def test_an_inactive_terminal_waits_for_its_next_time() -> None:
    one = pacing([constant(2.0, 1.0), constant(3.0, 4.0), constant(2.0, 1.0)], total=4, up_s=1.0, is_open=False)
    first, last = one.activity(0), one.activity(3)
    assert first is not None and last is not None
    assert first.from_ns(5 * S) == 5 * S
    assert [last.from_ns(at) for at in (0, 4 * S, 6 * S)] == [3 * S, 4 * S, NEVER_NS]
    assert Pacing(total=4, ramp_s=1.0).activity(3) is None
    assert Pacing(total=4, ramp_s=1.0, rate=10.0).activity(3) is None
