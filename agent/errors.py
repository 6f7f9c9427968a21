"""The failure of a task, as handlers raise it and as it crosses the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proveout.core.errors import ProveoutError

if TYPE_CHECKING:
    from proveout.proto.wire.results import TaskError


class TaskFault(ProveoutError):
    """An expected failure of a task; `code`, `subject` and `line` as in `results.TaskError`.

    `refusal`: the engine's own code where a database refused a statement, with the `line` of it. `statement_errors`
    makes a `subject` of it where the statement is the plan's.
    """

    def __init__(self, code: str, what: str, *, way_out: str = "", refusal: str = "", line: int = 0) -> None:
        self.code, self.refusal, self.line, self.subject = code, refusal, line, ""
        super().__init__(what, way_out=way_out)

    @classmethod
    def from_error(cls, error: TaskError) -> TaskFault:
        """The failure of a task that another process ran."""
        fault = cls(error.code, error.message, way_out=error.way_out, line=error.line)
        fault.subject = error.subject
        return fault

    def about(self, what: str) -> TaskFault:
        """The same with what it is about before its message."""
        fault = TaskFault(self.code, f"{what}: {self.what}", way_out=self.way_out, refusal=self.refusal, line=self.line)
        fault.subject = self.subject
        return fault

    def as_error(self) -> TaskError:
        """The failure as a wire message."""
        from proveout.proto.wire.results import TaskError  # noqa: PLC0415 - load workers start faster without it

        return TaskError(code=self.code, message=self.what, way_out=self.way_out, subject=self.subject, line=self.line)
