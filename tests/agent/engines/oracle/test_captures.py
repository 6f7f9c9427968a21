"""Oracle's captures `waits`, `statements` and `awr`: the arithmetic of the time model with the figures of a published
study; the queries and the order of the calls over the wire.

The dictionary views are tables behind the TNS server (tests/wire), filled by the tests, and its packages are canned. The
tests show that the selected columns are used as Oracle documents them, the binds, and the notes for errors; not that an
Oracle has the views, accepts the statements, or what its report contains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, TypeAlias

import psycopg
import pytest
from report_window import captured

from proveout.agent.capture import databases
from proveout.agent.engines.adapter import PlanStep, StatementCounts, Tick
from proveout.agent.engines.oracle import captures as oracle_captures
from proveout.agent.engines.oracle.captures import OracleObserver, OracleStatements, Rows, readings
from proveout.agent.errors import TaskFault
from proveout.coordinator.measure.captures import Recording, Window, waits_metrics
from proveout.dsl.plan.topology import Capture
from proveout.proto.wire.results import CaptureResult, CaptureSample
from proveout.proto.wire.tasks import Endpoint

Counters: TypeAlias = dict[str, list[tuple[Any, ...]]]
VIEWS = ("instance", "system_event", "sys_time_model", "osstat", "sysstat")


@pytest.fixture
def behind(tns_database: str, tns_views: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to the database behind the TNS server, whose views and functions are as new afterwards."""
    with psycopg.connect(tns_database, autocommit=True) as connection:
        connection.execute("TRUNCATE oracle.dba_hist_snapshot")
        yield connection
        connection.execute(tns_views)
        connection.execute(f"TRUNCATE {', '.join(f'oracle.gv${view}' for view in VIEWS)}")


@pytest.fixture
def endpoint(oracle: str, behind: object) -> Endpoint:
    return Endpoint(system="db", engine="oracle", dsn=oracle)


@pytest.fixture
def cluster(oracle: str, behind: object) -> Endpoint:
    return Endpoint(system="rac", engine="oracle", dsn=oracle, instances=(oracle, oracle))


# ---- waits -----------------------------------------------------------------------------------------------------------

STARTED = "2026-01-01 00:00:00"
# (class, event, seconds) of a baseline and of the same with a cache in front; DB time follows from any line's share
BASELINE = (79_500.0, 33_070.0, (("Commit", "log file sync", 52_400.0),))
CACHED = (3_529.0, 2_713.8, (("Commit", "log file sync", 189.4), ("User I/O", "db file scattered read", 259.8)))


def counters(
    db_time_s: float, cpu_s: float, events: tuple[Any, ...], *, instance: int = 1, started: str = STARTED
) -> Counters:
    """The contents of the views of one instance."""
    return {
        "instance": [(instance, started)],
        "system_event": [(instance, group, event, 10, round(s * 1e6)) for group, event, s in events],
        "sys_time_model": [(instance, "DB time", round(db_time_s * 1e6)), (instance, "DB CPU", round(cpu_s * 1e6))],
        "osstat": [(instance, "BUSY_TIME", 4_200), (instance, "IDLE_TIME", 5_800)],
        "sysstat": [(instance, "user commits", 7), (instance, "redo size", 1_024)],
    }


def both() -> Counters:
    """The contents of the views of a cluster."""
    one, two = counters(*BASELINE), counters(*CACHED, instance=2)
    return {view: [*one[view], *two[view]] for view in VIEWS}


def asked(one: Counters) -> Callable[[str], Rows]:
    """The rows of the view that a query reads."""
    return lambda query: next(rows for view, rows in one.items() if f"gv${view}" in query)


def table(begin: Counters, end: Counters) -> tuple[dict[str, Any], dict[str, tuple[float, float]]]:
    """Metrics, and event -> (seconds, % of DB time to one decimal) between two samples."""
    samples = [
        CaptureSample(capture="waits", at_ns=at_ns, readings=tuple(readings(asked(one))))
        for at_ns, one in ((0, begin), (300 * 10**9, end))
    ]
    metrics, lines = waits_metrics(Recording(samples), Window(start_ns=0, end_ns=300 * 10**9))
    return dict(metrics), {line.event: (line.seconds, round(100 * line.db_time_fraction, 1)) for line in lines}


def test_the_shares_are_those_of_the_study_and_may_sum_to_more_than_1() -> None:
    metrics, lines = table(counters(0.0, 0.0, ()), counters(*BASELINE))
    assert {event: (round(s), share) for event, (s, share) in lines.items()} == {
        "log file sync": (52_400, 65.9),
        "DB CPU": (33_070, 41.6),
    }
    assert metrics["db_time_s"] == pytest.approx(79_500.0)
    assert metrics["active_sessions"] == pytest.approx(265.0)
    assert metrics["cpu_fraction"] == pytest.approx(0.416, abs=5e-4)
    begin = counters(1_000.0, 500.0, (("Commit", "log file sync", 400.0),))
    _, cached = table(begin, counters(4_529.0, 3_213.8, (("Commit", "log file sync", 589.4), *CACHED[2][1:])))
    shares = {event: share for event, (_, share) in cached.items()}
    assert shares == {"DB CPU": 76.9, "db file scattered read": 7.4, "log file sync": 5.4}


def test_waits_of_the_whole_cluster() -> None:
    totals = {(reading.metric, reading.label): reading.value for reading in readings(asked(both()))}
    assert totals["wait.seconds_total", "Commit:log file sync"] == pytest.approx(52_589.4)
    assert totals["wait.count_total", "Commit:log file sync"] == 20
    assert totals["wait.db_time_s_total", ""] == pytest.approx(83_029.0)
    assert (totals["os.busy_s_total", ""], totals["os.idle_s_total", ""]) == (84.0, 116.0)
    assert totals["database.commits_total", ""] == 14


def fill(connection: psycopg.Connection[Any], one: Counters) -> None:
    """Put rows into the views, with some that the capture does not read."""
    ignored: dict[str, tuple[Any, ...]] = {
        "system_event": (1, "Idle", "SQL*Net message from client", 9, 9_000_000_000),
        "sys_time_model": (1, "background cpu time", 77),
        "osstat": (1, "BUSY_TIME", 999_999, "NO"),
        "sysstat": (1, "opened cursors current", 3),
    }
    with connection.transaction():
        for view in VIEWS:
            connection.execute(f"DELETE FROM oracle.gv${view}".encode())
            rows = [(*row, *(["YES"] if view == "osstat" else [])) for row in one[view]]
            for row in (*rows, *([ignored[view]] if view in ignored else [])):
                marks = ", ".join("%s" for _ in row)
                connection.execute(f"INSERT INTO oracle.gv${view} VALUES ({marks})".encode(), row)


def test_the_views_are_read_over_the_wire(
    behind: psycopg.Connection[Any], endpoint: Endpoint, cluster: Endpoint
) -> None:
    fill(behind, both())
    alone, whole = OracleObserver(endpoint), OracleObserver(cluster)

    def looked(observer: OracleObserver, report: bool = True) -> Any:
        found = observer.look(Tick(at_ns=0, report=report, last=False))
        return None if found is None else {(reading.metric, reading.label): reading.value for reading in found}

    try:
        expected = {(reading.metric, reading.label): reading.value for reading in readings(asked(counters(*BASELINE)))}
        assert looked(alone) == expected
        assert looked(alone, report=False) == {}
        assert looked(whole)["wait.db_time_s_total", ""] == pytest.approx(83_029.0)
        fill(behind, counters(*BASELINE, started="2026-01-02 00:00:00"))
        assert looked(alone) is None, "an instance that has restarted counts from 0"
    finally:
        alone.close()
        whole.close()


def test_the_error_of_a_user_without_the_views_names_the_grant(
    behind: psycopg.Connection[Any], endpoint: Endpoint
) -> None:
    behind.execute("ALTER VIEW oracle.v$system_event RENAME TO hidden")
    try:
        with pytest.raises(TaskFault, match="ORA-00942") as raised:
            OracleObserver(endpoint)
    finally:
        behind.execute("ALTER VIEW oracle.hidden RENAME TO v$system_event")
    assert raised.value.code == "refused"
    assert "SELECT_CATALOG_ROLE" in raised.value.way_out


# ---- statements ------------------------------------------------------------------------------------------------------


@pytest.fixture
def session(behind: psycopg.Connection[Any], endpoint: Endpoint) -> Iterator[OracleStatements]:
    behind.execute("TRUNCATE oracle.v$sql, oracle.v$sql_plan")
    # SYS_CONTEXT of the tests' server is '1' for every name.
    behind.execute(
        "INSERT INTO oracle.v$sql VALUES ('abc', 0, 'SELECT 1 FROM t', 10, 2000000, 10, '1'),"
        " ('abc', 1, 'SELECT 1 FROM t', 30, 1000000, 30, '1'), ('sys', 0, 'SELECT 2', 9, 9, 9, 'SYS')"
    )
    behind.execute(
        "INSERT INTO oracle.v$sql_plan VALUES ('abc', 0, 0, 0, 'SELECT STATEMENT', NULL, NULL, NULL),"
        " ('abc', 1, 0, 0, 'SELECT STATEMENT', NULL, NULL, NULL),"
        " ('abc', 1, 1, 1, 'INDEX', 'UNIQUE SCAN', 'T_PK', 1)"
    )
    opened = OracleStatements(endpoint)
    yield opened
    opened.close()


def test_children_are_added_up_and_other_schemas_left_out(session: OracleStatements) -> None:
    assert session.counts() == {"abc": StatementCounts(calls=40.0, seconds=3.0, rows=40.0)}
    assert session.texts(["abc"]) == {"abc": "SELECT 1 FROM t"}
    assert session.since == "2026-01-01 00:00:00"


def test_the_counters_of_a_cluster_are_those_of_all_instances(
    session: OracleStatements, cluster: Endpoint, behind: psycopg.Connection[Any]
) -> None:
    two = "generate_series(1, 2) at"
    behind.execute(f"CREATE VIEW oracle.gv$sql AS SELECT at AS inst_id, s.* FROM oracle.v$sql s, {two}")
    behind.execute("INSERT INTO oracle.gv$instance VALUES (2, '2026-01-02'), (1, '2026-01-01')")
    with closing(OracleStatements(cluster)) as both:
        assert both.counts() == {"abc": StatementCounts(calls=80.0, seconds=6.0, rows=80.0)}
        assert both.since == "2026-01-01 00:00:00, 2026-01-02 00:00:00"
    behind.execute("DROP VIEW oracle.gv$sql")


def test_the_plan_is_that_of_the_child_that_ran_most(session: OracleStatements) -> None:
    assert session.plan("abc", "SELECT 1 FROM t") == (
        PlanStep(depth=0, operation="SELECT STATEMENT"),
        PlanStep(depth=1, operation="INDEX UNIQUE SCAN on T_PK", rows=1.0),
    )
    with pytest.raises(TaskFault, match="not in the shared pool any more"):
        session.plan("gone", "")


def test_a_missing_right_has_the_way_out(session: OracleStatements, behind: psycopg.Connection[Any]) -> None:
    behind.execute("DROP TABLE oracle.v$sql")
    with pytest.raises(TaskFault) as raised:
        session.counts()
    assert raised.value.code == "refused"
    assert "SYS.V_$SQL_PLAN" in raised.value.way_out


# ---- AWR -------------------------------------------------------------------------------------------------------------


def awr_of(
    endpoint: Endpoint, container: Any = "own", edges_s: tuple[float, float] = (0.0, 0.0)
) -> tuple[CaptureResult, list[CaptureSample]]:
    """A capture of a window that lasts no time."""
    described = Capture(
        name="awr", kind="awr", every_s=1.0, system="db", licence="diagnostics_pack", container=container
    )
    return captured(endpoint, described, edges_s)


def test_the_report_is_that_of_the_two_snapshots_of_the_window(
    endpoint: Endpoint, cluster: Endpoint, behind: psycopg.Connection[Any]
) -> None:
    found, samples = awr_of(endpoint)
    assert found.notes == ()
    assert "database 4242, instance 1, snapshots 1 to 2" in found.output
    numbers = [r.value for sample in samples for r in sample.readings if r.metric == "snapshot.number"]
    assert numbers == [1.0, 2.0]
    assert samples[0].readings == (), "the first sample reports that the capture is connected"
    assert behind.execute("SELECT count(*) FROM oracle.dba_hist_snapshot").fetchone() == (2,)
    found, _ = awr_of(cluster)
    assert found.notes == ()
    assert found.output == "<p>database 4242, all instances, snapshots 3 to 4\n", "a cluster has a global report"


TAKE = "oracle.create_snapshot() RETURNS int LANGUAGE plpgsql AS $$ BEGIN {}; RETURN 0; END $$"
REPORT = (
    "oracle.awr_report_html(dbid bigint, instance bigint, first_snap bigint, last_snap bigint)"
    " RETURNS TABLE (output varchar(8000)) LANGUAGE plpgsql AS $$ BEGIN {}; END $$"
)
RESTARTED = (
    "oracle.create_snapshot() RETURNS int LANGUAGE sql AS $$"
    " INSERT INTO oracle.dba_hist_snapshot (snap_id, dbid, instance_number, startup_time)"
    " SELECT count(*) + 1, 4242, 1, clock_timestamp() + count(*) * interval '1 hour' FROM oracle.dba_hist_snapshot"
    " RETURNING snap_id $$"
)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            TAKE.format("RAISE EXCEPTION 'ORA-13516: AWR Operation failed'"),
            "no snapshot at the start of the window: system 'db': ORA-13516: AWR Operation failed"
            f" ({oracle_captures.WAYS_OUT['ORA-13516']})",
        ),
        (TAKE.format("PERFORM oracle.not_granted()"), f"({oracle_captures.GRANTS})"),
        (TAKE.format("RETURN 99"), "DBA_HIST_SNAPSHOT has no row of snapshot 99 for this container"),
        (
            REPORT.format("RAISE EXCEPTION 'ORA-20200: The instance was shutdown between snapshots 1 and 2'"),
            "no report: system 'db': ORA-20200: The instance was shutdown",
        ),
        (RESTARTED, "no report: the database was restarted between the snapshots"),
    ],
    ids=["snapshot", "right", "row", "report", "restart"],
)
def test_what_fails_is_a_note(endpoint: Endpoint, behind: psycopg.Connection[Any], function: str, words: str) -> None:
    behind.execute(f"CREATE OR REPLACE FUNCTION {function}".encode())
    found, _ = awr_of(endpoint)
    assert found.output == ""
    (note,) = found.notes
    assert words in note


def test_a_container_that_cannot_be_entered_is_a_note(endpoint: Endpoint) -> None:
    found, samples = awr_of(endpoint, container="root")
    (note,) = found.notes
    assert note.startswith("it cannot connect: system 'db': ORA-00900")
    assert note.endswith(f"({oracle_captures.CONTAINER})")
    assert len(samples) == 1, "the load need not wait for it"


def test_a_long_report_is_cut(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "REPORT_BYTES_MAX", 40)
    found, _ = awr_of(endpoint)
    assert found.output == "<html><title>canned</title>\n" + databases.CUT
    assert "cut there" in found.notes[0]


def test_a_load_that_ends_early_leaves_no_snapshot(endpoint: Endpoint, behind: psycopg.Connection[Any]) -> None:
    found, _ = awr_of(endpoint, edges_s=(3600.0, 7200.0))
    assert found.notes == ("the load ended before its measure window",)
    assert behind.execute("SELECT count(*) FROM oracle.dba_hist_snapshot").fetchone() == (0,)
