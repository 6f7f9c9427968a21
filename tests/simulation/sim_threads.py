"""Threads of simulated processes for blocking code, in simulated time. Only the loop or one thread runs at any moment.

Data flow: the real agent hands blocking work to a thread -> `Threads.run` -> a thread that runs only while the loop
waits for it -> at each access to the host that work calls `Threads.pause(seconds)`: the loop runs until that time has
passed, then the thread continues. So a fault between two steps of a transaction strikes at the same place in a replay.

In a thread of a killed process `pause` raises `Killed`, and the simulated host checks `is_dead` to ignore the calls
that the thread's `finally` clauses still make. A thread of a stopped process waits.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from sim_clock import CURRENT, Process, SimLoop

T = TypeVar("T")


class Killed(BaseException):
    """The process was killed. Code that catches this must raise it again."""


class _Worker:
    """A thread that runs one piece of work at a time, while the loop waits."""

    def __init__(self) -> None:
        self._go, self._back = threading.Lock(), threading.Lock()  # each is released by the other side
        self._go.acquire()
        self._back.acquire()
        self._work: Callable[[], None] | None = None
        self.process: Process | None = None
        self.is_short = False
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def _live(self) -> None:
        _LOCAL.worker = self
        while True:
            self._go.acquire()
            if self._work is None:
                return
            self._work()
            self.process = None
            self._back.release()

    def step(self) -> None:
        """Called by the loop: continue the thread until it pauses or ends."""
        self._go.release()
        self._back.acquire()

    def wait(self) -> None:
        """Called by the thread: run the loop until the thread is continued."""
        self._back.release()
        self._go.acquire()

    def begin(self, process: Process, work: Callable[[], None]) -> None:
        self.process, self._work = process, work
        self.step()

    def end(self) -> None:
        self._work = None
        self._go.release()
        self._thread.join()


class _Local(threading.local):
    worker: _Worker | None = None


_LOCAL = _Local()


class Threads:
    """All threads of a history."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._workers: list[_Worker] = []
        self.stepped: Callable[[Process], None] = lambda _process: None

    async def run(self, work: Callable[[], T]) -> T:
        """Replaces `asyncio.to_thread`."""
        process = CURRENT.get()
        assert process is not None
        done: asyncio.Future[T] = self._loop.create_future()
        context = contextvars.copy_context()

        def outcome() -> None:
            try:
                result = context.run(work)
            except Killed:
                return
            except BaseException as error:
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(result)

        self._free().begin(process, outcome)
        return await done

    def pause(self, seconds: float, *, short: bool = False) -> None:
        """Called by a thread: let `seconds` pass. Killed when its process is killed meanwhile. Outside of the threads
        of a history it has no effect.

        `short`: during a short operation such as writing a file, in which the host's owner does not interfere.
        """
        worker = _LOCAL.worker
        if worker is None or worker.process is None:
            return
        if is_dead():
            raise Killed
        self.stepped(worker.process)
        if self._loop.skip(seconds):
            return
        worker.is_short = short
        self._loop.call_later(seconds, self._resume, worker, worker.process)
        worker.wait()
        worker.is_short = False
        if is_dead():
            raise Killed

    def _resume(self, worker: _Worker, process: Process) -> None:
        if worker.process is process:
            worker.step()

    def busy(self, process: Process) -> bool:
        """Whether a thread of the process is in a short operation."""
        return any(worker.process is process and worker.is_short for worker in self._workers)

    def kill(self, process: Process) -> None:
        """End the threads of a killed process where they are."""
        for worker in self._workers:
            while worker.process is process:
                worker.step()

    def close(self) -> None:
        """End all threads at the end of the history."""
        for worker in self._workers:
            process = worker.process
            if process is not None:
                process.alive = False
                self.kill(process)
            worker.end()
        self._workers.clear()

    def _free(self) -> _Worker:
        for worker in self._workers:
            if worker.process is None:
                return worker
        self._workers.append(_Worker())
        return self._workers[-1]


def is_dead() -> bool:
    """Whether the current thread belongs to a killed process."""
    process = CURRENT.get()
    return _LOCAL.worker is not None and process is not None and not process.alive


class Asyncio:
    """Replaces the module `asyncio` in the tuner: `to_thread` uses the threads of the history."""

    def __init__(self, threads: Threads) -> None:
        self.to_thread = threads.run

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)
