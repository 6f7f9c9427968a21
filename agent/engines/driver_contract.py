"""Drivers: how a load reaches an engine. Driver -> Session, and how a statement may fail."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from proveout.core.errors import ProveoutError
from proveout.dsl.engines import Dialect
from proveout.dsl.workloads.base import Result, Row, Statement

PURE_PYTHON = "PROVEOUT_PURE_PYTHON"  # set in the environment: leave the compiled hot path aside


# Two kinds of session, one per way to wait. A *polled* session sends and is read when its file descriptor is readable,
# so one process runs many of them on an event loop; a *blocking* one executes, for engines that live in this process.
# Either is itself the `Result` of its last statement: no object is made per statement. A session belongs to one thread.
#
# Every failure of a statement is a `StatementFailure`; what to do about it is in its `kind`.

T = TypeVar("T")


class FailureKind(enum.Enum):
    """The kind of a failure: as specified, to be retried, an error, or a lost connection."""

    LOGICAL = "logical"
    RETRYABLE = "retryable"
    ERROR = "error"
    LOST = "lost"

    @classmethod
    def of(cls, code: str, statement: Statement | None, *, retryable: bool, lost: bool) -> FailureKind:
        """The kind of an error with this code; `statement` (None: of the connection) may count it as logical."""
        if statement is not None and code in statement.logical_errors:
            return cls.LOGICAL
        if retryable:
            return cls.RETRYABLE
        return cls.LOST if lost else cls.ERROR


class StatementFailure(ProveoutError):
    """A statement (or a connection) that failed. `code` is the SQLSTATE or the engine's own name; `kind` what it
    means; `line` the line of the statement, from 1, 0 where the engine gives none. `subject` as in
    `results.TaskError`."""

    def __init__(self, code: str, text: str, kind: FailureKind, line: int = 0) -> None:
        self.code, self.kind, self.line, self.subject = code, kind, line, ""
        super().__init__(text)


class Session(Protocol):
    """A connection; the `Result` of its last statement."""

    count: int

    def rows(self) -> list[Row]:
        """The rows of the last statement, decoded."""
        ...

    def prepare(self, statement: Statement) -> Any:
        """Make a statement ready; waits for the server. Raises StatementFailure."""
        ...

    def cancel(self) -> None:
        """Ask the server to give up the statement under way; may wait for it, callable from another thread."""
        ...

    def close(self) -> None:
        """End the connection; idempotent."""
        ...


class PolledSession(Session, Protocol):
    """A connection driven by an event loop."""

    def fileno(self) -> int:
        """The file descriptor to wait on, for reading."""
        ...

    def send(self, prepared: Any, arguments: Sequence[Any]) -> None:
        """Send one statement; nothing else may be under way. Raises StatementFailure (lost)."""
        ...

    def receive(self) -> bool:
        """Read what is there, without waiting; whether the answer is complete. Raises StatementFailure."""
        ...

    def exchange(self, prepared: Any, arguments: Sequence[Any]) -> bool:
        """`send`, then `receive` at once: on the same machine the answer is often there already. StatementFailure."""
        ...


class BlockingSession(Session, Protocol):
    """A connection that executes in the calling thread."""

    def execute(self, prepared: Any, arguments: Sequence[Any]) -> None:
        """Execute one statement. Raises StatementFailure."""
        ...


@runtime_checkable
class CarriesCommit(Protocol):
    """A blocking session that can send COMMIT with a statement."""

    def execute_committing(self, prepared: Any, arguments: Sequence[Any]) -> None:
        """Execute one statement that returns no rows, and commit the transaction with it, in one round trip. If it
        fails, nothing is committed and the transaction stays open. Raises StatementFailure."""
        ...


@runtime_checkable
class Pipelines(Protocol):
    """A polled session that can send a group of statements at once and read all answers after that (`dsl.workloads.
    pipelines`). They are executed in order; the first that fails ends the group, and the failure names it."""

    def pipeline(self, prepared: dict[str, Any]) -> Any:
        """The stand-in that `send` and `exchange` take in place of a prepared statement. The arguments are then
        (statement, arguments) pairs, at least one, of statements that are in `prepared` by name."""
        ...

    def results(self) -> list[Result]:
        """The results of the last group, which stay valid; complete when `receive` has returned True."""
        ...


@runtime_checkable
class PreparesTogether(Protocol):
    """A session that can prepare several statements in one round trip."""

    def prepare_all(self, statements: Sequence[Statement]) -> Sequence[Any]:
        """Prepare statements, and wait for the server. Returns what `prepare` does, in order, or in the place of a
        statement that the server refuses its StatementFailure; statements after that may be left out. The texts
        together fit into the buffers of a socket (`sessions.GROUP_BYTES`). Raises StatementFailure (lost)."""
        ...


@runtime_checkable
class Labelled(Protocol):
    """A session that its server can tell from others: a load labels it when it connects."""

    def label(self, run: str, work: str) -> None:
        """Name the session for the server's own statistics: the run's id, and `stage/rung/repeat/…`."""
        ...


@runtime_checkable
class OpensWithSettings(Protocol):
    """A driver of an engine whose settings are fixed when a database is opened: `session:` goes into the dsn, and no
    statement makes it."""

    def dsn_for_load(self, dsn: str, session: Iterable[tuple[str, str]], *, changes: bool) -> str:
        """Return the dsn of a load's connections; `changes`: whether the load changes rows."""
        ...


@runtime_checkable
class FindsMember(Protocol):
    """A driver of an engine whose systems may have several members, of which one accepts changes."""

    def members(self, dsn: str) -> Sequence[str]:
        """A dsn for each host that a dsn names, in the order to try. Raises StatementFailure (lost)."""
        ...

    def open(self, dsn: str, *, access: str, within_s: float | None) -> Any:
        """A new connection to one member, within so many seconds (None: the driver's own limit). `access` as
        `Sessions.access`; StatementFailure (lost) if the member does not have it."""
        ...


class PolledDriver(Protocol):
    """Makes polled sessions. `connect` waits, at most some seconds, with the GIL released."""

    dialect: Dialect
    waits: Literal["polled"]

    def connect(self, dsn: str) -> PolledSession:
        """A new connection. Raises StatementFailure (lost) when the server cannot be reached."""
        ...


class BlockingDriver(Protocol):
    """Makes blocking sessions."""

    dialect: Dialect
    waits: Literal["blocking"]

    def connect(self, dsn: str) -> BlockingSession:
        """A new connection. Raises StatementFailure (lost) when the database cannot be opened."""
        ...


Driver: TypeAlias = PolledDriver | BlockingDriver


def only(prepared: Sequence[T | StatementFailure]) -> T:
    """The result of a `prepare_all` of one statement. Raises its StatementFailure."""
    (one,) = prepared
    if isinstance(one, StatementFailure):
        raise one
    return one
