"""Giving up what servers are still doing for sessions that are about to close.

A statement that waits for a lock outlives its client: only a cancel request ends it. A request that reaches the server before the
statement does is lost, so it is made again while there is no answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from proveout.agent.drivers.base import BlockingSession, PolledSession

CANCEL_S = 2.0
"""A busy host has time for a cancel request."""
AGAIN_S = 0.25


def give_up(
    unanswered: Callable[[], Sequence[PolledSession | BlockingSession]], settle: Callable[[float], object]
) -> None:
    """Cancel what is `unanswered()`, in threads, again and again until that is nothing; for CANCEL_S at most.

    `settle(seconds)` waits for answers so long, or until all are there. A server that hangs may never answer, nor take a request.
    """
    deadline_s = time.monotonic() + CANCEL_S
    while (sessions := unanswered()) and (left_s := deadline_s - time.monotonic()) > 0:
        _cancel(sessions, left_s)
        settle(AGAIN_S)


def _cancel(sessions: Sequence[PolledSession | BlockingSession], seconds: float) -> None:
    """One request for each, at the same time; waits so long at most in all."""
    threads = [threading.Thread(target=session.cancel, daemon=True) for session in sessions]
    for thread in threads:
        thread.start()
    deadline_s = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline_s - time.monotonic()))
