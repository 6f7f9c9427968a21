"""The instants at which terminals are due, in a heap behind one timer; compiled if the extension was built.

Flow: a terminal waits -> `push` -> `arm`, once before each wait of the loop -> the timer fires -> `fired`, then `pop`
until nothing more is due. The timer is set only where the first instant has changed since.
"""

from __future__ import annotations

import contextlib
import heapq
import os
from typing import TYPE_CHECKING, Any

from proveout.agent.load.loop.timer import Timer


class Schedule:
    """Due terminals of one loop, in the order of their instants, then of their numbers.

    `start_skew_ns`: delay of the first terminal that began; 0 before.
    """

    def __init__(self) -> None:
        self._due: list[tuple[int, int, Any]] = []
        self._timer = Timer()
        self._armed_ns = 0
        self.start_skew_ns = 0

    def fileno(self) -> int:
        """The descriptor of the timer."""
        return self._timer.fileno()

    def push(self, at_ns: int, terminal: Any) -> None:
        """Let a terminal be due at an instant of the monotonic clock, ns."""
        heapq.heappush(self._due, (at_ns, terminal.number, terminal))

    def pop(self, now_ns: int) -> tuple[int, Any] | None:
        """Take the first terminal that is due, with its instant; None if no other is."""
        if not self._due or self._due[0][0] > now_ns:
            return None
        at_ns, _, terminal = heapq.heappop(self._due)
        return at_ns, terminal

    def arm(self, limit_ns: int) -> None:
        """Set the timer to the first instant, or to `limit_ns` if that is earlier.

        Under closed arrival the timer is set ten times a second. A timeout of epoll would set one at every wait, which
        costs a microsecond on a virtual machine.
        """
        first = min(self._due[0][0], limit_ns) if self._due else limit_ns
        if first != self._armed_ns:
            self._timer.arm(first)
            self._armed_ns = first

    def fired(self) -> None:
        """The timer is readable: the next `arm` sets it again in any case."""
        self._armed_ns = -1

    def close(self) -> None:
        """Close the timer."""
        self._timer.close()


if not TYPE_CHECKING and not os.environ.get("PROVEOUT_PURE_PYTHON"):
    with contextlib.suppress(ImportError):
        from proveout.agent.load.loop.arrival_schedule_native import Schedule  # noqa: F401 - replaces the one above
