"""What an agent has to say and has not said yet: ordered, bounded where that is honest.

Flow: session and tasks `put` -> the stream that is attached `take`s. While no stream is attached messages wait. What
people watch (samples, progress, log lines) is dropped when `limit` of it waits; samples are numbered before they come here,
so the reader sees the gap, and the number dropped is told in a LogLine. Outcomes and answers are never dropped: who asks and does not
listen is not heard (`room`) until he does. Replies to beats are only of use at once: the newest few wait, and leave with the stream that
they belong to.

A coordinator of many agents has samples go together: they wait for this host's next departure, or for anything else that is to be said,
which takes them along in order. Departures of different hosts are spread over the interval.
"""

from __future__ import annotations

import asyncio
import math
import time
import zlib
from collections import deque

from proveout.proto.wire.messages import AgentMessage, BeatReply, LogLine, Sample, Samples, TaskProgress

LIMIT = 1000
ANSWERS_MAX = 2000
BEATS_MAX = 64
TOGETHER_MAX = 64
"""Samples in one message."""
QUIET_S = 0.05
"""No samples leave in these last moments before a load starts."""


class Departures:
    """When samples leave a host: every `every_s`, at a moment that depends on its name. Pure; times are `time.monotonic`'s, s."""

    def __init__(self, every_s: float, host: str) -> None:
        self.every_s = every_s
        self._first_s = every_s * zlib.crc32(host.encode()) / 2**32
        self._start_s = -math.inf

    def quiet_before(self, start_s: float) -> None:
        """A load starts then."""
        self._start_s = start_s

    def after(self, now_s: float) -> float:
        """The next one."""
        next_s = now_s + (self._first_s - now_s) % self.every_s
        return self._start_s if self._start_s - QUIET_S <= next_s < self._start_s else next_s


class Outbox:
    """A queue with one reader at a time. Without `departures` everything goes at once."""

    def __init__(self, limit: int = LIMIT, departures: Departures | None = None) -> None:
        self._limit = limit
        self._departures = departures if departures is not None and departures.every_s > 0.0 else None
        self._timer: asyncio.TimerHandle | None = None
        self._leaving = False
        self._waiting: deque[AgentMessage] = deque()
        self._beats: deque[BeatReply] = deque(maxlen=BEATS_MAX)
        self._taken = asyncio.Event()
        self._droppable = 0
        self._dropped = 0
        self._wake = asyncio.Event()
        self._closed = False

    def put(self, message: AgentMessage) -> None:
        """Say `message` next; a reply to a beat before all else, a sample perhaps with others."""
        if isinstance(message, BeatReply):
            self._beats.append(message)
            self._wake.set()
            return
        if not isinstance(message, (Sample, TaskProgress, LogLine)):
            self._waiting.append(message)
        elif self._droppable < self._limit:
            self._droppable += 1
            self._waiting.append(message)
        else:
            self._dropped += 1
        # The first sample of a task says that it has begun: somebody waits for it.
        if self._departures is not None and isinstance(message, Sample) and message.sequence > 1 and not self._dropped:
            self._wait_for_departure(self._departures)
        else:
            self._leave()

    def quiet_before(self, start_s: float) -> None:
        """A load starts at that moment of `time.monotonic`."""
        if self._departures is not None:
            self._departures.quiet_before(start_s)

    def _wait_for_departure(self, departures: Departures) -> None:
        if self._timer is None and not self._leaving:
            now_s = time.monotonic()
            left_s = departures.after(now_s) - now_s
            self._timer = asyncio.get_running_loop().call_later(left_s, self._leave)

    def _leave(self) -> None:
        """Let go all that waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._leaving = True
        self._wake.set()

    def close(self) -> None:
        """Nothing more will be put; `take` gives what is left and then None."""
        self._closed = True
        self._leave()
        self._taken.set()

    def nudge(self) -> None:
        """Let a waiting `take` return None, so that its caller sees what has changed."""
        self._wake.set()

    async def room(self) -> None:
        """Wait while more answers wait to be taken than anybody needs who listens; a stream that breaks is cancelled here."""
        while len(self._waiting) - self._droppable > ANSWERS_MAX and not self._closed:
            self._taken.clear()
            await self._taken.wait()

    def forget_beats(self) -> None:
        """Drop the replies to beats of a stream that is gone."""
        self._beats.clear()

    async def take(self) -> AgentMessage | None:
        """The next message; None after a `nudge` and at the end."""
        if not (self._beats or self._leaving or self._closed):
            self._wake.clear()
            await self._wake.wait()
        if self._beats:
            return self._beats.popleft()
        if not self._leaving:
            return None
        if not self._waiting:
            self._leaving = False
            return self._report_dropped()
        return self._next()

    def _next(self) -> AgentMessage:
        """The next message of those that wait; samples that follow each other are one, when they may wait for each other."""
        message = self._waiting.popleft()
        self._taken.set()
        if not isinstance(message, (Sample, TaskProgress, LogLine)):
            return message
        self._droppable -= 1
        if self._departures is None or not isinstance(message, Sample):
            return message
        together = [message]
        while self._waiting and isinstance(beside := self._waiting[0], Sample) and len(together) < TOGETHER_MAX:
            together.append(beside)
            self._waiting.popleft()
            self._droppable -= 1
        return Samples(samples=tuple(together)) if len(together) > 1 else message

    def _report_dropped(self) -> LogLine | None:
        if not self._dropped:
            return None
        text = f"{self._dropped} messages of this agent (samples, progress, log lines) were dropped: it could not send them"
        self._dropped = 0
        return LogLine(level="warning", text=text)

    @property
    def finished(self) -> bool:
        """Closed, and everything taken."""
        return self._closed and not self._beats and not self._waiting and not self._dropped
