"""How an agent runs a task: the context a handler gets, and the explicit table of handlers.

Flow: `daemon` receives a `Task` -> `TABLE[type(task.spec)]` -> `await handler(context, spec)` -> its result goes back. A
handler reports progress and samples through the context, raises `TaskFault` for an expected failure, and when it is
cancelled (asyncio.CancelledError) stops and undoes what it has started before it lets the exception go.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from proveout.core.errors import ProveoutError
from proveout.proto.wire.results import CaptureSample, LoadSecond, TaskError, TaskResult

if TYPE_CHECKING:
    from proveout.agent.security.policy import Policy


class TaskFault(ProveoutError):
    """An expected failure of a task; `code` as in `results.TaskError`."""

    def __init__(self, code: str, what: str, *, way_out: str = "") -> None:
        self.code = code
        super().__init__(what, way_out=way_out)

    def as_error(self) -> TaskError:
        """The failure as it crosses the wire."""
        return TaskError(code=self.code, message=self.what, way_out=self.way_out)


class Resource(Protocol):
    """Something an agent keeps between tasks and must end: a database server, a pool of worker processes."""

    async def close(self, *, keep_data: bool) -> None:
        """End it; idempotent, bounded in time; never raises for something that is gone already."""
        ...


class TaskContext(Protocol):
    """What a handler sees of its agent. Times are nanoseconds of `time.monotonic_ns()`."""

    @property
    def key(self) -> str:
        """The task's key."""
        ...

    @property
    def host(self) -> str:
        """The name of this host in the plan."""
        ...

    @property
    def work_dir(self) -> Path:
        """The agent's private directory (0700) for this session; removed with it."""
        ...

    @property
    def policy(self) -> Policy:
        """What the owner of this host lets the agent change; ask it before anything outside `work_dir` is touched."""
        ...

    @property
    def resources(self) -> dict[str, Resource]:
        """Kept between tasks of a session, by name (`system:backend`, `pool:hlr`); closed in reverse order of insertion."""
        ...

    def progress(self, done: float, total: float, unit: str, note: str = "") -> None:
        """Tell how far the task is."""
        ...

    def sample(self, sample: LoadSecond | CaptureSample) -> None:
        """Send a sample; numbered here."""
        ...

    def log(self, level: str, text: str) -> None:
        """Tell people something: debug, info, warning, error."""
        ...

    def armed(self) -> None:
        """Say that the load is ready to start."""
        ...

    async def started(self) -> int:
        """Wait for `Start`; its `t0_ns`."""
        ...

    async def finished(self) -> None:
        """Wait for `Finish` (captures run until then)."""
        ...


Handler: TypeAlias = Callable[[TaskContext, Any], Awaitable[TaskResult]]
