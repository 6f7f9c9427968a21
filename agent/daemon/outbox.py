"""Queue of an agent's messages to its coordinator: in order, with a bound on the messages that may be lost.

Flow: session and tasks `put` -> the attached stream calls `take`. Without a stream, messages wait. Samples, progress
and log lines are dropped while `limit` of them wait; samples are numbered before they come here, so the gap is visible,
and a LogLine gives the number of dropped messages. Outcomes and answers are never dropped. Back-pressure instead: the
session stops reading while too many wait (`wait_for_room`). Replies to beats are useful only at once: the newest few
wait, and are dropped with their stream.

With many agents, a coordinator requests samples in batches: they wait for the next send time of this host, or for any
other message, which takes them along in order. Send times of different hosts are spread over the interval.
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
BATCH_MAX = 64
"""Samples in one message."""
QUIET_S = 0.05
"""No samples are sent during this time before the start of a load."""


class SendSchedule:
    """Send times of a host: every `every_s`, with an offset from the host's name.

    Pure; times are of `time.monotonic`, s.
    """

    def __init__(self, every_s: float, host: str) -> None:
        self.every_s = every_s
        self._first_s = every_s * zlib.crc32(host.encode()) / 2**32
        self._start_s = -math.inf

    def quiet_before(self, start_s: float) -> None:
        """A load starts at this time: send no samples just before it."""
        self._start_s = start_s

    def after(self, now_s: float) -> float:
        """The next send time."""
        next_s = now_s + (self._first_s - now_s) % self.every_s
        return self._start_s if self._start_s - QUIET_S <= next_s < self._start_s else next_s


class Outbox:
    """A queue with one reader at a time. Without `schedule` every message is sent at once."""

    def __init__(self, limit: int = LIMIT, schedule: SendSchedule | None = None) -> None:
        self._limit = limit
        self._departures = schedule if schedule is not None and schedule.every_s > 0.0 else None
        self._timer: asyncio.TimerHandle | None = None
        self._flushing = False
        self._waiting: deque[AgentMessage] = deque()
        self._beats: deque[BeatReply] = deque(maxlen=BEATS_MAX)
        self._taken = asyncio.Event()
        self._droppable = 0
        self._dropped = 0
        self._wake = asyncio.Event()
        self._closed = False

    def put(self, message: AgentMessage) -> None:
        """Queue a message. A reply to a beat goes first; a sample may wait for a batch."""
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
        # The first sample of a task shows that it has started: the coordinator waits for it.
        if self._departures is not None and isinstance(message, Sample) and message.sequence > 1 and not self._dropped:
            self._wait_for_schedule(self._departures)
        else:
            self._flush()

    def quiet_before(self, start_s: float) -> None:
        """A load starts at this time of `time.monotonic`."""
        if self._departures is not None:
            self._departures.quiet_before(start_s)

    def _wait_for_schedule(self, schedule: SendSchedule) -> None:
        if self._timer is None and not self._flushing:
            now_s = time.monotonic()
            left_s = schedule.after(now_s) - now_s
            self._timer = asyncio.get_running_loop().call_later(left_s, self._flush)

    def _flush(self) -> None:
        """Send all messages that wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._flushing = True
        self._wake.set()

    def close(self) -> None:
        """No message is put after this; `take` gives the remaining messages, then None."""
        self._closed = True
        self._flush()
        self._taken.set()

    def wake(self) -> None:
        """Make a waiting `take` return None, so that its caller checks its state."""
        self._wake.set()

    async def wait_for_room(self) -> None:
        """Back-pressure: wait while more than `ANSWERS_MAX` answers are queued. A broken stream cancels the wait."""
        while len(self._waiting) - self._droppable > ANSWERS_MAX and not self._closed:
            self._taken.clear()
            await self._taken.wait()

    def drop_beat_replies(self) -> None:
        """Drop the replies to beats of a stream that has ended."""
        self._beats.clear()

    async def take(self) -> AgentMessage | None:
        """The next message; None after `wake` and at the end."""
        if not (self._beats or self._flushing or self._closed):
            self._wake.clear()
            await self._wake.wait()
        if self._beats:
            return self._beats.popleft()
        if not self._flushing:
            return None
        if not self._waiting:
            self._flushing = False
            return self._report_dropped()
        return self._next()

    def _next(self) -> AgentMessage:
        """The next queued message; consecutive samples become one batch if there is a schedule."""
        message = self._waiting.popleft()
        self._taken.set()
        if not isinstance(message, (Sample, TaskProgress, LogLine)):
            return message
        self._droppable -= 1
        if self._departures is None or not isinstance(message, Sample):
            return message
        batch = [message]
        while self._waiting and isinstance(following := self._waiting[0], Sample) and len(batch) < BATCH_MAX:
            batch.append(following)
            self._waiting.popleft()
            self._droppable -= 1
        return Samples(samples=tuple(batch)) if len(batch) > 1 else message

    def _report_dropped(self) -> LogLine | None:
        if not self._dropped:
            return None
        text = (
            f"{self._dropped} messages of this agent (samples, progress, log lines) were dropped: its "
            "send queue was full"
        )
        self._dropped = 0
        return LogLine(level="warning", text=text)

    @property
    def finished(self) -> bool:
        """Closed, and all messages taken."""
        return self._closed and not self._beats and not self._waiting and not self._dropped
