"""Levels that change over time: the integral and its inverse, the arrivals of each phase, and the active threads."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proveout.agent.load.pacing import NEVER_NS, NEVER_S, Intensity, Pacing, Timeline
from proveout.dsl.plan.phases import Level, edges_s, level_at, mean_level
from proveout.dsl.plan.stages import Windows
from proveout.proto.wire.tasks import LoadShare

S = 10**9
VALUES = st.floats(0.0, 20_000.0).map(lambda value: round(value, 3))
LENGTHS = st.floats(0.1, 50.0).map(lambda value: round(value, 3))


def constant(for_s: float, value: float) -> Level:
    return Level(for_s=for_s, values=(value,))


def line(for_s: float, low: float, high: float) -> Level:
    return Level(for_s=for_s, at_s=(0.0, for_s), values=(low, high))


def wave(for_s: float, mean: float, share: float, periods: float) -> Level:
    return Level(for_s=for_s, values=(mean,), amplitude=mean * share, period_s=for_s / periods)


def table(lengths: list[float], values: list[float], *, steps: bool) -> Level:
    edges = [0.0, *np.cumsum(lengths).tolist()]
    return Level(for_s=edges[-1] + 1.0, at_s=tuple(edges), values=tuple(values[: len(edges)]), steps=steps)


LEVELS = st.one_of(
    st.builds(constant, LENGTHS, VALUES),
    st.builds(line, LENGTHS, VALUES, VALUES),
    st.builds(wave, LENGTHS, st.floats(1.0, 5000.0), st.floats(0.0, 1.0), st.floats(0.3, 30.0)),
    st.builds(
        table,
        st.lists(LENGTHS, min_size=1, max_size=8),
        st.lists(VALUES, min_size=9, max_size=9),
        steps=st.booleans(),
    ),
)


def pacing(levels: list[Level], *, total: int = 1, up_s: float = 2.0, distribution: str = "constant") -> Pacing:
    share = LoadShare(
        first=0,
        count=total,
        total=total,
        rate=levels[0].first,
        levels=tuple(levels),
        distribution=distribution,  # type: ignore[arg-type]
    )
    return Pacing.of(share, windows(levels, up_s), seed=7)


def windows(levels: list[Level], up_s: float = 2.0) -> Windows:
    phases = tuple((f"p{number}", level.for_s) for number, level in enumerate(levels))
    return Windows(ramp_up_s=up_s, measure_s=sum(level.for_s for level in levels), ramp_down_s=1.0, phases=phases)


def integral(intensity: Intensity, seconds: npt.ArrayLike) -> np.ndarray:
    """Λ(t): of a rate the number of arrivals that are due before these instants."""
    at = np.asarray(seconds, dtype=np.float64)
    row = np.searchsorted(intensity._begins, at, side="right") - 1
    return np.asarray(intensity._before[row] + intensity._area(row, at - intensity._begins[row]))


def due_ns(one: Pacing, until_ns: int) -> np.ndarray:
    parts = [part for terminal in range(one.total) for part in one.due_between(terminal, 0, until_ns)]
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, dtype=np.int64)


@given(st.lists(LEVELS, min_size=1, max_size=5), st.floats(0.0, 5.0))
@settings(max_examples=30)
def test_the_inverse_is_that_of_the_integral(levels: list[Level], up_s: float) -> None:
    intensity = pacing(levels, up_s=up_s).intensity
    end_s = up_s + sum(level.for_s for level in levels)
    whole = float(integral(intensity, end_s))
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
    for (_, begin, end), level in zip(edges_s(windows(levels).phases), levels, strict=True):
        area = float(integral(intensity, end) - integral(intensity, begin))
        assert area == pytest.approx(level.area, rel=1e-9, abs=1e-6)
        grid = np.linspace(0.0, level.for_s, 2_001)
        middle = (grid[1:] + grid[:-1]) / 2.0
        summed = sum(level.at(x) for x in middle) * level.for_s / 2_000
        tolerance = level.for_s / 2_000 * (level.highest + 1.0) * (len(level.values) + 1)
        assert summed == pytest.approx(level.area, abs=tolerance)
    assert mean_level(levels) == pytest.approx(
        float(integral(intensity, sum(level.for_s for level in levels))) / sum(level.for_s for level in levels),
        rel=1e-9,
    )


# ---- arrivals of phases ----------------------------------------------------------------------------------------------


@given(st.lists(LEVELS, min_size=2, max_size=4), st.integers(1, 7), st.sampled_from([0.0, 0.7, 2.0]))
@settings(max_examples=30)
def test_each_phase_has_the_arrivals_of_its_integral_for_any_number_of_terminals(
    levels: list[Level], total: int, up_s: float
) -> None:
    levels = [level.scaled(0.02) for level in levels]
    one = pacing(levels, total=total, up_s=up_s)
    timeline = Timeline.of(windows(levels, up_s), 0)
    times = due_ns(one, timeline.end_ns)
    assert np.array_equal(times, due_ns(pacing(levels, total=1, up_s=up_s), timeline.end_ns))
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
    chi = ((counted - expected) ** 2 / expected).mean()
    assert chi == pytest.approx(1.0, abs=0.2)


def test_a_phase_without_load_has_no_arrivals_and_the_last_one_may_end_them() -> None:
    levels = [constant(1.0, 100.0), constant(5.0, 0.0), line(2.0, 0.0, 100.0), constant(1.0, 0.0)]
    one = pacing(levels, up_s=0.0)
    times = due_ns(one, 20 * S)
    assert np.count_nonzero(times < 1 * S) == 100
    assert np.count_nonzero((times >= 1 * S) & (times < 6 * S)) == 0
    assert len(times) == 200
    assert one.due_s(np.array([200.0]))[0] == NEVER_S
    assert list(one.due_between(0, 8 * S, NEVER_NS)) == []


# ---- active threads --------------------------------------------------------------------------------------------------

THREADS = st.one_of(
    st.builds(constant, LENGTHS, st.integers(0, 12).map(float)),
    st.builds(line, LENGTHS, st.integers(0, 12).map(float), st.integers(0, 12).map(float)),
    st.builds(wave, LENGTHS, st.floats(1.0, 6.0), st.floats(0.0, 1.0), st.floats(0.3, 9.0)),
)


def closed(levels: list[Level], total: int, up_s: float = 1.0) -> Pacing:
    share = LoadShare(first=0, count=total, total=total, levels=tuple(levels))
    return Pacing.of(share, windows(levels, up_s), seed=1)


@given(st.lists(THREADS, min_size=1, max_size=5), st.integers(1, 12))
@settings(max_examples=20)
def test_a_terminal_is_active_while_it_is_below_the_level(levels: list[Level], total: int) -> None:
    one = closed(levels, total)
    end_s = 2.0 + sum(level.for_s for level in levels)
    for terminal in range(total):
        activity = one.activity(terminal)
        assert activity is not None
        spans = list(zip(activity.begins, activity.ends, strict=True))
        assert all(begin < end for begin, end in spans)
        assert all(end < begin for (_, end), (begin, _) in pairwise(spans))
        edges = np.array([edge for span in spans for edge in span] or [-S]) / 1e9
        changes = np.array([1.0, *(1.0 + end for _, _, end in edges_s(windows(levels).phases))])
        for at in np.linspace(0.0, end_s, 101):
            if min(np.abs(edges - at).min(), np.abs(changes - at).min()) < 1e-6:
                continue
            level = level_at(levels, at - 1.0)
            if abs(level - terminal) < 1e-9:
                continue
            assert (activity.from_ns(round(at * 1e9)) == round(at * 1e9)) == (terminal < level), (terminal, at, level)


def test_an_inactive_terminal_waits_for_its_next_time() -> None:
    levels = [constant(2.0, 1.0), constant(3.0, 4.0), constant(2.0, 1.0)]
    one = closed(levels, 4)
    first, last = one.activity(0), one.activity(3)
    assert first is not None
    assert last is not None
    assert first.from_ns(5 * S) == 5 * S
    assert last.from_ns(0) == 3 * S
    assert last.from_ns(4 * S) == 4 * S
    assert last.from_ns(6 * S) == NEVER_NS
    assert Pacing(total=4, ramp_s=1.0).activity(3) is None
    assert Pacing(total=4, ramp_s=1.0, rate=10.0).activity(3) is None
