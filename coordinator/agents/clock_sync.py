"""How far an agent's monotonic clock is from the coordinator's: pure arithmetic on 4-timestamp exchanges.

Flow: `session` makes an `Exchange` of each Beat and its BeatReply -> `ClockFilter.add` -> `estimate(now_ns)`.

An exchange leaves the coordinator at t1 and returns at t4 (its clock), arrives at t2 and leaves again at t3 (the agent's).
Whatever the two ways took, neither took less than nothing, so the true offset (agent minus coordinator) lies within
[t3 - t4, t2 - t1]: its middle is ((t2 - t1) + (t3 - t4)) / 2 and it is wrong by at most half of the round trip
(t4 - t1) - (t3 - t2). Source: D. L. Mills, RFC 5905, section 8. As the two oscillators drift apart an old exchange
says less and less: its bound grows by `DRIFT_PPM` of its age, the tightest bound wins.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from proveout.proto.wire.messages import BeatReply

DRIFT_PPM = 100
KEPT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockEstimate:
    """Agent clock minus coordinator clock, nanoseconds, and the bound on the error of that."""

    offset_ns: int
    uncertainty_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One probe: sent and returned on the coordinator's clock, received and replied on the agent's."""

    sent_ns: int
    received_ns: int
    replied_ns: int
    returned_ns: int

    @property
    def round_trip_ns(self) -> int:
        """Time on the way, both ways together."""
        return (self.returned_ns - self.sent_ns) - (self.replied_ns - self.received_ns)

    @property
    def offset_ns(self) -> int:
        """The middle of where the offset can be."""
        return ((self.received_ns - self.sent_ns) + (self.replied_ns - self.returned_ns)) // 2

    def bound_ns(self, now_ns: int) -> int:
        """How wrong `offset_ns` can be at `now_ns` (coordinator's clock); one more for the halved odd nanosecond."""
        age_ns = max(0, now_ns - self.returned_ns)
        return self.round_trip_ns // 2 + 1 + age_ns * DRIFT_PPM // 1_000_000


class ClockFilter:
    """The newest `KEPT` exchanges with one agent, and the best estimate that they give.

    All bounds grow alike, so the tightest one stays the tightest until a better exchange comes, or it is the oldest and goes.
    """

    def __init__(self) -> None:
        self._exchanges: deque[Exchange] = deque(maxlen=KEPT)
        self._best: Exchange | None = None

    def add(self, reply: BeatReply, returned_ns: int) -> None:
        """Take a reply that came in at `returned_ns`; one that cannot be true (time running backwards) is dropped."""
        exchange = Exchange(
            sent_ns=reply.sent_ns,
            received_ns=reply.received_ns,
            replied_ns=reply.replied_ns,
            returned_ns=returned_ns,
        )
        if exchange.round_trip_ns >= 0 and reply.replied_ns >= reply.received_ns:
            gone = self._exchanges[0] if len(self._exchanges) == KEPT else None
            self._exchanges.append(exchange)
            if self._best is not None and self._best is not gone:
                self._best = min(self._best, exchange, key=lambda one: one.bound_ns(returned_ns))
            else:
                self._best = min(self._exchanges, key=lambda one: one.bound_ns(returned_ns))

    def __len__(self) -> int:
        return len(self._exchanges)

    def estimate(self, now_ns: int) -> ClockEstimate:
        """The estimate with the tightest bound at `now_ns`; ValueError when there was no exchange yet."""
        best = self._best
        if best is None:
            raise ValueError("no exchange yet")
        return ClockEstimate(offset_ns=best.offset_ns, uncertainty_ns=best.bound_ns(now_ns))
