"""What an agent has to say and has not said yet: ordered, bounded where that is honest.

Flow: session and tasks `put` -> the stream that is attached `take`s. While no stream is attached messages wait. What
people watch (samples, progress, log lines) is dropped when `limit` of it waits; samples are numbered before they come here,
so the reader sees the gap, and the number dropped is told in a LogLine. Outcomes and answers are never dropped: who asks and does not
listen is not heard (`room`) until he does. Replies to beats are only of use at once: the newest few wait, and leave with the stream that
they belong to.
"""

from __future__ import annotations

import asyncio
from collections import deque

from proveout.proto.messages import AgentMessage, BeatReply, LogLine, Sample, TaskProgress

LIMIT = 1000
ANSWERS_MAX = 2000
BEATS_MAX = 64


class Outbox:
    """A queue with one reader at a time."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._waiting: deque[AgentMessage] = deque()
        self._beats: deque[BeatReply] = deque(maxlen=BEATS_MAX)
        self._taken = asyncio.Event()
        self._droppable = 0
        self._dropped = 0
        self._wake = asyncio.Event()
        self._closed = False

    def put(self, message: AgentMessage) -> None:
        """Say `message` next; a reply to a beat before all else."""
        if isinstance(message, BeatReply):
            self._beats.append(message)
        elif not isinstance(message, (Sample, TaskProgress, LogLine)):
            self._waiting.append(message)
        elif self._droppable < self._limit:
            self._droppable += 1
            self._waiting.append(message)
        else:
            self._dropped += 1
        self._wake.set()

    def close(self) -> None:
        """Nothing more will be put; `take` gives what is left and then None."""
        self._closed = True
        self._wake.set()
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
        if not (self._beats or self._waiting or self._dropped or self._closed):
            self._wake.clear()
            await self._wake.wait()
        if self._beats:
            return self._beats.popleft()
        if not self._waiting:
            return self._report_dropped()
        message = self._waiting.popleft()
        self._taken.set()
        if isinstance(message, (Sample, TaskProgress, LogLine)):
            self._droppable -= 1
        return message

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
