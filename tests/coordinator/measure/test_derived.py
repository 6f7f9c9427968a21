"""NOPM and TPM of an iteration of TPROC-C, from counts and counters whose answers are known; what plans may say of
them."""

from __future__ import annotations

import pytest
from records import samples, summary

from proveout.coordinator.measure.captures import Recording, Window
from proveout.coordinator.measure.summarise import nopm, order_metrics, tpm

S = 1_000_000_000
WINDOW = Window(start_ns=10 * S, end_ns=20 * S)


def recording(*names: str) -> Recording:
    """Counters that grow by 90 and 10 a second, all else alike, also outside the window."""
    rates = {"database.commits_total": 90.0, "database.rollbacks_total": 10.0}
    at = range(0, 30, 3)
    return Recording(samples({second: {name: 1_000 + rates[name] * second for name in names} for second in at}))


BOTH = ("database.commits_total", "database.rollbacks_total")
SUMMARIES = [
    summary("Payment", ok=100, tps=10.0),
    summary("NewOrder", ok=990, logical_failures=10, tps=100.0),
]


def test_only_committed_new_orders_count() -> None:
    assert nopm(SUMMARIES) == pytest.approx(100.0 * 60 * 0.99)
    assert nopm(SUMMARIES[:1]) is None
    assert nopm([summary("NewOrder", ok=0, tps=0.0)]) is None


def test_tpm_is_what_the_database_counted_in_the_window() -> None:
    assert tpm(recording(*BOTH), WINDOW) == pytest.approx(6_000.0)
    assert tpm(recording(BOTH[0]), WINDOW) is None


def test_other_workloads_have_neither() -> None:
    assert order_metrics("hlr", SUMMARIES, (recording(*BOTH), WINDOW)) == {}
    assert order_metrics("tprocc", SUMMARIES, None) == {"nopm": pytest.approx(5_940.0), "tpm": None}
