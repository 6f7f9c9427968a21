"""Sources of events for the screen of a run: the protocol, and the replay of a finished run.

Data flow: the command line wires a `Source` (a run under way, or the `Replay` of a finished one) -> `RunApp` reads
batches in a worker and posts them. A source never blocks the event loop, and ends with its last event.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from proveout.proto.events import IterationFinished, IterationStarted, IterationVoided, Stamped

SPEEDS = (1.0, 2.0, 5.0, 10.0, 30.0, 100.0, 1000.0)


class Source(Protocol):
    """A run's events, earliest first."""

    replayed: bool

    def batches(self) -> AsyncIterator[Sequence[Stamped]]:
        """Batches of events; the first has all earlier events.

        Ends with the run, or when the run has no coordinator.
        """
        ...

    def now_unix_s(self) -> float:
        """The current time of the run for the screen; Unix seconds."""
        ...

    async def stop(self) -> bool:
        """Request the end of the run; False when the coordinator cannot be reached."""
        ...


@dataclass(slots=True)
class Pace:
    """Speed of a replay, and whether it is paused."""

    speed: float = 10.0
    paused: bool = False

    def faster(self) -> None:
        """The next speed up."""
        self.speed = next((speed for speed in SPEEDS if speed > self.speed), SPEEDS[-1])

    def slower(self) -> None:
        """The next speed down."""
        self.speed = next((speed for speed in reversed(SPEEDS) if speed < self.speed), SPEEDS[0])


Moving: TypeAlias = Callable[[Stamped], Sequence[Stamped]]
"""The live events of the iteration that an `IterationStarted` begins, earliest first: called in a thread, it may read
files.
"""


def _nothing_moved(_: Stamped) -> Sequence[Stamped]:
    return ()


class Replay:
    """Replay of a finished run from its journal, at a pace that keys change; `moving` reads its live events from the
    samples.

    `step_s` is the interval between two batches, in seconds of real time.
    """

    replayed = True

    def __init__(
        self, events: Sequence[Stamped], pace: Pace, step_s: float = 0.1, *, moving: Moving = _nothing_moved
    ) -> None:
        self._events, self.pace, self._step_s, self._moving = events, pace, step_s, moving
        self._now_s = events[0].unix_s if events else 0.0
        self._next = 0
        self._moved: deque[Stamped] = deque()

    async def batches(self) -> AsyncIterator[Sequence[Stamped]]:
        """The events up to the time of the replay, step by step."""
        while self._next < len(self._events):
            batch = await self._batch()
            if batch:
                yield batch
            if self._next < len(self._events):
                await asyncio.sleep(self._step_s)
            if not self.pace.paused:
                self._now_s += self._step_s * self.pace.speed

    async def _batch(self) -> list[Stamped]:
        batch: list[Stamped] = []
        while self._next < len(self._events) and self._events[self._next].unix_s <= self._now_s:
            stamped = self._events[self._next]
            self._next += 1
            batch += [*self._moved_by(stamped.unix_s), stamped]
            match stamped.event:
                case IterationStarted():
                    self._moved = deque(await asyncio.to_thread(self._moving, stamped))
                case IterationFinished() | IterationVoided():
                    self._moved.clear()
        return [*batch, *self._moved_by(self._now_s)]

    def _moved_by(self, unix_s: float) -> Iterator[Stamped]:
        while self._moved and self._moved[0].unix_s <= unix_s:
            yield self._moved.popleft()

    def now_unix_s(self) -> float:
        """The replay's time, never after the last event."""
        return min(self._now_s, self._events[-1].unix_s) if self._events else 0.0

    async def stop(self) -> bool:
        """Nothing to stop in a replay."""
        return False
