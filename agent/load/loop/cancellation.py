"""Giving up what servers are still doing for sessions that are about to close.

A statement that waits for a lock outlives its client: only a cancel request ends it. A request that reaches the server before the
statement does is lost, so it is made again while there is no answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence

from proveout.agent.engines.driver_contract import BlockingSession, PolledSession

CANCEL_S = 3.0
"""A busy host has time for a cancel request."""
AGAIN_S = 0.25


def give_up(
    unanswered: Callable[[], Sequence[PolledSession | BlockingSession]], settle: Callable[[float], object]
) -> None:
    """Cancel what is `unanswered()`, in threads, again and again until that is nothing; for CANCEL_S at most.

    `settle(seconds)` waits for answers so long, or until all are there. A server that hangs may never answer, nor take a request: no
    other session waits for it.
    """
    asking: dict[int, threading.Thread] = {}
    deadline_s = time.monotonic() + CANCEL_S
    while (sessions := unanswered()) and (left_s := deadline_s - time.monotonic()) > 0:
        for session in sessions:
            if (under_way := asking.get(id(session))) is None or not under_way.is_alive():
                asking[id(session)] = threading.Thread(target=session.cancel, daemon=True)
                asking[id(session)].start()
        _wait(asking.values(), min(AGAIN_S, left_s))
        settle(AGAIN_S)


def _wait(threads: Iterable[threading.Thread], seconds: float) -> None:
    """Until all have ended, but so long at most."""
    deadline_s = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline_s - time.monotonic()))
