"""Errors of an agent's tasks, and the removal of passwords from their texts."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from proveout.core.errors import ProveoutError

if TYPE_CHECKING:
    from proveout.proto.wire.results import TaskError


# Connection strings carry passwords as `password=…` (libpq) and `://user:password@` (URLs); exceptions of drivers quote
# both.

TEXT_MAX = 4000
SHORT = 4
"""Characters from which on a password is replaced also within words."""

_PASSWORD = re.compile(r"(password\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s'\"]+)", re.IGNORECASE)
_URL = re.compile(r"://\S+")
_LOGIN = re.compile(r"(://[^:/]*:).+")

_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def redact_passwords(text: str) -> str:
    """`text` with `***` in place of each password. The time grows with the length of the text only."""
    return _PASSWORD.sub(r"\1***", _URL.sub(lambda found: _without_logins(found[0]), text))


def without(text: str, password: str) -> str:
    """`text` with `***` in place of a password; of a short one only where it is a word, as it is in other words too."""
    if len(password) >= SHORT:
        return text.replace(password, "***")
    return re.sub(rf"(?<!\w){re.escape(password)}(?!\w)", "***", text) if password else text


def _without_logins(url: str) -> str:
    *logins, rest = url.split("@")
    return "@".join((*(_LOGIN.sub(r"\1***", one) for one in logins), rest))


def sanitize(text: str) -> str:
    """`text` for the wire: without passwords, at most `TEXT_MAX` characters, no lone surrogates."""
    return redact_passwords(text)[:TEXT_MAX].encode("utf-8", "replace").decode()


class Formatter(logging.Formatter):
    """Log lines, with tracebacks, without passwords and terminal control characters."""

    def format(self, record: logging.LogRecord) -> str:
        return _CONTROL_CHARACTERS.sub(
            lambda found: f"\\x{ord(found[0]):02x}", redact_passwords(super().format(record))
        )


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
