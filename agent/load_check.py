"""The checks of one load before a run: session settings, statements that the engine prepares, tables and their rows."""

from __future__ import annotations

import math
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

from proveout.agent.engines.adapter import QuerySession, row_text
from proveout.agent.engines.driver_contract import Driver, FailureKind, OpensWithSettings, StatementFailure
from proveout.agent.engines.sessions import configure, execute
from proveout.agent.engines.statement_errors import rules_of
from proveout.agent.engines.table import adapter
from proveout.agent.errors import TaskFault
from proveout.agent.load.loop.terminal import stream_of
from proveout.agent.load.loop.transaction import BEGIN_READ, ROLLBACK, statements
from proveout.core.errors import ProveoutError
from proveout.dsl.workloads import sql_text
from proveout.dsl.workloads.base import Body, Outcome, Population, Statement, Table, TransactionType, WorkloadKind
from proveout.dsl.workloads.kinds import build, writes
from proveout.dsl.workloads.sql_workload import SqlWorkload
from proveout.proto.wire.results import CheckFinding
from proveout.proto.wire.tasks import CheckedLoad, CheckedText, Endpoint

# A statement that will find other tables than those of now (`settled` is false: a populate or another statement comes
# before it) is checked for its syntax only. Where preparing does not check the rights on tables, `EXPLAIN` does.

_EXPLAINED = re.compile(r"\s*(select|insert|update|delete|merge|with|values)\b", re.IGNORECASE)
RIGHTS = "grant the user of its dsn what the statement needs"


class StatementCheck:
    """Checks statements on one session of an engine."""

    def __init__(self, engine: str, driver: Driver, session: Any) -> None:
        self._rules, self._driver, self._session = rules_of(engine), driver, session

    def of_text(self, text: CheckedText) -> Iterator[CheckFinding]:
        """The finding of a statement of the plan, if there is one. StatementFailure when the connection is lost."""
        if sql_text.script_fault(sql_text.scan(text.text, self._driver.dialect)) is None:  # else it cannot be prepared
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


# Tables are checked only where no stage of the plan populates them: then names and types of their columns are read from
# the catalogue, and rows are counted, `ROWS_COUNTED` of a table at most. Reads are executed with drawn binds, in a
# transaction that is rolled back, up to the first statement that changes rows: `DRAWS_MAX` times, for `READS_S` at
# most.

ROWS_COUNTED = 1_000_000
FEW = 0.5
"""The share of the rows expected below which a load would measure something else; above it the run only warns."""
DRAWS_MAX = 100
DRAWN_STREAM = stream_of(0, 2**31)
"""A stream of keys that no terminal has."""
READS_S = 0.5
"""Of one transaction; a statement that runs for longer is cancelled."""
CHANCE_MAX = 0.01
"""Draws that miss as often by chance, in a load that fails as often as the plan allows, are not reported."""
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
        self._prepared: dict[str, Any] = {}

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
                found = list(self._of_statements(session, kind, tables_known=absent))
                yield from found
                if self._load.settled and isinstance(kind, SqlWorkload) and not (tables or found):
                    yield from self._of_reads(session, kind)
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

    # ---- reads with drawn binds --------------------------------------------------------------------------------------

    def _of_reads(self, session: Any, workload: SqlWorkload) -> Iterator[CheckFinding]:
        """A warning for each statement that misses the rows that it expects in more draws than the plan allows."""
        keys = workload.keys(DRAWN_STREAM)
        for kind in workload.transactions:
            if not kind.weight or kind.logical_failure is None or not kind.statements[0].reads:
                continue
            expected, inputs = workload.rows_expected(kind.name), kind.inputs(keys)
            misses, draws = self._drawn(session, kind, inputs)
            for name, counts in misses.items():
                missed = sum(counts.values())
                if by_chance(missed, draws, max(kind.logical_failure)) > CHANCE_MAX:
                    continue
                numbers = ", ".join(f"{'no' if not rows else f'{rows:,}'} rows" for rows in sorted(counts)[:3])
                yield CheckFinding(
                    code="rows",
                    subject=f"{self._of_workload()}.statements.{name}",
                    message=f"statement {name} expects {expected[name]}, and found {numbers} in {missed} of {draws} "
                    f"executions with drawn binds on system {self._end.system!r}",
                    way_out="draw keys that exist, or declare the share that the workload expects (`logical_failures`)",
                    warns=True,
                )

    def _drawn(
        self, session: Any, kind: TransactionType, inputs: Callable[[], Any]
    ) -> tuple[dict[str, Counter[int]], int]:
        """Execute the reads of a transaction with drawn binds. Returns for each statement that failed it logically how
        often it found which number of rows, and the number of draws."""
        misses: dict[str, Counter[int]] = {}
        draws, until_s = 0, time.monotonic() + READS_S
        late = threading.Timer(READS_S, session.cancel)
        late.start()
        try:
            self._execute(session, BEGIN_READ)
            while draws < DRAWS_MAX and time.monotonic() < until_s:
                last, outcome = self._walked(session, kind.body(inputs()))
                draws += 1
                if outcome is Outcome.LOGICAL_FAILURE:
                    misses.setdefault(last, Counter())[session.count] += 1
            self._execute(session, ROLLBACK)
        except StatementFailure:  # it was cancelled, or refuses the values: the load reports that
            late.cancel()
            with suppress(StatementFailure):
                self._execute(session, ROLLBACK)
        finally:
            late.cancel()
        return misses, draws

    def _walked(self, session: Any, body: Body) -> tuple[str, Outcome | None]:
        """Execute the requests of a transaction up to the first that changes rows. Returns the name of the last
        statement, and the outcome of a transaction that ended."""
        statement, arguments = next(body)
        while not statement.changes:
            self._execute(session, statement, arguments)
            try:
                statement, arguments = body.send(session)
            except StopIteration as end:
                return statement.name, end.value
        return statement.name, None

    def _execute(self, session: Any, statement: Statement, arguments: tuple[Any, ...] = ()) -> None:
        if statement.name not in self._prepared:
            self._prepared[statement.name] = session.prepare(statement)
        execute(session, self._engine, self._prepared[statement.name], arguments)

    # ---- tables ------------------------------------------------------------------------------------------------------

    def _of_tables(self, population: Population) -> Iterator[CheckFinding]:
        if not self._rules.columns:
            return
        try:
            session = adapter(self._end.engine).query_session(self._end)
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
            if self._end.engine == "sqlite" and kind in ("timestamp", "date"):
                wanted += "|text"  # it has no type for times
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


def by_chance(missed: int, draws: int, share: float) -> float:
    """The chance of so many misses or more in independent draws that miss with this probability (binomial).

    >>> by_chance(1, 1, 0.01), round(by_chance(3, 20, 0.01), 4), by_chance(0, 9, 0.0)
    (0.01, 0.001, 1.0)
    """
    fewer = sum(math.comb(draws, n) * share**n * (1.0 - share) ** (draws - n) for n in range(missed))
    return 1.0 - fewer
