"""A lease on the monotonic clock: it lasts `lease_s` from its last renewal, whatever the wall clock does. Pure."""

from __future__ import annotations


class Lease:
    """Times are nanoseconds of one monotonic clock, passed in."""

    def __init__(self, lease_s: float, now_ns: int) -> None:
        self._lease_ns = round(lease_s * 1e9)
        self._ends_ns = now_ns + self._lease_ns

    def renew(self, now_ns: int) -> None:
        """It lasts a whole `lease_s` from now; one that has ended stays ended."""
        if not self.ended(now_ns):
            self._ends_ns = now_ns + self._lease_ns

    def ended(self, now_ns: int) -> bool:
        """Whether it is over."""
        return now_ns >= self._ends_ns

    def remaining_s(self, now_ns: int) -> float:
        """Seconds until it ends unless renewed; 0 when it is over."""
        return max(0, self._ends_ns - now_ns) / 1e9
