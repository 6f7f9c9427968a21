"""The instant of recovery from counts in bins. `tests/statistics/test_fault_effects.py` has random instants and no effects."""

from __future__ import annotations

import numpy as np

from proveout.coordinator.measure.faults.recovery import recovery


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
