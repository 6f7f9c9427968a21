"""Stalls: exact times without the end of a transaction, and the terminals that waited through them; hand-made data."""

from __future__ import annotations

import dataclasses

from proveout.agent.load.loop.recorder import Incident
from proveout.coordinator.agents.sanity import objection
from proveout.proto.wire.histogram import STALLS_MAX, common
from proveout.proto.wire.messages import TaskDone
from proveout.proto.wire.results import LoadResult, Stall

from .test_aggregator import LAST, NAMES, S, chunk, merger

MS = 1_000_000


def result(
    *records: tuple[int, int, int, int], waiting: tuple[tuple[int, int], ...] = (), errors: int = 0
) -> LoadResult:
    """The result of a load from 10 s to 13.5 s with its measure window from 11 s to 13 s."""
    load = merger()
    incidents = tuple(Incident("error", 0, "08006", 12 * S + n * MS, 12 * S + n * MS) for n in range(errors))
    load.add(0, chunk(14 * S, *records, incidents=incidents))
    load.seconds(over=True)
    return load.result([dataclasses.replace(LAST, waiting=waiting)])


def steady(first_ns: int, last_ns: int) -> list[tuple[int, int, int, int]]:
    return [(0, at - 10 * MS, at - 10 * MS, at) for at in range(first_ns, last_ns, 100 * MS)]


def test_a_time_between_two_ends_with_a_transaction_that_waited_through_it() -> None:
    """One that begins in the second half of the time has not; errors in it are counted."""
    before, after = steady(10 * S, 11 * S + 500 * MS), steady(12 * S + 700 * MS, 13 * S + 500 * MS)
    waited = (2, 11 * S + 450 * MS, 11 * S + 450 * MS, 12 * S + 700 * MS)
    late = (0, 12 * S + 200 * MS, 12 * S + 200 * MS, 12 * S + 700 * MS)
    found = result(*before, waited, late, *after, errors=3)
    assert found.stalls == (Stall(start_ns=400 * MS, end_ns=1700 * MS, errors=3, waiting=(("write", 1),)),)


def test_a_transaction_that_never_ends_waits_to_the_end_of_the_load() -> None:
    found = result(
        *steady(10 * S, 11 * S + 500 * MS), waiting=((0, 11 * S + 410 * MS), (1, 11 * S + 420 * MS), (0, 13 * S))
    )
    assert found.stalls == (Stall(start_ns=400 * MS, end_ns=2500 * MS, waiting=(("read", 1), ("write", 1))),)


def test_a_stall_over_the_start_of_the_window_has_its_whole_length() -> None:
    found = result(*steady(10 * S, 10 * S + 250 * MS), *steady(12 * S, 13 * S + 500 * MS))
    assert [(stall.start_ns, stall.end_ns) for stall in found.stalls] == [(-800 * MS, 1000 * MS)]


def test_stalls_of_several_loads_are_their_intersection() -> None:
    one = (Stall(start_ns=0, end_ns=2 * S, waiting=(("read", 2),)), Stall(start_ns=3 * S, end_ns=9 * S, errors=1))
    two = (Stall(start_ns=S, end_ns=4 * S, waiting=(("read", 1),)), Stall(start_ns=8 * S, end_ns=8 * S + 300 * MS))
    assert common([one, two]) == (
        Stall(start_ns=S, end_ns=2 * S, waiting=(("read", 3),)),
        Stall(start_ns=3 * S, end_ns=4 * S, errors=1, waiting=(("read", 1),)),
        Stall(start_ns=8 * S, end_ns=8 * S + 300 * MS, errors=1),
    )
    assert common([one, ()]) == common([]) == ()
    many = [Stall(start_ns=n * S, end_ns=n * S + (300 + n) * MS) for n in range(STALLS_MAX + 50)]
    assert common([many]) == tuple(many[50:]), "the longest ones, in order"


def test_impossible_ones_are_refused() -> None:
    found = result(*steady(10 * S, 11 * S + 500 * MS), waiting=((0, 11 * S),))
    assert objection(TaskDone(key="k", result=found)) is None
    for bad in (
        Stall(start_ns=5, end_ns=4),
        Stall(start_ns=0, end_ns=1, errors=-1),
        Stall(start_ns=0, end_ns=2**62),
        Stall(start_ns=0, end_ns=1, waiting=((NAMES[0], -1),)),
    ):
        assert objection(TaskDone(key="k", result=dataclasses.replace(found, stalls=(bad,)))), bad
    flood = tuple(Stall(start_ns=n, end_ns=n) for n in range(STALLS_MAX + 1))
    assert objection(TaskDone(key="k", result=dataclasses.replace(found, stalls=flood)))
