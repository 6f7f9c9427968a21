"""Follow a run: journalled events from the journal, live ones from the run's feed, in order.

Data flow: journal (read-only, polled) and feed (`event_feed`, when a coordinator serves it) -> `Tail.batches`. A live
event carries the number of the journalled event before it; the journal is read up to there first. A journalled event is
returned when the feed has reached it, because earlier live events may still be in transit. Ends when the run has ended,
or when no coordinator drives it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path

from proveout.coordinator.live import event_feed
from proveout.coordinator.storage.event_codec import JournalFault, decode
from proveout.coordinator.storage.journal import is_driven, read
from proveout.proto.events import RunFinished, Stamped

POLL_S = 0.25
STOP_S = 5.0
QUEUE_MAX = 10_000


class Tail:
    """Follows the run in `directory`. JournalFault from `batches` when there is no journal or it cannot be read."""

    replayed = False

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
                driven = is_driven(self._directory)
                batch = await self._batch(driven)
                if batch:
                    yield batch
                if any(isinstance(stamped.event, RunFinished) for stamped in batch[-3:]) or not driven:
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
                reader, writer = await event_feed.connect(self._directory)
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
        """Now."""
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
        reader, writer = await event_feed.connect(self._directory)
        try:
            writer.write(event_feed.STOP)
            writer.write_eof()
            while await reader.read(1 << 16):
                pass
        finally:
            writer.close()
