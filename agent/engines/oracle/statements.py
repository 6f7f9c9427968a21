"""Statements of an Oracle Database by v$sql, and the plans that it used, for the capture `statements`.

Flow: `counts()` reads V$SQL, the cursors of all children of a statement added up -> `plan(id)` reads V$SQL_PLAN of the
child that ran most, which is the plan that was used: EXPLAIN PLAN, which writes into a table, is not run. Neither view
needs a licensed pack. Of a cluster it is the instance of the session; recursive statements of the server are left out
by their schema. A cursor that ages out of the shared pool restarts from 0.

Not run on an Oracle in the tests. Source: Oracle Database Reference, V$SQL, V$SQL_PLAN, V$INSTANCE.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import oracledb

from proveout.agent.engines.oracle.errors import error_text
from proveout.agent.engines.oracle.sql import (
    Opener,
    ReportConnection,
    open_labelled,
    statement_fault,
)
from proveout.agent.engines.statement_contract import PlanStep, StatementCounts
from proveout.agent.errors import TaskFault
from proveout.proto.wire.tasks import Endpoint

CALL_TIMEOUT_MS = 20_000
SINCE = "SELECT TO_CHAR(startup_time, 'YYYY-MM-DD HH24:MI:SS') FROM v$instance"
COUNTS = (
    "SELECT /* proveout */ sql_id, MAX(sql_text), SUM(executions), SUM(elapsed_time), SUM(rows_processed) FROM v$sql"
    " WHERE parsing_schema_name = SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA') GROUP BY sql_id"
)
PLAN = (
    "SELECT depth, operation, options, object_name, cardinality FROM v$sql_plan WHERE sql_id = :id AND child_number ="
    " (SELECT MIN(child_number) FROM v$sql WHERE sql_id = :id AND executions ="
    " (SELECT MAX(executions) FROM v$sql WHERE sql_id = :id)) ORDER BY id"
)
GRANTS = "GRANT SELECT ON SYS.V_$SQL, SYS.V_$SQL_PLAN and SYS.V_$INSTANCE, or SELECT_CATALOG_ROLE, to the user"
NO_RIGHT = frozenset({"ORA-00942", "ORA-01031"})


class OracleStatements(ReportConnection):
    """See `statement_contract.StatementSession`."""

    def __init__(self, endpoint: Endpoint, open_one: Opener = open_labelled) -> None:
        self._texts: dict[str, str] = {}
        super().__init__(endpoint, "statements", open_one, CALL_TIMEOUT_MS)

    @property
    def since(self) -> str:
        """The start of the instance."""
        return str(self._rows(SINCE)[0][0])

    def counts(self) -> Mapping[str, StatementCounts]:
        """Return the counters by sql_id. TaskFault."""
        found: dict[str, StatementCounts] = {}
        for id, text, calls, micro, rows in self._rows(COUNTS):
            self._texts[str(id)] = str(text)
            found[str(id)] = StatementCounts(calls=float(calls), seconds=float(micro) / 1e6, rows=float(rows))
        return found

    def texts(self, ids: Iterable[str]) -> Mapping[str, str]:
        """Return the texts of the last reading, which V$SQL cuts at 1,000 characters."""
        return {id: self._texts[id] for id in ids if id in self._texts}

    def plan(self, id: str, text: str) -> tuple[PlanStep, ...]:
        """Return the plan of the child cursor that ran most. TaskFault."""
        del text
        rows = self._rows(PLAN, id=id)
        if not rows:
            raise TaskFault("missing", "its cursor is not in the shared pool any more")
        return tuple(
            PlanStep(
                depth=int(depth or 0),
                operation=" ".join(str(word) for word in (operation, options, name and f"on {name}") if word),
                rows=None if cardinality is None else float(cardinality),
            )
            for depth, operation, options, name, cardinality in rows
        )

    def _rows(self, query: str, **binds: Any) -> list[tuple[Any, ...]]:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(query, binds)
                found: list[tuple[Any, ...]] = cursor.fetchall()
                return found
        except oracledb.Error as error:
            text = error_text(error)
            fault = statement_fault(f"system {self._system!r}", text)
            way_out = GRANTS if text.code in NO_RIGHT else fault.way_out
            raise TaskFault(fault.code, fault.what, way_out=way_out) from None
