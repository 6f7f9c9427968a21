"""A server of PostgreSQL's protocol that answers every statement with one row and keeps its own times of each.

    python timed_server.py FAMILY ADDRESS TIMES DELAY-MS TOGETHER

Flow: the port goes to standard output -> each request is answered `DELAY-MS` after it arrived; with TOGETHER > 0, when
so many wait (or the first has waited for 50 ms) -> standard input ends -> `TIMES` gets (arrived, sent) of each
execution, int64 ns of the monotonic clock.

A request has arrived at the kernel's receive time stamp (TCP), so that a wait of this process for a CPU is part of the
system's time. Unix sockets have no time stamps: there the time counts from the read. An answer is sent when `send`
begins; the price of the call is the system's in no figure.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import select
import socket
import struct
import sys
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

SO_TIMESTAMPNS = 35
HELD_NS = 50_000_000


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!I", 4 + len(body)) + body


READY = message(b"Z", b"I")
COLUMN = b"one\0" + struct.pack("!IHIhih", 0, 0, 23, 4, -1, 0)
WELCOME = message(b"R", struct.pack("!I", 0)) + message(b"S", b"client_encoding\0UTF8\0") + READY
DESCRIBED = message(b"t", struct.pack("!H", 0)) + message(b"T", struct.pack("!H", 1) + COLUMN)
ANSWERS = {b"P": message(b"1"), b"D": DESCRIBED, b"S": READY}
ROW = message(b"D", struct.pack("!HII", 1, 4, 1))
ANSWER = message(b"2") + ROW + message(b"C", b"SELECT 1\0") + READY


class Server:
    """All connections of a load."""

    def __init__(self, listener: socket.socket, delay_ns: int, together: int) -> None:
        self._listener, self._delay_ns, self._together = listener, delay_ns, together
        self._connections: dict[int, socket.socket] = {}
        self._greeted: set[int] = set()
        self._due: list[tuple[int, int, int]] = []
        """(when, arrived, descriptor) of each execution without an answer."""
        self._poll = select.epoll()
        self._poll.register(listener, select.EPOLLIN)
        self._poll.register(0, select.EPOLLIN)
        self.times = array("q")

    def run(self) -> None:
        """Serve until standard input ends."""
        while True:
            for fd, _ in self._poll.poll(self._pause_s()):
                if fd == 0:
                    return
                if fd == self._listener.fileno():
                    connection, _ = self._listener.accept()
                    if connection.family == socket.AF_INET:
                        connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
                        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._connections[connection.fileno()] = connection
                    self._poll.register(connection, select.EPOLLIN)
                else:
                    self._read(fd)
            self._answer()

    def _pause_s(self) -> float:
        return -1 if not self._due else max(self._due[0][0] - time.monotonic_ns(), 0) / 1e9

    def _read(self, fd: int) -> None:
        try:
            data, control, _, _ = self._connections[fd].recvmsg(8192, 64)
        except ConnectionResetError:
            data, control = b"", []
        if not data or data[:1] == b"X":
            self._poll.unregister(fd)
            self._connections.pop(fd).close()
            self._greeted.discard(fd)
        elif fd not in self._greeted:
            self._greeted.add(fd)
            self._connections[fd].send(WELCOME)
        elif data[:1] == b"B":
            arrived_ns = arrival_ns(control)
            heapq.heappush(self._due, (arrived_ns + self._delay_ns, arrived_ns, fd))
        else:
            self._connections[fd].send(b"".join(ANSWERS[kind] for kind in kinds(data)))

    def _answer(self) -> None:
        """Answer what is due; of requests that are answered together all, once there are enough of them."""
        everything = 0 < self._together <= len(self._due)
        while self._due and (everything or self._due[0][0] <= time.monotonic_ns()):
            everything |= self._together > 0
            _, arrived_ns, fd = heapq.heappop(self._due)
            if fd in self._connections:
                self.times.extend((arrived_ns, time.monotonic_ns()))
                with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                    self._connections[fd].send(ANSWER)


def kinds(data: bytes) -> Iterator[bytes]:
    """The kinds of whole messages, one after the other."""
    at = 0
    while at < len(data):
        yield data[at : at + 1]
        at += 1 + int.from_bytes(data[at + 1 : at + 5])


def arrival_ns(control: list[tuple[int, int, bytes]]) -> int:
    """The time stamp of a message on the monotonic clock; the time now when it has none."""
    now_ns = time.monotonic_ns()
    for _, kind, data in control:
        if kind == SO_TIMESTAMPNS:
            seconds, ns = struct.unpack_from("qq", data)
            return int(now_ns - (time.time_ns() - (seconds * 1_000_000_000 + ns)))
    return now_ns


def main() -> None:
    with contextlib.suppress(PermissionError):
        os.nice(-15)  # seldom interrupted between the clock and the send
    family, address, times, delay_ms, together = sys.argv[1:]
    listener = socket.socket(getattr(socket, family))
    listener.bind(("127.0.0.1", 0) if family == "AF_INET" else address)
    if family == "AF_UNIX":
        Path(address).chmod(0o777)
    listener.listen(256)
    print(listener.getsockname()[1] if family == "AF_INET" else 0, flush=True)
    delay_ns = HELD_NS if int(together) else round(float(delay_ms) * 1e6)
    server = Server(listener, delay_ns, int(together))
    server.run()
    Path(times).write_bytes(server.times.tobytes())


if __name__ == "__main__":
    main()
