"""One task being run: the context that its handler sees, its deadline, and how it ends.

Flow: `Work.run(handler, spec, deadline_s)` -> the handler, with this as its context -> `TaskDone` or `TaskFailed`, always
exactly one and never an exception. `stop(code, reason)` cancels the handler (a Cancel, the deadline, the lease); the first
reason counts. A handler that does not stop within `STOP_GRACE_S` is reported and left to itself.

An expected failure goes over the wire as it is. Of a bug only the exception's type and message do, with passwords struck
out; the traceback goes to the agent's log.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proveout.agent.daemon.tasks import Handler, Resource, TaskFault
from proveout.agent.security.policy import NOTHING, Policy
from proveout.agent.security.redaction import for_people
from proveout.core.disk_space import describe, is_full
from proveout.core.errors import ProveoutError
from proveout.proto.wire.messages import AgentMessage, LogLine, Sample, TaskArmed, TaskDone, TaskFailed, TaskProgress
from proveout.proto.wire.results import CaptureSample, LoadSecond, TaskError, TaskResult

STOP_GRACE_S = 15.0

_log = logging.getLogger(__name__)


class Work:
    """A task under way; the `TaskContext` of its handler."""

    def __init__(
        self,
        key: str,
        host: str,
        work_dir: Path,
        resources: dict[str, Resource],
        say: Callable[[AgentMessage], None],
        *,
        policy: Policy = NOTHING,
    ) -> None:
        self.policy = policy
        self.key = key
        self.host = host
        self.work_dir = work_dir
        self.resources = resources
        self._say = say
        self._sequence = 0
        self._t0_ns: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._finish = asyncio.Event()
        self._stopped = asyncio.Event()
        self._cause: TaskError | None = None
        self._job: asyncio.Future[TaskResult] | None = None
        self.is_armed = False

    # ---- what the handler uses -------------------------------------------------------------------------------------

    def progress(self, done: float, total: float, unit: str, note: str = "") -> None:
        """Tell how far the task is."""
        self._say(TaskProgress(key=self.key, done=done, total=total, unit=unit, note=for_people(note)))

    def sample(self, sample: LoadSecond | CaptureSample) -> None:
        """Send a sample, numbered from 1."""
        self._sequence += 1
        self._say(Sample(key=self.key, sequence=self._sequence, sample=sample))

    def log(self, level: str, text: str) -> None:
        """Tell people something."""
        self._say(LogLine(level=level, text=for_people(text)))

    def armed(self) -> None:
        """Say that the load is ready to start."""
        self.is_armed = True
        self._say(TaskArmed(key=self.key))

    async def started(self) -> int:
        """Wait for `Start`; its `t0_ns`."""
        return await asyncio.shield(self._t0_ns)

    async def finished(self) -> None:
        """Wait for `Finish`."""
        await self._finish.wait()

    # ---- what the session uses -------------------------------------------------------------------------------------

    def start_at(self, t0_ns: int) -> None:
        """`Start` came; one that comes again changes nothing."""
        if not self._t0_ns.done():
            self._t0_ns.set_result(t0_ns)

    def finish(self) -> None:
        """`Finish` came."""
        self._finish.set()

    def stop(self, code: str, reason: str) -> None:
        """Cancel the handler; the task fails with this code and reason unless it has just ended."""
        if self._cause is None:
            self._cause = TaskError(code=code, message=for_people(reason))
            self._stopped.set()
            if self._job is not None:
                self._job.cancel()

    async def run(self, handler: Handler, spec: Any, deadline_s: float) -> TaskDone | TaskFailed:
        """Run the handler to its end, or to the end of what it is given."""
        if self._cause is not None:
            return TaskFailed(key=self.key, error=self._cause)
        self._job = asyncio.ensure_future(_handled(handler, self, spec))
        late = f"the task did not end within its deadline of {deadline_s:g} s"
        timer = asyncio.get_running_loop().call_later(deadline_s, self.stop, "timeout", late)
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait({self._job, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not self._job.done():
                await asyncio.wait({self._job}, timeout=STOP_GRACE_S)
        finally:
            timer.cancel()
            stopped.cancel()
        return self._outcome(self._job)

    def _outcome(self, job: asyncio.Future[TaskResult]) -> TaskDone | TaskFailed:
        if not job.done():
            _log.error("task %s does not stop", self.key)
            cause = self._cause or TaskError(code="fault", message="the task was given up")
            return self._failed(
                cause.code, f"{cause.message}; it did not stop within {STOP_GRACE_S:g} s of that either"
            )
        if not job.cancelled() and job.exception() is None:
            return TaskDone(key=self.key, result=job.result())
        if self._cause is not None:
            return TaskFailed(key=self.key, error=self._cause)
        if job.cancelled():
            return self._failed("fault", "the handler cancelled itself")
        return self._failure(job.exception())

    def _failure(self, error: BaseException | None) -> TaskFailed:
        match error:
            case TaskFault():
                said = error.as_error()
                return self._failed(said.code, said.message, said.way_out)
            case ProveoutError():
                return self._failed("invalid", str(error))
            case OSError() if is_full(error):
                place = describe(Path(os.fsdecode(error.filename or tempfile.gettempdir())))
                return self._failed(
                    "disk_full", f"the disk of this host is full: {error} ({place})", "Free space there."
                )
            case _:
                _log.error("task %s failed", self.key, exc_info=error)
                return self._failed(
                    "fault",
                    f"{type(error).__name__}: {error}",
                    "This is a bug in proveout; the agent's log on that host has the details.",
                )

    def _failed(self, code: str, message: str, way_out: str = "") -> TaskFailed:
        error = TaskError(code=code, message=for_people(message), way_out=for_people(way_out))
        return TaskFailed(key=self.key, error=error)


async def _handled(handler: Handler, work: Work, spec: Any) -> TaskResult:
    """Call the handler in its task, so that one which is cancelled before it begins leaves nothing that was not awaited."""
    return await handler(work, spec)
