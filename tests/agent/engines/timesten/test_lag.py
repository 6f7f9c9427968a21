"""The probe that measures the lag from a TimesTen to its Oracle: written, read back, and its errors.

Both ends are databases behind the TNS server (tests/wire), and the test itself copies the row: it shows the probe's
arithmetic and statements, not replication by AWT, nor thick mode.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from proveout.agent.engines.adapter import Tick
from proveout.agent.engines.oracle.driver import open_connection
from proveout.agent.engines.timesten import captures as lag_timesten
from proveout.agent.engines.timesten.captures import ProbeObserver, observer
from proveout.agent.errors import TaskFault
from proveout.proto.wire.tasks import Endpoint

TABLE = "CREATE TABLE proveout_probe (id int PRIMARY KEY, seq bigint NOT NULL)"


@pytest.fixture
def ends(tns_database: str, database: str, oracle: str) -> Iterator[tuple[Any, Any, Endpoint, Endpoint]]:
    """Connections behind both ends, and their endpoints."""
    cache = Endpoint(system="cache", engine="oracle", dsn=oracle)
    service = conninfo_to_dict(database)["dbname"]
    behind = Endpoint(system="backend", engine="oracle", dsn=oracle.replace("/HLR", f"/{service}"))
    with (
        psycopg.connect(tns_database, autocommit=True) as one,
        psycopg.connect(database, autocommit=True) as other,
    ):
        yield one, other, cache, behind
        one.execute("DROP TABLE IF EXISTS proveout_probe")


def lag_s(probe: ProbeObserver) -> float:
    found = probe.look(Tick(at_ns=0, report=True, last=False))
    assert found is not None
    return {reading.metric: reading.value for reading in found}["lag.seconds"]


def replicate(source: Any, sink: Any) -> None:
    """Copy the probe row from source to sink, in place of AWT."""
    sink.execute("DELETE FROM proveout_probe")
    for row in source.execute("SELECT id, seq FROM proveout_probe").fetchall():
        sink.execute("INSERT INTO proveout_probe VALUES (%s, %s)", row)


def test_the_lag_is_the_age_of_the_newest_probe_at_the_sink(
    ends: tuple[Any, Any, Endpoint, Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock advances by 1 s at each reading: at every write of the probe, and at every report."""
    ticks = itertools.count(1)
    monkeypatch.setattr(lag_timesten, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    source, sink, cache, behind = ends
    for end in (source, sink):
        end.execute(TABLE)
    probe = observer(cache, behind, open_connection)
    try:
        assert [lag_s(probe) for _ in range(3)] == [2.0, 4.0, 6.0], "nothing arrives"
        replicate(source, sink)
        assert source.execute("SELECT seq FROM proveout_probe").fetchall() == [(3,)]
        assert probe.look(Tick(at_ns=0, report=False, last=False)) == []
        assert lag_s(probe) == 4.0, "the third has arrived: it was sent at 6, and now is 10"
        found = probe.look(Tick(at_ns=0, report=True, last=False)) or ()
        assert {reading.metric: reading.value for reading in found}["lag.probes_total"] == 6
    finally:
        probe.close()


def test_samples_are_lost_while_an_end_is_disconnected(
    ends: tuple[Any, Any, Endpoint, Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proveout.agent.engines.sessions.RETRY_S", 0.0)
    source, sink, cache, behind = ends
    for end in (source, sink):
        end.execute(TABLE)
        end.execute("INSERT INTO proveout_probe VALUES (1, 40)")
    probe = observer(cache, behind, open_connection)
    try:
        lag_s(probe)
        assert source.execute("SELECT seq FROM proveout_probe").fetchall() == [(41,)], "it continues the sequence"
        ended = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert sink.execute(ended).fetchall() == [(True,)]
        assert probe.look(Tick(at_ns=0, report=True, last=False)) is None
        assert lag_s(probe) > 0.0
    finally:
        probe.close()


def test_the_error_without_the_probe_table_has_its_ddl(ends: tuple[Any, Any, Endpoint, Endpoint]) -> None:
    _, _, cache, behind = ends
    with pytest.raises(TaskFault, match="ORA-00942") as raised:
        observer(cache, behind, open_connection)
    assert raised.value.code == "refused"
    assert "CREATE ASYNCHRONOUS WRITETHROUGH CACHE GROUP proveout_probe" in raised.value.way_out
