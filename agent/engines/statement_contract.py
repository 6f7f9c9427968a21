"""The contract of the capture `statements`: the statistics that an engine keeps of each statement, and their plans.

An adapter with `CapturesStatements` gives a `StatementSession`: one connection that reads the counters at the edges of
the measure window, and the texts and plans after the load. It changes nothing in the system: it creates no extension,
sets no server setting and resets no counter; EXPLAIN executes no statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from proveout.core.data_classes import dataclass

if TYPE_CHECKING:  # populate workers import this module, and start faster without it
    from proveout.proto.wire.tasks import Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementCounts:
    """Cumulative counters of one statement: calls, seconds in the server, rows returned or changed."""

    calls: float
    seconds: float
    rows: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """A step of a plan: `depth` from 0, the operation with its object and index, the rows expected (None: unknown)."""

    depth: int
    operation: str
    rows: float | None = None


class StatementSession(Protocol):
    """One connection for the statistics of statements; methods block."""

    @property
    def since(self) -> str:
        """The time from which the server counts; another value later means that the counters restarted."""
        ...

    def counts(self) -> Mapping[str, StatementCounts]:
        """Return the counters of the endpoint's database by the id of the statement. TaskFault."""
        ...

    def texts(self, ids: Iterable[str]) -> Mapping[str, str]:
        """Return the texts of statements, constants replaced by placeholders. TaskFault."""
        ...

    def plan(self, id: str, text: str) -> tuple[PlanStep, ...]:
        """Return the plan of a statement. TaskFault with the reason when there is none."""
        ...

    def abort(self) -> None:
        """Make a call that does not end fail; called from another thread. The session is of no use afterwards."""
        ...

    def close(self) -> None:
        """Close the connection; idempotent."""
        ...


@runtime_checkable
class CapturesStatements(Protocol):
    """An engine that keeps statistics of its statements."""

    def statement_session(self, endpoint: Endpoint) -> StatementSession:
        """Connect. TaskFault, `missing` where the server keeps no such statistics."""
        ...
