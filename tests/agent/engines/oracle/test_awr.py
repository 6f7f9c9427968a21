"""AWR snapshots and their report, over the TNS server of the tests.

The server's package is canned: the tests show the order of the calls, their binds, the notes for errors and what an
iteration keeps. They do not show that an Oracle accepts the statements, nor what its report contains.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from report_window import captured

from proveout.agent.capture import databases
from proveout.agent.engines.adapter import SnapshotMark
from proveout.agent.engines.oracle import captures as oracle_captures
from proveout.agent.engines.oracle.sql import open_labelled
from proveout.agent.engines.timesten import captures as timesten_captures
from proveout.agent.engines.timesten.captures import StatsSession
from proveout.agent.errors import TaskFault
from proveout.dsl.plan.topology import Capture
from proveout.proto.wire.results import CaptureResult, CaptureSample
from proveout.proto.wire.tasks import Endpoint

pytestmark = pytest.mark.server


@pytest.fixture
def behind(tns_database: str, tns_views: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to the database behind the TNS server, whose snapshots and functions are as new afterwards."""
    with psycopg.connect(tns_database, autocommit=True) as connection:
        connection.execute("TRUNCATE oracle.dba_hist_snapshot")
        yield connection
        connection.execute(tns_views)


def awr_of(
    endpoint: Endpoint, container: Any = "own", edges_s: tuple[float, float] = (0.0, 0.0)
) -> tuple[CaptureResult, list[CaptureSample]]:
    """A capture of a window that lasts no time."""
    described = Capture(
        name="awr", kind="awr", every_s=1.0, system="db", licence="diagnostics_pack", container=container
    )
    return captured(endpoint, described, edges_s)


def test_the_report_is_that_of_the_two_snapshots_of_the_window(oracle: str, behind: psycopg.Connection[Any]) -> None:
    found, samples = awr_of(Endpoint(system="db", engine="oracle", dsn=oracle))
    assert found.notes == ()
    assert "database 4242, instance 1, snapshots 1 to 2" in found.output
    numbers = [r.value for sample in samples for r in sample.readings if r.metric == "snapshot.number"]
    assert numbers == [1.0, 2.0]
    assert samples[0].readings == (), "the first sample reports that the capture is connected"
    assert behind.execute("SELECT count(*) FROM oracle.dba_hist_snapshot").fetchone() == (2,)
    found, _ = awr_of(Endpoint(system="db", engine="oracle", dsn=oracle, instances=(oracle, oracle)))
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
def test_what_fails_is_a_note(oracle: str, behind: psycopg.Connection[Any], function: str, words: str) -> None:
    behind.execute(f"CREATE OR REPLACE FUNCTION {function}".encode())
    found, _ = awr_of(Endpoint(system="db", engine="oracle", dsn=oracle))
    assert found.output == ""
    (note,) = found.notes
    assert words in note


def test_a_container_that_cannot_be_entered_is_a_note(oracle: str, behind: psycopg.Connection[Any]) -> None:
    found, samples = awr_of(Endpoint(system="db", engine="oracle", dsn=oracle), container="root")
    (note,) = found.notes
    assert note.startswith("it cannot connect: system 'db': ORA-00900")
    assert note.endswith(f"({oracle_captures.CONTAINER})")
    assert len(samples) == 1, "the load need not wait for it"


def test_a_long_report_is_cut(oracle: str, behind: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "REPORT_BYTES_MAX", 40)
    found, _ = awr_of(Endpoint(system="db", engine="oracle", dsn=oracle))
    assert found.output == "<html><title>canned</title>\n" + databases.CUT
    assert "cut there" in found.notes[0]


def test_a_load_that_ends_early_leaves_no_snapshot(oracle: str, behind: psycopg.Connection[Any]) -> None:
    found, _ = awr_of(Endpoint(system="db", engine="oracle", dsn=oracle), edges_s=(3600.0, 7200.0))
    assert found.notes == ("the load ended before its measure window",)
    assert behind.execute("SELECT count(*) FROM oracle.dba_hist_snapshot").fetchone() == (0,)


def test_the_calls_of_ttstats_over_the_oracle_protocol(oracle: str, behind: psycopg.Connection[Any]) -> None:
    """A function with a result, and an array of lines out of a procedure; TimesTen itself is not shown."""
    session = StatsSession(Endpoint(system="cache", engine="timesten", dsn=oracle), "", open_labelled)
    first, second = session.take(), session.take()
    assert [first, second] == [SnapshotMark(number=1), SnapshotMark(number=2)]
    assert list(session.report(first, second)) == ["canned", "snapshots 1 to 2"]
    behind.execute("DROP FUNCTION oracle.capture_snapshot")
    with pytest.raises(TaskFault) as fault:
        session.take()
    assert fault.value.way_out == timesten_captures.GRANT
    session.close()
