"""Change points: steps that are found, weights, and decisions that later runs do not change. Rows of `stated_and_real`
have the false alarms, odd runs, short histories and changes of the spread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from proveout.coordinator.history.metric_history import (
    AFTER_MIN,
    EFFECT_RUNS_MIN,
    HISTORY_MIN,
    HORIZON,
    Point,
    detect,
    effect,
    point,
)

RUNS = 100
AT = 50


def history(generator: np.random.Generator, *, step: float = 0.0, repeats: int = 3, noisy: float = 0.0) -> list[Point]:
    """Runs that differ by 1 % beyond their repeats, which have a cv of 1 % (of 8 % in a share `noisy` of runs)."""
    level = generator.normal(0.0, 0.01, RUNS) + np.where(np.arange(RUNS) >= AT, math.log1p(step), 0.0)
    deviation = np.where(generator.random(RUNS) < noisy, 0.08, 0.01)
    found = [
        point(list(np.exp(level[run] + deviation[run] * generator.standard_normal(repeats)))) for run in range(RUNS)
    ]
    return [one for one in found if one is not None]


def test_the_size_of_a_change_is_of_runs_that_did_not_show_it() -> None:
    """The coverage of its interval is a row of `stated_and_real`."""
    found = history(np.random.default_rng(13), step=0.08)
    changes = detect(found).changes
    (change,) = changes
    for later, runs in ((0, None), (EFFECT_RUNS_MIN - 1, None), (EFFECT_RUNS_MIN, EFFECT_RUNS_MIN), (20, 10)):
        size = effect(found[: change.decided + 1 + later], changes, 0)
        assert (size.runs if size else None) == runs
    assert effect(found, changes, 0) == size, "further runs do not move it"
    showing = slice(change.index, change.decided + 1)
    other = [*found]
    other[showing] = [replace(one, value=one.value + 1.0) for one in found[showing]]
    assert effect(other, changes, 0) == size, "the runs that showed it have no part in it"
    assert size is not None
    assert 0.07 < size.lower < 0.08 < size.upper < 0.095


def test_the_size_of_a_change_ends_at_the_next_one() -> None:
    steady = [Point(0.002 * (run % 5), 4e-6, 5) for run in range(20)]
    points = [replace(one, value=one.value + level) for level in (0.0, 0.1, 0.3) for one in steady]
    changes = detect(points).changes
    assert [change.index for change in changes] == [20, 40]
    early = replace(changes[1], index=changes[0].decided + 1 + EFFECT_RUNS_MIN)
    size = effect(points, (changes[0], early), 0)
    assert size is not None
    assert size.runs == EFFECT_RUNS_MIN
    assert effect(points, (changes[0], replace(early, index=early.index - 1)), 0) is None
    second = effect(points, changes, 1)
    assert second is not None
    assert second.change == pytest.approx(math.expm1(0.2), rel=0.01)


def test_a_further_run_changes_no_decision() -> None:
    """Freezing, for prefixes of a history with two changes."""
    generator = np.random.default_rng(14)
    whole = history(generator, step=0.05)
    whole = [*whole[:80], *(Point(one.value - 0.08, one.variance, one.repeats) for one in whole[80:])]
    last = detect(whole)
    assert len(last.changes) >= 2
    for count in range(1, RUNS, 5):
        before = detect(whole[:count])
        assert before.changes == tuple(change for change in last.changes if change.decided < count)
        for index, status in enumerate(before.statuses):
            if status in ("steady", "change"):
                assert last.statuses[index] == status


def test_a_run_is_decided_within_the_horizon() -> None:
    generator = np.random.default_rng(15)
    found = detect(history(generator, step=0.05))
    assert all(AFTER_MIN - 1 <= change.decided - change.index < HORIZON for change in found.changes)
    assert found.statuses[:HISTORY_MIN] == ("history",) * HISTORY_MIN
    assert set(found.statuses[-HORIZON:]) <= {"open", "change"}
    assert "open" not in found.statuses[:-HORIZON]


def _normal(seed: int, runs: int) -> list[float]:
    return list(map(float, np.random.default_rng(seed).normal(0.0, 0.01, runs)))


def _points(values: Sequence[float]) -> list[Point]:
    return [Point(value, None, 1) for value in values]


def test_a_level_is_found_across_a_change_of_spread() -> None:
    values = _normal(3, 90)
    found = detect(
        _points([*values[:30], *(0.15 * (run >= 30) + 4.0 * value for run, value in enumerate(values[30:], 30))])
    )
    assert [abs(change.index - 30) <= 5 for change in found.changes] == [True]


def test_most_of_the_level_is_spent_early() -> None:
    """The same runs are a change in a history of 20 and none in one of 60, whose places were looked at for longer."""
    step = [0.012, -0.012] * 5 + [0.03 + value for value in (0.012, -0.012) * 3]
    (change,) = detect(_points(step)).changes
    assert 1e-4 < change.p_value <= 2.1e-3


def test_an_odd_run_is_not_taken_for_a_change_and_hides_none() -> None:
    steady = [Point(0.002 * (run % 5), None, 1) for run in range(25)]
    points = [replace(one, value=one.value - 0.1 * (run >= 15) - 0.5 * (run == 10)) for run, one in enumerate(steady)]
    (change,) = detect(points).changes
    assert (change.index, change.decided) == (15, 16)


def test_a_noisy_run_weighs_less() -> None:
    """Two runs 6 % low are a change when their repeats agree, and none when these spread by 20 %."""
    quiet = [Point(0.002 * (run % 5), 4e-6, 5) for run in range(30)]
    low = [Point(-0.06, 4e-6, 5)] * 2
    loud = [Point(-0.06, 0.04, 5)] * 2
    assert [change.index for change in detect([*quiet, *low]).changes] == [30]
    assert not detect([*quiet, *loud]).changes


def test_constant_and_short_histories() -> None:
    same = [Point(1.0, 0.0, 3)] * 30
    assert not detect(same).changes
    assert not detect([]).changes
    assert detect([Point(1.0, None, 1)] * 3).statuses == ("history",) * 3
    stepped = detect([*same, *[Point(1.1, 0.0, 3)] * 5])
    assert [change.index for change in stepped.changes] == [30]


def test_points() -> None:
    assert point([]) is None
    assert point([1.0, 0.0]) is None
    one = point([math.e])
    assert one is not None
    assert one.value == pytest.approx(1.0)
    assert (one.variance, one.repeats) == (None, 1)
