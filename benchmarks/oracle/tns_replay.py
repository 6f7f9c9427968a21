"""A server that repeats answers of the TNS server of the tests, so that a client and not its server is the limit:
`python tns_replay.py HOST:PORT SECONDS`. It prints its port, and serves until its stdin ends.

Flow: connection -> one to the server behind it, to which everything goes (login, parse, the first execution of each
statement) -> the answer to the second execution of a cursor, and to the first COMMIT and ROLLBACK, is kept -> the next
one has that answer after SECONDS. Nothing is executed any more, so the answers are good for measurements of the client
only. A COMMIT or ROLLBACK goes to the server while anything went there before it: the rows that a transaction
locked would else stay locked, and another connection would wait for them for ever.

A request is one packet: length (4 bytes), type, flags (5), message type, function, sequence number, number of the
cursor (length and value). Source: requests of python-oracledb 26.1 to a server of protocol version 319.
"""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import threading
import time

DATA, FUNCTION = 6, 3
REEXECUTE, REEXECUTE_AND_FETCH, COMMIT, ROLLBACK = 4, 78, 14, 15
ENDS = (bytes([COMMIT]), bytes([ROLLBACK]))
BYTES = 1 << 16


def key_of(request: bytes) -> bytes:
    """The key of the answer to keep: function and cursor; empty for other requests."""
    if len(request) < 13 or request[4] != DATA or request[10] != FUNCTION:
        return b""
    if request[11] in (COMMIT, ROLLBACK):
        return request[11:12]
    return request[11:12] + request[13:15] if request[11] in (REEXECUTE, REEXECUTE_AND_FETCH) else b""


class Answers:
    """The kept answers of one connection."""

    def __init__(self) -> None:
        self._kept: dict[bytes, bytes] = {}
        self._open = False  # the server behind has got a statement since its last COMMIT or ROLLBACK

    def of(self, key: bytes) -> bytes | None:
        """The answer to repeat; None if the request is to go to the server, which is noted."""
        ends = key in ENDS
        answer = None if ends and self._open else self._kept.get(key)
        if answer is None:
            self._open = not ends
        return answer

    def keep(self, key: bytes, answer: bytes) -> None:
        """Keep an answer for the next such request."""
        self._kept[key] = answer


def packet(stream: socket.socket) -> bytes:
    """A whole packet; what there is at the end of the stream."""
    found = stream.recv(BYTES)
    while 4 <= len(found) < int.from_bytes(found[:4], "big") and (more := stream.recv(BYTES)):
        found += more
    return found


def serve(client: socket.socket, address: tuple[str, int], delay_s: float) -> None:
    """Serve a connection until one side closes it."""
    with client, socket.create_connection(address) as server, contextlib.suppress(ConnectionError):
        for stream in (client, server):
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = Answers()
        key = b""
        while True:
            while server not in select.select((client, server), (), ())[0]:
                request = client.recv(BYTES)
                key = key_of(request)
                answer = answers.of(key)
                while answer is not None:
                    if delay_s:
                        time.sleep(delay_s)
                    client.sendall(answer)
                    request = client.recv(BYTES)
                    key = key_of(request)
                    answer = answers.of(key)
                if not request:
                    return
                server.sendall(request)
            answer = packet(server) if key else server.recv(BYTES)
            if not answer:
                return
            if key:
                answers.keep(key, answer)
            client.sendall(answer)


def main() -> None:
    host, _, port = sys.argv[1].partition(":")
    delay_s = float(sys.argv[2])
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    print(listener.getsockname()[1], flush=True)

    def accept() -> None:
        while True:
            client, _ = listener.accept()
            threading.Thread(target=serve, args=(client, (host, int(port)), delay_s), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    while sys.stdin.buffer.read(1):
        pass


if __name__ == "__main__":
    main()
