"""Tasks of an agent: the contract of their handlers (context and resources), and the runner of one task.

Flow: the session receives a `Task` -> `handlers.TABLE[type(task.spec)]` -> `TaskRunner.run(handler, spec,
deadline_s)` -> the handler, with the runner as its context -> exactly one `TaskDone` or `TaskFailed`, never an
exception.

A handler reports progress and samples through the context, and raises `errors.TaskFault` for an expected failure,
which crosses the wire unchanged. When it is cancelled (asyncio.CancelledError), it first stops and undoes everything
that it has started, then lets the exception pass. `stop(code, reason)` cancels it (a Cancel, the deadline, the
lease); the first reason counts. One that does not stop within `STOP_GRACE_S` is reported and left running. Of a bug,
only the exception's type and message cross the wire, with passwords removed; the traceback goes to the agent's log.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from proveout.agent.errors import TaskFault, sanitize
from proveout.agent.security.policy import NOTHING, Policy
from proveout.core.directories import describe, is_full
from proveout.core.errors import ProveoutError
from proveout.proto.wire import codec
from proveout.proto.wire.messages import (
    AgentMessage,
    Cancel,
    Finish,
    LogLine,
    Sample,
    Samples,
    Start,
    TaskArmed,
    TaskDone,
    TaskFailed,
    TaskProgress,
    Trigger,
    deadline_after_progress_s,
)
from proveout.proto.wire.results import TaskError, TaskResult, TaskSample


class Resource(Protocol):
    """An object that an agent keeps between tasks and must close: a database server, a pool of worker processes."""

    async def close(self, *, keep_data: bool) -> None:
        """Close it. Idempotent, bounded in time, and without an error if it has ended already."""
        ...


BATCH_MAX = 64
"""Samples in one message."""
STOP_GRACE_S = 15.0
STOP_S = 14.0
"""The longest time that a handler waits for its work in threads or processes to stop: less than `STOP_GRACE_S`."""
DEADLINE_MAX_S = 30 * 86_400.0
"""The longest deadline; tasks that another process of the agent runs have it, as the deadline of the agent's own task
ends them."""

_log = logging.getLogger(__name__)


class TaskRunner:
    """A running task, and the context of its handler: the agent, as handlers see it. Times are nanoseconds of
    `time.monotonic_ns()`.

    `host`: the name of this host in the plan; "" in a helper process. `work_dir`: the private directory (0700) of the
    session, removed with it. `policy` of this host: to be checked before any change outside `work_dir`. `resources` of
    the session by name (`system:backend`, `pool:hlr`); closed in reverse order of insertion.
    """

    def __init__(
        self,
        key: str,
        host: str,
        work_dir: Path,
        resources: dict[str, Resource],
        send: Callable[[AgentMessage], None],
        *,
        policy: Policy = NOTHING,
    ) -> None:
        self.policy = policy
        self.key = key
        self.host = host
        self.work_dir = work_dir
        self.resources = resources
        self._send = send
        self._sequence = 0
        self._t0_ns: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._triggers: asyncio.Queue[int] = asyncio.Queue()
        self._finish = asyncio.Event()
        self._stopped = asyncio.Event()
        self._cause: TaskError | None = None
        self._job: asyncio.Future[TaskResult] | None = None
        self.is_armed = False
        self._began_s = asyncio.get_running_loop().time()
        self._timer: asyncio.TimerHandle | None = None

    # ---- the handler's context -------------------------------------------------------------------------------------

    def progress(self, done: float, total: float, unit: str, note: str = "") -> None:
        """Send the progress of the task, and move its deadline by its pace."""
        now_s = asyncio.get_running_loop().time()
        self._set_deadline(now_s + deadline_after_progress_s(now_s - self._began_s))
        self._send(TaskProgress(key=self.key, done=done, total=total, unit=unit, note=sanitize(note)))

    def sample(self, sample: TaskSample) -> None:
        """Send a sample, numbered from 1."""
        self._sequence += 1
        self._send(Sample(key=self.key, sequence=self._sequence, sample=sample))

    def sample_all(self, samples: Sequence[TaskSample]) -> None:
        """Send the samples of a task that has them all at once, in messages that are not dropped where many wait."""
        every = [Sample(key=self.key, sequence=at, sample=one) for at, one in enumerate(samples, self._sequence + 1)]
        self._sequence += len(every)
        for at in range(0, len(every), BATCH_MAX):
            batch = every[at : at + BATCH_MAX]
            self._send(Samples(samples=tuple(batch)) if len(batch) > 1 else batch[0])

    def log(self, level: str, text: str) -> None:
        """Send a log line; level: debug, info, warning, error."""
        self._send(LogLine(level=level, text=sanitize(text)))

    def armed(self) -> None:
        """Report that the load, or the fault, is ready to start."""
        self.is_armed = True
        self._send(TaskArmed(key=self.key))

    async def started(self) -> int:
        """Wait for `Start`; returns its `t0_ns`."""
        return await asyncio.shield(self._t0_ns)

    async def triggered(self) -> int:
        """Wait for the next `Trigger`; returns its number (faults with a condition)."""
        return await self._triggers.get()

    async def finished(self) -> None:
        """Wait for `Finish` (captures run until then, and loads beside faults count their commits)."""
        await self._finish.wait()

    # ---- control by the session -------------------------------------------------------------------------------------

    def control(self, message: Start | Trigger | Finish | Cancel) -> None:
        """Handle a message to a running task; a second `Start` changes nothing."""
        match message:
            case Start() if not self._t0_ns.done():
                self._t0_ns.set_result(message.t0_ns)
            case Trigger():
                self._triggers.put_nowait(message.number)
            case Finish():
                self._finish.set()
            case Cancel():
                self.stop("cancelled", message.reason)

    def stop(self, code: str, reason: str) -> None:
        """Cancel the handler. The task fails with this code and reason, unless it has just ended."""
        if self._cause is None:
            self._cause = TaskError(code=code, message=sanitize(reason))
            self._stopped.set()
            if self._job is not None:
                self._job.cancel()

    async def run(self, handler: Handler, spec: Any, deadline_s: float) -> TaskDone | TaskFailed:
        """Run the handler until it ends, its deadline passes, or `stop` is called."""
        if self._cause is not None:
            return TaskFailed(key=self.key, error=self._cause)
        self._job = asyncio.ensure_future(_call(handler, self, spec))
        self._began_s = asyncio.get_running_loop().time()
        self._set_deadline(self._began_s + deadline_s)
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait({self._job, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not self._job.done():
                await asyncio.wait({self._job}, timeout=STOP_GRACE_S)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            stopped.cancel()
        return self._outcome(self._job)

    def _set_deadline(self, at_s: float) -> None:
        """Stop the task at this time of the loop's clock, unless its deadline is later already."""
        if self._timer is not None:
            if self._timer.when() >= at_s or self._timer.cancelled():
                return
            self._timer.cancel()
        late = f"the task did not end within its deadline of {round(at_s - self._began_s, 3):g} s"
        self._timer = asyncio.get_running_loop().call_at(at_s, self.stop, "timeout", late)

    def _outcome(self, job: asyncio.Future[TaskResult]) -> TaskDone | TaskFailed:
        if not job.done():
            _log.error(
                "task %s did not stop within %g s of its cancellation; it is left running", self.key, STOP_GRACE_S
            )
            cause = self._cause or TaskError(code="fault", message="the task was abandoned")
            return self._failed(cause.code, f"{cause.message}; its handler did not stop within {STOP_GRACE_S:g} s")
        if not job.cancelled() and job.exception() is None:
            done = TaskDone(key=self.key, result=job.result())
            try:
                codec.agent_envelope(done)
            except codec.WireFault as fault:
                return self._failed("fault", fault.what, fault.way_out)
            return done
        if self._cause is not None:
            return TaskFailed(key=self.key, error=self._cause)
        if job.cancelled():
            return self._failed("fault", "the handler of the task was cancelled from inside; this is a bug in proveout")
        return self._failure(job.exception())

    def _failure(self, error: BaseException | None) -> TaskFailed:
        match error:
            case TaskFault():
                fault = error.as_error()
                clean = replace(fault, message=sanitize(fault.message), way_out=sanitize(fault.way_out))
                return TaskFailed(key=self.key, error=clean)
            case ProveoutError():
                return self._failed("invalid", str(error))
            case OSError() if is_full(error):
                space = describe(Path(os.fsdecode(error.filename or tempfile.gettempdir())))
                return self._failed(
                    "disk_full", f"the disk of this host is full: {error} ({space})", "Free space there."
                )
            case _:
                _log.error("task %s failed", self.key, exc_info=error)
                return self._failed(
                    "fault",
                    f"{type(error).__name__}: {error}",
                    "This is a bug in proveout; the agent's log on that host has the details.",
                )

    def _failed(self, code: str, message: str, way_out: str = "") -> TaskFailed:
        error = TaskError(code=code, message=sanitize(message), way_out=sanitize(way_out))
        return TaskFailed(key=self.key, error=error)


TaskContext: TypeAlias = TaskRunner
"""The runner, as handlers use it."""
Handler: TypeAlias = Callable[[TaskContext, Any], Awaitable[TaskResult]]


async def _call(handler: Handler, context: TaskRunner, spec: Any) -> TaskResult:
    """Call the handler inside its asyncio task: if that is cancelled before it starts, no coroutine is left
    unawaited.
    """
    return await handler(context, spec)
