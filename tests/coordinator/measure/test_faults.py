"""The effect of a fault on a load, by transactions whose times are known: outage, detection, recovery, failures; and the
tracked commits that belong to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from records import ladder_stage, load_result

from proveout.coordinator.measure.fault_effects import BinSeries, Effect, Occurrence, effect, together
from proveout.coordinator.measure.faults import (
    attributed,
    commit_metrics,
    fault_metrics,
    measure_faults,
    tracked_commits,
    with_commits,
)
from proveout.coordinator.measure.load_merge import Stream
from proveout.proto.events import CommitsMeasured, FaultMeasured, FaultOnLoad
from proveout.proto.wire import histogram
from proveout.proto.wire.results import (
    CommitReading,
    FaultInjected,
    FaultOccurrence,
    LoadResult,
    LoadSecond,
    TrackedCommits,
)

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


def without(rows: Rows, from_ns: int, until_ns: int) -> Rows:
    """Leave out the rows that end within these times: they have no answer."""
    return [row for row in rows if not from_ns <= row[1] < until_ns]


def series(answered: Rows, failed: Rows | None = None) -> BinSeries:
    both = (np.array(rows or [], dtype=np.int64).reshape(-1, 2) for rows in (answered, failed))
    table = histogram.decode(histogram.of_records(-RAMP_UP, WINDOW + S, *both))
    return BinSeries(origin_ns=-RAMP_UP, table=table, end_ns=WINDOW + S, window_ns=WINDOW, settled_ns=-S)


def at(begins_ns: int, for_ns: int | None = None) -> Occurrence:
    healed_ns = None if for_ns is None else begins_ns + for_ns
    return Occurrence(fault="f", number=1, begins_ns=begins_ns, in_place_ns=begins_ns, healed_ns=healed_ns)


def near(ns: int, within_ns: int = histogram.WIDTH_NS) -> Any:
    return pytest.approx(ns, abs=within_ns)


TENTHS = regular(10 * MS)


@pytest.mark.parametrize(
    ("every_ns", "begins_ns"), [(2 * MS, 7_098 * MS + 7), (50 * MS, 9_999_999_999), (190 * MS, 7 * S)]
)
def test_a_stall_of_exactly_3_s_is_an_outage_of_3_s_within_one_intended_interval(every_ns: int, begins_ns: int) -> None:
    rows = stalled(regular(every_ns), begins_ns, begins_ns + 3 * S)
    found = effect(series(rows), at(begins_ns, 3 * S))
    assert found.outage_ns == near(3 * S, every_ns + 5 * MS)
    assert found.outage_ns is not None and found.outage_from_ns is not None and not found.outage_at_least
    # The outage begins with an intended time, or with a success, and ends with a success: none is between the two.
    ends = {ended for _, ended in rows}
    assert found.outage_from_ns in {intended for intended, _ in rows} | ends
    assert found.outage_from_ns + found.outage_ns in ends
    assert not any(found.outage_from_ns < end < found.outage_from_ns + found.outage_ns for end in ends)


def test_an_outage_counts_from_the_intended_time_of_the_first_transaction_without_an_answer() -> None:
    """At 2/s the last success is at 6.505 s; the stall begins at 6.6 s; the next transaction is due at 7 s."""
    rows = stalled(regular(500 * MS), 6_600 * MS, 9_600 * MS)
    found = effect(series(rows), at(6_600 * MS, 3 * S))
    assert (found.outage_from_ns, found.outage_ns) == (7 * S, 2_600 * MS)


def test_errors_do_not_count_as_successes_and_the_first_one_is_the_detection() -> None:
    failed = [(8 * S + 10 * MS * n, 8 * S + 10 * MS * n + 2 * MS) for n in range(199)]
    failed += [(8 * S + n * 200 * MS, 8 * S + n * 200 * MS) for n in range(1, 10)]  # attempts to connect
    found = effect(series(without(TENTHS, 8 * S, 10 * S), failed), at(8 * S - 1 * MS, 2 * S))
    assert (found.detection_ns, found.failed) == (3 * MS, 199)
    assert found.outage_ns == near(2 * S, 10 * MS)


def test_usual_errors_are_neither_detected_nor_counted() -> None:
    usual = [(n * 100 * MS, n * 100 * MS + 3 * MS) for n in range(-20, 210)]
    found = effect(series(TENTHS, usual), at(8 * S, S))
    assert (found.detection_ns, found.failed, found.recovery_ns) == (None, 0, 0)
    assert 0 < (found.outage_ns or 0) <= (found.outage_usual_ns or 0) <= 20 * MS
    more = [(8 * S + 10 * MS * n, 8 * S + 10 * MS * n + MS) for n in range(50)]
    found = effect(series(TENTHS, usual + more), at(8 * S, S))
    assert (found.failed, found.detection_ns) == (50, MS)


def test_more_errors_than_very_many_usual_ones_are_detected() -> None:
    """800 usual errors of each 0.1 s: the probability of none, exp(-800), is 0 in doubles."""
    usual = [(at_ns, at_ns + MS) for at_ns in range(-RAMP_UP, WINDOW, 125_000)]
    more = [(8 * S + n * 100_000, 8 * S + n * 100_000 + MS) for n in range(500)]
    assert effect(series(TENTHS, usual), at(8 * S, S)).detection_ns is None
    assert effect(series(TENTHS, usual + more), at(8 * S, S)).detection_ns == near(0)


def test_a_slow_response_is_detected_when_it_exceeds_three_times_the_longest_usual_one() -> None:
    """Responses of 5 ms, then none for 3 s: the first one due after the begin exceeds 15 ms 15 ms later."""
    rows = stalled(regular(20 * MS), 8_001 * MS, 11_001 * MS)
    found = effect(series(rows), at(8_001 * MS, 3 * S))
    assert found.detection_ns == 14 * MS  # the transaction of 8.000 s was under way


def test_without_an_answer_to_the_end_outage_and_recovery_are_lower_bounds() -> None:
    found = effect(series(without(TENTHS, 15 * S, 99 * S)), at(15 * S), unanswered=48)
    assert found.outage_at_least and found.outage_ns == near(6 * S, 10 * MS)
    assert (found.recovery_ns, found.recovery_at_least_ns) == (None, 6 * S)  # the load goes on after the window
    assert found.failed == 48
    assert found.detection_ns == near(10 * MS, 10 * MS)


def test_an_outage_that_lasts_until_the_next_fault_is_a_lower_bound() -> None:
    rows = series(stalled(TENTHS, 8 * S, 12 * S))
    first = effect(rows, at(8 * S, S), next_ns=10 * S)
    assert (first.outage_at_least, first.recovery_at_least_ns, first.until_ns) == (True, 2 * S, 10 * S)
    second = effect(rows, replace(at(10 * S, S), number=2), disturbed=[(8 * S, 10 * S)])
    assert second.recovery_ns == near(2 * S)
    assert 0 < (second.outage_ns or 0) <= 2 * S + 10 * MS, "from its own begin on"


def test_the_outage_of_a_fault_with_another_at_its_instant_is_not_known() -> None:
    """Down for 4 s; 1 ms after the first fault begins the second one: "1 ms" would be the outage of no fault."""
    rows = series(stalled(TENTHS, 8 * S, 12 * S))
    first = effect(rows, at(8 * S, S), next_ns=8 * S + MS)
    assert (first.outage_at_least, first.outage_ns) == (True, MS)
    fine = effect(series(TENTHS), at(8 * S, S), next_ns=8 * S + S // 2)
    assert not fine.outage_at_least


def test_there_is_no_outage_where_nothing_is_due_before_the_next_fault() -> None:
    """Due at 7 and at 10 s: the time to the next fault at 9 s was one of -1 s."""
    found = effect(series(regular(3 * S)), at(8 * S, 0), next_ns=9 * S)
    assert (found.outage_ns, found.outage_at_least) == (0, False)


def test_throughput_that_stays_below_its_level_delays_recovery() -> None:
    """Down for 1 s, then half of the throughput for 4 s."""
    rows = without(regular(5 * MS), 8 * S, 9 * S)
    half = [row for n, row in enumerate(rows) if not 9 * S <= row[1] < 13 * S or n % 2]
    found = effect(series(half), at(8 * S, S))
    assert found.recovery_ns == near(5 * S)
    assert (found.recovery_level, found.tps_before) == pytest.approx((0.95, 200.0))


def test_a_load_with_a_rate_has_recovered_when_its_responses_have() -> None:
    """Down for 1 s; then each transaction is answered, but 300 ms after it was due, until 12 s or to the end."""
    rows = stalled(regular(5 * MS), 8 * S, 9 * S)

    def late(until_ns: int, is_open: bool) -> Effect:
        slow = [(due, end if not 9 * S <= due < until_ns else due + 300 * MS) for due, end in rows]
        return effect(series(slow), at(8 * S, S), is_open=is_open)

    closed = late(12 * S, False)
    assert closed.recovery_ns is not None and closed.recovery_ns < 2 * S
    assert late(12 * S, True).recovery_ns == near(4_300 * MS, 2 * histogram.WIDTH_NS)
    never = late(99 * S, True)
    assert (never.recovery_ns, never.recovery_at_least_ns) == (None, 12 * S)


def test_a_load_that_changes_is_judged_by_the_times_at_the_same_level() -> None:
    """500/s from 0 s to 4 s and from 14 s on, 100/s between: a fault at 10 s is compared with 4 s to 10 s only."""
    rows = [*regular(2 * MS, until_ns=4 * S), *regular(10 * MS, first_ns=4 * S, until_ns=14 * S)]
    rows += regular(2 * MS, first_ns=14 * S)

    def level(at_s: float) -> float:
        return 100.0 if 4.0 <= at_s < 14.0 else 500.0

    down = series(without(rows, 10 * S, 11 * S))
    found, wrong = effect(down, at(10 * S, S), level=level), effect(down, at(10 * S, S))
    assert found.tps_before == pytest.approx(100.0, rel=0.01)
    assert found.recovery_ns == near(S)
    assert wrong.recovery_ns is None or wrong.recovery_ns > 2 * S
    assert effect(series(without(rows, 10 * S, 15 * S)), at(10 * S, S), level=level).recovery_ns is None


def test_hosts_together_have_no_outage_while_one_of_them_is_served() -> None:
    one, other = series(TENTHS), series(stalled(TENTHS, 8 * S, 11 * S))
    whole = together([one, other])
    assert whole is not None
    found, held = effect(whole, at(8 * S, 3 * S)), effect(other, at(8 * S, 3 * S))
    assert found.outage_ns is not None and found.outage_ns <= (found.outage_usual_ns or 0)
    assert held.outage_ns is not None and held.outage_ns > 2_900 * MS
    assert found.recovery_ns == near(3 * S)
    assert together([one, None]) is None


def test_before_the_window_and_without_a_time_before_little_is_known() -> None:
    assert effect(series(TENTHS), at(-S)) == effect(series(TENTHS), at(WINDOW)) == Effect()
    early = replace(series(stalled(TENTHS, 0, 2 * S)), settled_ns=-500 * MS)
    found = effect(early, at(0, 2 * S))
    assert (found.recovery_ns, found.recovery_level, found.tps_before) == (None, None, None)
    assert found.outage_ns == near(2 * S, 10 * MS)


def test_what_a_fault_does_while_others_come_and_go_is_not_usual_for_a_later_one() -> None:
    """10 errors a second while `slow` is in place, from 4 to 12 s; `short` comes and goes in it; `later` has 100."""
    slow = [(4 * S + n * 100 * MS, 4 * S + n * 100 * MS + MS) for n in range(80)]
    later = [(14 * S + n * 10 * MS, 14 * S + n * 10 * MS + MS) for n in range(100)]
    both = (np.array(rows, dtype=np.int64) for rows in (TENTHS, slow + later))
    bins = histogram.of_records(-RAMP_UP, WINDOW + S, *both)
    whole = LoadSecond(second=0, window="measure", start_ns=-RAMP_UP, duration_s=23.0, transactions=(), bins=bins)
    one = Stream(
        stage=ladder_stage(clients=("a",), threads=(2,)), threads=2, rate=None, seconds={"a": [whole]},
        loads={"a": load_result(measure_start_ns=0, measure_end_ns=WINDOW)},
    )  # fmt: skip
    steps = {"slow": (4 * S, 12 * S), "short": (5 * S, 5 * S + S // 2), "later": (14 * S, 15 * S)}
    injected = {
        (name, "a"): FaultInjected(
            fault=name,
            occurrences=(
                FaultOccurrence(number=1, begins_ns=begins, in_place_ns=begins, healing_ns=healed, healed_ns=healed),
            ),
        )
        for name, (begins, healed) in steps.items()
    }
    assert [one.failed for one in measure_faults([one], injected, {})][-1] == 100


# ---- tracked commits ---------------------------------------------------------------------------------------------

WINDOW_S = 60.0


def reading(since_s: float, at_s: float, **counts: int) -> CommitReading:
    return CommitReading(since_ns=round(since_s * S), at_ns=round(at_s * S), **counts)


def load(*readings: CommitReading, acknowledged: int | None = 100) -> LoadResult:
    commits = TrackedCommits(acknowledged=acknowledged, readings=readings)
    return load_result(measure_start_ns=5 * S, measure_end_ns=65 * S, commits=commits)


def stream(name: str = "", *, beside: bool = False, **loads: LoadResult) -> Stream:
    stage = ladder_stage(clients=("a", "b"), threads=(2,))
    return Stream(stage=stage, threads=2, rate=None, loads=loads, seconds={}, name=name, beside=beside)


def crash(begins_s: float, **more: Any) -> FaultMeasured:
    """An occurrence of 5 s that is over when throughput has recovered, half a second after it was healed."""
    times: dict[str, Any] = {
        "in_place_s": begins_s + 0.1,
        "healed_s": begins_s + 5.0,
        "outage_from_s": begins_s,
        "outage_s": 5.0,
    }
    return FaultMeasured(fault="crash", number=1, begins_s=begins_s, recovery_s=5.5, **times, **more)


TWO = (crash(10.0), crash(30.0))


@pytest.mark.parametrize(
    ("since_s", "at_s", "expected"),
    [
        (9.99, 15.2, 0),  # the connection was lost at the first crash, and is back after it
        (9.99, 31.0, 0),  # back only after the second one had begun: the first cut it
        (29.9, 35.1, 1),
        (14.0, 15.4, 0),  # connected in the crash, and lost again in it
        (20.0, 25.0, None),  # between the two
        (1.0, 2.0, None),  # before both
        (-0.5, 61.0, 0),  # one that was never cut, read at the end
        (40.0, 62.0, None),
    ],
)
def test_a_reading_belongs_to_the_first_fault_in_its_time(since_s: float, at_s: float, expected: int | None) -> None:
    assert attributed(reading(since_s, at_s, lost=1), TWO, WINDOW_S) == expected


def test_a_fault_that_is_not_over_lasts_and_one_that_could_not_be_made_has_lost_nothing() -> None:
    lasting = FaultMeasured(fault="stop", number=1, begins_s=50.0, in_place_s=50.0)
    assert attributed(reading(61.5, 63.0, lost=1), (lasting,), WINDOW_S) == 0
    refused = FaultMeasured(fault="crash", number=1, begins_s=10.0, error="refused")
    assert attributed(reading(9.9, 11.0, lost=1), (refused,), WINDOW_S) is None
    times: dict[str, Any] = {
        "in_place_s": 10.1,
        "healed_s": 15.0,
        "outage_from_s": 40.0,
        "outage_s": 0.1,
        "outage_usual_s": 0.2,
    }
    short = FaultMeasured(fault="crash", number=1, begins_s=10.0, **times)
    assert attributed(reading(20.0, 39.0, lost=1), (short,), WINDOW_S) is None, "a usual outage has another cause"


def counts(one: FaultMeasured | FaultOnLoad | CommitsMeasured) -> tuple[int | None, ...]:
    return one.lost, one.unknown, one.unknown_committed, one.duplicates


def test_counts_are_added_over_hosts_and_given_to_each_load_and_host() -> None:
    parts = tuple(FaultOnLoad(host=host, outage_s=0.0) for host in ("a", "b"))
    faults = (crash(10.0, loads=parts), crash(30.0, loads=parts))
    mine = [
        reading(9.9, 15.1, lost=3, unknown=2, unknown_committed=1),
        reading(20.0, 21.0, lost=5),
        reading(29.9, 35.0, duplicates=1),
    ]
    both = [stream(a=load(*mine), b=load(reading(9.9, 15.3, lost=4), reading(59.0, 62.0, unread=2)))]
    first, second = with_commits(faults, both, WINDOW_S)
    assert (counts(first), counts(second)) == ((7, 2, 1, 0), (0, 0, 0, 1))
    assert [counts(part) for part in first.loads] == [(3, 2, 1, 0), (4, 0, 0, 0)]
    of_fault = fault_metrics([first, second])["crash"]
    assert (of_fault["lost"], of_fault["max"]["lost"]) == (3.5, 7), "the mean of the occurrences, and the most"
    numbers: dict[str, Any] = {"acknowledged": 200, "lost": 12, "unknown": 2, "unknown_committed": 1, "duplicates": 1}
    assert tracked_commits(faults, both, WINDOW_S) == (CommitsMeasured(**numbers, lost_apart=5, unread=2),)
    assert commit_metrics(both[0].loads.values()) == numbers


def test_of_several_loads_those_beside_are_in_their_own_numbers_only() -> None:
    faults = (crash(10.0, loads=tuple(FaultOnLoad(load=name) for name in ("one", "two", "rest"))),)
    streams = [
        stream("one", a=load(reading(9.9, 15.0, lost=1))),
        stream("two", beside=True, a=load(reading(9.9, 15.0, lost=2))),
        stream("rest", a=load(acknowledged=None)),
    ]
    (one,) = with_commits(faults, streams, WINDOW_S)
    assert ([part.lost for part in one.loads], one.lost) == ([1, 2, None], 1)
    assert [(held.load, held.lost) for held in tracked_commits(faults, streams, WINDOW_S)] == [("one", 1), ("two", 2)]


@pytest.mark.parametrize("faults", [(), TWO])
def test_without_tracking_nothing_is_known(faults: Sequence[FaultMeasured]) -> None:
    streams = [stream(a=load(acknowledged=None))]
    assert with_commits(faults, streams, WINDOW_S) == tuple(faults)
    assert tracked_commits(faults, streams, WINDOW_S) == ()
    assert commit_metrics(streams[0].loads.values()) == {}
    assert commit_metrics([load(), load(acknowledged=None)]) == {}, "a host that does not track hides what it loses"
