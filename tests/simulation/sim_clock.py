"""An event loop with simulated time, and simulated processes that can be killed, stopped and continued.

Data flow: coroutines of the real coordinator and the real agents schedule callbacks as on any loop -> a heap ordered by
(instant, serial) -> `SimLoop.run_until` pops the earliest and runs it. Waits take no real time, and one seed gives one
history.

Each callback belongs to the `Process` in whose context it was scheduled. Callbacks of a killed process never run (as
after kill -9, without `finally`); those of a stopped process run after SIGCONT. `SimTime` replaces the `time` module
for a process: monotonic clocks differ by an offset and a drift, wall clocks jump.

Tasks and futures hash by a serial number, so that iterating over a set of them has the same order in every replay.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import itertools
import math
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")
Callback = Callable[..., Any]

_EPOCH_UNIX_S = 1_800_000_000.0


CURRENT: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


@dataclass(eq=False)
class Process:
    """A simulated process. `offset_ns` and `drift_ppm` are the errors of its monotonic clock, `wall_s` that of its wall
    clock."""

    name: str
    offset_ns: int = 0
    drift_ppm: float = 0.0
    wall_s: float = 0.0
    alive: bool = True
    stopped: bool = False
    held: list[_Call] = field(default_factory=list)


class _Call:
    """The handle of a scheduled callback: the methods of asyncio's handles that are used here, and cheaper to
    create."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "process", "when_s")

    def __init__(self, when_s: float, callback: Callback, args: tuple[Any, ...], context: contextvars.Context) -> None:
        self.when_s, self.callback, self.args, self.context = when_s, callback, args, context
        self.process = context.get(CURRENT)
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.when_s


class _Task(asyncio.Task[T]):
    serial: int

    def __hash__(self) -> int:
        return self.serial


class _Future(asyncio.Future[T]):
    serial: int = 0

    def __hash__(self) -> int:
        return self.serial


class SimLoop(asyncio.AbstractEventLoop):
    """The loop. `now_s` is true time from 0 in whole nanoseconds, so that a clock in nanoseconds shows the exact end of
    a wait."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.steps = 0
        self.raised: list[str] = []
        self._agenda: list[tuple[float, int, _Call]] = []
        self._serial = itertools.count(1)
        self._tasks: list[_Task[Any]] = []
        self._holding: dict[tuple[str, int], Process] = {}
        self._closing = False

    # ---- the interface of asyncio's loops ----------------------------------------------------------------------------

    def time(self) -> float:
        return self.now_s

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(  # type: ignore[override]
        self, callback: Callback, *args: Any, context: contextvars.Context | None = None
    ) -> _Call:
        call = _Call(self.now_s, callback, args, context if context is not None else contextvars.copy_context())
        heapq.heappush(self._agenda, (self.now_s, next(self._serial), call))
        return call

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callback, *args: Any, context: contextvars.Context | None = None
    ) -> _Call:
        return self.call_at(self.now_s + max(1e-9, delay), callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callback, *args: Any, context: contextvars.Context | None = None
    ) -> _Call:
        due_s = math.ceil(when * 1e9) / 1e9 if when > self.now_s else self.now_s
        call = _Call(due_s, callback, args, context if context is not None else contextvars.copy_context())
        heapq.heappush(self._agenda, (due_s, next(self._serial), call))
        return call

    call_soon_threadsafe = call_soon

    def create_future(self) -> asyncio.Future[Any]:
        future: _Future[Any] = _Future(loop=self)
        future.serial = next(self._serial)
        return future

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> asyncio.Task[Any]:
        serial = next(self._serial)
        _Task.serial = serial  # the constructor adds the task to a set of all tasks, and hashes it for that
        task: _Task[Any] = _Task(coro, loop=self, name=name, context=context)
        task.serial = serial
        self._tasks.append(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Call `func` at once: a real thread would make the order of callbacks random."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._closing:
            self.raised.append(f"{context.get('message')}: {context.get('exception')!r}")

    # ---- running ---------------------------------------------------------------------------------------------------

    def run_until(self, over: Callable[[], bool], limit_s: float) -> bool:
        """Run callbacks in order until `over()`; False when the time limit came first."""
        agenda, step = self._agenda, self._step
        with _running(self):
            while not over():
                if not agenda or agenda[0][0] > limit_s:
                    self.now_s = limit_s
                    return False
                step()
        return True

    def _step(self) -> None:
        when_s, _, call = heapq.heappop(self._agenda)
        if when_s > self.now_s:
            self.now_s = when_s
        if call.is_cancelled:
            return
        process = call.process
        if process is not None and (process.stopped or not process.alive) and not self._closing:
            process.held.append(call)
            self._holding[process.name, id(process)] = process
            return
        self.steps += 1
        try:
            call.context.run(call.callback, *call.args)
        except Exception as error:
            self.call_exception_handler({"message": f"in {call.callback}", "exception": error})

    def skip(self, seconds: float) -> bool:
        """Advance the clock at once when no callback is due within `seconds`; return whether it was advanced."""
        while self._agenda and self._agenda[0][2].is_cancelled:
            heapq.heappop(self._agenda)
        if self._agenda and self._agenda[0][0] <= self.now_s + seconds:
            return False
        self.now_s += seconds
        return True

    def spawn(self, process: Process, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        context = contextvars.copy_context()
        context.run(CURRENT.set, process)
        with _running(self):
            return context.run(lambda: self.create_task(work, name=name))

    def proceed(self, process: Process) -> None:
        """SIGCONT: schedule the callbacks that became due in the meantime for now, in their order."""
        process.stopped = False
        held, process.held = process.held, []
        for call in held:
            if not call.is_cancelled:
                heapq.heappush(self._agenda, (self.now_s, next(self._serial), call))

    def end_tasks(self) -> None:
        """End every remaining task, so that no task outlives its history. Their actions no longer have an effect."""
        self._closing = True
        for process in self._holding.values():
            self.proceed(process)
        for _ in range(20):
            left = [task for task in self._tasks if not task.done()]
            if not left:
                break
            with _running(self):
                for task in left:
                    task.cancel()
            self.run_until(lambda left=left: all(task.done() for task in left), self.now_s + 30.0)  # type: ignore[misc]
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.exception()  # marks the exception as retrieved
        assert all(task.done() for task in self._tasks), [task for task in self._tasks if not task.done()]
        self._tasks.clear()
        self._agenda.clear()


@contextlib.contextmanager
def _running(loop: SimLoop) -> Iterator[None]:
    before = asyncio._get_running_loop()
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(before)


class SimTime:
    """The module `time` with the clocks of the current process."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def monotonic_ns(self) -> int:
        process = CURRENT.get()
        true_ns = round(self._loop.now_s * 1e9)
        if process is None:
            return true_ns
        return true_ns + process.offset_ns + round(true_ns * process.drift_ppm / 1e6)

    def monotonic(self) -> float:
        return self.monotonic_ns() / 1e9

    def time_ns(self) -> int:
        return round(self.time() * 1e9)

    def time(self) -> float:
        process = CURRENT.get()
        return _EPOCH_UNIX_S + self._loop.now_s + (process.wall_s if process is not None else 0.0)
