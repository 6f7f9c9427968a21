"""Calls of a driver's session that wait for the answer, whether it is polled or blocks, and that tell the place in the
plan of what the engine refuses."""

from __future__ import annotations

import select
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from proveout.agent.engines.driver_contract import Driver, FailureKind, PreparesTogether, StatementFailure
from proveout.agent.engines.statement_errors import blames_plan
from proveout.dsl.engines import Dialect
from proveout.dsl.rules.session_settings import statement
from proveout.dsl.workloads.base import Statement

GROUP_BYTES = 16 * 1024
"""The text of the statements that are prepared together: the server can take them all before its answers are read."""


def execute(session: Any, engine: Driver, prepared: Any, arguments: Sequence[Any]) -> None:
    """Execute a prepared statement, and wait for it. StatementFailure."""
    if engine.waits == "blocking":
        session.execute(prepared, arguments)
    elif not session.exchange(prepared, arguments):
        ready = select.poll()
        ready.register(session.fileno(), select.POLLIN)
        done = False
        while not done:
            ready.poll()
            done = session.receive()


def prepare(session: Any, statements: Sequence[Statement], engine: str) -> list[Any]:
    """Prepare one of the `grouped` statements of a workload. StatementFailure of the first that is refused, with a
    subject where the plan is the cause."""
    results = session.prepare_all(statements) if isinstance(session, PreparesTogether) else _each(session, statements)
    prepared = []
    for statement_, result in zip(statements, results, strict=False):
        if isinstance(result, StatementFailure):
            if result.kind is not FailureKind.LOST and blames_plan(engine, result.code, result.what):
                result.subject = f"statements.{statement_.name}"
            raise result
        prepared.append(result)
    return prepared


def _each(session: Any, statements: Sequence[Statement]) -> Iterator[Any]:
    """Prepare one after the other, up to the first that is refused."""
    for each in statements:
        try:
            yield session.prepare(each)
        except StatementFailure as failure:
            yield failure
            return


def grouped(statements: Iterable[Statement], dialect: Dialect) -> list[list[Statement]]:
    """Statements in groups of which each can be sent at once, in order."""
    groups: list[list[Statement]] = []
    left = 0
    for each in statements:
        size = len(each.text[dialect].encode())
        if not groups or size > left:
            groups.append([])
            left = GROUP_BYTES
        groups[-1].append(each)
        left -= size
    return groups


def configure(session: Any, engine: Driver, settings: Iterable[tuple[str, str]]) -> None:
    """Apply the plan's `session:` settings to a new connection, in order, before anything is prepared.

    Raises StatementFailure.
    """
    for name, value in settings:
        made, arguments = statement(engine.dialect, name, value)
        try:
            execute(session, engine, session.prepare(made), arguments)
        except StatementFailure as failure:
            kind = FailureKind.LOST if failure.kind is FailureKind.LOST else FailureKind.ERROR
            what = f"session setting {name} = {value}: {failure.what}"
            refused = StatementFailure(failure.code, what, kind)
            refused.subject = f"session.{name}"
            raise refused from None
