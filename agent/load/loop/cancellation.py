"""Cancels statements that still run on servers for sessions that are about to close.

A statement that waits for a lock outlives its client: only a cancel request ends it. A request that reaches the server
before the statement is lost, so it is repeated until the statement has an answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence

from proveout.agent.engines.driver_contract import BlockingSession, PolledSession

CANCEL_S = 3.0
"""Time for cancel requests on a busy host."""
AGAIN_S = 0.25


def cancel_statements(
    unanswered: Callable[[], Sequence[PolledSession | BlockingSession]], settle: Callable[[float], object]
) -> None:
    """Cancel the statements of the sessions `unanswered()`, in threads, repeatedly until none is left; for at most
    CANCEL_S.

    `settle(seconds)` waits for answers for that time, or until all have arrived. A server that hangs may never answer
    or accept a request: no other session waits for it.
    """
    requests: dict[int, threading.Thread] = {}
    deadline_s = time.monotonic() + CANCEL_S
    while (sessions := unanswered()) and (left_s := deadline_s - time.monotonic()) > 0:
        for session in sessions:
            if (request := requests.get(id(session))) is None or not request.is_alive():
                requests[id(session)] = threading.Thread(target=session.cancel, daemon=True)
                requests[id(session)].start()
        _wait(requests.values(), min(AGAIN_S, left_s))
        settle(AGAIN_S)


def _wait(threads: Iterable[threading.Thread], seconds: float) -> None:
    """Wait until all threads have ended, for at most `seconds`."""
    deadline_s = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline_s - time.monotonic()))
