"""The handler of `CheckInvariants`: compares the numbers of a workload's invariants in one system.

Flow: workload -> its invariants -> one connection of the engine's own driver, in a thread -> each statement once -> two
whole numbers -> `InvariantCheck` with both numbers as text. It also reads how many transactions the database has
counted (`TransactionType.counted`). Works for any engine with a driver; nothing is written.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.driver_contract import Driver, FailureKind, StatementFailure
from proveout.agent.engines.sessions import cancel_statements, execute
from proveout.agent.engines.table import driver
from proveout.agent.errors import TaskFault
from proveout.dsl.workloads.base import Invariant, Row, Statement
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.results import InvariantCheck, InvariantsChecked
from proveout.proto.wire.tasks import CheckInvariants


async def check_invariants(context: TaskContext, spec: CheckInvariants) -> InvariantsChecked:
    """Check every invariant of `spec.workload`.

    Raises TaskFault: `unreachable` (no connection), `invalid` (the workload has no text for the engine, or the server
    refuses one), `fault` (a result that is not two numbers).
    """
    check = _Check(spec, driver(spec.endpoint.engine))
    try:
        return await asyncio.to_thread(check.run)
    except asyncio.CancelledError:
        await asyncio.to_thread(check.cancel)
        raise


def judged(invariant: Invariant, row: Row) -> InvariantCheck:
    """The check of an invariant with the numbers of the database."""
    left, right = (int(number) for number in row)
    relation = "=" if left == right else "is not"
    evidence = f"{invariant.left} {left:,} {relation} {invariant.right} {right:,}"
    return InvariantCheck(name=invariant.name, holds=left == right, evidence=evidence)


class _Check:
    """One connection and its queries, in a thread."""

    def __init__(self, spec: CheckInvariants, engine: Driver) -> None:
        self._spec, self._driver = spec, engine
        self._session: Any = None
        self._cancelled = False
        self._answered = threading.Event()

    def run(self) -> InvariantsChecked:
        started = time.monotonic()
        invariants, counted = self._written(), self._counted()
        try:
            self._session = self._driver.connect(self._spec.endpoint.dsn)
            return InvariantsChecked(
                checks=tuple(judged(one, self._row(one.statement, one.arguments, 2)) for one in invariants),
                tallies=tuple((name, int(self._row(statement, (), 1)[0])) for name, statement in counted),
                seconds=time.monotonic() - started,
            )
        except StatementFailure as failure:
            raise self._fault(failure) from None
        finally:
            self._answered.set()
            if self._session is not None:
                self._session.close()

    def cancel(self) -> None:
        """Called from another thread: stop, and cancel the running statement."""
        self._cancelled = True
        cancel_statements(self._unanswered, self._answered.wait)

    def _unanswered(self) -> list[Any]:
        return [] if self._session is None or self._answered.is_set() else [self._session]

    def _written(self) -> tuple[Invariant, ...]:
        workload = self._spec.workload
        invariants = build(workload).invariants
        for invariant in invariants:
            if self._driver.dialect not in invariant.statement.text:
                what = (
                    f"invariant {invariant.name} of workload {workload.name} has no statement for "
                    f"{self._driver.dialect}"
                )
                raise TaskFault(
                    "invalid", what, way_out=f"it has statements for: {', '.join(invariant.statement.text)}"
                )
        return invariants

    def _counted(self) -> list[tuple[str, Statement]]:
        """The transactions in the mix that the database counts, with the statement for this dialect."""
        kinds = build(self._spec.workload).transactions
        found = [(kind.name, kind.counted) for kind in kinds if kind.weight > 0 and kind.counted is not None]
        return [(name, statement) for name, statement in found if self._driver.dialect in statement.text]

    def _row(self, statement: Statement, arguments: Row, width: int) -> Row:
        """The single row of `width` numbers of a statement."""
        if self._cancelled:
            raise TaskFault("cancelled", "the check of the invariants was cancelled")
        prepared = self._session.prepare(statement)
        execute(self._session, self._driver, prepared, arguments)
        rows: list[Row] = self._session.rows()
        if len(rows) != 1 or len(rows[0]) != width or None in rows[0]:
            system = self._spec.endpoint.system
            raise TaskFault(
                "fault",
                f"invariant {statement.name}: {system} returned {rows!r}, not "
                f"{('one number', 'two numbers')[width - 1]}",
                way_out="check that the system is populated with this workload",
            )
        return rows[0]

    def _fault(self, failure: StatementFailure) -> TaskFault:
        endpoint = self._spec.endpoint
        code = "unreachable" if failure.kind is FailureKind.LOST else "invalid"
        return TaskFault(
            code,
            f"cannot check the invariants of {endpoint.system} ({endpoint.engine}): {failure.code}: {failure.what}",
            way_out="check that the server runs and that its user may read the workload's tables",
        )
