"""The contract of task handlers: context and resources.

Flow: the session receives a `Task` -> `handlers.TABLE[type(task.spec)]` -> `await handler(context, spec)` -> the result
goes back. A handler reports progress and samples through the context, and raises `driver.TaskFault` for an expected
failure. When it is cancelled (asyncio.CancelledError), it first stops and undoes everything that it has started, then
lets the exception pass.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:  # load workers import the protocols below, and start faster without these
    from pathlib import Path

    from proveout.agent.security.policy import Policy
    from proveout.proto.wire.results import TaskResult, TaskSample


class Resource(Protocol):
    """An object that an agent keeps between tasks and must close: a database server, a pool of worker processes."""

    async def close(self, *, keep_data: bool) -> None:
        """Close it. Idempotent, bounded in time, and without an error if it has ended already."""
        ...


class TaskContext(Protocol):
    """The agent, as handlers see it. Times are nanoseconds of `time.monotonic_ns()`."""

    @property
    def key(self) -> str: ...

    @property
    def host(self) -> str:
        """The name of this host in the plan."""
        ...

    @property
    def work_dir(self) -> Path:
        """The private directory (0700) of this session; removed with the session."""
        ...

    @property
    def policy(self) -> Policy:
        """The policy of this host: check it before any change outside `work_dir`."""
        ...

    @property
    def resources(self) -> dict[str, Resource]:
        """Resources of the session by name (`system:backend`, `pool:hlr`); closed in reverse order of insertion."""
        ...

    def progress(self, done: float, total: float, unit: str, note: str = "") -> None:
        """Send the progress of the task."""
        ...

    def sample(self, sample: TaskSample) -> None:
        """Send a sample; the context numbers it."""
        ...

    def log(self, level: str, text: str) -> None:
        """Send a log line; level: debug, info, warning, error."""
        ...

    def armed(self) -> None:
        """Report that the load is ready to start."""
        ...

    async def started(self) -> int:
        """Wait for `Start`; returns its `t0_ns`."""
        ...

    async def triggered(self) -> int:
        """Wait for the next `Trigger`; returns its number (faults with a condition)."""
        ...

    async def finished(self) -> None:
        """Wait for `Finish` (captures run until then, and loads beside faults count their commits)."""
        ...


Handler: TypeAlias = "Callable[[TaskContext, Any], Awaitable[TaskResult]]"
