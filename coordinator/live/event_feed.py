"""Publish the live events of a run to its user's processes: a Unix socket beside the journal.

Data flow: `run` calls the `Feed` with every event -> live ones go to each connected watcher as a line of JSON
(`[sequence, unix_s, event]`); journalled events are read from the journal (`follow`), and pass here as a mark,
`[sequence, unix_s, null]`, after which no earlier live event can arrive. A new watcher first receives the newest event
of each kind and the load of the current iteration. A watcher that sends `stop` puts a request on `interrupts`. Watchers
cannot delay the run: no send is awaited, and a slow watcher misses live events.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from proveout.coordinator.storage.event_codec import encode
from proveout.core.framing import json_line
from proveout.proto.events import (
    AgentsTick,
    HostTick,
    IterationStarted,
    LoadTick,
    PopulateFinished,
    StageFinished,
    StageProgress,
    Stamped,
    TransactionsTick,
    WaitsTick,
)

SOCKET = "live.sock"
BACKLOG_BYTES = 1 << 20
TICKS_KEPT = 600
STOP = b"stop\n"
_OF_ITERATION = frozenset({"transactions", "waits"})


class Feed:
    """A listener of `run`. Never raises and never waits."""

    def __init__(self, interrupts: asyncio.Queue[None]) -> None:
        self._interrupts = interrupts
        self._watchers: set[asyncio.StreamWriter] = set()
        self._served: set[asyncio.Task[object]] = set()
        self._ticks: deque[Stamped] = deque(maxlen=TICKS_KEPT)
        self._newest: dict[tuple[str, ...], Stamped] = {}
        self._last: Stamped | None = None

    def __call__(self, stamped: Stamped) -> None:
        """Add one event: watchers receive a live event, and a mark for any other."""
        self._last = stamped
        if self._is_live(stamped):
            line = _line(stamped)
            for watcher in self._watchers:
                _send(watcher, line)
        else:
            for watcher in self._watchers:
                _mark(watcher, stamped)

    def _is_live(self, stamped: Stamped) -> bool:
        """Whether an event is live; also updates the events that a new watcher receives."""
        match stamped.event:
            case IterationStarted():
                self._ticks.clear()
                self._newest = {key: kept for key, kept in self._newest.items() if key[0] not in _OF_ITERATION}
                return False
            case StageFinished(stage=stage) | PopulateFinished(stage=stage):
                self._newest = {key: kept for key, kept in self._newest.items() if key[:2] != ("stage", stage)}
                return False
            case LoadTick():
                self._ticks.append(stamped)
            case TransactionsTick():
                self._newest[("transactions",)] = stamped
            case WaitsTick(host=host, capture=capture):
                self._newest["waits", host, capture] = stamped
            case AgentsTick():
                self._newest[("agents",)] = stamped
            case HostTick(host=host, capture=capture):
                self._newest["host", host, capture] = stamped
            case StageProgress(stage=stage, host=host):
                self._newest["stage", stage, host] = stamped
            case _:
                return False
        return True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One watcher, until it hangs up."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # a server's callback runs in one
        self._served.add(task)
        task.add_done_callback(self._served.discard)
        for stamped in (*self._newest.values(), *self._ticks):
            _send(writer, _line(stamped))
        if self._last is not None:
            _mark(writer, self._last)
        self._watchers.add(writer)
        try:
            while line := await reader.readline():
                if line == STOP:
                    self._interrupts.put_nowait(None)
        except (OSError, ValueError):
            pass  # it disconnected, or sent a line that is too long
        finally:
            self._watchers.discard(writer)
            writer.close()

    async def hang_up(self) -> None:
        """Disconnect all watchers at once; the journal has the events that they have not read."""
        for watcher in list(self._watchers):
            watcher.transport.abort()
        await asyncio.gather(*self._served, return_exceptions=True)


@asynccontextmanager
async def serving(directory: Path, interrupts: asyncio.Queue[None]) -> AsyncIterator[Feed]:
    """A feed in the run directory, for its owner only. Without a socket, the run continues without a feed."""
    feed = Feed(interrupts)
    server = None
    with contextlib.suppress(OSError):
        server = await asyncio.start_unix_server(feed.serve, sock=_listening(directory))
    try:
        yield feed
    finally:
        if server is not None:
            server.close()
            await feed.hang_up()
            await server.wait_closed()
            (directory / SOCKET).unlink(missing_ok=True)


async def connect(directory: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The run's feed. OSError when there is none."""
    with short_path(directory) as path:
        return await asyncio.open_unix_connection(path, limit=BACKLOG_BYTES)


@contextmanager
def short_path(directory: Path) -> Iterator[str]:
    """A name of the socket that fits an address (108 bytes), however deep the directory lies."""
    handle = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{handle}/{SOCKET}"
    finally:
        os.close(handle)


def _listening(directory: Path) -> socket.socket:
    (directory / SOCKET).unlink(missing_ok=True)  # of a coordinator that was killed: this one holds the lock
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        # No process can connect before it listens, so the mode is set in time.
        with short_path(directory) as path:
            made.bind(path)
        (directory / SOCKET).chmod(0o600)
    except OSError:
        made.close()
        raise
    return made


def _send(writer: asyncio.StreamWriter, line: bytes) -> None:
    if not writer.is_closing() and writer.transport.get_write_buffer_size() < BACKLOG_BYTES:
        writer.write(line)


def _mark(writer: asyncio.StreamWriter, stamped: Stamped) -> None:
    """Send a mark, also to slow watchers, which wait for marks. They are few, and 40 bytes long."""
    if not writer.is_closing():
        writer.write(json_line([stamped.sequence, stamped.unix_s, None]))


def _line(stamped: Stamped) -> bytes:
    return json_line([stamped.sequence, stamped.unix_s, encode(stamped.event)])
