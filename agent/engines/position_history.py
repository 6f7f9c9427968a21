"""The positions of a source of replication over time: the lag of a sink is the age of the position that it has
applied."""

from __future__ import annotations

from bisect import bisect_right

NOTES_MAX = 36_000


class PositionHistory:
    """Times (s) and positions (bytes, or numbers of probes), both ascending; positions that are applied are dropped."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._positions: list[int] = []

    def note(self, time_s: float, position: int) -> None:
        """Add a position; beyond `NOTES_MAX` (an hour of lag at 10 Hz) every second one is dropped."""
        self._times.append(time_s)
        self._positions.append(position)
        if len(self._times) > NOTES_MAX:
            del self._times[1:-1:2], self._positions[1:-1:2]

    def time_at(self, position: int) -> float | None:
        """Return when the source left `position` (s), interpolated.

        None when the source has not left it yet; the first time when it left it before that.
        """
        after = bisect_right(self._positions, position)
        if after == len(self._positions):
            return None
        if after == 0:
            return self._times[0]
        t0, t1 = self._times[after - 1 : after + 1]
        p0, p1 = self._positions[after - 1 : after + 1]
        return t0 + (t1 - t0) * (position - p0) / (p1 - p0)

    def forget_before(self, position: int) -> None:
        """Drop the notes that no later position can need."""
        keep = bisect_right(self._positions, position) - 1
        if keep > 0:
            del self._times[:keep], self._positions[:keep]
