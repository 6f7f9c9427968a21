"""gRPC streams between simulated processes: bytes on two ordered pipes per connection, over links with faults.

Data flow: `dial.open_stream` (the real one) -> `_Channel` in place of grpc's -> `Call.write` serialises -> `Pipe` ->
the real `Servicer.Session` reads through `ServerSide`, and the same way back. The guarantees of HTTP/2 hold: within a
stream, messages keep their order and are neither lost nor duplicated. The faults are outside them: a broken stream
loses the messages in transit; one end detects the break long before the other; bytes of an old stream arrive while a
new one is served; a stalled stream stays open. `repeat_next` sends a message twice, as a proxy or a coordinator that
retries does.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
from sim_clock import CURRENT, Process, SimLoop

from proveout.coordinator.agents.connect import AgentUnreachable
from proveout.coordinator.certificates import Authority
from proveout.proto.wire import agent_pb2 as pb

EOF_MARK = grpc.aio.EOF  # type: ignore[attr-defined]
ROOM = 64
"""The number of messages in a stalled pipe after which its writer waits (HTTP/2 flow control)."""


AUTHORITY = Authority.create()
"""The real authority for the signatures of tasks; TLS is not simulated."""
COORDINATOR = AUTHORITY.issue_coordinator()


def outside() -> contextvars.Context:
    """Return a context without a process, for callbacks of the network itself."""
    context = contextvars.copy_context()
    context.run(CURRENT.set, None)
    return context


class Broken(Exception):
    """The connection is gone."""


class Aborted(Exception):
    """Raised in a method that called `abort`, as by grpc."""


class Pipe:
    """One direction of a connection: ordered bytes with a delay."""

    def __init__(self, loop: SimLoop, link: Link) -> None:
        self._loop, self._link = loop, link
        self._arrived: deque[Any] = deque()
        self._on_way: deque[Any] = deque()
        self._free_s = 0.0
        self._reader: asyncio.Future[None] | None = None
        self._writers: deque[asyncio.Future[None]] = deque()
        self.broken = False
        self.deaf = False

    async def write(self, data: Any) -> None:
        """Send; wait while `ROOM` messages are in transit. Broken."""
        while len(self._on_way) >= ROOM and not self.broken:
            waiter = self._loop.create_future()
            self._writers.append(waiter)
            await waiter
        if self.broken:
            raise Broken
        self.put(data)

    def put(self, data: Any) -> None:
        """Send without waiting."""
        if self.deaf and data is not EOF_MARK:
            return
        self._on_way.append(data)
        self._free_s = max(self._free_s, self._loop.now_s + self._link.delay_s())
        self._loop.call_at(self._free_s, self._arrive, context=outside())

    def _arrive(self) -> None:
        if not self._on_way or self.broken:
            return
        if self._link.held_until_s > self._loop.now_s:
            self._loop.call_at(self._link.held_until_s, self._arrive, context=outside())
            return
        self._arrived.append(self._on_way.popleft())
        self._wake()

    async def read(self) -> Any:
        """Return the next bytes, or `EOF_MARK`. Broken."""
        while not self._arrived:
            if self.broken:
                raise Broken
            self._reader = self._loop.create_future()
            await self._reader
        return self._arrived.popleft()

    def break_off(self) -> None:
        """Discard messages in transit; those that have arrived can still be read."""
        self.broken = True
        self._on_way.clear()
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
        while self._writers:
            waiter = self._writers.popleft()
            if not waiter.done():
                waiter.set_result(None)


@dataclass(eq=False)
class Connection:
    """Two pipes, and the status with which the stream ended for the client."""

    there: Pipe
    back: Pipe
    status: tuple[grpc.StatusCode, str] | None = None

    def break_off(self) -> None:
        self.there.break_off()
        self.back.break_off()


@dataclass(eq=False)
class Link:
    """The network link between the coordinator and one host, with its present faults."""

    host: str
    chance: random.Random
    base_s: float = 0.0005
    slow_s: float = 0.0
    slow_until_s: float = 0.0
    held_until_s: float = 0.0
    repeat_next: int = 0
    serve: Callable[[ServerSide], Any] | None = None
    process: Process | None = None
    connections: list[Connection] = field(default_factory=list)
    recorded: list[bytes] = field(default_factory=list)
    """Every task sent over the link, for faults that replay them."""
    loop: SimLoop | None = None
    renewed: Callable[[], None] = lambda: None

    def delay_s(self) -> float:
        assert self.loop is not None
        slow = self.slow_s if self.loop.now_s < self.slow_until_s else 0.0
        return self.base_s * (1.0 + self.chance.random()) + slow * self.chance.random()

    def cut(self, half_open_s: float = 0.0) -> None:
        """Break the open connections. The agent's end breaks `half_open_s` later and still receives messages in
        transit."""
        assert self.loop is not None
        connections, self.connections = self.connections, []
        for connection in connections:
            connection.back.break_off()
            if half_open_s:
                self.loop.call_later(half_open_s, connection.there.break_off, context=outside())
            else:
                connection.there.break_off()


class ServerSide:
    """The part of a gRPC method's `context` that `servicer.Servicer` uses."""

    def __init__(self, link: Link, connection: Connection) -> None:
        self._link, self._connection = link, connection

    async def read(self) -> Any:
        try:
            data = await self._connection.there.read()
        except Broken:
            return EOF_MARK  # as from grpc.aio in a method
        if data is EOF_MARK:
            return data
        envelope = pb.CoordinatorEnvelope.FromString(data)
        if envelope.WhichOneof("message") in ("hello", "beat"):
            self._link.renewed()
        return envelope

    async def write(self, message: Any) -> None:
        try:
            await self._connection.back.write(message.SerializeToString())
        except Broken as error:
            raise asyncio.CancelledError from error  # grpc.aio cancels the method of a stream that is gone

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        self._connection.status = (code, details)
        raise Aborted(details)


class Call:
    """The part of a client's call that `dial.Stream` uses."""

    def __init__(self, loop: SimLoop, link: Link, connection: Connection, encode: Any) -> None:
        self._loop, self._link, self._connection, self._encode = loop, link, connection, encode

    async def write(self, message: Any) -> None:
        data = self._encode(message)
        if message.WhichOneof("message") == "signed_task":
            self._link.recorded.append(data)
        try:
            await self._connection.there.write(data)
            if self._link.repeat_next > 0 and message.WhichOneof("message") in (
                "signed_task",
                "start",
                "finish",
                "cancel",
            ):
                self._link.repeat_next -= 1
                self._connection.there.put(data)
        except Broken as error:
            raise self._error() from error

    async def read(self) -> Any:
        try:
            data = await self._connection.back.read()
        except Broken as error:
            raise self._error() from error
        if data is EOF_MARK and self._connection.status is not None:
            raise self._error()
        return data

    def cancel(self) -> None:
        """Close the stream; the other end receives the close with the delay of the link."""
        self._connection.back.break_off()
        self._connection.there.put(EOF_MARK)

    def _error(self) -> grpc.aio.AioRpcError:
        code, details = self._connection.status or (grpc.StatusCode.UNAVAILABLE, "the connection broke")
        return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


class Network:
    """All links, and the replacements of grpc and of the TCP probe in `coordinator.agents.connect`."""

    def __init__(self, loop: SimLoop, links: dict[str, Link]) -> None:
        self.loop, self.links = loop, links
        for link in links.values():
            link.loop = loop

    @property
    def grpc(self) -> SimpleNamespace:
        """The replacement of the module `grpc` in `dial`."""
        aio = SimpleNamespace(
            secure_channel=lambda address, *_args, **_more: _Channel(self, self.links[address.split(":")[0]]),
            AioRpcError=grpc.aio.AioRpcError,
        )
        return SimpleNamespace(aio=aio, ssl_channel_credentials=lambda **_more: None)

    async def probe(self, where: str, address: str, _credentials: object) -> bytes:
        """Replaces `dial._probe`."""
        link = self.links[address.split(":", maxsplit=1)[0]]
        while link.held_until_s > self.loop.now_s:  # noqa: ASYNC110 -- it ends with time, without an event
            await asyncio.sleep(link.held_until_s - self.loop.now_s)
        await asyncio.sleep(link.delay_s())
        if link.serve is None:
            raise AgentUnreachable("nothing listens there", where=where, way_out="Start it.", gone=True)
        return _certificate(link.host)


@functools.cache
def _certificate(host: str) -> bytes:
    return AUTHORITY.issue(f"agent/{host}").certificate


class _Channel:
    def __init__(self, network: Network, link: Link) -> None:
        self._network, self._link = network, link

    def stream_stream(self, _method: str, request_serializer: Any) -> Any:
        def call() -> Call:
            return open_connection(self._network.loop, self._link, request_serializer)

        return call

    def unary_stream(self, _method: str) -> Any:
        """A call that finds the connection broken, as its session has just done; every agent has the method."""

        def call(_request: bytes) -> Call:
            loop, link = self._network.loop, self._link
            broken = Connection(Pipe(loop, link), Pipe(loop, link))
            broken.break_off()
            return Call(loop, link, broken, None)

        return call

    async def close(self, _grace: float | None) -> None:
        return None


def open_connection(loop: SimLoop, link: Link, encode: Any) -> Call:
    """Connect: the agent's gRPC method runs in the agent's process until the stream ends."""
    connection = Connection(Pipe(loop, link), Pipe(loop, link))
    call = Call(loop, link, connection, encode)
    if link.serve is None or link.process is None:
        connection.break_off()
        return call
    link.connections.append(connection)
    method = loop.spawn(link.process, link.serve(ServerSide(link, connection)), f"stream of {link.host}")

    def ended(task: asyncio.Task[Any]) -> None:
        connection.back.put(EOF_MARK)
        connection.there.broken = True
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, Aborted):
            loop.raised.append(f"the method of {link.host} raised {error!r}")

    method.add_done_callback(ended, context=outside())
    return call
