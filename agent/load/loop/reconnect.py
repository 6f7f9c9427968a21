"""Opens connections in threads beside the event loop.

Flow: loop -> `request(owner)` -> a thread connects and prepares -> `fileno` is readable -> `results()`. There are as
many threads as requests under way, at most THREADS_MAX: a restarted server gets the connections of a load at once, as
from a real client, and one that does not answer delays no other. Connecting releases the GIL.

After a failed attempt the loop waits `pause_ns` before the next one.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from proveout.agent.engines.driver_contract import PolledSession, StatementFailure

THREADS_MAX = 64
RECONNECT_S = 2.0
"""The longest attempt to connect again, where the dsn does not say."""
PAUSE_MIN_S, PAUSE_MAX_S = 0.02, 0.25
_GOLDEN = 0.618034

Opened: TypeAlias = tuple[PolledSession, dict[str, Any]]
Connect: TypeAlias = Callable[..., Opened]
"""Connects the owner with a number; further arguments are those of the request."""


class Owner(Protocol):
    """The terminal, or the place of a pool, that a connection is opened for."""

    number: int


class Attempting(Owner, Protocol):
    """An owner that has failed to connect `connects` times in a row."""

    connects: int


def pause_ns(owner: Attempting) -> int:
    """The pause before the next attempt: doubled each time, and not the same for each owner; 0 before the first."""
    if not owner.connects:
        return 0
    pause_s = min(PAUSE_MIN_S * 2.0 ** min(owner.connects - 1, 10), PAUSE_MAX_S)
    return round(pause_s * (0.75 + 0.5 * (owner.number * _GOLDEN % 1.0)) * 1e9)


class Reconnector:
    """Opens connections for owners that have none. For one run; then call `end`."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._wanted: queue.SimpleQueue[tuple[Any, tuple[Any, ...]] | None] = queue.SimpleQueue()
        self._results: deque[tuple[Any, Opened | StatementFailure]] = deque()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._threads: list[threading.Thread] = []
        self._under_way = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def fileno(self) -> int:
        """Readable when there are results."""
        return self._event

    def request(self, owner: Owner, *more: Any) -> None:
        """Open a connection for this owner."""
        self._under_way += 1
        if self._under_way > len(self._threads) and len(self._threads) < THREADS_MAX:
            self._threads.append(threading.Thread(target=self._run, name="reconnect", daemon=True))
            self._threads[-1].start()
        self._wanted.put((owner, more))

    def results(self) -> list[tuple[Any, Opened | StatementFailure]]:
        """New connections and failures since the last call."""
        os.eventfd_read(self._event)
        found = [self._results.popleft() for _ in range(len(self._results))]
        self._under_way -= len(found)
        return found

    def end(self) -> None:
        """Stop without waiting for the threads. They close the connections that they are opening now."""
        with self._lock:
            self._ended.set()
            os.close(self._event)
        for _ in self._threads:
            self._wanted.put(None)
        for _, opened in self._results:
            if isinstance(opened, tuple):
                opened[0].close()

    def _run(self) -> None:
        while not self._ended.is_set() and (wanted := self._wanted.get()) is not None:
            owner, more = wanted
            opened: Opened | StatementFailure
            try:
                opened = self._connect(owner.number, *more)
            except StatementFailure as failure:
                opened = failure
            with self._lock:
                if not self._ended.is_set():
                    self._results.append((owner, opened))
                    os.eventfd_write(self._event, 1)
                elif isinstance(opened, tuple):
                    opened[0].close()
