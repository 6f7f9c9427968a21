"""The kinds of captures, which function observes each, and the thread and instants in which it looks.

A capture's module is imported when it is first used: an agent that only observes its kernel needs no database
client.
"""

from __future__ import annotations

import asyncio
import importlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from proveout.agent.daemon.tasks import Handler, TaskContext
from proveout.agent.engines.adapter import Observer, Tick
from proveout.dsl.plan.captures import CAPTURES
from proveout.proto.wire.results import CaptureResult, CaptureSample
from proveout.proto.wire.tasks import RunCapture

# Instants are absolute: a look does not move the next one, whatever it cost. A look that comes late is stamped with its
# real time; reports that passed meanwhile are skipped and counted as lost. `Tick.report` is set at the multiples of the
# capture's `every_s`, at the edges, at the start and at the end, so that samples bracket whatever happened between. A
# thread, and not the loop, so that a busy loop cannot shift the looks, and so that their CPU is counted by itself
# (`CaptureResult.cpu_s`).

END_S = 5.0


class Schedule:
    """The instants of one capture. `look_at` and `finish` are called by the loop, the rest in the capture's thread."""

    def __init__(self, every_s: float, poll_s: float) -> None:
        self._changed = threading.Condition()
        self._extra_ns: list[int] = []
        self._finished = False
        self._polls_per_report = max(1, round(every_s / min(poll_s, every_s)))
        self._poll_ns = max(1, round(every_s * 1e9 / self._polls_per_report))
        self._start_ns = self._next = 0
        self._reported = -1
        self.lost = 0

    def look_at(self, instants_ns: Iterable[int]) -> None:
        """Look at these instants of the monotonic clock too."""
        with self._changed:
            self._extra_ns = sorted([*self._extra_ns, *instants_ns])
            self._changed.notify()

    def finish(self) -> None:
        """End the capture, with a last look."""
        with self._changed:
            self._finished = True
            self._changed.notify()

    def begin(self) -> None:
        """Count from now on."""
        self._start_ns = time.monotonic_ns()

    def tick(self) -> Tick:
        """Wait for the next instant; at once, and `last`, when the capture is finished."""
        due_ns = self._start_ns + self._next * self._poll_ns
        with self._changed:
            while not self._finished:
                left_ns = min([due_ns, *self._extra_ns[:1]]) - time.monotonic_ns()
                if left_ns <= 0:
                    break
                self._changed.wait(left_ns / 1e9)
            now_ns = time.monotonic_ns()
            passed = sum(instant_ns <= now_ns for instant_ns in self._extra_ns)
            del self._extra_ns[:passed]
            last = self._finished
        if passed and now_ns < due_ns:
            return Tick(at_ns=now_ns, report=True, last=last)
        index = (now_ns - self._start_ns) // self._poll_ns
        self._next = max(self._next, index) + 1
        due_report = index // self._polls_per_report
        report = due_report > self._reported
        if report:
            self.lost += due_report - self._reported - 1
            self._reported = due_report
        return Tick(at_ns=now_ns, report=report or last or passed > 0, last=last)


async def observe(
    context: TaskContext, spec: RunCapture, make: Callable[[], Observer], *, poll_s: float | None = None
) -> CaptureResult:
    """Run a capture until it is finished or cancelled; what `make` raises is raised here."""
    loop = asyncio.get_running_loop()
    name, every_s = spec.capture.name, spec.capture.every_s
    schedule = Schedule(every_s, poll_s or every_s)
    made: list[Observer] = []

    def look() -> CaptureResult:
        """The body of the capture's thread."""
        made.append(observer := make())
        samples = lost = 0
        before = time.thread_time()
        schedule.begin()
        last = False
        try:
            while not last:
                tick = schedule.tick()
                last = tick.last
                readings = observer.look(tick)
                if not tick.report:
                    continue
                if readings is None:
                    lost += 1
                    continue
                sample = CaptureSample(capture=name, at_ns=tick.at_ns, readings=tuple(readings))
                loop.call_soon_threadsafe(context.sample, sample)
                samples += 1
        finally:
            observer.close()
        cpu_s = time.thread_time() - before
        return CaptureResult(capture=name, samples=samples, lost=lost + schedule.lost, cpu_s=cpu_s)

    waiter = asyncio.ensure_future(context.finished())
    waiter.add_done_callback(lambda _: schedule.finish())
    edges = asyncio.ensure_future(_look_at_edges(context, spec.edges_s, schedule))
    executor = ThreadPoolExecutor(1, thread_name_prefix=f"capture-{name}")
    work = loop.run_in_executor(executor, look)
    try:
        both: tuple[asyncio.Future[Any], ...] = (work, waiter)
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        await _ended(work, made)
        return work.result()
    except asyncio.CancelledError:
        schedule.finish()
        await _ended(work, made)
        raise
    finally:
        waiter.cancel()
        edges.cancel()
        executor.shutdown(wait=False)


async def _ended(work: asyncio.Future[CaptureResult], made: Iterable[Observer]) -> None:
    """Wait for the thread; after `END_S` the look that holds it is aborted."""
    while not work.done():
        _, late = await asyncio.wait({work}, timeout=END_S)
        for observer in made if late else ():
            observer.abort()


async def _look_at_edges(context: TaskContext, edges_s: Sequence[float], schedule: Schedule) -> None:
    """Add the edges of the measure window when its start is known."""
    if edges_s:
        t0_ns = await context.started()
        schedule.look_at(t0_ns + round(edge_s * 1e9) for edge_s in edges_s)


async def capture(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Observe until `Finish`; TaskFault `missing` when the client that the kind needs is not on this host."""
    module, _, name = CAPTURES[spec.capture.kind].run.partition(":")
    run: Handler = getattr(importlib.import_module(module), name)
    result = await run(context, spec)
    assert isinstance(result, CaptureResult)  # noqa: S101 - every kind answers one
    return result
