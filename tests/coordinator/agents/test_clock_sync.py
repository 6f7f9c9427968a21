"""The clock arithmetic: whatever the delays, the true offset lies within the bound; sessions that end before it is
measured."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proveout.coordinator.agents.connect import AgentUnreachable, StreamEnded
from proveout.coordinator.agents.session import DRIFT_PPM, KEPT, AgentSession, ClockFilter, Exchange, SessionEvent
from proveout.proto.wire.messages import Beat, BeatReply, Hello

MS = 1_000_000
DELAYS = st.tuples(st.integers(0, 300 * MS), st.integers(0, 300 * MS), st.integers(0, 5 * MS))


def exchange(offset_ns: int, sent_ns: int, there_ns: int, back_ns: int, held_ns: int) -> tuple[BeatReply, int]:
    """A beat as an agent whose clock is `offset_ns` ahead answers it; the reply, and when it is back."""
    received_ns = sent_ns + there_ns + offset_ns
    replied_ns = received_ns + held_ns
    reply = BeatReply(sequence=1, sent_ns=sent_ns, received_ns=received_ns, replied_ns=replied_ns)
    return reply, replied_ns - offset_ns + back_ns


@given(st.sampled_from([500 * MS, -500 * MS, 0, 3_600_000 * MS]), st.lists(DELAYS, min_size=1, max_size=80))
def test_the_true_offset_is_within_the_bound(offset_ns: int, delays: list[tuple[int, int, int]]) -> None:
    clock, now_ns = ClockFilter(), 10**15
    for there_ns, back_ns, held_ns in delays:
        reply, now_ns = exchange(offset_ns, now_ns, there_ns, back_ns, held_ns)
        clock.add(reply, now_ns)
    estimate = clock.estimate(now_ns)
    assert abs(estimate.offset_ns - offset_ns) <= estimate.uncertainty_ns


@given(st.lists(DELAYS, min_size=1, max_size=2 * KEPT + 5))
def test_the_best_exchange_is_the_best_of_all_that_are_kept(delays: list[tuple[int, int, int]]) -> None:
    clock, now_ns, exchanges = ClockFilter(), 10**15, []
    for there_ns, back_ns, held_ns in delays:
        reply, now_ns = exchange(0, now_ns, there_ns, back_ns, held_ns)
        clock.add(reply, now_ns)
        exchanges.append(Exchange(**_times(reply), returned_ns=now_ns))
        best_ns = min(one.bound_ns(now_ns) for one in exchanges[-KEPT:])
        assert abs(clock.estimate(now_ns).uncertainty_ns - best_ns) <= 1  # ages are rounded down to whole nanoseconds


def _times(reply: BeatReply) -> dict[str, int]:
    return {"sent_ns": reply.sent_ns, "received_ns": reply.received_ns, "replied_ns": reply.replied_ns}


@given(st.sampled_from([DRIFT_PPM, -DRIFT_PPM, 37]), st.integers(0, 600))
def test_a_drifting_clock_stays_within_the_bound(ppm: int, silent_s: int) -> None:
    clock = ClockFilter()
    reply, back_ns = exchange(500 * MS, 10**15, 1 * MS, 2 * MS, 0)
    clock.add(reply, back_ns)
    now_ns = back_ns + silent_s * 1000 * MS
    true_ns = 500 * MS + (now_ns - back_ns) * ppm // 1_000_000
    estimate = clock.estimate(now_ns)
    assert abs(estimate.offset_ns - true_ns) <= estimate.uncertainty_ns


def test_an_asymmetric_way_shows_in_the_error_and_in_the_bound() -> None:
    clock = ClockFilter()
    reply, back_ns = exchange(500 * MS, 10**12, 10 * MS, 0, MS)
    clock.add(reply, back_ns)
    estimate = clock.estimate(back_ns)
    drift_ns = 11 * MS * DRIFT_PPM // 1_000_000  # in the time that the exchange took
    assert (estimate.offset_ns, estimate.uncertainty_ns) == (505 * MS, 5 * MS + 1 + drift_ns)


def test_a_reply_that_cannot_be_true_is_dropped() -> None:
    clock = ClockFilter()
    clock.add(BeatReply(sequence=1, sent_ns=100, received_ns=0, replied_ns=50), 120)  # held longer than it was away
    clock.add(BeatReply(sequence=2, sent_ns=100, received_ns=50, replied_ns=0), 200)  # left before it came
    assert len(clock) == 0


class Ending:
    """A stream that answers so many beats, and ends then."""

    def __init__(self, beats: int) -> None:
        self.left, self.beats = beats, asyncio.Queue[Beat]()

    async def write(self, message: Beat) -> None:
        self.beats.put_nowait(message)

    async def read(self) -> BeatReply:
        if not self.left:
            raise StreamEnded("the agent ended the session", clean=True)
        self.left -= 1
        beat = await self.beats.get()
        return BeatReply(
            sequence=beat.sequence, sent_ns=beat.sent_ns, received_ns=beat.sent_ns, replied_ns=beat.sent_ns
        )

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("beats", [0, 3])
async def test_a_session_that_ends_while_its_clock_is_measured_has_not_begun(beats: int) -> None:
    """Its loss would come before the agent is said to be ready, and count as that of the next session."""
    events: asyncio.Queue[SessionEvent] = asyncio.Queue()
    hello = Hello(run_id="run", epoch=1, host="db1", beat_s=2.0, lease_s=10.0)
    opened: Any = (Ending(beats), SimpleNamespace(session="s"))
    with pytest.raises(AgentUnreachable, match="its session ended at once"):
        await AgentSession("db1:7443", cast(Any, None), hello, events, opened).begin()
    assert events.empty()
