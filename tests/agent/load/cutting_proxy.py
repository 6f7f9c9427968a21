"""A proxy in front of a PostgreSQL server that cuts connections at a COMMIT: before the server gets it, or after it has
answered, so that the client does not know the outcome. It can also be a server that hangs, or is gone for good.

Flow: client -> messages of the extended protocol, of which Parse gives the names of the statements COMMIT -> server
-> answers, of which CommandComplete says COMMIT -> client. `cut_next(how)` cuts one connection, once.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Literal

from psycopg.conninfo import conninfo_to_dict, make_conninfo

Where = Literal["before", "after"]
ANSWER = b"C\x00\x00\x00\x0bCOMMIT\x00"


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
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Accept no more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
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
            requests = threading.Thread(target=self._requests, args=(client, server), daemon=True)
            requests.start()
            self._answers(client, server)
            requests.join()

    def _takes(self, where: Where) -> bool:
        with self._lock:
            if self._wanted[:1] != [where]:
                return False
            self.cut.append(self._wanted.pop(0))
            return True

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        commits: set[bytes] = set()
        seen = 0
        with _both(client, server):
            self._forward(server, _startup(client))
            for kind, body in _messages(client):
                name, _, rest = body.partition(b"\x00")
                if kind == b"P" and rest.startswith(b"COMMIT\x00"):
                    commits.add(name)
                bound = rest.partition(b"\x00")[0] if kind == b"B" else b""
                seen += bound in commits
                if seen > 1 and bound in commits and self._takes("before"):
                    return
                self._forward(server, kind + (len(body) + 4).to_bytes(4, "big") + body)

    def _forward(self, server: socket.socket, data: bytes) -> None:
        if not self._is_silent:
            server.sendall(data)

    def _answers(self, client: socket.socket, server: socket.socket) -> None:
        seen = 0
        with _both(client, server):
            while data := server.recv(1 << 16):
                seen += ANSWER in data
                if seen > 1 and ANSWER in data and self._takes("after"):
                    return
                client.sendall(data)


@contextlib.contextmanager
def _both(client: socket.socket, server: socket.socket) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError):
        pass
    finally:
        for end in (client, server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def _startup(client: socket.socket) -> bytes:
    head = _exactly(client, 4)
    return head + _exactly(client, int.from_bytes(head, "big") - 4)


def _messages(client: socket.socket) -> Iterator[tuple[bytes, bytes]]:
    while True:
        kind = _exactly(client, 1)
        yield kind, _exactly(client, int.from_bytes(_exactly(client, 4), "big") - 4)


def _exactly(stream: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = stream.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data
