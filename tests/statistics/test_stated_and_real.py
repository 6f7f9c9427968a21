"""A short form of `benchmarks/statistics.py`: every statement holds within three standard deviations of its trials, whose
seeds are fixed; `make soak` takes more trials, and four deviations."""

from __future__ import annotations

import math

import pytest
import thorough
from stated_and_real import Measured, Row, rows

TRIALS = thorough.count(200, 40)
SIGMAS = 4.0 if thorough.THOROUGH else 3.0


@pytest.mark.thorough
@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_a_statement_holds(row: Row) -> None:
    found = row.measure(TRIALS)
    assert found.trials + found.left_out == TRIALS
    assert row.holds(found, SIGMAS), f"stated {row.stated:.1%}, bound {row.bound:.1%}, real {found.share:.1%}"
    assert "1 repeat " in row.name or not math.isnan(found.share), "only one repeat states nothing"


@pytest.mark.parametrize(
    ("at_least", "hits", "holds"), [(True, 178, True), (True, 162, False), (False, 20, True), (False, 40, False)]
)
def test_a_share_on_the_wrong_side_of_its_bound_does_not_hold(at_least: bool, hits: int, holds: bool) -> None:
    bound = 0.93 if at_least else 0.05
    row = Row(name="", stated=bound, bound=bound, at_least=at_least, measure=lambda _: Measured(hits=0, trials=0))
    assert row.holds(Measured(hits=hits, trials=200)) is holds
