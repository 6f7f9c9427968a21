"""The checks of one load: its session settings, the statements of its workload, its tables with their columns and rows.

Tables are checked only where no stage of the plan populates them: then names and types of their columns are read from
the catalogue, and rows are counted, `ROWS_COUNTED` of a table at most.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

from proveout.agent.engines.adapter import OpensQueries, QuerySession, row_text
from proveout.agent.engines.driver_contract import (
    Driver,
    FailureKind,
    OpensWithSettings,
    StatementFailure,
)
from proveout.agent.engines.session_calls import configure
from proveout.agent.engines.statement_errors import rules_of
from proveout.agent.engines.table import adapter
from proveout.agent.errors import TaskFault
from proveout.agent.load.loop.transaction import statements
from proveout.agent.preflight.statement_check import StatementCheck
from proveout.core.errors import ProveoutError
from proveout.dsl.workloads.base import Population, Table, WorkloadKind
from proveout.dsl.workloads.kinds import build, writes
from proveout.proto.wire.check_results import CheckFinding
from proveout.proto.wire.tasks import CheckedLoad, Endpoint

ROWS_COUNTED = 1_000_000
FEW = 0.5
"""The share of the rows expected below which a load would measure something else; above it the run only warns."""
_TYPES: Mapping[str, str] = {
    "int": r"int|serial|number|numeric|decimal|oid",
    "char": r"char|text|string|clob|uuid|json|enum",
    "varchar": r"char|text|string|clob|uuid|json|enum",
    "text": r"char|text|string|clob|uuid|json|enum",
    "numeric": r"numeric|decimal|number|double|real|float|money|int",
    "timestamp": r"time|date",
    "date": r"time|date",
}
"""The types that hold a kind of column of a population."""


class LoadCheck:
    """The checks of one load on one system. `sessions` gets each session that is opened, to cancel it."""

    def __init__(self, end: Endpoint, engine: Driver, load: CheckedLoad, sessions: list[Any]) -> None:
        self._end, self._engine, self._load, self._sessions = end, engine, load, sessions
        self._rules = rules_of(end.engine)

    def findings(self) -> Iterator[CheckFinding]:
        """All findings."""
        try:
            kind = build(self._load.workload)
        except ProveoutError as fault:
            yield CheckFinding(code="missing", subject=self._of_workload(), message=fault.what, way_out=fault.way_out)
            return
        tables = list(self._of_tables(kind.population)) if self._load.expected else []
        yield from tables
        try:
            session = self._open()
        except StatementFailure as failure:
            yield self._refused(failure, "login")
            return
        self._sessions.append(session)
        with closing(session):
            try:
                yield from self._of_settings(session)
                absent = any(one.code == "table" for one in tables)
                yield from self._of_statements(session, kind, tables_known=absent)
            except StatementFailure as failure:
                yield self._refused(failure, "unreachable")

    def _of_workload(self) -> str:
        return f"workloads.{self._load.workload.name}"

    def _open(self) -> Any:
        dsn = self._end.dsn
        if isinstance(self._engine, OpensWithSettings):
            dsn = self._engine.dsn_for_load(dsn, self._load.session, changes=writes(self._load.workload))
        return self._engine.connect(dsn)

    def _refused(self, failure: StatementFailure, code: str) -> CheckFinding:
        subject = f"systems.{self._end.system}"
        return CheckFinding(code=code, subject=subject, message=f"{failure.code}: {failure.what}")

    def _of_settings(self, session: Any) -> Iterator[CheckFinding]:
        if isinstance(self._engine, OpensWithSettings):
            return
        for name, value in self._load.session:
            try:
                configure(session, self._engine, ((name, value),))
            except StatementFailure as failure:
                if failure.kind is FailureKind.LOST:
                    raise
                subject = f"{self._load.subject}.session.{name}"
                yield CheckFinding(code="setting", subject=subject, message=f"{failure.code}: {failure.what}")

    def _of_statements(self, session: Any, kind: WorkloadKind, *, tables_known: bool) -> Iterator[CheckFinding]:
        check = StatementCheck(self._end.engine, self._engine, session)
        for statement in statements(kind):
            if self._engine.dialect not in statement.text:
                continue
            subject = f"{self._of_workload()}.statements.{statement.name}"
            yield from check.of_statement(statement, subject, settled=self._load.settled, tables_known=tables_known)

    # ---- tables ------------------------------------------------------------------------------------------------------

    def _of_tables(self, population: Population) -> Iterator[CheckFinding]:
        found = adapter(self._end.engine)
        if not self._rules.columns or not isinstance(found, OpensQueries):
            return
        try:
            session = found.query_session(self._end)
        except TaskFault as fault:
            yield CheckFinding(code="login", subject=f"systems.{self._end.system}", message=fault.what)
            return
        self._sessions.append(session)
        with closing(session):
            for table in population.tables:
                try:
                    yield from self._of_table(session, table, population.expected.get(table.name, (0, 0))[0])
                except TaskFault as fault:
                    yield self._table(table, "rights", f"not checked: {fault.what}", fault.way_out, warns=True)

    def _of_table(self, session: QuerySession, table: Table, expected: int) -> Iterator[CheckFinding]:
        if "." in table.name and self._end.engine != "postgres":
            return
        _, rows = session.rows(self._rules.columns.format(table=table.name), 10_000)
        types = {row_text(name).lower(): row_text(kind).lower() for name, kind in rows}
        populate = (
            f"populate it with this workload, or give the plan `populate: {{workload: {self._load.workload.name}}}`"
        )
        if not types:
            message = f"system {self._end.system!r} has no table {table.name} that the user of its dsn can see"
            yield self._table(table, "table", message, populate)
            return
        missing = [name for name, _ in table.columns if name.lower() not in types]
        if missing:
            names = ", ".join(missing)
            message = (
                f"table {table.name} of system {self._end.system!r} has no column {names}; it has {', '.join(types)}"
            )
            yield self._table(table, "table", message, populate)
        for name, kind in table.columns:
            known = types.get(name.lower(), "")
            wanted = _TYPES.get(re.split(r"[\d(]", kind)[0], "")
            if known and wanted and not re.search(wanted, known):
                message = f"column {name} of table {table.name} of system {self._end.system!r} is {known}, not {kind}"
                yield self._table(table, "table", message, populate)
        if expected and not missing:
            yield from self._of_rows(session, table, expected, populate)

    def _of_rows(self, session: QuerySession, table: Table, expected: int, way_out: str) -> Iterator[CheckFinding]:
        most = min(expected, ROWS_COUNTED)
        _, rows = session.rows(self._rules.some_rows.format(table=table.name, most=most), 1)
        count = int(rows[0][0])
        if count < most:
            message = f"table {table.name} of system {self._end.system!r} has {count:,} rows; {expected:,} are expected"
            few = count < FEW * most
            yield self._table(table, "rows", message, way_out, warns=not few)

    def _table(self, table: Table, code: str, message: str, way_out: str, *, warns: bool = False) -> CheckFinding:
        subject = f"{self._of_workload()}.tables.{table.name}"
        return CheckFinding(code=code, subject=subject, message=message, way_out=way_out, warns=warns)
