"""The worker processes of a population: start them, give each free one the next job, end or kill them.

Every failure of a worker process is a `TaskFault`: its own `Failed`, or how the process died with its last output.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from proveout.agent.errors import TaskFault
from proveout.agent.load.population.job_messages import Failed, Finished, Job, Opening, Progress, from_line, to_line
from proveout.agent.sandbox.privileges import Privileges
from proveout.core import child_process

LINE_MAX = 16 * 1024 * 1024  # the committed ranges of a load with many gaps
MODULE = "proveout.agent.load.population.populate_worker"
LINES_MAX = 5
END_S = 10.0


class Worker:
    """One worker process, which does one job at a time: `run` is not reentrant."""

    def __init__(self, process: Process, progress: Callable[[int], None]) -> None:
        self._process = process
        self._progress = progress
        self._last_words: deque[str] = deque(maxlen=LINES_MAX)
        self._listener = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, engine: str, progress: Callable[[int], None], privileges: Privileges | None = None) -> Worker:
        """A new process for such an engine; `progress(rows)` is called as rows go in. `privileges`: see
        `local.WorkerProcess.start`.
        """
        privileges = privileges or Privileges.for_engine(engine)
        own = privileges.environment(child_process.environment(*child_process.of_engine(engine)))
        process = await asyncio.create_subprocess_exec(
            *child_process.python(MODULE, str(os.getpid()), privileges.to_argument(), engine),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=LINE_MAX,
            cwd=child_process.DIRECTORY,
            env=own,
        )
        return cls(process, progress)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def run(self, job: Job) -> Finished:
        """Run a job; return its answer. TaskFault when it failed or the worker died."""
        assert self._process.stdin is not None  # noqa: S101 - PIPE
        assert self._process.stdout is not None  # noqa: S101 - PIPE
        with contextlib.suppress(ConnectionError):  # it died; reading tells how
            self._process.stdin.write(to_line(job))
            await self._process.stdin.drain()
        while line := await self._process.stdout.readline():
            match from_line(line):
                case Progress(rows=rows):
                    self._progress(rows)
                case Finished() as finished:
                    return finished
                case Failed(code=code, message=message, way_out=way_out):
                    raise TaskFault(code, message, way_out=way_out)
        raise await self._died()

    async def end(self) -> None:
        """End it when it is idle; kill it when it does not end."""
        assert self._process.stdin is not None  # noqa: S101 - PIPE
        self._process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await self._process.wait()
        await self.kill()

    async def kill(self) -> None:
        """End it now, whatever it does; idempotent."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._listener

    async def _died(self) -> TaskFault:
        status = await self._process.wait()
        await self._listener
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"
        words = "; its last words: " + " | ".join(self._last_words) if self._last_words else ""
        return TaskFault("fault", f"a populate worker (process {self.pid}) {how} in the middle of its work{words}")

    async def _listen(self) -> None:
        """Keep the last lines that it wrote to stderr."""
        assert self._process.stderr is not None  # noqa: S101 - PIPE
        while chunk := await self._process.stderr.read(65_536):
            self._last_words.extend(line for line in chunk.decode(errors="replace").splitlines() if line.strip())


class WorkerPool:
    """Workers that share out jobs."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []

    def __len__(self) -> int:
        return len(self.workers)

    async def run(self, jobs: Sequence[Job]) -> list[int]:
        """Give each job to a free worker; return the rows of each job.

        Raises the first failure; kill the pool after it.
        """
        waiting = deque(enumerate(jobs))
        rows = [0] * len(jobs)

        async def work(worker: Worker) -> None:
            while waiting:
                index, job = waiting.popleft()
                rows[index] = (await worker.run(job)).rows

        await asyncio.gather(*(work(worker) for worker in self.workers))
        return rows

    async def kill(self) -> None:
        """End all now; idempotent."""
        await asyncio.gather(*(worker.kill() for worker in self.workers))


@asynccontextmanager
async def worker_pool(
    opening: Opening, count: int, progress: Callable[[int], None], privileges: Privileges | None = None
) -> AsyncIterator[WorkerPool]:
    """`count` connected workers with these privileges. They end with the context, and are killed if it raises."""
    members = WorkerPool()
    try:
        for _ in range(count):
            members.workers.append(await Worker.start(opening.engine, progress, privileges))
        await asyncio.gather(*(worker.run(opening) for worker in members.workers))
        yield members
        await asyncio.gather(*(worker.end() for worker in members.workers))
    except BaseException:
        await asyncio.shield(members.kill())
        raise
