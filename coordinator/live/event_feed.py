"""Publish the live events of a run to its user's processes, and follow a run by them.

Data flow: `run` -> `Feed` -> a Unix socket beside the journal -> `Tail`, with the journalled events in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import IO

from proveout.coordinator.storage.journal import JournalFault, decode, encode, is_driven, read
from proveout.core import child_process
from proveout.core.json_data import json_line
from proveout.proto.events import (
    AgentsTick,
    HostTick,
    IterationStarted,
    LoadTick,
    PopulateFinished,
    RunFinished,
    StageFinished,
    StageProgress,
    Stamped,
    TransactionsTick,
    WaitsTick,
)

# `proveout run` or `resume` as a child process that names its run directory: for screen, pytest and Python API.
#
# Data flow: arguments -> a child with `--headless` and `--tell-fd` -> when it holds the run's lock it names its
# directory on that descriptor and writes its lines to `run.log` there -> its exit code. The child has a session of its
# own: a caller that is killed takes nothing with it.

LOG = "run.log"


class RunProcess:
    """The child. Its lines go to `output` until it has a directory, by default to that of the caller: above all the
    error when it does not start."""

    def __init__(self, verb: str, *arguments: str, output: IO[bytes] | None = None, cwd: Path | None = None) -> None:
        reading, writing = os.pipe()
        try:
            self._process = subprocess.Popen(
                child_process.coordinator(verb, "--headless", "--tell-fd", str(writing), *arguments),
                cwd=cwd,
                env=child_process.coordinator_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(writing,),
                start_new_session=True,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self._reading = reading

    def directory(self) -> Path | None:
        """The directory that the child names, once; None when it ends without one. Blocks until then."""
        with os.fdopen(self._reading, "rb") as pipe:
            line = pipe.readline()
        return Path(os.fsdecode(line[:-1])) if line.endswith(b"\n") else None

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """End the run as Ctrl-C does: loads stop and changes are taken back."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)

    def wait(self, timeout_s: float | None = None) -> int:
        """Its exit code, negative for a signal. TimeoutError when it runs for longer."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError from None


@contextmanager
def started(
    *arguments: str, output: IO[bytes] | None = None, cwd: Path | None = None
) -> Iterator[tuple[RunProcess, Sequence[bool]]]:
    """The process of a run, which gets SIGINT and SIGTERM of this process as SIGINT, also those that come while it is
    started: a run that misses the signal would go on unseen. With it an element for each of these signals."""
    running: list[RunProcess] = []
    seen: list[bool] = []  # whether the child had started

    def forward(*_: object) -> None:
        seen.append(bool(running))
        for child in running:
            child.stop()

    is_main = threading.current_thread() is threading.main_thread()  # the only one that may, and is interrupted
    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM) if is_main}
    try:
        running.append(RunProcess(*arguments, output=output, cwd=cwd))
        if False in seen:
            running[0].stop()
        yield running[0], seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def last_lines(directory: Path, count: int = 25) -> str:
    """The last lines that the child wrote, or why they cannot be read."""
    try:
        lines = (directory / LOG).read_text(errors="replace").splitlines()
    except OSError as fault:
        return f"{LOG} cannot be read: {fault.strerror}"
    return "\n".join(lines[-count:])


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


POLL_S = 0.25
STOP_S = 5.0
QUEUE_MAX = 10_000


class Tail:
    """Follows the run in `directory`. `batches` raises JournalFault without a journal that can be read."""

    def __init__(self, directory: Path, poll_s: float = POLL_S) -> None:
        self._directory, self._poll_s = directory, poll_s
        self._last = 0
        self._kept: list[Stamped] = []
        self._reached: int | None = None
        self._live: asyncio.Queue[Stamped] = asyncio.Queue(QUEUE_MAX)

    async def batches(self) -> AsyncIterator[Sequence[Stamped]]:
        """Batches of events, at most one per poll."""
        listener = asyncio.create_task(self._listen())
        try:
            while True:
                driven, follows = is_driven(self._directory), self._last > 0
                batch = await self._batch(driven)
                if batch:
                    yield batch
                # one that was there already may be of the sitting before: a resume is about to record its begin
                ended = follows and any(isinstance(stamped.event, RunFinished) for stamped in batch[-3:])
                if ended or not driven:
                    return
                await asyncio.sleep(self._poll_s)
        finally:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)

    async def _batch(self, driven: bool) -> list[Stamped]:
        live = [self._live.get_nowait() for _ in range(self._live.qsize())]
        reached = self._reached if driven else None
        self._kept += await asyncio.to_thread(read, self._directory, self._last)
        if self._kept:
            self._last = self._kept[-1].sequence
        given = [kept for kept in self._kept if reached is None or kept.sequence <= reached]
        del self._kept[: len(given)]
        # Sorting keeps the order within each: a live event carries the number of the kept one before it.
        return sorted([*given, *live], key=lambda stamped: stamped.sequence)

    async def _listen(self) -> None:
        """Connect, again and again: a resume serves a new feed."""
        while True:
            with suppress(OSError, ValueError, JournalFault):
                reader, writer = await connect(self._directory)
                try:
                    await self._hear(reader)
                finally:
                    writer.close()
                    self._reached = None
            await asyncio.sleep(self._poll_s)

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            sequence, unix_s, body = json.loads(line)
            if body is not None:
                if self._live.full():
                    self._live.get_nowait()
                self._live.put_nowait(Stamped(sequence=sequence, unix_s=unix_s, event=decode(body)))
            self._reached = max(sequence, self._reached or 0)

    def now_unix_s(self) -> float:
        return time.time()

    async def stop(self) -> bool:
        """Request the run's coordinator to end it; False when no coordinator drives it, or none serves a feed within
        STOP_S."""
        deadline_s = time.monotonic() + STOP_S
        while is_driven(self._directory) and time.monotonic() < deadline_s:
            with suppress(OSError, TimeoutError):  # a run that has just begun serves its feed in a moment
                async with asyncio.timeout(STOP_S):
                    await self._say_stop()
                return True
            await asyncio.sleep(self._poll_s)
        return False

    async def _say_stop(self) -> None:
        """Over a connection of its own, to its end: the kernel drops unread data of one that is closed with something
        left to read."""
        reader, writer = await connect(self._directory)
        try:
            writer.write(STOP)
            writer.write_eof()
            while await reader.read(1 << 16):
                pass
        finally:
            writer.close()
