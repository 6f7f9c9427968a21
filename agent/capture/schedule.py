"""When a capture looks: absolute instants on the monotonic clock, until the coordinator says that it is finished.

Flow: `Schedule(context, every_s, poll_s)`; `await tick()` returns at the next poll instant, start + k × `poll_s`, whatever
the last look cost. A look that comes late is stamped with its real time; instants that passed meanwhile are skipped and
counted. `report` is set at the multiples of `every_s`, and on the last tick, so that samples bracket the measure window.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from types import TracebackType

from proveout.agent.tasks import TaskContext

POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """One instant: when it really was (ns, monotonic), whether a sample is due, whether it is the last."""

    at_ns: int
    report: bool
    last: bool


class Schedule:
    """The instants of one capture. Use as a context manager: it waits for `context.finished()` in the background."""

    def __init__(self, context: TaskContext, every_s: float, poll_s: float | None = None) -> None:
        polls = max(1, round(every_s / min(poll_s or every_s, every_s)))
        self._polls_per_report = polls
        self._poll_ns = max(1, round(every_s * 1e9 / polls))
        self._start_ns = time.monotonic_ns()
        self._next = 0
        self._reported = -1
        self._finished = asyncio.ensure_future(context.finished())
        self.lost = 0

    def __enter__(self) -> Schedule:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finished.cancel()

    async def tick(self) -> Tick:
        """Wait for the next instant; at once and `last` when the capture is finished."""
        due_ns = self._start_ns + self._next * self._poll_ns
        delay_s = max(0.0, (due_ns - time.monotonic_ns()) / 1e9)
        await asyncio.wait({self._finished}, timeout=delay_s)
        now_ns = time.monotonic_ns()
        last = self._finished.done()
        index = max(self._next, (now_ns - self._start_ns) // self._poll_ns)
        due_report = index // self._polls_per_report
        report = due_report > self._reported
        if report:
            self.lost += due_report - self._reported - 1
            self._reported = due_report
        self._next = index + 1
        return Tick(at_ns=now_ns, report=report or last, last=last)
