"""The failure of a task, as handlers raise it and as it crosses the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proveout.core.errors import ProveoutError

if TYPE_CHECKING:
    from proveout.proto.wire.results import TaskError


class TaskFault(ProveoutError):
    """An expected failure of a task; `code` as in `results.TaskError`."""

    def __init__(self, code: str, what: str, *, way_out: str = "") -> None:
        self.code = code
        super().__init__(what, way_out=way_out)

    def as_error(self) -> TaskError:
        """The failure as a wire message."""
        from proveout.proto.wire.results import TaskError  # noqa: PLC0415 - load workers start faster without it

        return TaskError(code=self.code, message=self.what, way_out=self.way_out)
