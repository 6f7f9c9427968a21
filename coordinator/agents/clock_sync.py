"""Estimate the offset between an agent's monotonic clock and the coordinator's, from 4-timestamp exchanges. Pure.

Flow: `session` makes an `Exchange` of each Beat and its BeatReply -> `ClockFilter.add` -> `estimate(now_ns)`.

An exchange leaves the coordinator at t1 and returns at t4 (its clock), arrives at t2 and leaves again at t3 (the
agent's). Both ways take at least no time, so the true offset (agent minus coordinator) lies within [t3 - t4, t2 - t1]:
its middle is ((t2 - t1) + (t3 - t4)) / 2 and its error is at most half of the round trip (t4 - t1) - (t3 - t2). Source:
D. L. Mills, RFC 5905, section 8. Because the two oscillators drift apart, the bound of an exchange grows by `DRIFT_PPM`
of the time since it was sent; the tightest bound wins. The bound holds for clocks that drift apart by `DRIFT_PPM` or
less: a quartz has 50 ppm at most, and a clock that NTP slews keeps below 500 ppm only while it is corrected.
"""

from __future__ import annotations

from collections import deque

from proveout.core.data_classes import dataclass
from proveout.proto.wire.messages import BeatReply

DRIFT_PPM = 100
KEPT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockEstimate:
    """Agent clock minus coordinator clock, and the bound of its error, nanoseconds."""

    offset_ns: int
    uncertainty_ns: int

    @property
    def pair(self) -> tuple[int, int]:
        """Offset and bound."""
        return self.offset_ns, self.uncertainty_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One probe: sent and returned on the coordinator's clock, received and replied on the agent's."""

    sent_ns: int
    received_ns: int
    replied_ns: int
    returned_ns: int

    @property
    def round_trip_ns(self) -> int:
        """The time in transit, both ways together."""
        return (self.returned_ns - self.sent_ns) - (self.replied_ns - self.received_ns)

    @property
    def offset_ns(self) -> int:
        """The middle of the interval that holds the offset."""
        return ((self.received_ns - self.sent_ns) + (self.replied_ns - self.returned_ns)) // 2

    def bound_ns(self, now_ns: int) -> int:
        """The bound of the error of `offset_ns` at `now_ns` (coordinator's clock), before or after the exchange, plus
        one for the rounded half nanosecond."""
        age_ns = max(0, now_ns - self.sent_ns, self.returned_ns - now_ns)
        return self.round_trip_ns // 2 + 1 + age_ns * DRIFT_PPM // 1_000_000


class ClockFilter:
    """The newest `KEPT` exchanges with one agent, and the best estimate from them.

    All bounds grow alike, so the tightest one stays the tightest until a better exchange arrives or it is dropped as
    the oldest.
    """

    def __init__(self) -> None:
        self._exchanges: deque[Exchange] = deque(maxlen=KEPT)
        self._best: Exchange | None = None

    def add(self, reply: BeatReply, returned_ns: int) -> None:
        """Add a reply that arrived at `returned_ns`; one with times that run backwards is dropped."""
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
        """The estimate for `now_ns`, which is not before the newest exchange, by the exchange with the tightest bound;
        ValueError when there was no exchange yet."""
        best = self._best
        if best is None:
            raise ValueError("no exchange yet")
        return ClockEstimate(offset_ns=best.offset_ns, uncertainty_ns=best.bound_ns(now_ns))
