"""A proxy in front of a PostgreSQL server that stands still for an exact time: its own clock records when.

Flow: client -> bytes -> server, and back, in one thread. `stall(seconds)`: from an instant to another one nothing is
passed on, in either direction; what arrives meanwhile is passed on after it. Both instants are recorded before and after
the first and the last moment at which the thread would have passed on a byte.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable

Instants = tuple[int, int]


class StallingProxy:
    """Listens on 127.0.0.1; connects to what `upstream` returns, a socket path."""

    def __init__(self, upstream: Callable[[], str]) -> None:
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._wanted: list[float] = []
        self._over = threading.Event()
        self.instants: list[Instants] = []
        self._stalled = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stall(self, seconds: float) -> Instants:
        """Stand still for so long; return its begin and end, monotonic ns."""
        self._stalled.clear()
        self._wanted.append(seconds)
        self._stalled.wait()
        return self.instants[-1]

    def close(self) -> None:
        """End all connections."""
        self._closed = True
        self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            if self._wanted:
                began_ns = time.monotonic_ns()
                self._over.wait(self._wanted.pop())
                self.instants.append((began_ns, time.monotonic_ns()))
                self._stalled.set()
            for key, _ in self._selector.select(0.02):
                if key.data is None:
                    self._accept()
                else:
                    self._pass_on(key.fileobj, key.data)  # type: ignore[arg-type]
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._upstream())
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(client, selectors.EVENT_READ, server)
        self._selector.register(server, selectors.EVENT_READ, client)

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = source.recv(1 << 16)
            sink.sendall(data)
        if not data:
            for end in (source, sink):
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(end)
                end.close()
