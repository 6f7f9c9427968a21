"""A shortened form of `benchmarks/statistics.py`: every statement holds within four standard deviations of its trials."""

from __future__ import annotations

import math

import pytest
import thorough
from stated_and_real import Measured, Row, rows

TRIALS = thorough.count(200, 60)


@pytest.mark.thorough
@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_a_statement_holds(row: Row) -> None:
    found = row.measure(TRIALS)
    assert found.trials + found.left_out == TRIALS
    assert row.holds(found), f"stated {row.stated:.1%}, bound {row.bound:.1%}, real {found.share:.1%}"


@pytest.mark.slow
def test_intervals_and_comparisons_are_stated_where_repeats_allow_them() -> None:
    """A row that leaves all trials out holds without a statement: only one repeat may."""
    silent = [row.name for row in rows() if math.isnan(row.measure(3).share)]
    assert silent
    assert all("1 repeat " in name for name in silent), silent


@pytest.mark.parametrize(
    ("hits", "holds"), [(190, True), (178, True), (162, False)], ids=["as stated", "within the error", "too few"]
)
def test_a_share_below_its_bound_does_not_hold(hits: int, holds: bool) -> None:
    row = Row(name="", stated=0.95, bound=0.93, at_least=True, measure=lambda _: Measured(hits=0, trials=0))
    assert row.holds(Measured(hits=hits, trials=200)) is holds


def test_a_share_above_its_bound_does_not_hold() -> None:
    row = Row(name="", stated=0.05, bound=0.05, at_least=False, measure=lambda _: Measured(hits=0, trials=0))
    assert row.holds(Measured(hits=20, trials=200))
    assert not row.holds(Measured(hits=40, trials=200))
