"""The capture `statements` of Oracle over the TNS server of the tests, whose V$SQL and V$SQL_PLAN the tests fill.

They show the queries, their arithmetic and the notes. They do not show that an Oracle accepts them.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from proveout.agent.engines.oracle.statements import OracleStatements
from proveout.agent.engines.statement_contract import PlanStep, StatementCounts
from proveout.agent.errors import TaskFault
from proveout.proto.wire.tasks import Endpoint

pytestmark = pytest.mark.server


@pytest.fixture
def session(oracle: str, tns_database: str) -> Iterator[OracleStatements]:
    with psycopg.connect(tns_database, autocommit=True) as connection:
        connection.execute("TRUNCATE oracle.v$sql, oracle.v$sql_plan")
        # SYS_CONTEXT of the tests' server is '1' for every name.
        connection.execute(
            "INSERT INTO oracle.v$sql VALUES ('abc', 0, 'SELECT 1 FROM t', 10, 2000000, 10, '1'),"
            " ('abc', 1, 'SELECT 1 FROM t', 30, 1000000, 30, '1'), ('sys', 0, 'SELECT 2', 9, 9, 9, 'SYS')"
        )
        connection.execute(
            "INSERT INTO oracle.v$sql_plan VALUES ('abc', 0, 0, 0, 'SELECT STATEMENT', NULL, NULL, NULL),"
            " ('abc', 1, 0, 0, 'SELECT STATEMENT', NULL, NULL, NULL),"
            " ('abc', 1, 1, 1, 'INDEX', 'UNIQUE SCAN', 'T_PK', 1)"
        )
    opened = OracleStatements(Endpoint(system="db", engine="oracle", dsn=oracle))
    yield opened
    opened.close()


def test_children_are_added_up_and_other_schemas_left_out(session: OracleStatements) -> None:
    assert session.counts() == {"abc": StatementCounts(calls=40.0, seconds=3.0, rows=40.0)}
    assert session.texts(["abc"]) == {"abc": "SELECT 1 FROM t"}
    assert session.since == "2026-01-01 00:00:00"


def test_the_plan_is_that_of_the_child_that_ran_most(session: OracleStatements) -> None:
    assert session.plan("abc", "SELECT 1 FROM t") == (
        PlanStep(depth=0, operation="SELECT STATEMENT"),
        PlanStep(depth=1, operation="INDEX UNIQUE SCAN on T_PK", rows=1.0),
    )
    with pytest.raises(TaskFault, match="not in the shared pool any more"):
        session.plan("gone", "")


def test_a_missing_right_has_the_way_out(session: OracleStatements, tns_database: str, tns_views: str) -> None:
    with psycopg.connect(tns_database, autocommit=True) as connection:
        connection.execute("DROP TABLE oracle.v$sql")
        try:
            with pytest.raises(TaskFault) as raised:
                session.counts()
            assert raised.value.code == "refused"
            assert "SYS.V_$SQL_PLAN" in raised.value.way_out
        finally:
            connection.execute(tns_views)
