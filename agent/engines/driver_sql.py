"""What a system of an engine that is not built in can be asked, through nothing but its driver. Functions block.

Its driver may have `version(dsn)`, which is asked when a run begins; all else goes through a session.
"""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from typing import Any

from proveout.agent.daemon.tasks import TaskFault
from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.engines.table import driver
from proveout.dsl.workloads.base import Statement
from proveout.dsl.workloads.sql import sql_text
from proveout.proto.wire.tasks import Endpoint

STATEMENT_S = 3600.0


def settings(endpoint: Endpoint) -> tuple[tuple[str, str], ...]:
    """Only its version, where the driver tells it; a connection is made in any case. Raises TaskFault."""
    of = driver(endpoint.engine)
    try:
        of.connect(endpoint.dsn).close()
        version = getattr(of, "version", None)
        return (("version", str(version(endpoint.dsn)) if version else "unknown"),)
    except StatementFailure as failure:
        raise _fault(endpoint, failure) from None


def run_statements(endpoint: Endpoint, statements: Sequence[str]) -> tuple[int, ...]:
    """Each by itself; rows returned or affected. Raises TaskFault with the engine's words."""
    of = driver(endpoint.engine)
    try:
        session: Any = of.connect(endpoint.dsn)
        try:
            return tuple(_run(session, of.waits == "polled", _statement(of.dialect, text)) for text in statements)
        finally:
            session.close()
    except StatementFailure as failure:
        raise _fault(endpoint, failure) from None


def _statement(dialect: Any, text: str) -> Statement:
    return Statement(name="sql", text={dialect: text}, arguments=(), reads=sql_text.reads(sql_text.scan(text)))


def _run(session: Any, polled: bool, statement: Statement) -> int:
    prepared = session.prepare(statement)
    if not polled:
        session.execute(prepared, ())
        return int(session.count)
    deadline = time.monotonic() + STATEMENT_S
    answer = select.poll()
    answer.register(session.fileno(), select.POLLIN)
    session.send(prepared, ())
    while not session.receive():
        if time.monotonic() > deadline:
            raise StatementFailure("timeout", f"no answer within {STATEMENT_S:.0f} s", FailureKind.LOST)
        answer.poll(1000)
    return int(session.count)


def _fault(endpoint: Endpoint, failure: StatementFailure) -> TaskFault:
    lost = failure.kind is FailureKind.LOST
    what = f"{endpoint.system} ({endpoint.engine}): {failure.code}: {failure.what}"
    return TaskFault("unreachable" if lost else "fault", what, way_out="see that the system runs and its dsn is right")
