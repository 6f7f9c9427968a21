"""The effect of a fault on a load, by transactions whose times are known: outage, detection, recovery, failures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from proveout.coordinator.measure.fault_effects import BinSeries, Effect, Occurrence, effect, together
from proveout.proto.wire import histogram

MS = 1_000_000
S = 1000 * MS
WINDOW = 20 * S
RAMP_UP = 2 * S
Rows = list[tuple[int, int]]


def regular(every_ns: int, took_ns: int = 5 * MS, *, first_ns: int = -RAMP_UP, until_ns: int = WINDOW + S) -> Rows:
    """(intended, ended) of transactions at regular intervals."""
    return [(at, at + took_ns) for at in range(first_ns, until_ns - took_ns, every_ns)]


def stalled(rows: Rows, from_ns: int, until_ns: int) -> Rows:
    """Move the ends within these times to the end of them, 1 µs apart."""
    late = [row for row in rows if from_ns <= row[1] < until_ns]
    rest = [row for row in rows if not from_ns <= row[1] < until_ns]
    return rest + [(intended, until_ns + number * 1000) for number, (intended, _) in enumerate(sorted(late))]


def series(answered: Rows, failed: Rows | None = None) -> BinSeries:
    table = histogram.decode(
        histogram.of_records(
            -RAMP_UP,
            WINDOW + S,
            np.array(answered, dtype=np.int64).reshape(-1, 2),
            np.array(failed or [], dtype=np.int64).reshape(-1, 2),
        )
    )
    return BinSeries(origin_ns=-RAMP_UP, table=table, end_ns=WINDOW + S, window_ns=WINDOW, settled_ns=-S)


def at(begins_ns: int, for_ns: int | None = None) -> Occurrence:
    healed_ns = None if for_ns is None else begins_ns + for_ns
    return Occurrence(fault="f", number=1, begins_ns=begins_ns, in_place_ns=begins_ns, healed_ns=healed_ns)


@pytest.mark.parametrize(
    ("every_ns", "begins_ns"), [(2 * MS, 7_098 * MS + 7), (50 * MS, 9_999_999_999), (190 * MS, 7 * S)]
)
def test_a_stall_of_exactly_3_s_is_an_outage_of_3_s_within_one_intended_interval(every_ns: int, begins_ns: int) -> None:
    rows = stalled(regular(every_ns), begins_ns, begins_ns + 3 * S)
    found = effect(series(rows), at(begins_ns, 3 * S))
    assert found.outage_ns is not None
    assert abs(found.outage_ns - 3 * S) <= every_ns + 5 * MS
    assert found.outage_from_ns is not None
    assert not found.outage_at_least
    # The outage begins with an intended time, or with a success, and ends with a success: none is between the two.
    starts = {intended for intended, _ in rows} | {ended for _, ended in rows}
    ends = {ended for _, ended in rows}
    assert found.outage_from_ns in starts
    assert found.outage_from_ns + found.outage_ns in ends
    assert not any(found.outage_from_ns < end < found.outage_from_ns + found.outage_ns for end in ends)


def test_an_outage_counts_from_the_intended_time_of_the_first_transaction_without_an_answer() -> None:
    """At 2/s the last success is at 6.505 s; the stall begins at 6.6 s; the next transaction is due at 7 s."""
    rows = stalled(regular(500 * MS), 6_600 * MS, 9_600 * MS)
    found = effect(series(rows), at(6_600 * MS, 3 * S))
    assert (found.outage_from_ns, found.outage_ns) == (7 * S, 2_600 * MS)


def test_errors_do_not_count_as_successes_and_the_first_one_is_the_detection() -> None:
    rows = [row for row in regular(10 * MS) if not 8 * S <= row[1] < 10 * S]
    failed = [(8 * S + 10 * MS * n, 8 * S + 10 * MS * n + 2 * MS) for n in range(199)]
    failed += [(8 * S + n * 200 * MS, 8 * S + n * 200 * MS) for n in range(1, 10)]  # attempts to connect
    found = effect(series(rows, failed), at(8 * S - 1 * MS, 2 * S))
    assert found.detection_ns == 3 * MS
    assert found.failed == 199
    assert found.outage_ns is not None
    assert abs(found.outage_ns - 2 * S) <= 10 * MS


def test_usual_errors_are_neither_detected_nor_counted() -> None:
    usual = [(n * 100 * MS, n * 100 * MS + 3 * MS) for n in range(-20, 210)]
    found = effect(series(regular(10 * MS), usual), at(8 * S, S))
    assert (found.detection_ns, found.failed, found.recovery_ns) == (None, 0, 0)
    assert found.outage_ns is not None
    assert found.outage_usual_ns is not None
    assert 0 < found.outage_ns <= found.outage_usual_ns <= 20 * MS
    more = [(8 * S + 10 * MS * n, 8 * S + 10 * MS * n + MS) for n in range(50)]
    found = effect(series(regular(10 * MS), usual + more), at(8 * S, S))
    assert found.failed == 50
    assert found.detection_ns == MS


def test_a_slow_response_is_detected_when_it_exceeds_three_times_the_longest_usual_one() -> None:
    """Responses of 5 ms, then none for 3 s: the first one due after the begin exceeds 15 ms 15 ms later."""
    rows = stalled(regular(20 * MS), 8_001 * MS, 11_001 * MS)
    found = effect(series(rows), at(8_001 * MS, 3 * S))
    assert found.detection_ns == 14 * MS  # the transaction of 8.000 s was under way


def test_without_an_answer_to_the_end_outage_and_recovery_are_lower_bounds() -> None:
    rows = [row for row in regular(10 * MS) if row[1] < 15 * S]
    found = effect(series(rows), at(15 * S), unanswered=48)
    assert found.outage_at_least
    assert found.outage_ns is not None
    assert abs(found.outage_ns - 6 * S) <= 10 * MS
    assert (found.recovery_ns, found.recovery_at_least_ns) == (None, 6 * S)  # the load goes on after the window
    assert found.failed == 48
    assert found.detection_ns is not None
    assert found.detection_ns <= 20 * MS


def test_an_outage_that_lasts_until_the_next_fault_is_a_lower_bound() -> None:
    rows = stalled(regular(10 * MS), 8 * S, 12 * S)
    first = effect(series(rows), at(8 * S, S), next_ns=10 * S)
    assert first.outage_at_least
    assert first.recovery_at_least_ns == 2 * S
    assert first.until_ns == 10 * S
    second = effect(series(rows), replace(at(10 * S, S), number=2), disturbed=[(8 * S, 10 * S)])
    assert second.recovery_ns is not None
    assert abs(second.recovery_ns - 2 * S) <= histogram.WIDTH_NS
    assert second.outage_ns is not None
    assert second.outage_ns <= 2 * S + 10 * MS  # from its own begin on


def test_throughput_that_stays_below_its_level_delays_recovery() -> None:
    """Down for 1 s, then half of the throughput for 4 s."""
    rows = [row for row in regular(5 * MS) if not 8 * S <= row[1] < 9 * S]
    half = [row for n, row in enumerate(rows) if not 9 * S <= row[1] < 13 * S or n % 2]
    found = effect(series(half), at(8 * S, S))
    assert found.recovery_ns is not None
    assert abs(found.recovery_ns - 5 * S) <= histogram.WIDTH_NS
    assert found.recovery_level == pytest.approx(0.95)
    assert found.tps_before == pytest.approx(200.0)


def test_a_load_with_a_rate_has_recovered_when_its_responses_have() -> None:
    """Down for 1 s; then each transaction is answered, but 300 ms after it was due, until 12 s."""
    rows = stalled(regular(5 * MS), 8 * S, 9 * S)
    late = [(due, end if not 9 * S <= due < 12 * S else due + 300 * MS) for due, end in rows]
    closed, found = (effect(series(late), at(8 * S, S), is_open=is_open) for is_open in (False, True))
    assert closed.recovery_ns is not None
    assert closed.recovery_ns < 2 * S
    assert found.recovery_ns is not None
    assert abs(found.recovery_ns - 4_300 * MS) <= 2 * histogram.WIDTH_NS
    never = [(due, end if not due >= 9 * S else due + 300 * MS) for due, end in rows]
    found = effect(series(never), at(8 * S, S), is_open=True)
    assert (found.recovery_ns, found.recovery_at_least_ns) == (None, 12 * S)


def test_a_load_that_changes_is_judged_by_the_times_at_the_same_level() -> None:
    """500/s from 0 s to 4 s and from 14 s on, 100/s between: a fault at 10 s is compared with 4 s to 10 s only."""
    rows = [*regular(2 * MS, until_ns=4 * S), *regular(10 * MS, first_ns=4 * S, until_ns=14 * S)]
    rows += regular(2 * MS, first_ns=14 * S)
    down = [row for row in rows if not 10 * S <= row[1] < 11 * S]

    def level(at_s: float) -> float:
        return 100.0 if 4.0 <= at_s < 14.0 else 500.0

    found = effect(series(down), at(10 * S, S), level=level)
    assert found.tps_before == pytest.approx(100.0, rel=0.01)
    assert found.recovery_ns is not None
    assert abs(found.recovery_ns - S) <= histogram.WIDTH_NS
    wrong = effect(series(down), at(10 * S, S))
    assert wrong.recovery_ns is None or wrong.recovery_ns > 2 * S
    late = [row for row in rows if not 10 * S <= row[1] < 15 * S]
    assert effect(series(late), at(10 * S, S), level=level).recovery_ns is None


def test_hosts_together_have_no_outage_while_one_of_them_is_served() -> None:
    one, other = regular(10 * MS), stalled(regular(10 * MS), 8 * S, 11 * S)
    whole = together([series(one), series(other)])
    assert whole is not None
    found, held = effect(whole, at(8 * S, 3 * S)), effect(series(other), at(8 * S, 3 * S))
    assert found.outage_ns is not None
    assert found.outage_ns <= (found.outage_usual_ns or 0)
    assert held.outage_ns is not None
    assert held.outage_ns > 2_900 * MS
    assert found.recovery_ns is not None
    assert abs(found.recovery_ns - 3 * S) <= histogram.WIDTH_NS
    assert together([series(one), None]) is None


def test_before_the_window_and_without_a_time_before_little_is_known() -> None:
    assert effect(series(regular(10 * MS)), at(-S)) == Effect()
    assert effect(series(regular(10 * MS)), at(WINDOW)) == Effect()
    early = replace(series(stalled(regular(10 * MS), 0, 2 * S)), settled_ns=-500 * MS)
    found = effect(early, at(0, 2 * S))
    assert (found.recovery_ns, found.recovery_level, found.tps_before) == (None, None, None)
    assert found.outage_ns is not None
    assert abs(found.outage_ns - 2 * S) <= 10 * MS
