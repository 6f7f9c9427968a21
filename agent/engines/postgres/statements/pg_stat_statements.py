"""Statements of a PostgreSQL by its extension pg_stat_statements, and their generic plans, for the capture
`statements`.

The extension must be loaded and created in the endpoint's database already; it is found in whatever schema it is in.
Counters are of this database and of all users; a user without `pg_read_all_stats` sees its own statements only. A
statement is prepared and explained with `plan_cache_mode = force_generic_plan` in a transaction that is read-only and
rolled back: EXPLAIN plans, and does not execute. Source: PostgreSQL manual, F.30 and "Statistics Used by the Planner".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql

from proveout.agent.engines.postgres.connection import break_connection, connect_blocking, statement_fault
from proveout.agent.engines.statement_contract import PlanStep, StatementCounts
from proveout.agent.errors import TaskFault
from proveout.proto.wire.tasks import Endpoint

STATEMENT_MS = 5_000
EXTENSION = (
    "SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace"
    " WHERE e.extname = 'pg_stat_statements'"
)
COUNTS = (
    "SELECT /* proveout */ queryid::text, sum(calls), sum({time}) / 1e3, sum(rows)"
    " FROM {schema}.pg_stat_statements(false)"
    " WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND queryid IS NOT NULL GROUP BY 1"
)
TEXTS = (
    "SELECT /* proveout */ queryid::text, min(query) FROM {schema}.pg_stat_statements(true)"
    " WHERE queryid::text = ANY(%s) AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " GROUP BY 1"
)
SINCE = "SELECT /* proveout */ stats_reset::text FROM {schema}.pg_stat_statements_info"
SINCE_VERSION, EXEC_TIME_VERSION, GENERIC_VERSION = 140_000, 130_000, 120_000
PLAN = "proveout_plan"
PARAMETERS = "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'proveout_plan'"


class PostgresStatements:
    """See `statement_contract.StatementSession`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._connection = connect_blocking(endpoint, "statements")
        try:
            self._connection.execute("SET client_encoding = 'UTF8'")  # a database in SQL_ASCII gives bytes otherwise
            self._connection.execute(f"SET statement_timeout = {STATEMENT_MS}")
            self._version = self._connection.info.server_version
            rows = self._rows(EXTENSION)
            if not rows:
                what = f"system {endpoint.system!r} has no extension pg_stat_statements in this database"
                way_out = (
                    "shared_preload_libraries = 'pg_stat_statements', restart, CREATE EXTENSION pg_stat_statements"
                )
                raise TaskFault("missing", what, way_out=way_out)
            self._schema = sql.Identifier(rows[0][0])
        except BaseException:
            self.close()
            raise

    @property
    def since(self) -> str:
        """The time of the last reset; "" where the server does not have it."""
        if self._version < SINCE_VERSION:
            return ""
        return str(self._rows(sql.SQL(SINCE).format(schema=self._schema))[0][0])

    def counts(self) -> Mapping[str, StatementCounts]:
        """Return the counters by queryid. TaskFault."""
        time = sql.SQL("total_exec_time" if self._version >= EXEC_TIME_VERSION else "total_time")
        rows = self._rows(sql.SQL(COUNTS).format(schema=self._schema, time=time))
        return {
            str(id): StatementCounts(calls=float(calls), seconds=float(seconds), rows=float(count))
            for id, calls, seconds, count in rows
        }

    def texts(self, ids: Iterable[str]) -> Mapping[str, str]:
        """Return the normalised texts. TaskFault."""
        rows = self._rows(sql.SQL(TEXTS).format(schema=self._schema), [*ids])
        return {str(id): str(text) for id, text in rows if text is not None}

    def plan(self, id: str, text: str) -> tuple[PlanStep, ...]:
        """Return the generic plan. TaskFault."""
        del id
        if self._version < GENERIC_VERSION:
            raise TaskFault("missing", "plans of statements with parameters need PostgreSQL 12")
        try:
            with self._connection.transaction(force_rollback=True):
                self._connection.execute("SET LOCAL transaction_read_only = on")
                self._connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
                # In the extended protocol, as that takes one statement only: the text comes from the server.
                self._connection.cursor(binary=True).execute(f"PREPARE {PLAN} AS {text}")
                count = int(self._rows(PARAMETERS)[0][0])
                nulls = f"({', '.join(['NULL'] * count)})" if count else ""
                found = self._rows(f"EXPLAIN (FORMAT JSON) EXECUTE {PLAN}{nulls}")
        except psycopg.Error as error:
            raise statement_fault(self._endpoint, error) from None
        finally:
            with suppress(psycopg.Error):
                self._connection.execute("DEALLOCATE ALL")
        return tuple(steps(found[0][0][0]["Plan"]))

    def _rows(self, query: Any, *arguments: Any) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(query, arguments or None).fetchall()
        except psycopg.Error as error:
            raise statement_fault(self._endpoint, error) from None

    def abort(self) -> None:
        """Break the connection."""
        with suppress(OSError):
            break_connection(self._connection)

    def close(self) -> None:
        """Close the connection."""
        with suppress(psycopg.Error):
            self._connection.close()


def steps(node: Mapping[str, Any], depth: int = 0) -> Iterator[PlanStep]:
    """The steps of a node of EXPLAIN (FORMAT JSON), and of those below it."""
    parts = [str(node["Node Type"])]
    if "Operation" in node:
        parts = [str(node["Operation"])]
    if node.get("Join Type", "Inner") != "Inner":
        parts.append(str(node["Join Type"]))
    if "Index Name" in node:
        parts.append(f"using {node['Index Name']}")
    if "Relation Name" in node:
        parts.append(f"on {node['Relation Name']}")
    yield PlanStep(depth=depth, operation=" ".join(parts), rows=float(node.get("Plan Rows", 0)))
    for below in node.get("Plans", ()):
        yield from steps(below, depth + 1)
