"""A proxy in front of a PostgreSQL server that cuts connections at a COMMIT: before the server gets it, or after it has
answered, so that the client does not know the outcome. It can also be a server that hangs, or is gone for good.

`cut_next(how)` cuts one connection, once.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable
from typing import Literal

from psycopg.conninfo import conninfo_to_dict, make_conninfo

Where = Literal["before", "after"]
PARSED = re.compile(rb"(s\d+)\0COMMIT\0")
"""The name of the prepared statement COMMIT, in a Parse message. A Bind message has it between two zeros."""
ANSWER = b"C\0\0\0\x0bCOMMIT\0"


class CuttingProxy:
    """Listens on 127.0.0.1; connects to the server of the conninfo that `upstream` returns, which has a socket."""

    def __init__(self, upstream: Callable[[], str]) -> None:
        self._upstream = upstream
        self._is_silent = False
        self._clients: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._wanted: list[Where] = []
        self._lock = threading.Lock()
        self.cut: list[Where] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_next(self, *where: Where) -> None:
        """Cut one connection at its next COMMIT but the first, for each of `where`, in this order; the first COMMIT is
        that of a reading of tracked commits."""
        with self._lock:
            self._wanted += where

    @property
    def dsn(self) -> str:
        """The conninfo of the server through this proxy."""
        return make_conninfo(
            self._upstream(), host="127.0.0.1", port=self.port, sslmode="disable", gssencmode="disable"
        )

    def hang(self) -> None:
        """Forward no request from now on; connections stay, and new ones are accepted."""
        self._is_silent = True

    def end(self, connections: int | None = None) -> None:
        """Accept no more, and cut so many connections, or all."""
        self.close()
        for client in self._clients[:connections]:
            _shut(client)

    def close(self) -> None:
        """Accept no more."""
        _shut(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._clients.append(client)
                threading.Thread(target=self._connected, args=(client,), daemon=True).start()

    def _connected(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            try:
                parts = conninfo_to_dict(self._upstream())
                server.connect(f"{parts['host']}/.s.PGSQL.{parts.get('port', 5432)}")
            except OSError:
                return
            requests = threading.Thread(target=self._forward, args=(client, server, "before"), daemon=True)
            requests.start()
            self._forward(server, client, "after")
            requests.join()

    def _forward(self, source: socket.socket, target: socket.socket, where: Where) -> None:
        commits, markers = 0, {ANSWER} if where == "after" else set[bytes]()
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                is_commit = any(marker in data for marker in markers)
                markers |= {b"\0" + name + b"\0" for name in PARSED.findall(data)}
                commits += is_commit
                if is_commit and commits > 1 and self._takes(where):
                    break
                if where == "after" or not self._is_silent:
                    target.sendall(data)
        _shut(source)
        _shut(target)

    def _takes(self, where: Where) -> bool:
        with self._lock:
            if self._wanted[:1] != [where]:
                return False
            self.cut.append(self._wanted.pop(0))
            return True


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
