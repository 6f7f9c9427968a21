"""`--metrics ADDR`: an HTTP endpoint for scrapers, on a TCP port or a Unix socket, during the run.

Data flow: ADDR -> `bound` (a listening socket, before the run starts) -> `serving` -> GET /metrics -> the text of a
`Board`. It shares the coordinator's loop, so its cost is bounded: the text is made at most twice a second, at most
`CONNECTIONS_MAX` clients are served at once, a request is small and has `PATIENCE_S`. It is read-only and has no
authentication: it listens on loopback unless an address is given.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from pathlib import Path

from proveout.coordinator.exporter.instruments import Instruments
from proveout.coordinator.exporter.series import CONTENT_TYPE
from proveout.core.data_classes import dataclass
from proveout.core.errors import ProveoutError
from proveout.proto.events import Stamped

LOOPBACK = "127.0.0.1"
CONNECTIONS_MAX = 16
REQUEST_BYTES_MAX = 8192
PATIENCE_S = 5.0
FRESH_S = 0.5
_FORMS = "Write PORT, HOST:PORT, [IPV6]:PORT, or the path of a Unix socket (with a / in it)."


class UnusableMetricsAddress(ProveoutError):
    """`--metrics` names no address, or one that cannot be listened on; found before the run begins."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Listening:
    """A socket that listens, and what to call it: `http://127.0.0.1:9464/metrics`, or the path."""

    socket: socket.socket
    shown: str


@contextmanager
def bound(address: str | None) -> Iterator[Listening | None]:
    """Listen at the address until the end; nothing for None. UnusableMetricsAddress."""
    if address is None:
        yield None
        return
    made = _unix(address) if "/" in address else _tcp(address)
    mine = _identity(address) if "/" in address else None
    try:
        yield made
    finally:
        made.socket.close()
        if mine is not None and _identity(address) == mine:
            Path(address).unlink(missing_ok=True)


@asynccontextmanager
async def serving(listening: Listening, earlier: Iterable[Stamped] = ()) -> AsyncIterator[Instruments]:
    """Serve scrapers; yields a listener of `run`. `earlier`: the events of a resumed run so far."""
    instruments = Instruments()
    for stamped in earlier:
        instruments(stamped)
    desk = _Desk(instruments)
    server = await asyncio.start_server(desk.serve, sock=listening.socket.dup(), limit=REQUEST_BYTES_MAX)
    try:
        yield instruments
    finally:
        server.close()
        await desk.close()
        await server.wait_closed()


# ---- addresses ---------------------------------------------------------------------------------------------------


def parse(address: str) -> tuple[str, int]:
    """Host and port; loopback when only a port is given. UnusableMetricsAddress."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    number = int(port) if port.isascii() and port.isdigit() else -1
    if not 0 <= number <= 65535 or (":" in host and not address.startswith("[")):
        raise UnusableMetricsAddress(f"--metrics {address}: not a valid address", way_out=_FORMS)
    return host or LOOPBACK, number


def _tcp(address: str) -> Listening:
    host, port = parse(address)
    made: socket.socket | None = None
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(where)
        made.listen(CONNECTIONS_MAX)
    except OSError as fault:
        if made is not None:
            made.close()
        raise _refused(address, fault) from fault
    made.setblocking(False)
    name, number = made.getsockname()[:2]
    return Listening(made, f"http://{f'[{name}]' if ':' in name else name}:{number}/metrics")


def _unix(address: str) -> Listening:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _clear_dead(address)
        made.bind(address)
        Path(address).chmod(0o600)  # before it listens, so no process can connect yet
        made.listen(CONNECTIONS_MAX)
    except OSError as fault:
        made.close()
        raise _refused(address, fault) from fault
    made.setblocking(False)
    return Listening(made, address)


def _clear_dead(address: str) -> None:
    """Remove the socket of a process that has ended. OSError when a process listens there, or the file is not a
    socket."""
    try:
        if not stat.S_ISSOCK(Path(address).lstat().st_mode):
            return  # `bind` says that it exists
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(1.0)
        try:
            asking.connect(address)
        except ConnectionRefusedError:
            Path(address).unlink(missing_ok=True)


def _refused(address: str, fault: OSError) -> UnusableMetricsAddress:
    reason = os.strerror(fault.errno) if fault.errno and fault.errno > 0 else fault.strerror or str(fault)
    way_out = "Name another address, or stop what listens there." if fault.errno == errno.EADDRINUSE else _FORMS
    return UnusableMetricsAddress(f"--metrics {address}: cannot listen there: {reason}", way_out=way_out)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


# ---- requests ----------------------------------------------------------------------------------------------------


class _Desk:
    """Answers one request per connection."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._served: set[asyncio.Task[object]] = set()
        self._text, self._made_s = b"", float("-inf")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # a server's callback runs in one
        if len(self._served) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._served.add(task)
        task.add_done_callback(self._served.discard)
        try:
            async with asyncio.timeout(PATIENCE_S):
                writer.write(self._answer(await reader.readuntil(b"\r\n\r\n")))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, ValueError, EOFError, asyncio.LimitOverrunError, TimeoutError):
            pass  # the client has gone, sent too much, or is too slow
        finally:
            writer.transport.abort()

    async def close(self) -> None:
        """Disconnect all clients."""
        for task in list(self._served):
            task.cancel()
        await asyncio.gather(*self._served, return_exceptions=True)

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET and HEAD\n")
        if path != b"/metrics":
            return _response(HTTPStatus.NOT_FOUND, b"the metrics are at /metrics\n")
        made = _response(HTTPStatus.OK, self._fresh(), CONTENT_TYPE)
        return made if method == b"GET" else made.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"

    def _fresh(self) -> bytes:
        now_s = time.monotonic()
        if now_s - self._made_s >= FRESH_S:
            self._text, self._made_s = self._instruments.board.text(), now_s
        return self._text


def _response(status: HTTPStatus, body: bytes, kind: str = "text/plain; charset=utf-8") -> bytes:
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *(["Allow: GET, HEAD"] if status is HTTPStatus.METHOD_NOT_ALLOWED else []),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body
