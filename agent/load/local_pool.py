"""Load workers as local processes, kept between iterations: starting Python and importing modules takes half a second.

Flow: `acquire(n)` -> `WorkerProcess`es for one load -> `release` (ready for the next load) or `discard`. Workers are
spawned, never forked: gRPC does not survive a fork.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from proveout.agent.errors import TaskFault
from proveout.agent.load import worker_messages
from proveout.agent.sandbox.privileges import Privileges
from proveout.core import child_process

MODULE = "proveout.agent.load.worker"
START_S = 60.0
END_S = 9.0
"""Above the time a worker needs to drain, cancel and close: statements of a killed worker keep running on the
server.
"""
STDERR_LINES_MAX = 8
STREAM_LIMIT = 1 << 20


class Child:
    """The agent's side of a process with messages on its stdin and stdout; the last lines of its stderr are kept."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101 - PIPE
        self._process = process
        self._stdin, self._stdout = process.stdin, process.stdout
        self._pidfd = -1
        with contextlib.suppress(ProcessLookupError):  # it has ended already; reading its output reports that
            self._pidfd = os.pidfd_open(process.pid)
        self._stderr_lines: deque[str] = deque(maxlen=STDERR_LINES_MAX)
        self._reader = asyncio.create_task(self._read_stderr())

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process still runs, as far as the agent can see."""
        return self._process.returncode is None and not self._stdout.at_eof()

    async def kill(self) -> None:
        """Kill the process; idempotent."""
        self._signal()
        await self._process.wait()
        await self._reader
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    async def close_pipe(self, within_s: float) -> None:
        """Close its stdin, and kill it if it has not ended within this time."""
        with contextlib.suppress(ConnectionError, RuntimeError):
            self._stdin.close()
        try:
            async with asyncio.timeout(within_s):
                while await self._stdout.read(STREAM_LIMIT):
                    pass
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            await self.kill()

    async def ending(self) -> str:
        """Wait until the process has ended; how it did, with its last output."""
        await self._process.wait()
        await self._reader
        code = self._process.returncode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        words = "\n".join(self._stderr_lines)
        return how + (f"; its last output:\n{words}" if words else "")

    def _signal(self) -> None:
        """Send SIGKILL, not by `Process.kill`: it reaps a dead child, and asyncio then loses the exit status."""
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None  # noqa: S101 - PIPE
        while True:
            try:
                line = await self._process.stderr.readline()
            except ValueError:  # longer than the limit
                continue
            if not line:
                return
            if text := line.decode(errors="replace").rstrip():
                self._hear(text)

    def _hear(self, text: str) -> None:
        """Take a line of its stderr."""
        self._stderr_lines.append(text)


async def spawn(
    module: str,
    privileges: Privileges,
    last: str,
    *,
    flags: Sequence[str] = (),
    engine: str = "",
    limit: int = STREAM_LIMIT,
    more: Mapping[str, str] | None = None,
) -> Process:
    """Start a module for `Child`: parent, privileges and `last` are its arguments; with flags of the interpreter, the
    variables of an engine's client, and `more`."""
    own = privileges.environment(child_process.environment(*child_process.of_engine(engine)))
    return await asyncio.create_subprocess_exec(
        *child_process.interpreter(),
        *(*flags, "-m", module, str(os.getpid()), privileges.to_argument(), last),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        limit=limit,
        cwd=child_process.DIRECTORY,
        env={**own, **(more or {})},
    )


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
