"""Opens lost connections again in a thread beside the event loop.

Flow: loop -> `request(terminal)` -> the thread connects and prepares -> `fileno` is readable -> `results()`. One
thread, so that a restarted server does not get all connections at once. The thread starts with the first request;
connecting releases the GIL.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from proveout.agent.engines.driver_contract import PolledSession, StatementFailure
from proveout.agent.load.loop.terminal import Terminal

Opened: TypeAlias = tuple[PolledSession, dict[str, Any]]
Connect: TypeAlias = Callable[[int], Opened]
"""Connects the terminal with a number."""


class Reconnector:
    """Opens connections for terminals that have lost theirs. For one run; then call `end`."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._wanted: queue.SimpleQueue[Terminal | None] = queue.SimpleQueue()
        self._results: deque[tuple[Terminal, Opened | StatementFailure]] = deque()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def fileno(self) -> int:
        """Readable when there are results."""
        return self._event

    def request(self, terminal: Terminal) -> None:
        """Open a connection for this terminal."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="reconnect", daemon=True)
            self._thread.start()
        self._wanted.put(terminal)

    def results(self) -> list[tuple[Terminal, Opened | StatementFailure]]:
        """New connections and failures since the last call."""
        os.eventfd_read(self._event)
        return [self._results.popleft() for _ in range(len(self._results))]

    def end(self) -> None:
        """Stop without waiting for the thread. The thread closes a connection that it is opening now."""
        with self._lock:
            self._ended.set()
            os.close(self._event)
        self._wanted.put(None)
        for _, opened in self._results:
            if isinstance(opened, tuple):
                opened[0].close()

    def _run(self) -> None:
        while not self._ended.is_set() and (terminal := self._wanted.get()) is not None:
            opened: Opened | StatementFailure
            try:
                opened = self._connect(terminal.number)
            except StatementFailure as failure:
                opened = failure
            with self._lock:
                if not self._ended.is_set():
                    self._results.append((terminal, opened))
                    os.eventfd_write(self._event, 1)
                elif isinstance(opened, tuple):
                    opened[0].close()
