"""When a capture looks, and the thread it looks in.

Flow: `observe(context, spec, make)` -> a thread of its own: `make()` opens the observer -> at each instant start + k ×
poll on the monotonic clock `observer.look(tick)` -> samples back to the agent's loop -> `CaptureResult` when
`context.finished()`.

Instants are absolute: a look does not move the next one, whatever it cost. A look that comes late is stamped with its
real time; reports that passed meanwhile are skipped and counted as lost. `Tick.report` is set at the multiples of the
capture's `every_s`, at the start and at the end, so that samples bracket whatever happened between. A thread, and not
the loop, so that a busy loop cannot shift the looks, and so that their CPU is counted by itself
(`CaptureResult.cpu_s`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.adapter import Observer, Tick
from proveout.proto.wire.results import CaptureResult, CaptureSample
from proveout.proto.wire.tasks import RunCapture

END_S = 5.0


class Schedule:
    """The instants of one capture, in its thread; ends when `finished` is set."""

    def __init__(self, finished: threading.Event, every_s: float, poll_s: float) -> None:
        self._polls_per_report = max(1, round(every_s / min(poll_s, every_s)))
        self._poll_ns = max(1, round(every_s * 1e9 / self._polls_per_report))
        self._start_ns = time.monotonic_ns()
        self._next = 0
        self._reported = -1
        self._finished = finished
        self.lost = 0

    def tick(self) -> Tick:
        """Wait for the next instant; at once, and `last`, when the capture is finished."""
        due_ns = self._start_ns + self._next * self._poll_ns
        last = self._finished.wait(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))
        now_ns = time.monotonic_ns()
        index = (now_ns - self._start_ns) // self._poll_ns
        self._next = max(self._next, index) + 1
        due_report = index // self._polls_per_report
        report = due_report > self._reported
        if report:
            self.lost += due_report - self._reported - 1
            self._reported = due_report
        return Tick(at_ns=now_ns, report=report or last, last=last)


async def observe(
    context: TaskContext, spec: RunCapture, make: Callable[[], Observer], *, poll_s: float | None = None
) -> CaptureResult:
    """Run a capture until it is finished or cancelled; what `make` raises is raised here."""
    loop = asyncio.get_running_loop()
    finished = threading.Event()
    waiter = asyncio.ensure_future(context.finished())
    waiter.add_done_callback(lambda _: finished.set())
    worker = _Worker(spec, make, finished, lambda sample: loop.call_soon_threadsafe(context.sample, sample))
    every_s = spec.capture.every_s
    executor = ThreadPoolExecutor(1, thread_name_prefix=f"capture-{spec.capture.name}")
    work = loop.run_in_executor(executor, worker.run, every_s, poll_s or every_s)
    try:
        both: tuple[asyncio.Future[Any], ...] = (work, waiter)
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        await _ended(work, worker)
        return work.result()
    except asyncio.CancelledError:
        finished.set()
        await _ended(work, worker)
        raise
    finally:
        waiter.cancel()
        executor.shutdown(wait=False)


async def _ended(work: asyncio.Future[CaptureResult], worker: _Worker) -> None:
    """Wait for the thread; after `END_S` the look that holds it is aborted."""
    while not work.done():
        _, late = await asyncio.wait({work}, timeout=END_S)
        if late:
            worker.abort()


class _Worker:
    """The body of a capture's thread."""

    def __init__(
        self,
        spec: RunCapture,
        make: Callable[[], Observer],
        finished: threading.Event,
        send: Callable[[CaptureSample], object],
    ) -> None:
        self._name, self._make, self._finished, self._send = spec.capture.name, make, finished, send
        self._observer: Observer | None = None

    def run(self, every_s: float, poll_s: float) -> CaptureResult:
        observer = self._observer = self._make()
        samples = lost = 0
        before = time.thread_time()
        schedule = Schedule(self._finished, every_s, poll_s)
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
                self._send(CaptureSample(capture=self._name, at_ns=tick.at_ns, readings=tuple(readings)))
                samples += 1
        finally:
            observer.close()
        cpu_s = time.thread_time() - before
        return CaptureResult(capture=self._name, samples=samples, lost=lost + schedule.lost, cpu_s=cpu_s)

    def abort(self) -> None:
        if self._observer is not None:
            self._observer.abort()
