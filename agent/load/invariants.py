"""The handler of `CheckInvariants`: are the numbers that a workload's invariants speak of equal in this system?

Flow: workload -> its invariants -> one connection of the engine's own driver, in a thread -> each statement, once -> two
whole numbers -> `InvariantCheck` with both in words. Any engine that a load can reach can be asked; nothing is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import time
from typing import Any

from proveout.agent.drivers.base import Driver, FailureKind, StatementFailure
from proveout.agent.drivers.table import driver
from proveout.agent.tasks import TaskContext, TaskFault
from proveout.dsl.workloads.base import Invariant, Row
from proveout.dsl.workloads.table import build
from proveout.proto.messages import CheckInvariants, InvariantCheck, InvariantsChecked


async def check_invariants(context: TaskContext, spec: CheckInvariants) -> InvariantsChecked:
    """Ask for every invariant of `spec.workload`.

    Raises TaskFault: `unreachable` (no connection), `invalid` (the workload has no text for the engine, or the server
    refuses one), `fault` (an answer that is no two numbers).
    """
    started = time.monotonic()
    asking = _Asking(spec, driver(spec.endpoint.engine))
    try:
        checks = await asyncio.to_thread(asking.run)
    except asyncio.CancelledError:
        await asyncio.to_thread(asking.break_off)
        raise
    return InvariantsChecked(checks=checks, seconds=time.monotonic() - started)


def judged(invariant: Invariant, row: Row) -> InvariantCheck:
    """An invariant with the numbers that the database gave for it."""
    left, right = (int(number) for number in row)
    relation = "=" if left == right else "is not"
    evidence = f"{invariant.left} {left:,} {relation} {invariant.right} {right:,}"
    return InvariantCheck(name=invariant.name, holds=left == right, evidence=evidence)


class _Asking:
    """One connection and the questions put to it, in a thread."""

    def __init__(self, spec: CheckInvariants, engine: Driver) -> None:
        self._spec, self._driver = spec, engine
        self._session: Any = None

    def run(self) -> tuple[InvariantCheck, ...]:
        invariants = self._written()
        try:
            self._session = self._driver.connect(self._spec.endpoint.dsn)
            return tuple(judged(invariant, self._row(invariant)) for invariant in invariants)
        except StatementFailure as failure:
            raise self._fault(failure) from None
        finally:
            if self._session is not None:
                self._session.close()

    def break_off(self) -> None:
        """From another thread: cancel the statement under way."""
        with contextlib.suppress(StatementFailure):
            if self._session is not None:
                self._session.cancel()

    def _written(self) -> tuple[Invariant, ...]:
        workload = self._spec.workload
        invariants = build(workload).invariants
        for invariant in invariants:
            if self._driver.dialect not in invariant.statement.text:
                what = (
                    f"invariant {invariant.name} of workload {workload.name} is not written for {self._driver.dialect}"
                )
                raise TaskFault("invalid", what, way_out=f"written for: {', '.join(invariant.statement.text)}")
        return invariants

    def _row(self, invariant: Invariant) -> Row:
        prepared = self._session.prepare(invariant.statement)
        if self._driver.waits == "blocking":
            self._session.execute(prepared, invariant.arguments)
        elif not self._session.exchange(prepared, invariant.arguments):
            answer = select.poll()
            answer.register(self._session.fileno(), select.POLLIN)
            while not self._session.receive():
                answer.poll()
        rows: list[Row] = self._session.rows()
        if len(rows) != 1 or len(rows[0]) != 2 or None in rows[0]:
            system = self._spec.endpoint.system
            raise TaskFault(
                "fault",
                f"invariant {invariant.name}: {system} answered {rows!r}, not two numbers",
                way_out="see that the system is populated with this workload",
            )
        return rows[0]

    def _fault(self, failure: StatementFailure) -> TaskFault:
        endpoint = self._spec.endpoint
        code = "unreachable" if failure.kind is FailureKind.LOST else "invalid"
        return TaskFault(
            code,
            f"the invariants of {endpoint.system} ({endpoint.engine}) cannot be looked at: {failure.code}: {failure.what}",
            way_out="see that the server runs and that its user may read the workload's tables",
        )
