"""Load workers as local processes, kept between iterations: starting Python and importing modules takes half a second.

Flow: `acquire(n)` -> `WorkerProcess`es for one load -> `release` (ready for the next load) or `discard`. Workers are
spawned, never forked: gRPC does not survive a fork.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import Process
from collections.abc import Sequence
from typing import Any

from proveout.agent.errors import TaskFault
from proveout.agent.load import worker_messages
from proveout.agent.sandbox.helper import Child, spawn
from proveout.agent.sandbox.privileges import Privileges

MODULE = "proveout.agent.load.worker"
START_S = 60.0
END_S = 9.0
"""Above the time a worker needs to drain, cancel and close: statements of a killed worker keep running on the
server.
"""


class WorkerProcess(Child):
    """One load worker process."""

    def __init__(self, process: Process, privileges: Privileges) -> None:
        super().__init__(process)
        self.privileges = privileges

    @classmethod
    async def start(cls, engine: str, privileges: Privileges) -> WorkerProcess:
        """Start a process that is ready for a load on `engine`. TaskFault if it does not start."""
        worker = cls(await spawn(MODULE, privileges, engine, engine=engine), privileges)
        try:
            async with asyncio.timeout(START_S):
                await worker.read()
        except BaseException as error:
            await worker.kill()
            if isinstance(error, TimeoutError):
                raise TaskFault("timeout", f"a load worker did not start within {START_S:.0f} s") from None
            raise
        return worker

    def send(self, frame: worker_messages.ToWorker) -> None:
        """Send a frame. If the worker has ended, `read` reports that."""
        with contextlib.suppress(ConnectionError):
            self._stdin.write(worker_messages.encode(frame))

    async def read(self) -> Any:
        """The next frame of the worker. TaskFault with its last output if it has ended."""
        frame = await worker_messages.read(self._stdout)
        if frame is None:
            try:
                async with asyncio.timeout(END_S):
                    await self._process.wait()
            except TimeoutError:  # it has closed its pipe but still runs: nothing more will come
                self._signal()
            raise await self.died()
        return frame

    async def end(self) -> None:
        """Stop the load and end the worker; kill it after `END_S`."""
        self.send(worker_messages.Stop())
        await self.close_pipe(END_S)

    async def died(self) -> TaskFault:
        """Wait until the process has ended; returns the fault for it."""
        return TaskFault(
            "fault",
            f"load worker {self.pid} {await self.ending()}",
            way_out="the iteration is void; if memory is short on this host, use fewer workers",
        )


class Pool:
    """The workers of an agent (a `tasks.Resource`)."""

    def __init__(self) -> None:
        self._idle: list[WorkerProcess] = []
        self._lent: list[WorkerProcess] = []

    @property
    def workers(self) -> tuple[WorkerProcess, ...]:
        """All workers, idle or in use."""
        return (*self._idle, *self._lent)

    async def acquire(self, count: int, engine: str, privileges: Privileges) -> list[WorkerProcess]:
        """`count` workers for one load on an engine, idle ones first. TaskFault if one cannot be started."""
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
        """Take back workers whose load has succeeded."""
        for worker in workers:
            self._lent.remove(worker)
            self._idle.append(worker)

    async def discard(self, workers: Sequence[WorkerProcess]) -> None:
        """End workers whose load has failed, within seconds."""
        for worker in workers:
            if worker in self._lent:
                self._lent.remove(worker)
        await asyncio.gather(*(worker.end() for worker in workers))

    async def close(self, *, keep_data: bool) -> None:
        """End all workers."""
        workers, self._idle, self._lent = self.workers, [], []
        await asyncio.gather(*(worker.end() for worker in workers))
