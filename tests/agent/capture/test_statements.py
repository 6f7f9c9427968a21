"""The capture `statements` on real servers: a PostgreSQL of the distribution with pg_stat_statements, a MariaDB with
performance_schema; and the document that it makes of any session."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from select import select as select_ready
from typing import Any

import psycopg
import pytest
from distribution_postgres import distribution_postgres
from eventually import eventually
from report_window import captured

from proveout.agent.capture.databases import MARK, StatementReports
from proveout.agent.engines.adapter import PlanStep, StatementCounts, Tick
from proveout.agent.engines.mysql import captures
from proveout.agent.engines.mysql.captures import NOT_APART, explainable, position
from proveout.agent.engines.mysql.driver import MysqlDriver
from proveout.agent.engines.mysql.dsn import connect, parse
from proveout.agent.engines.postgres.captures import WaitObserver, steps
from proveout.agent.engines.sessions import execute
from proveout.agent.errors import TaskFault
from proveout.dsl.plan.topology import Capture
from proveout.dsl.workloads.base import Statement
from proveout.proto.wire.tasks import Endpoint

TOP = Capture(name="top", kind="statements", every_s=1.0, system="db")


# ---- PostgreSQL --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def distribution() -> Iterator[str]:
    """A PostgreSQL that has pg_stat_statements, which the embedded one has not."""
    with distribution_postgres("shared_preload_libraries=pg_stat_statements", "listen_addresses=") as (folder, port):
        dsn = f"host={folder} port={port} user=tester dbname=postgres"
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION pg_stat_statements")
            connection.execute("CREATE TABLE item (id int PRIMARY KEY, name text)")
            connection.execute("INSERT INTO item SELECT i, 'n' || i FROM generate_series(1, 5000) i")
            connection.execute("ANALYZE item")
            connection.execute("CREATE DATABASE bare")
        yield dsn


def state(dsn: str) -> list[Any]:
    """Everything that the capture could have changed."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        settings = connection.execute("SELECT name, setting FROM pg_settings ORDER BY 1").fetchall()
        objects = connection.execute("SELECT oid, relname FROM pg_class ORDER BY 1").fetchall()
        reset = connection.execute("SELECT stats_reset FROM pg_stat_statements_info").fetchall()
        rows = connection.execute("SELECT count(*), sum(length(name)) FROM item").fetchall()
    return [settings, objects, reset, rows]


def test_calls_rows_and_plans_of_the_window_on_a_postgres(distribution: str) -> None:
    endpoint = Endpoint(system="db", engine="postgres", dsn=distribution)

    def work(times: int = 30) -> None:
        with closing(WaitObserver(endpoint)) as waits:
            for _ in range(times):
                waits.look(Tick(at_ns=time.monotonic_ns(), report=True, last=False))
        with psycopg.connect(distribution, autocommit=True) as connection:
            for number in range(times):
                connection.execute("SELECT name FROM item WHERE id = %s", [number])
                connection.execute("UPDATE item SET name = name WHERE id = %s", [number])
            connection.execute("SELECT count(*) FROM item WHERE name LIKE %s", ["n1%"])

    work(7)  # before the window: not counted
    before = state(distribution)
    found, _ = captured(endpoint, TOP, (0.0,), work)
    assert not found.notes
    document = json.loads(found.output)
    top = {item["text"]: item for item in document["statements"]}
    select, update = top["SELECT name FROM item WHERE id = $1"], top["UPDATE item SET name = name WHERE id = $1"]
    assert (select["calls"], select["rows"]) == (30, 29)  # there is no item 0
    assert (update["calls"], update["rows"]) == (30, 29)
    assert [step[:2] for step in select["plan"]] == [[0, "Index Scan using item_pkey on item"]]
    assert [step[:2] for step in update["plan"]] == [[0, "Update on item"], [1, "Index Scan using item_pkey on item"]]
    assert not [text for text in top if MARK in text or "pg_stat_" in text], "those of captures"
    assert document["total"]["calls"] >= 61
    assert select["seconds"] > 0.0
    assert state(distribution) == before


def test_a_database_without_the_extension_is_a_note_with_the_way_out(distribution: str) -> None:
    dsn = distribution.replace("dbname=postgres", "dbname=bare")

    found, _ = captured(Endpoint(system="db", engine="postgres", dsn=dsn), TOP, (0.0,))
    assert found.output == ""
    assert "no extension pg_stat_statements in this database" in found.notes[0]
    assert "CREATE EXTENSION" in found.notes[0]


def test_the_steps_of_a_join() -> None:
    scan = {"Node Type": "Seq Scan", "Relation Name": "b", "Plan Rows": 9}
    node = {"Node Type": "Hash Join", "Join Type": "Left", "Plan Rows": 5, "Plans": [scan]}
    assert [*steps(node)] == [
        PlanStep(depth=0, operation="Hash Join Left", rows=5.0),
        PlanStep(depth=1, operation="Seq Scan on b", rows=9.0),
    ]


# ---- MySQL, MariaDB ----------------------------------------------------------------------------------------------


def test_calls_rows_and_plans_of_the_window_on_a_mariadb(counting: str) -> None:
    connection = connect(parse(counting), timeout_s=10.0)

    def work() -> None:
        with connection.cursor() as cursor:
            for number in range(20):
                cursor.execute(f"SELECT name FROM item WHERE id = {number}")
            cursor.execute("SELECT COUNT(*) FROM item WHERE other = 'x'")
        for _ in range(5):
            session.send(prepared, (7,))
            while not session.receive():
                select_ready([session.fileno()], [], [], 1.0)
            assert session.rows() == [("n7",)]

    with connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE item (id int PRIMARY KEY, name varchar(20), other varchar(20))")
        cursor.executemany("INSERT INTO item VALUES (%s, %s, 'x')", [(number, f"n{number}") for number in range(100)])
        connection.commit()
        session = MysqlDriver().connect(counting)
        text = "SELECT name FROM item WHERE id = $1"
        prepared = session.prepare(Statement(name="s", text={"mysql": text}, arguments=(int,), columns=(str,)))
        found, _ = captured(Endpoint(system="db", engine="mysql", dsn=counting), TOP, (0.0,), work)
        session.close()
    assert not found.notes
    top = {item["text"]: item for item in json.loads(found.output)["statements"]}
    select = next(item for text, item in top.items() if text.startswith("SELECT NAME FROM"))
    assert (select["calls"], select["rows"]) == (20, 20)
    assert select["plan"] == [[0, "const using PRIMARY on item", 1.0]]
    count = next(item for text, item in top.items() if text.startswith("SELECT COUNT"))
    assert count["plan"][0][1] == "ALL on item"
    prepared_one = top["SELECT name FROM item WHERE id = ?"]
    assert (prepared_one["calls"], prepared_one["rows"]) == (5, 5)
    assert prepared_one["plan"] == [[0, "const using PRIMARY on item", 1.0]]
    assert NOT_APART not in top
    assert not [text for text in top if "performance_schema" in text], "our own statements"


def test_a_server_that_does_not_count_prepared_statements_has_them_in_one_line(
    counting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captures, "COUNTED", "SELECT /* proveout */ 1 FROM DUAL WHERE 1 = 0")
    session = captures.MysqlStatements(Endpoint(system="db", engine="mysql", dsn=counting))
    ids = session.counts()
    together = next(id for id, text in session.texts(ids).items() if text == NOT_APART)
    assert ids[together].calls >= 5
    session.close()


def test_prepared_statements_whose_sessions_have_ended_are_not_one_line_since_the_start(counting: str) -> None:
    """All executions since the server's start would be those of the window."""
    with closing(captures.MysqlStatements(Endpoint(system="db", engine="mysql", dsn=counting))) as session:
        with closing(MysqlDriver().connect(counting)) as load:
            statement = Statement(name="s", text={"mysql": "SELECT $1"}, arguments=(int,), reads=True)
            execute(load, MysqlDriver(), load.prepare(statement), (1,))
            assert "SELECT ?" in session.texts(session.counts()).values()
        with connect(parse(counting), timeout_s=10.0) as connection, connection.cursor() as cursor:
            eventually(lambda: not cursor.execute(captures.COUNTED), "the end of the session")
        assert NOT_APART not in session.texts(session.counts()).values()


def test_a_dsn_without_a_database_is_a_fault(counting: str) -> None:
    dsn = counting.replace("/proveout?", "/?")
    with pytest.raises(TaskFault, match="names no database"):
        captures.MysqlStatements(Endpoint(system="db", engine="mysql", dsn=dsn))


def test_a_server_without_performance_schema_is_a_fault(mysql_database: str) -> None:
    with pytest.raises(TaskFault, match="is off") as raised:
        captures.MysqlStatements(Endpoint(system="db", engine="mysql", dsn=mysql_database))
    assert "performance_schema = ON" in raised.value.way_out


@pytest.mark.parametrize(
    ("text", "explained"),
    [
        (
            "UPDATE t SET a = ? WHERE b = '?' AND `c?` IN (?, ?)",
            "UPDATE t SET a = '1' WHERE b = '?' AND `c?` IN ('1', '1')",
        ),
        (
            'SELECT a FROM t WHERE b = "it\'s ?" LIMIT ? OFFSET ?',
            'SELECT a FROM t WHERE b = "it\'s ?" LIMIT 1 OFFSET 1',
        ),
    ],
)
def test_values_take_the_place_of_placeholders_outside_of_quotes(text: str, explained: str) -> None:
    assert explainable(text) == explained


@pytest.mark.parametrize("rows", [None, [], [(None,)], [("3E11FA47-71CA-11E1-9E33-C80AA9429562:1",)]])
def test_a_position_that_is_not_one_of_mariadb_costs_a_sample(rows: Any) -> None:
    assert position([("0-1-7,1-1-5",)]) == 12
    assert position(rows) is None


# ---- any engine --------------------------------------------------------------------------------------------------


class Canned:
    """A session with readings of our own."""

    since = ""

    def __init__(self, *readings: Mapping[str, tuple[float, float, float]]) -> None:
        self._readings = [
            {id: StatementCounts(calls=calls, seconds=s, rows=rows) for id, (calls, s, rows) in reading.items()}
            for reading in readings
        ]

    def counts(self) -> Mapping[str, StatementCounts]:
        return self._readings.pop(0)

    def texts(self, ids: Iterable[str]) -> Mapping[str, str]:
        texts = {"own": f"SELECT {MARK} 1", "a": "SELECT  a\n FROM t", "b": "COMMIT", "c": "SELECT broken"}
        return {id: texts[id] for id in ids if id in texts}

    def plan(self, id: str, text: str) -> tuple[PlanStep, ...]:
        if id == "c":
            raise TaskFault("refused", "no such column")
        return (PlanStep(depth=0, operation="Scan"),)

    def abort(self) -> None: ...

    def close(self) -> None: ...


def test_the_document_has_the_growth_with_the_most_time_first() -> None:
    session = Canned(
        {"a": (10, 1.0, 10), "own": (1, 9.0, 1), "restarted": (50, 5.0, 5), "idle": (3, 1.0, 3)},
        {
            "a": (30, 2.0, 30),
            "own": (2, 99.0, 2),
            "restarted": (2, 0.1, 1),
            "idle": (3, 1.0, 3),
            "b": (20, 3.0, 0),
            "c": (1, 0.5, 0),
        },
    )
    reports = StatementReports(session)
    first, second = reports.take(), reports.take()
    (line,) = reports.report(first, second)
    document = json.loads(line)
    assert [item["id"] for item in document["statements"]] == ["b", "a", "c"]
    assert document["total"] == {"count": 3, "calls": 41.0, "seconds": 4.5, "rows": 20.0}
    b, a, c = document["statements"]
    assert (b["plan"], b["no_plan"]) == ([], "it has no plan")
    assert (a["text"], a["plan"]) == ("SELECT a FROM t", [[0, "Scan", None]])
    assert c["no_plan"] == "no such column"


def test_the_total_is_of_all_statements_but_those_of_captures() -> None:
    """Also where these took less time than many others."""
    reports = StatementReports(Canned({}, {"own": (600, 0.1, 600)} | {str(n): (1, 1.0, 1) for n in range(50)}))
    (line,) = reports.report(reports.take(), reports.take())
    assert json.loads(line)["total"] == {"count": 50, "calls": 50.0, "seconds": 50.0, "rows": 50.0}
