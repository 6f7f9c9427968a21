"""Numbers of queries in PostgreSQL, SQLite, MariaDB and over Oracle's protocol: values, waits with their bound, and
captures that lose their connection. Over Oracle's protocol a PostgreSQL answers: the driver is shown, not that an Oracle
accepts a statement."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from proveout.agent.capture import kinds
from proveout.agent.engines.adapter import Tick
from proveout.agent.engines.handlers import run_sql
from proveout.agent.errors import TaskFault
from proveout.agent.values import queries
from proveout.agent.values.queries import QueryObserver, values_of, wait_until
from proveout.coordinator.measure.capture_metrics import measured_metrics
from proveout.coordinator.measure.timeseries import Recording, Window
from proveout.dsl.plan.measured_values import MeasuredValue, WaitUntil
from proveout.dsl.plan.topology import Capture
from proveout.proto.wire.results import CaptureSample, Reading
from proveout.proto.wire.tasks import Endpoint, RunCapture, RunSql, wait_names

REPORT = Tick(at_ns=1, report=True, last=False)
ENGINES = ("postgres", "sqlite", "mysql", "oracle")
DUAL = {"oracle": " FROM dual"}


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


def test_columns_become_numbers_by_name_and_by_position(end: Endpoint) -> None:
    found = values_of(end, select(end, "41 + 1 AS max_iops, 2.5 AS ms"), [value("max_iops"), value("latency", "2")])
    assert dict(found) == {"max_iops": 42.0, "latency": 2.5}


def test_rows_are_chosen_by_a_column(end: Endpoint) -> None:
    query = f"{select(end, chr(39) + 'A' + chr(39) + ' AS t, 1 AS n')} UNION ALL {select(end, chr(39) + 'B' + chr(39) + ', 7')}"
    found = values_of(end, query, [value("b", "n", where=(("t", "B"),)), value("both", "n", take="sum")])
    assert dict(found) == {"b": 7.0, "both": 8.0}


def test_a_column_that_is_missing_names_the_metric_the_query_and_the_columns(end: Endpoint) -> None:
    with pytest.raises(TaskFault) as fault:
        values_of(end, select(end, "1 AS a"), [value("max_iops")])
    assert fault.value.code == "missing"
    assert "metric `max_iops`: the result has no column 'max_iops'" in fault.value.what
    assert "SELECT 1 AS a" in fault.value.what
    assert fault.value.way_out.lower() == "one of a"


def test_the_message_of_the_database_is_passed_on(end: Endpoint) -> None:
    with pytest.raises(TaskFault) as fault:
        values_of(end, "SELECT x FROM no_such_table", [value("x")])
    assert fault.value.code == "refused"
    assert "no_such_table" in fault.value.what.lower()


def test_a_wait_ends_when_the_value_is_there(end: Endpoint) -> None:
    waited_s = wait_until(
        end, WaitUntil(query=select(end, "3"), equals="3.0", every_s=0.1, within_s=30.0), lambda: False
    )
    assert 0.0 <= waited_s < 20.0


def test_a_wait_tells_at_its_bound_what_it_saw(end: Endpoint) -> None:
    wait = WaitUntil(query=select(end, "5"), equals="0", every_s=0.1, within_s=0.5)
    with pytest.raises(TaskFault) as fault:
        wait_until(end, wait, lambda: False)
    assert fault.value.code == "timeout"
    assert "gave '5' and not 0 after" in fault.value.what
    assert "`within`" in fault.value.way_out


def test_a_wait_sees_what_others_commit(postgres_end: Endpoint) -> None:
    with psycopg.connect(postgres_end.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE loading (left_bytes int)")
        connection.execute("INSERT INTO loading VALUES (9)")
        later = threading.Timer(0.5, lambda: connection.execute("UPDATE loading SET left_bytes = 0"))
        later.start()
        wait = WaitUntil(query="SELECT left_bytes FROM loading", equals="0", every_s=0.1, within_s=30.0)
        waited_s = wait_until(postgres_end, wait, lambda: False)
        later.join()
    assert waited_s >= 0.4


def test_a_wait_that_is_given_up_ends(postgres_end: Endpoint) -> None:
    wait = WaitUntil(query="SELECT 1", equals="2", every_s=0.1, within_s=3600.0)
    with pytest.raises(TaskFault):
        wait_until(postgres_end, wait, iter([False, False, True]).__next__)


def test_a_query_of_a_wait_is_broken_off(postgres_end: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "LIMIT_S", 0.3)
    wait = WaitUntil(query="SELECT pg_sleep(600)", equals="0", every_s=0.1, within_s=0.2)
    with pytest.raises(TaskFault, match="took longer than"):
        wait_until(postgres_end, wait, lambda: False)


def test_more_rows_than_can_be_read_are_refused(postgres_end: Endpoint) -> None:
    with pytest.raises(TaskFault, match="more than 10,000 rows"):
        values_of(postgres_end, "SELECT generate_series(1, 20000) AS n", [value("n", take="sum")])


async def test_a_stage_runs_statements_waits_and_reads(end: Endpoint, task_context: Any) -> None:
    table = f"stage_values_{time.monotonic_ns()}"
    spec = RunSql(
        endpoint=end,
        statements=(f"CREATE TABLE {table} (n int)", f"INSERT INTO {table} VALUES (4)"),
        wait_until=WaitUntil(query=f"SELECT count(*) FROM {table}", equals="1", every_s=0.1, within_s=30.0),
        query=f"SELECT n AS found FROM {table}",
        values=(value("found"),),
    )
    done = await run_sql(task_context, spec)
    assert done.values == (("found", 4.0),)
    assert done.elapsed_s > 0.0
    assert done.wait_s >= 0.0
    assert len(done.counts) == 2
    await run_sql(task_context, RunSql(endpoint=end, statements=(f"DROP TABLE {table}",)))


# ---- captures --------------------------------------------------------------------------------------------------------


def test_a_capture_reads_each_time(end: Endpoint) -> None:
    observer = QueryObserver("c", end, select(end, "6 AS a, 7 AS b"), [value("a"), value("b", kind="rate")])
    try:
        found = observer.look(REPORT)
        assert found is not None
        assert {reading.metric: reading.value for reading in found} == {"sql.a": 6.0, "sql.b_total": 7.0}
        assert observer.look(Tick(at_ns=1, report=False, last=False)) == []
    finally:
        observer.close()


def test_a_capture_that_cannot_read_fails_at_its_start(end: Endpoint) -> None:
    with pytest.raises(TaskFault) as fault:
        QueryObserver("c", end, select(end, "1 AS a"), [value("b")])
    assert fault.value.what.startswith("capture 'c': metric `b`: the result has no column")


def test_a_capture_reconnects_after_a_loss(postgres_end: Endpoint) -> None:
    observer = QueryObserver("c", postgres_end, "SELECT 1 AS a", [value("a")])
    try:
        with psycopg.connect(postgres_end.dsn, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'proveout query' AND datname = current_database()"
            )
        assert observer.look(REPORT) is None
        assert observer.look(REPORT) is not None
    finally:
        observer.close()


def test_a_slow_query_costs_its_sample_only(postgres_end: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "LIMIT_S", 0.5)
    with psycopg.connect(postgres_end.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE nap (s float)")
        connection.execute("INSERT INTO nap VALUES (0)")
        observer = QueryObserver("c", postgres_end, "SELECT 1 AS a, pg_sleep(s) FROM nap", [value("a")])
        try:
            connection.execute("UPDATE nap SET s = 600")
            assert observer.look(REPORT) is None
            connection.execute("UPDATE nap SET s = 0")
            assert observer.look(REPORT) is not None
        finally:
            observer.close()


async def test_levels_and_rates_of_a_window(postgres_end: Endpoint, task_context: Any) -> None:
    with psycopg.connect(postgres_end.dsn, autocommit=True) as connection:
        connection.execute("CREATE SEQUENCE looks")
    values = (value("n"), value("looks", "n", kind="rate"))
    capture = Capture(
        name="c", kind="sql", every_s=0.1, system="db", query="SELECT nextval('looks') AS n", values=values
    )
    running = asyncio.create_task(kinds.capture(task_context, RunCapture(capture=capture, endpoints=(postgres_end,))))
    deadline = time.monotonic() + 60.0
    while len(task_context.samples) < 12:
        assert time.monotonic() < deadline, "too few samples"
        await asyncio.sleep(0.02)
    task_context.end()
    result = await running
    samples = task_context.samples
    assert result.samples == len(samples)
    window = Window(start_ns=samples[1].at_ns, end_ns=samples[10].at_ns)
    tree = measured_metrics(Recording(samples), window, capture)
    first = samples[1].readings[0].value
    assert tree["n"] == {"avg": pytest.approx(first + 4.5, abs=0.5), "min": first, "max": first + 9, "end": first + 9}
    assert tree["looks"]["delta"] == pytest.approx(9.0)
    assert tree["looks"]["per_s"] == pytest.approx(9.0 / window.seconds)


async def test_the_wait_of_a_query_is_part_of_the_age_of_its_data(
    postgres_end: Endpoint, task_context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries of data 10 ms old wait for a lock for 3 s, of which each is given up after 1 s: the window has no answer in
    this time, and its reader data that is up to 3 s old."""
    monkeypatch.setattr(queries, "LIMIT_S", 1.0)
    query, ages = "SELECT 0.01 AS age FROM held", (value("age_s", "age", kind="age"),)
    capture = Capture(name="c", kind="sql", every_s=0.1, system="db", query=query, values=ages)
    with psycopg.connect(postgres_end.dsn) as connection:
        connection.execute("CREATE TABLE held AS SELECT 1 AS a")
        connection.commit()
        spec = RunCapture(capture=capture, endpoints=(postgres_end,))
        running = asyncio.create_task(kinds.capture(task_context, spec))
        await _more_samples(task_context, 5)
        connection.execute("LOCK TABLE held")
        held_s = time.monotonic()
        await asyncio.sleep(3.0)
        connection.rollback()
        held_s = time.monotonic() - held_s
        await _more_samples(task_context, 5)
    task_context.end()
    await running
    samples = task_context.samples
    window = Window(start_ns=samples[1].at_ns, end_ns=samples[-2].at_ns)
    (tree,) = measured_metrics(Recording(samples), window, capture).values()
    assert held_s - 0.3 <= tree["max"] <= window.seconds
    assert (held_s - 0.3) ** 2 / 2 <= tree["avg"] * window.seconds <= window.seconds**2 / 2
    assert tree["end"] < 0.1


async def _more_samples(task_context: Any, count: int) -> None:
    deadline, wanted = time.monotonic() + 60.0, len(task_context.samples) + count
    while len(task_context.samples) < wanted:
        assert time.monotonic() < deadline, "too few samples"
        await asyncio.sleep(0.02)


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
