"""Prepare statements of the plan on a session, and say what the engine refuses. Nothing is executed but `EXPLAIN`.

A statement that will find other tables than those of now (`settled` is false: a populate or another statement comes
before it) is checked for its syntax only. Where preparing does not check the rights on tables, `EXPLAIN` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from proveout.agent.engines.driver_contract import Driver, FailureKind, StatementFailure
from proveout.agent.engines.session_calls import execute
from proveout.agent.engines.statement_errors import rules_of
from proveout.dsl.workloads.base import Statement
from proveout.dsl.workloads.sql import sql_text
from proveout.proto.wire.check_results import CheckFinding
from proveout.proto.wire.tasks import CheckedText

_EXPLAINED = re.compile(r"\s*(select|insert|update|delete|merge|with|values)\b", re.IGNORECASE)
RIGHTS = "grant the user of its dsn what the statement needs"


class StatementCheck:
    """Checks statements on one session of an engine."""

    def __init__(self, engine: str, driver: Driver, session: Any) -> None:
        self._rules, self._driver, self._session = rules_of(engine), driver, session

    def of_text(self, text: CheckedText) -> Iterator[CheckFinding]:
        """The finding of a statement of the plan, if there is one. StatementFailure when the connection is lost."""
        if is_one(text.text):
            statement = Statement(name="of the plan", text={self._driver.dialect: text.text}, arguments=())
            yield from self.of_statement(statement, text.subject, settled=text.settled)

    def of_statement(
        self, statement: Statement, subject: str, *, settled: bool, tables_known: bool = False
    ) -> Iterator[CheckFinding]:
        """The same of a statement of a workload. `tables_known`: missing tables and columns have findings already."""
        try:
            self._session.prepare(statement)
            if settled:
                self._explain(statement)
        except StatementFailure as failure:
            if failure.kind is FailureKind.LOST:
                raise
            kind = self._rules.kind_of(failure.code, failure.what)
            ignored = kind in ("unchecked", "server") or (not settled and kind != "syntax")
            if ignored or (tables_known and kind == "missing"):
                return
            yield CheckFinding(
                code="rights" if kind == "rights" else "statement",
                subject=subject,
                message=f"{failure.code}: {failure.what}",
                way_out=RIGHTS if kind == "rights" else "",
                line=failure.line,
            )

    def _explain(self, statement: Statement) -> None:
        """Have the rights on the statement's tables checked."""
        text = statement.text[self._driver.dialect]
        if self._rules.explain and _EXPLAINED.match(text):
            unknown = (object,) * len(statement.arguments)
            asked = {self._driver.dialect: self._rules.explain + text}
            explained = replace(statement, text=asked, arguments=unknown, columns=(), reads=True, ranges=())
            execute(self._session, self._driver, self._session.prepare(explained), (None,) * len(unknown))


def is_one(text: str) -> bool:
    """Whether a text is one statement, which can be prepared."""
    tokens = sql_text.scan(text)
    return sql_text.script_fault(tokens) is None
