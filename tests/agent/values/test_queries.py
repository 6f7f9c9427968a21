"""Numbers of queries in PostgreSQL, SQLite, MariaDB and over Oracle's protocol: values, waits with their bound, and
captures that lose their connection. Over Oracle's protocol a PostgreSQL answers: the driver is shown, not that an Oracle
accepts a statement."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from eventually import PATIENCE_S, eventually_async

from proveout.agent.capture import kinds, query_values
from proveout.agent.capture.query_values import GivenUp, QueryObserver, values_of, wait_until
from proveout.agent.engines.adapter import Tick
from proveout.agent.engines.handlers import run_sql
from proveout.agent.errors import TaskFault
from proveout.coordinator.measure.captures import Recording, Window, measured_metrics
from proveout.dsl.plan.commands import MeasuredValue, WaitUntil
from proveout.dsl.plan.topology import Capture
from proveout.proto.wire.results import CaptureSample, Reading
from proveout.proto.wire.tasks import Endpoint, RunCapture, RunSql, wait_names

REPORT = Tick(at_ns=1, report=True, last=False)
ENGINES = ("postgres", "sqlite", "mysql", "oracle")
DUAL = {"oracle": " FROM dual"}
pytestmark = pytest.mark.server


@pytest.fixture(params=ENGINES)
def end(request: pytest.FixtureRequest, tmp_path: Path) -> Endpoint:
    """A system of each engine."""
    if request.param == "sqlite":
        path = tmp_path / "data.sqlite"
        apsw.Connection(str(path)).close()
        return Endpoint(system="db", engine="sqlite", dsn=str(path))
    fixture = {"postgres": "database", "mysql": "mysql_database", "oracle": "oracle"}[request.param]
    return Endpoint(system="db", engine=request.param, dsn=request.getfixturevalue(fixture))


@pytest.fixture
def postgres_end(database: str) -> Endpoint:
    return Endpoint(system="db", engine="postgres", dsn=database)


def select(end: Endpoint, columns: str) -> str:
    return f"SELECT {columns}{DUAL.get(end.engine, '')}"


def value(name: str, column: str = "", **more: Any) -> MeasuredValue:
    return MeasuredValue(name=name, column=column or name, **more)


def test_columns_become_numbers(end: Endpoint) -> None:
    """By name, by position, and by the row that a column chooses; each time that a capture looks."""
    wanted = [value("max_iops"), value("latency", "2")]
    found = values_of(end, select(end, "41 + 1 AS max_iops, 2.5 AS ms"), wanted, GivenUp())
    assert dict(found) == {"max_iops": 42.0, "latency": 2.5}
    query = f"{select(end, chr(39) + 'A' + chr(39) + ' AS t, 1 AS n')} UNION ALL {select(end, chr(39) + 'B' + chr(39) + ', 7')}"
    wanted = [value("b", "n", where=(("t", "B"),)), value("both", "n", take="sum")]
    found = values_of(end, query, wanted, GivenUp())
    assert dict(found) == {"b": 7.0, "both": 8.0}
    values = [value("a"), value("b", kind="rate"), value("c", kind="age")]
    observer = QueryObserver("c", end, select(end, "6 AS a, 7 AS b, 8 AS c"), values)
    try:
        found = {reading.metric: reading.value for reading in observer.look(REPORT) or ()}
        assert all(found.pop(name) >= 0.0 for name in wait_names("sql.c")), "how long the answer took is part of an age"
        assert found == {"sql.a": 6.0, "sql.b_total": 7.0, "sql.c": 8.0}
    finally:
        observer.close()


def test_what_cannot_be_read_is_named(end: Endpoint) -> None:
    """The metric, the query and the columns; the message of the database; the capture that would begin with it."""
    with pytest.raises(TaskFault) as fault:
        values_of(end, select(end, "1 AS a"), [value("max_iops")], GivenUp())
    assert fault.value.code == "missing"
    assert "metric `max_iops`: the result has no column 'max_iops'" in fault.value.what
    assert "SELECT 1 AS a" in fault.value.what
    assert fault.value.way_out.lower() == "one of a"
    with pytest.raises(TaskFault) as fault:
        values_of(end, "SELECT x FROM no_such_table", [value("x")], GivenUp())
    assert fault.value.code == "refused"
    assert "no_such_table" in fault.value.what.lower()
    with pytest.raises(TaskFault) as fault:
        QueryObserver("c", end, select(end, "1 AS a"), [value("b")])
    assert fault.value.what.startswith("capture 'c': metric `b`: the result has no column")


def test_a_wait_tells_at_its_bound_what_it_saw(postgres_end: Endpoint) -> None:
    wait = WaitUntil(query="SELECT 5", equals="0", every_s=0.02, within_s=0.1)
    with pytest.raises(TaskFault) as fault:
        wait_until(postgres_end, wait, GivenUp())
    assert fault.value.code == "timeout"
    assert "gave '5' and not 0 after" in fault.value.what
    assert "`within`" in fault.value.way_out


def test_a_wait_sees_what_others_commit_and_ends_when_it_is_given_up(
    postgres_end: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(postgres_end.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE loading (left_bytes int)")
        connection.execute("INSERT INTO loading VALUES (9)")
        asked: list[object] = []

        class Asked(GivenUp):
            def __call__(self) -> bool:
                asked.append(connection.execute("UPDATE loading SET left_bytes = left_bytes - 3"))
                return False

        wait = WaitUntil(query="SELECT left_bytes FROM loading", equals="0", every_s=0.01, within_s=3600.0)
        assert wait_until(postgres_end, wait, Asked()) >= 0.0
        assert len(asked) == 3
    never = WaitUntil(query="SELECT 1", equals="2", every_s=0.01, within_s=3600.0)
    given_up = GivenUp()
    given_up.set()
    with pytest.raises(TaskFault):
        wait_until(postgres_end, never, given_up)
    before_a_pause = GivenUp()
    monkeypatch.setattr(query_values, "same", lambda *_: before_a_pause.set())

    def wait_long() -> None:
        with pytest.raises(TaskFault):
            wait_until(postgres_end, replace(never, every_s=3600.0), before_a_pause)

    waiting = threading.Thread(target=wait_long, daemon=True)
    waiting.start()
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()


def test_a_query_of_a_wait_is_broken_off(postgres_end: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_values, "LIMIT_S", 0.1)
    wait = WaitUntil(query="SELECT pg_sleep(600)", equals="0", every_s=0.02, within_s=0.1)
    with pytest.raises(TaskFault, match="took longer than"):
        wait_until(postgres_end, wait, GivenUp())
    with pytest.raises(TaskFault, match="more than 10,000 rows"):
        values_of(postgres_end, "SELECT generate_series(1, 20000) AS n", [value("n", take="sum")], GivenUp())


SLEEPS = {"postgres": "pg_sleep(600)", "mysql": "SLEEP(600)"}
SLEEPING = {
    "postgres": "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'",
    "mysql": "SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP%'",
}


@pytest.mark.parametrize("end", SLEEPS, indirect=True)
async def test_a_query_of_a_cancelled_stage_ends_in_its_server(end: Endpoint, task_context: Any) -> None:
    query = f"SELECT {SLEEPS[end.engine]} AS a"
    asking = query_values.open_session(end)

    def sleeping() -> int:
        return int(asking.rows(SLEEPING[end.engine], 1)[1][0][0])

    stage = asyncio.ensure_future(
        run_sql(task_context, RunSql(endpoint=end, statements=(), query=query, values=(value("a"),)))
    )
    await eventually_async(lambda: sleeping() == 1, "the query runs")
    stage.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stage
    await eventually_async(lambda: sleeping() == 0, "the query has ended")
    asking.close()


async def test_a_stage_runs_statements_waits_and_reads(postgres_end: Endpoint, task_context: Any) -> None:
    spec = RunSql(
        endpoint=postgres_end,
        statements=("CREATE TABLE t (n int)", "INSERT INTO t VALUES (4)"),
        wait_until=WaitUntil(query="SELECT count(*) FROM t", equals="1", every_s=0.1, within_s=30.0),
        query="SELECT n AS found FROM t",
        values=(value("found"),),
    )
    done = await run_sql(task_context, spec)
    assert done.values == (("found", 4.0),)
    assert done.elapsed_s > 0.0
    assert done.wait_s >= 0.0
    assert len(done.counts) == 2


# ---- captures --------------------------------------------------------------------------------------------------------


def test_a_slow_query_and_a_lost_connection_cost_their_samples_only(
    postgres_end: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_values, "LIMIT_S", 0.2)
    with psycopg.connect(postgres_end.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE nap (s float)")
        connection.execute("INSERT INTO nap VALUES (0)")
        observer = QueryObserver("c", postgres_end, "SELECT 1 AS a, pg_sleep(s) FROM nap", [value("a")])
        try:
            connection.execute("UPDATE nap SET s = 600")
            assert observer.look(REPORT) is None
            connection.execute("UPDATE nap SET s = 0")
            assert observer.look(REPORT) is not None
            ended = (
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE application_name = 'proveout query' AND datname = current_database()"
            )
            assert connection.execute(ended).fetchall()
            assert observer.look(REPORT) is None
            assert observer.look(REPORT) is not None
        finally:
            observer.close()


async def test_levels_and_rates_of_a_window(postgres_end: Endpoint, task_context: Any) -> None:
    with psycopg.connect(postgres_end.dsn, autocommit=True) as connection:
        connection.execute("CREATE SEQUENCE looks")
    values = (value("n"), value("looks", "n", kind="rate"))
    capture = Capture(
        name="c", kind="sql", every_s=0.02, system="db", query="SELECT nextval('looks') AS n", values=values
    )
    running = asyncio.create_task(kinds.capture(task_context, RunCapture(capture=capture, endpoints=(postgres_end,))))
    await eventually_async(lambda: len(task_context.samples) >= 7, "7 samples")
    task_context.end()
    result = await running
    samples = task_context.samples
    assert result.samples == len(samples)
    window = Window(start_ns=samples[1].at_ns, end_ns=samples[5].at_ns)
    tree = measured_metrics(Recording(samples), window, capture)
    first = samples[1].readings[0].value
    assert (tree["n"]["min"], tree["n"]["max"], tree["n"]["end"]) == (first, first + 4, first + 4)
    assert tree["looks"]["delta"] == pytest.approx(4.0)
    assert tree["looks"]["per_s"] == pytest.approx(4.0 / window.seconds)


def test_an_age_grows_until_the_end_of_a_window_without_an_answer() -> None:
    """Answers every 100 ms for 4 s of a window of 10 s, then none: the age rises to 6 s."""
    named = ("sql.age_s", *wait_names("sql.age_s"))
    samples = [
        CaptureSample(
            capture="c",
            at_ns=at * 10**8,
            readings=tuple(Reading(metric=m, value=v) for m, v in zip(named, (0.02, 0.0, 0.001), strict=True)),
        )
        for at in range(40)
    ]
    ages = (value("age_s", kind="age"),)
    capture = Capture(name="c", kind="sql", every_s=0.1, system="db", query="q", values=ages)
    window = Window(start_ns=0, end_ns=10 * 10**9)
    (tree,) = measured_metrics(Recording(samples), window, capture).values()
    assert tree["max"] == tree["end"] == pytest.approx(6.02, abs=0.01)
    assert tree["avg"] == pytest.approx(0.02 + 6.0**2 / 2 / 10, rel=0.01)
    assert tree["min"] == 0.02
