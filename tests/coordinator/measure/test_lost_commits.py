"""Readings of tracked commits -> the occurrences of faults that they belong to, and what is left of no fault."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from records import ladder_stage, load_result

from proveout.coordinator.measure.faults import attributed, commit_metrics, fault_metrics, tracked_commits, with_commits
from proveout.coordinator.measure.load_merge import Stream
from proveout.proto.events import CommitsMeasured, FaultMeasured, FaultOnLoad
from proveout.proto.wire.results import CommitReading, LoadResult, TrackedCommits

S = 1_000_000_000
WINDOW_S = 60.0
LADDER = ladder_stage(clients=("a", "b"), threads=(2,))


def reading(since_s: float, at_s: float, **counts: int) -> CommitReading:
    return CommitReading(since_ns=round(since_s * S), at_ns=round(at_s * S), **counts)


def load(*readings: CommitReading, acknowledged: int | None = 100) -> LoadResult:
    commits = TrackedCommits(acknowledged=acknowledged, readings=readings)
    return load_result(measure_start_ns=5 * S, measure_end_ns=65 * S, commits=commits)


def stream(name: str = "", *, beside: bool = False, **loads: LoadResult) -> Stream:
    return Stream(stage=LADDER, threads=2, rate=None, loads=loads, seconds={}, name=name, beside=beside)


def crash(begins_s: float, healed_s: float, recovery_s: float = 0.5, **more: object) -> FaultMeasured:
    """An occurrence that is over when throughput has recovered, after it was healed."""
    return FaultMeasured(
        fault="crash",
        number=1,
        begins_s=begins_s,
        in_place_s=begins_s + 0.1,
        healed_s=healed_s,
        outage_s=healed_s - begins_s,
        outage_from_s=begins_s,
        recovery_s=healed_s - begins_s + recovery_s,
        **more,  # type: ignore[arg-type]
    )


TWO = (crash(10.0, 15.0), crash(30.0, 35.0))


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


def counts(one: FaultMeasured | FaultOnLoad | CommitsMeasured) -> tuple[int | None, ...]:
    return one.lost, one.unknown, one.unknown_committed, one.duplicates


def test_counts_are_added_over_hosts_and_given_to_each_load_and_host() -> None:
    parts = tuple(FaultOnLoad(host=host, outage_s=0.0) for host in ("a", "b"))
    faults = (crash(10.0, 15.0, loads=parts), crash(30.0, 35.0, loads=parts))
    mine = [
        reading(9.9, 15.1, lost=3, unknown=2, unknown_committed=1),
        reading(20.0, 21.0, lost=5),
        reading(29.9, 35.0, duplicates=1),
    ]
    both = [stream(a=load(*mine), b=load(reading(9.9, 15.3, lost=4), reading(59.0, 62.0, unread=2)))]
    first, second = with_commits(faults, both, WINDOW_S)
    assert (counts(first), counts(second)) == ((7, 2, 1, 0), (0, 0, 0, 1))
    assert [counts(part) for part in first.loads] == [(3, 2, 1, 0), (4, 0, 0, 0)]
    assert fault_metrics([first, second])["crash"]["lost"] == 3.5, "the mean of the occurrences"
    assert fault_metrics([first, second])["crash"]["max"]["lost"] == 7
    (whole,) = tracked_commits(faults, both, WINDOW_S)
    assert whole == CommitsMeasured(
        acknowledged=200, lost=12, lost_apart=5, unknown=2, unknown_committed=1, duplicates=1, unread=2
    )
    numbers = {"acknowledged": 200, "lost": 12, "unknown": 2, "unknown_committed": 1, "duplicates": 1}
    assert commit_metrics(both[0].loads.values()) == numbers


def test_of_several_loads_those_beside_are_in_their_own_numbers_only() -> None:
    faults = (crash(10.0, 15.0, loads=(FaultOnLoad(load="one"), FaultOnLoad(load="two"), FaultOnLoad(load="rest"))),)
    streams = [
        stream("one", a=load(reading(9.9, 15.0, lost=1))),
        stream("two", beside=True, a=load(reading(9.9, 15.0, lost=2))),
        stream("rest", a=load(acknowledged=None)),
    ]
    (one,) = with_commits(faults, streams, WINDOW_S)
    assert [part.lost for part in one.loads] == [1, 2, None]
    assert one.lost == 1
    assert [(held.load, held.lost) for held in tracked_commits(faults, streams, WINDOW_S)] == [("one", 1), ("two", 2)]


@pytest.mark.parametrize("faults", [(), TWO])
def test_without_tracking_nothing_is_known(faults: Sequence[FaultMeasured]) -> None:
    streams = [stream(a=load(acknowledged=None))]
    assert with_commits(faults, streams, WINDOW_S) == tuple(faults)
    assert tracked_commits(faults, streams, WINDOW_S) == ()
    assert commit_metrics(streams[0].loads.values()) == {}
    assert commit_metrics([load(), load(acknowledged=None)]) == {}, "a host that does not track hides what it loses"
