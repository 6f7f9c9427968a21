"""Calls of a driver's session that wait for the answer, whether it is polled or blocks, and that tell the place in the
plan of what the engine refuses."""

from __future__ import annotations

import select
from collections.abc import Iterable, Sequence
from typing import Any

from proveout.agent.engines.driver_contract import Driver, FailureKind, StatementFailure
from proveout.agent.engines.statement_errors import blames_plan
from proveout.dsl.rules.session_settings import statement
from proveout.dsl.workloads.base import Statement


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


def prepare(session: Any, text: Statement, engine: str) -> Any:
    """Prepare a statement of a workload. StatementFailure, with a subject where the plan is the cause."""
    try:
        return session.prepare(text)
    except StatementFailure as failure:
        if failure.kind is not FailureKind.LOST and blames_plan(engine, failure.code, failure.what):
            failure.subject = f"statements.{text.name}"
        raise


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
