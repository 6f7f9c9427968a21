"""The captures `waits` and `statements` of Oracle: the arithmetic of the time model with the figures of a published study,
the queries over the wire.

The dictionary views are tables behind the TNS server (tests/wire), filled by the tests. The tests show that the selected
columns are used as Oracle documents them, not that an Oracle has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from proveout.agent.engines.adapter import PlanStep, StatementCounts, Tick
from proveout.agent.engines.oracle.captures import Counters, OracleObserver, OracleStatements, readings
from proveout.agent.errors import TaskFault
from proveout.coordinator.measure.captures import Recording, Window, waits_metrics
from proveout.proto.wire.results import CaptureSample, Reading
from proveout.proto.wire.tasks import Endpoint

# ---- waits -----------------------------------------------------------------------------------------------------------

STARTED = "2026-01-01 00:00:00"
# (class, event, seconds) of a baseline and of the same with a cache in front; DB time follows from any line's share
BASELINE = (79_500.0, 33_070.0, (("Commit", "log file sync", 52_400.0),))
CACHED = (3_529.0, 2_713.8, (("Commit", "log file sync", 189.4), ("User I/O", "db file scattered read", 259.8)))


def counters(
    db_time_s: float,
    cpu_s: float,
    events: tuple[tuple[str, str, float], ...],
    *,
    instance: int = 1,
    started: str = STARTED,
) -> Counters:
    """The contents of the views of one instance."""
    return Counters(
        instances=[(instance, started)],
        events=[(instance, group, event, 10, round(s * 1e6)) for group, event, s in events],
        times=[(instance, "DB time", round(db_time_s * 1e6)), (instance, "DB CPU", round(cpu_s * 1e6))],
        hosts=[(instance, "BUSY_TIME", 4_200), (instance, "IDLE_TIME", 5_800)],
        statistics=[(instance, "user commits", 7), (instance, "redo size", 1_024)],
    )


def added(*parts: Counters) -> Counters:
    """The contents of the views of a cluster."""
    names = ("instances", "events", "times", "hosts", "statistics")
    return Counters(**{name: [row for part in parts for row in getattr(part, name)] for name in names})


def table(begin: Counters, end: Counters, elapsed_s: float) -> tuple[dict[str, Any], dict[str, tuple[float, float]]]:
    """Metrics, and event -> (seconds, % of DB time to one decimal) between two samples."""
    samples = [
        CaptureSample(capture="waits", at_ns=round(at * 1e9), readings=tuple(readings(one)))
        for at, one in ((0.0, begin), (elapsed_s, end))
    ]
    metrics, lines = waits_metrics(Recording(samples), Window(start_ns=0, end_ns=round(elapsed_s * 1e9)))
    return dict(metrics), {line.event: (line.seconds, round(100 * line.db_time_fraction, 1)) for line in lines}


NOTHING = counters(0.0, 0.0, ())


def test_the_shares_are_those_of_the_study_and_may_sum_to_more_than_1() -> None:
    metrics, lines = table(NOTHING, counters(*BASELINE), 300.0)
    assert lines == {
        "log file sync": (pytest.approx(52_400.0), 65.9),
        "DB CPU": (pytest.approx(33_070.0), 41.6),
    }
    assert sum(share for _, share in lines.values()) > 100.0
    assert metrics["db_time_s"] == pytest.approx(79_500.0)
    assert metrics["active_sessions"] == pytest.approx(265.0)
    assert metrics["cpu_fraction"] == pytest.approx(0.416, abs=5e-4)
    begin = counters(1_000.0, 500.0, (("Commit", "log file sync", 400.0),))
    later = counters(4_529.0, 3_213.8, (("Commit", "log file sync", 589.4), *CACHED[2][1:]))
    _, cached = table(begin, later, 300.0)
    assert {event: share for event, (_, share) in cached.items()} == {
        "DB CPU": 76.9,
        "db file scattered read": 7.4,
        "log file sync": 5.4,
    }


def test_waits_of_the_whole_cluster() -> None:
    both = added(counters(*BASELINE), counters(*CACHED, instance=2))
    totals = {(reading.metric, reading.label): reading.value for reading in readings(both)}
    assert totals["wait.seconds_total", "Commit:log file sync"] == pytest.approx(52_589.4)
    assert totals["wait.count_total", "Commit:log file sync"] == 20
    assert totals["wait.db_time_s_total", ""] == pytest.approx(83_029.0)
    assert (totals["os.busy_s_total", ""], totals["os.idle_s_total", ""]) == (84.0, 116.0)
    assert totals["database.commits_total", ""] == 14


@pytest.fixture
def views(tns_database: str, oracle: str) -> Iterator[psycopg.Connection[Any]]:
    names = ("gv$instance", "gv$system_event", "gv$sys_time_model", "gv$osstat", "gv$sysstat")
    with psycopg.connect(tns_database, autocommit=True) as connection:
        yield connection
        for name in names:
            connection.execute(f"DELETE FROM oracle.{name}")


def fill(connection: psycopg.Connection[Any], one: Counters) -> None:
    """Put rows into the views, with one idle event and one statistic that the capture does not read."""
    with connection.transaction():
        for name in ("instance", "system_event", "sys_time_model", "osstat", "sysstat"):
            connection.execute(f"DELETE FROM oracle.gv${name}")
        for row in one.instances:
            connection.execute("INSERT INTO oracle.gv$instance VALUES (%s, %s)", row)
        for row in (*one.events, (1, "Idle", "SQL*Net message from client", 9, 9_000_000_000)):
            connection.execute("INSERT INTO oracle.gv$system_event VALUES (%s, %s, %s, %s, %s)", row)
        for row in (*one.times, (1, "background cpu time", 77)):
            connection.execute("INSERT INTO oracle.gv$sys_time_model VALUES (%s, %s, %s)", row)
        for row in one.hosts:
            connection.execute("INSERT INTO oracle.gv$osstat VALUES (%s, %s, %s, 'YES')", row)
        connection.execute("INSERT INTO oracle.gv$osstat VALUES (1, 'BUSY_TIME', 999999, 'NO')")
        for row in (*one.statistics, (1, "opened cursors current", 3)):
            connection.execute("INSERT INTO oracle.gv$sysstat VALUES (%s, %s, %s)", row)


def looked(observer: OracleObserver) -> list[Reading] | None:
    found = observer.look(Tick(at_ns=0, report=True, last=False))
    return None if found is None else sorted(found, key=lambda reading: (reading.metric, reading.label))


def test_the_views_are_read_over_the_wire(views: psycopg.Connection[Any], oracle: str) -> None:
    first, second = counters(*BASELINE), counters(*CACHED, instance=2)
    fill(views, added(first, second))
    alone = OracleObserver(Endpoint(system="db", engine="oracle", dsn=oracle))
    cluster = OracleObserver(Endpoint(system="rac", engine="oracle", dsn=oracle, instances=(oracle, oracle)))
    try:
        in_order = sorted(readings(first), key=lambda reading: (reading.metric, reading.label))
        assert looked(alone) == in_order
        assert alone.look(Tick(at_ns=0, report=False, last=False)) == []
        found = {(reading.metric, reading.label): reading.value for reading in looked(cluster) or []}
        assert found["wait.db_time_s_total", ""] == pytest.approx(83_029.0)
        fill(views, counters(*BASELINE, started="2026-01-02 00:00:00"))
        assert looked(alone) is None, "an instance that has restarted counts from 0"
    finally:
        alone.close()
        cluster.close()


def test_the_error_of_a_user_without_the_views_names_the_grant(views: psycopg.Connection[Any], oracle: str) -> None:
    views.execute("ALTER VIEW oracle.v$system_event RENAME TO hidden")
    try:
        with pytest.raises(TaskFault, match="ORA-00942") as raised:
            OracleObserver(Endpoint(system="db", engine="oracle", dsn=oracle))
    finally:
        views.execute("ALTER VIEW oracle.hidden RENAME TO v$system_event")
    assert raised.value.code == "refused"
    assert "SELECT_CATALOG_ROLE" in raised.value.way_out


# ---- statements ------------------------------------------------------------------------------------------------------


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
