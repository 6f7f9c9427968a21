"""The instant of recovery from counts in bins: with noise, without an effect, and where noise hides it; seeded."""

from __future__ import annotations

import numpy as np
import pytest
import thorough

from proveout.coordinator.measure.faults.recovery import Counts, recovery
from proveout.core.recovery_spans import FALSE_ALARM

BEFORE, AFTER = 200, 400
RUNS = thorough.count(2000, 200)


def arrivals(kind: str, mean: float, random: np.random.Generator) -> Counts:
    """Counts of bins: regular arrivals with random answers, independent ones, or with a drift to and fro of 5 %."""
    bins = BEFORE + AFTER
    if kind == "regular":
        ends = (np.arange(int(mean * bins) + 2) + random.random()) / mean
        return np.histogram(ends + random.exponential(0.03, len(ends)), bins=np.arange(bins + 1))[0].astype(float)
    if kind == "poisson":
        return random.poisson(mean, bins).astype(float)
    drift = np.zeros(bins)
    for at in range(1, bins):
        drift[at] = 0.9 * drift[at - 1] + random.normal()
    return random.poisson(np.maximum(mean * (1.0 + 0.05 * drift * np.sqrt(1 - 0.81)), 0.0)).astype(float)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["regular", "poisson", "drifting"])
@pytest.mark.parametrize("mean", [10.0, 200.0])
def test_without_an_effect_recovery_is_0_but_for_the_stated_rate_of_false_alarms(kind: str, mean: float) -> None:
    random = np.random.default_rng([7, round(mean), len(kind)])
    found = [
        recovery([counts[:BEFORE]], counts[BEFORE:]) for counts in (arrivals(kind, mean, random) for _ in range(RUNS))
    ]
    known = [one for one in found if one is not None]
    alarms = sum(one.at != 0 for one in known)
    # 3 standard deviations above the stated rate
    assert alarms <= FALSE_ALARM * len(known) + 3 * (FALSE_ALARM * len(known)) ** 0.5
    assert all(one.level <= 0.95 + 1e-9 for one in known)


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "within"), [("regular", 0), ("poisson", 0), ("drifting", 5)])
def test_the_end_of_an_outage_is_found_to_the_bin_and_where_throughput_drifts_within_half_a_second(
    kind: str, within: int
) -> None:
    random = np.random.default_rng([11, len(kind)])
    errors = []
    for _ in range(RUNS):
        counts, length = arrivals(kind, 100.0, random), int(random.integers(3, 120))
        counts[BEFORE : BEFORE + length] = 0.0
        found = recovery([counts[:BEFORE]], counts[BEFORE:])
        assert found is not None
        errors.append(np.inf if found.at is None else abs(found.at - length))
    missed = np.sum(np.array(errors) > within)
    assert missed <= FALSE_ALARM * RUNS + 3 * (FALSE_ALARM * RUNS) ** 0.5


def test_a_backlog_that_is_worked_off_does_not_move_it() -> None:
    after = np.concatenate((np.zeros(30), np.full(15, 300.0), np.full(200, 100.0)))
    noise = np.random.default_rng(1).poisson(100.0, 200).astype(float)
    found = recovery([noise], after)
    assert found is not None
    assert found.at == 30


def test_one_that_does_not_come_within_the_time_is_not_known() -> None:
    found = recovery([np.full(100, 50.0)], np.full(60, 40.0))
    assert found is not None
    assert (found.at, found.level, found.before) == (None, 0.95, 50.0)


def test_counts_that_vary_too_much_allow_no_statement() -> None:
    rare = np.random.default_rng(2).poisson(0.5, 100).astype(float)
    assert recovery([rare], rare) is None
    assert recovery([], rare) is None
    assert recovery([np.zeros(100)], rare) is None
    assert recovery([rare], rare[:0]) is None


def test_times_before_are_not_joined_over_the_times_of_other_faults() -> None:
    """Spans of 1 s lie within a run of bins: two runs of 4 s have 8 of them, and none over the edge."""
    runs = [np.tile([9.0, 11.0], 20), np.tile([9.0, 11.0], 20)]
    found = recovery(runs, np.tile([9.0, 11.0], 30))
    assert found is not None
    assert (found.at, found.before) == (0, 10.0)
