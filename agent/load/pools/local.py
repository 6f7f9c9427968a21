"""Worker processes of this agent, kept warm between iterations: starting Python and importing takes half a second.

Flow: `acquire(n)` -> `WorkerProcess`es that nobody else uses -> `release` (fit for the next load) or `discard`. Workers
are spawned, never forked: gRPC does not survive a fork.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Sequence
from typing import Any

from proveout.agent.daemon.tasks import TaskFault
from proveout.agent.load import worker_messages
from proveout.agent.sandbox.privileges import Privileges
from proveout.core import child_process

MODULE = "proveout.agent.load.worker"
START_S = 60.0
END_S = 9.0
"""Longer than a worker takes to drain, cancel and close (`engine`), for a server keeps on with what a killed one has asked for."""
LAST_WORDS_MAX = 8
STREAM_LIMIT = 1 << 20


class WorkerProcess:
    """One load worker, seen from the agent."""

    def __init__(self, process: Process, privileges: Privileges) -> None:
        self.privileges = privileges
        assert process.stdin is not None and process.stdout is not None  # noqa: S101 - PIPE
        self._process = process
        self._stdin, self._stdout = process.stdin, process.stdout
        self._pidfd = -1
        with contextlib.suppress(ProcessLookupError):  # it has ended already, which reading it will tell
            self._pidfd = os.pidfd_open(process.pid)
        self._last_words: deque[str] = deque(maxlen=LAST_WORDS_MAX)
        self._listener = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, engine: str, privileges: Privileges | None = None) -> WorkerProcess:
        """Start a process that is ready for a load on `engine`. TaskFault if it does not start.

        Without `privileges` it gets those of the engine (`Privileges.for_engine`).
        """
        privileges = privileges or Privileges.for_engine(engine)
        process = await asyncio.create_subprocess_exec(
            *child_process.python(MODULE, str(os.getpid()), privileges.to_argument(), engine),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=STREAM_LIMIT,
            cwd=child_process.DIRECTORY,
            env=privileges.environment(child_process.environment(*child_process.of_engine(engine))),
        )
        worker = cls(process, privileges)
        try:
            async with asyncio.timeout(START_S):
                await worker.read()
        except BaseException as error:
            await worker.kill()
            if isinstance(error, TimeoutError):
                raise TaskFault("timeout", f"a load worker did not come up within {START_S:.0f} s") from None
            raise
        return worker

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs still, as far as is known."""
        return self._process.returncode is None and not self._stdout.at_eof()

    def send(self, frame: worker_messages.ToWorker) -> None:
        """Send a frame; a worker that is gone shows when it is read."""
        with contextlib.suppress(ConnectionError):
            self._stdin.write(worker_messages.encode(frame))

    async def read(self) -> Any:
        """Its next frame. TaskFault with its last words when it has ended instead."""
        frame = await worker_messages.read(self._stdout)
        if frame is None:
            try:
                async with asyncio.timeout(END_S):
                    await self._process.wait()
            except TimeoutError:  # it has closed its pipe and stays: nothing more will come
                self._signal()
            raise await self.died()
        return frame

    async def end(self) -> None:
        """Have it stop its load and end; kill it when it takes longer than `END_S`."""
        self.send(worker_messages.Stop())
        with contextlib.suppress(ConnectionError, RuntimeError):
            self._stdin.close()
        try:
            async with asyncio.timeout(END_S):
                while await self._stdout.read(STREAM_LIMIT):
                    pass
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            await self.kill()

    async def kill(self) -> None:
        """End it now; idempotent."""
        self._signal()
        await self._process.wait()
        await self._listener
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def _signal(self) -> None:
        """SIGKILL, past `Process.kill`: that reaps a child that has died, and its exit status is lost to asyncio."""
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    async def died(self) -> TaskFault:
        """Wait until the process has ended; what to say about it."""
        await self._process.wait()
        await self._listener
        code = self._process.returncode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        words = "\n".join(self._last_words)
        return TaskFault(
            "fault",
            f"load worker {self.pid} {how}" + (f"; its last words:\n{words}" if words else ""),
            way_out="the iteration counts for nothing; when memory is short on this host, use fewer workers",
        )

    async def _listen(self) -> None:
        assert self._process.stderr is not None  # noqa: S101 - PIPE
        with contextlib.suppress(ValueError):  # a line longer than the limit
            while line := await self._process.stderr.readline():
                self._last_words.append(line.decode(errors="replace").rstrip())


class Pool:
    """The workers of an agent (a `tasks.Resource`)."""

    def __init__(self) -> None:
        self._idle: list[WorkerProcess] = []
        self._lent: list[WorkerProcess] = []

    @property
    def workers(self) -> tuple[WorkerProcess, ...]:
        """All, idle or at work."""
        return (*self._idle, *self._lent)

    async def acquire(self, count: int, engine: str, privileges: Privileges | None = None) -> list[WorkerProcess]:
        """`count` workers for one load on an engine, idle ones first. TaskFault if one cannot be started. `privileges`: see `start`."""
        privileges = privileges or Privileges.for_engine(engine)
        dead = [worker for worker in self._idle if not worker.alive]
        warm = [worker for worker in self._idle if worker.alive and worker.privileges == privileges]
        others = [worker for worker in self._idle if worker.alive and worker.privileges != privileges]
        taken, self._idle = warm[:count], [*warm[count:], *others]
        self._lent.extend(taken)
        new: list[WorkerProcess] = []
        try:
            for worker in dead:
                await worker.kill()
            starting = [self._started(new, engine, privileges) for _ in range(count - len(taken))]
            for failure in await asyncio.gather(*starting, return_exceptions=True):
                if failure is not None:
                    raise failure
        except BaseException:
            self.release(taken)
            await asyncio.shield(self.discard(new))
            raise
        return [*taken, *new]

    async def _started(self, new: list[WorkerProcess], engine: str, privileges: Privileges) -> None:
        worker = await WorkerProcess.start(engine, privileges)
        self._lent.append(worker)
        new.append(worker)

    def release(self, workers: Sequence[WorkerProcess]) -> None:
        """Take back workers whose load has ended well."""
        for worker in workers:
            self._lent.remove(worker)
            self._idle.append(worker)

    async def discard(self, workers: Sequence[WorkerProcess]) -> None:
        """End workers whose load has not ended well; within some second."""
        for worker in workers:
            if worker in self._lent:
                self._lent.remove(worker)
        await asyncio.gather(*(worker.end() for worker in workers))

    async def close(self, *, keep_data: bool) -> None:
        """End all."""
        workers = [*self._idle, *self._lent]
        self._idle, self._lent = [], []
        await asyncio.gather(*(worker.end() for worker in workers))
