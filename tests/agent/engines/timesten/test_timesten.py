"""TimesTen without a TimesTen: the driver's calls of the client module, populations, the probe of the lag, and ttStats.

`Client` stands in for the client's connection: it shows which calls are made, and that calls which TimesTen lacks are
not made. Populations and captures go over Oracle's protocol, with PostgreSQL behind it (tests/wire), and TimesTen's view
USER_TABLES and two of its built-in procedures: they show statements, arithmetic and ways out. Nothing here shows that
TimesTen answers the calls or accepts the SQL, nor replication by AWT. The errors for a missing library and for the mode
of a process come from the real python-oracledb.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import oracledb
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from proveout.agent.engines.adapter import SnapshotMark, Tick
from proveout.agent.engines.driver_contract import FailureKind, Labelled, StatementFailure
from proveout.agent.engines.oracle.driver import open_connection
from proveout.agent.engines.oracle.sql import open_labelled
from proveout.agent.engines.table import TableLoader
from proveout.agent.engines.timesten import captures
from proveout.agent.engines.timesten import driver as loading
from proveout.agent.engines.timesten.driver import HOME, LIBRARIES, OURS, TimesTenDriver, TimesTenLoader, ready
from proveout.agent.errors import TaskFault
from proveout.agent.load.loop.transaction import BEGIN_WRITE, COMMIT, ROLLBACK
from proveout.agent.load.populate_jobs import LoadJournal
from proveout.agent.sandbox import helper
from proveout.agent.sandbox.privileges import Privileges
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.base import Statement
from proveout.dsl.workloads.ddl import for_timesten
from proveout.dsl.workloads.hlr import Hlr
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.tasks import Checkpoint, Endpoint, InspectSystem, RunSql

# ---- the driver ------------------------------------------------------------------------------------------------------

DSN = "hlr/se@cret@cache1/hlrcache:timesten_direct"
READ = Statement(name="r", text={"oracle": "SELECT a FROM t WHERE b = $1"}, arguments=(int,), rows_max=1)
WRITE = Statement(name="w", text={"oracle": "UPDATE t SET a = $1 WHERE b = $2"}, arguments=(int, int), reads=False)


class Client:
    """A connection that records its calls; calls that TimesTen lacks raise AttributeError."""

    __slots__ = ("autocommit", "calls")

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.autocommit = False

    def cursor(self) -> SimpleNamespace:
        made = SimpleNamespace(rowcount=1, arraysize=0, prefetchrows=0, fetchall=lambda: [(7,)])
        made.prepare = lambda text: self.calls.append(("prepare", text))
        made.execute = lambda text, values: self.calls.append(
            ("execute", text, values, made.arraysize, made.prefetchrows)
        )
        return made

    def commit(self) -> None:
        self.calls.append(("commit", self.autocommit))

    def rollback(self) -> None:
        self.calls.append(("rollback", self.autocommit))

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> tuple[Client, list[Any]]:
    """The stand-in, and the calls of the module."""
    connection, calls = Client(), list[Any]()

    def connect(**how: Any) -> Client:
        calls.append(how)
        return connection

    monkeypatch.setattr(oracledb, "init_oracle_client", lambda *a, **k: calls.append((a, k)))
    monkeypatch.setattr(oracledb, "connect", connect)
    monkeypatch.setenv(HOME, "/opt/TimesTen/tt22")
    monkeypatch.setenv(LIBRARIES, "/opt/TimesTen/tt22/install/lib")
    return connection, calls


def test_the_client_is_initialised_without_a_folder_and_the_dsn_is_passed_unchanged(client: Any) -> None:
    TimesTenDriver().connect(DSN)
    init, connect = client[1]
    assert init == ((), {})
    assert connect.pop("stmtcachesize")
    assert connect == {"user": "hlr", "password": "se@cret", "dsn": "cache1/hlrcache:timesten_direct"}


def test_calls_that_timesten_lacks_are_not_made(client: Any) -> None:
    session = TimesTenDriver().connect(DSN)
    assert not isinstance(session, Labelled)
    read, write = session.prepare(READ), session.prepare(WRITE)
    session.execute(read, (1,))
    assert (session.count, session.rows()) == (1, [(7,)])
    session.execute(session.prepare(BEGIN_WRITE), ())
    session.execute(write, (1, 2))
    session.execute(session.prepare(COMMIT), ())
    session.execute(session.prepare(ROLLBACK), ())
    session.close()
    session.close()
    assert client[0].calls == [
        ("prepare", "SELECT a FROM t WHERE b = :p1"),
        ("prepare", "UPDATE t SET a = :p1 WHERE b = :p2"),
        ("execute", None, {"p1": 1}, 1, 2),
        ("execute", None, {"p1": 1, "p2": 2}, 0, 0),
        ("commit", False),
        ("rollback", True),
        "close",
    ]


def test_an_environment_without_ttenv_and_a_target_without_a_connection_type_are_refused() -> None:
    with pytest.raises(StatementFailure, match="timesten_client"):
        TimesTenDriver().connect("hlr/x@cache1/hlrcache")
    for environment in ({}, {HOME: "/opt/tt"}, {HOME: "/opt/tt", LIBRARIES: "/usr/lib"}):
        with pytest.raises(StatementFailure, match="ttenv") as raised:
            ready(environment)
        assert (raised.value.code, raised.value.kind) == ("DPI-1047", FailureKind.LOST)


def test_a_process_in_thin_mode_cannot_switch_to_thick_mode(oracle: str) -> None:
    credentials, _, target = oracle.rpartition("@")
    user, _, password = credentials.partition("/")
    oracledb.connect(user=user, password=password, dsn=target).close()
    with pytest.raises(StatementFailure, match="one mode") as raised:
        ready({HOME: "/opt/tt", LIBRARIES: "/opt/tt/install/lib"})
    assert raised.value.code == "DPY-2019"


async def test_an_agent_runs_its_own_statements_in_a_helper_process(
    task_context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is not root. Uses the real python-oracledb, which finds no client library on this host."""
    real = Privileges.for_engine("timesten")
    own = SimpleNamespace(inherited=True, to_argument=real.to_argument, environment=real.environment)
    monkeypatch.setattr(helper, "_privileges", lambda *_: (own, "timesten"))
    monkeypatch.setenv(HOME, "/nowhere")
    monkeypatch.setenv(LIBRARIES, f"/nowhere/install/lib:{os.environ.get(LIBRARIES, '')}")
    endpoint = Endpoint(system="cache", engine="timesten", dsn=DSN)
    for spec in (
        InspectSystem(endpoint=endpoint),
        RunSql(endpoint=endpoint, statements=("SELECT 1 FROM dual",)),
        Checkpoint(endpoint=endpoint),
    ):
        with pytest.raises(TaskFault, match="DPI-1047") as raised:
            await helper.run_in_helper(task_context, spec)
        assert raised.value.code == "missing"
        assert "se@cret" not in raised.value.what
        assert "ttenv" in raised.value.what


# ---- populations -----------------------------------------------------------------------------------------------------

LOAD = "0123456789abcdef" * 2
TABLES = ("call_forwarding", "special_facility", "access_info", "subscriber")
STAND_IN = """
CREATE OR REPLACE VIEW oracle.user_tables AS
  SELECT upper(tablename) AS table_name FROM pg_tables WHERE schemaname = 'public';
CREATE OR REPLACE PROCEDURE public.ttoptupdatestats(text, int) LANGUAGE sql AS '';
"""
MADE = build(Workload(name="hlr", kind="hlr", parameters=to_values(Hlr(population=300)))).population


@pytest.fixture
def behind(oracle: str, tns_database: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to the database of the stand-in, without our tables before and afterwards."""
    drop = f"DROP TABLE IF EXISTS {', '.join((*TABLES, OURS, 'proveout_probe'))} CASCADE".encode()
    open_connection(oracle).close()  # the stand-in makes its views
    with psycopg.connect(tns_database, autocommit=True) as connection:
        connection.execute(drop)
        connection.execute(STAND_IN)
        yield connection
        connection.execute(drop)


@pytest.fixture
def dsn(oracle: str, behind: object, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(loading, "open_timesten", open_connection)
    return oracle


def loaded(loader: TimesTenLoader) -> None:
    """Load everything behind the committed ranges, with the statements after the load."""
    journal = LoadJournal(loader, MADE, LOAD)
    if journal.rows_kept() is None:
        journal.drop()
        loader.prepare()
        journal.create()
    there = journal.ranges()
    for table in MADE.tables:
        for first in (1, 151):
            if not any(begin <= first < begin + units for begin, units, _ in there.get(table.name, ())):
                loader.load(table, first, 150, lambda _: None, journal.mark(table.name, first, 150))
    for number, phase in enumerate(MADE.after["oracle"], 1):
        for place, statement in enumerate(phase, 1):
            journal.execute(f"after {number}.{place}", statement)
    loader.settle()
    journal.drop()


def test_a_load_that_was_broken_off_continues_and_its_tables_are_dropped(
    dsn: str, behind: psycopg.Connection[Any]
) -> None:
    first = TimesTenLoader(dsn, MADE)
    assert isinstance(first, TableLoader)
    journal = LoadJournal(first, MADE, LOAD)
    first.prepare()
    journal.create()
    subscriber = MADE.tables[0]
    first.load(subscriber, 1, 150, lambda _: None, journal.mark(subscriber.name, 1, 150))
    first.close()
    second = TimesTenLoader(dsn, MADE)
    assert LoadJournal(second, MADE, LOAD).rows_kept() == 150
    loaded(second)
    assert [second.count(table.name) for table in MADE.tables] == [len(table.rows(1, 300)[0]) for table in MADE.tables]
    keys = behind.execute("SELECT conname FROM pg_constraint WHERE contype IN ('p', 'f')").fetchall()
    assert {"subscriber_pk", "access_info_fk1", "call_forwarding_fk1"} <= {name for (name,) in keys}
    loaded(second)
    second.undo()
    assert not any(second.table_exists(name) for name in TABLES)
    assert second.rows(f"SELECT name FROM {OURS}") == []
    second.close()


@pytest.mark.parametrize("registered", [False, True])
def test_a_table_of_another_program_is_refused_also_under_a_name_of_ours(
    dsn: str, behind: psycopg.Connection[Any], registered: bool
) -> None:
    loader = TimesTenLoader(dsn, MADE)
    if registered:
        loader.prepare()
    behind.execute("DROP TABLE IF EXISTS subscriber CASCADE; CREATE TABLE subscriber (mine int)")
    for work in (loader.prepare, loader.undo):
        with pytest.raises(TaskFault, match="subscriber that proveout did not make") as raised:
            work()
        assert raised.value.code == "refused"
    assert behind.execute("SELECT count(*) FROM subscriber").fetchone() == (0,)
    loader.close()


def test_no_statement_has_a_clause_that_timesten_lacks() -> None:
    texts = [*MADE.before["oracle"], *(text for phase in MADE.after["oracle"] for text in phase), *MADE.drop["oracle"]]
    sent = [for_timesten(text) for text in texts]
    assert not [text for text in sent if "PURGE" in text or "DBMS_" in text or "PARTITION" in text]
    assert "DROP TABLE subscriber" in sent
    assert "CALL ttOptUpdateStats('SUBSCRIBER', 1)" in sent


# ---- captures --------------------------------------------------------------------------------------------------------


@pytest.fixture
def ends(behind: psycopg.Connection[Any], database: str, oracle: str) -> Iterator[Any]:
    """Connections behind the cache (`source`) and its Oracle (`sink`), both without the probe's table, and the endpoints
    of both."""
    service = str(conninfo_to_dict(database)["dbname"])
    cache, backend = (
        Endpoint(system=name, engine="oracle", dsn=dsn)
        for name, dsn in (("cache", oracle), ("backend", oracle.replace("/HLR", f"/{service}")))
    )
    with psycopg.connect(database, autocommit=True) as sink:
        yield SimpleNamespace(source=behind, sink=sink, cache=cache, backend=backend)


def probing(ends: Any, *statements: str) -> contextlib.closing[captures.ProbeObserver]:
    """The probe, with its table at both ends, after these statements."""
    for end in (ends.source, ends.sink):
        end.execute("CREATE TABLE proveout_probe (id int PRIMARY KEY, seq bigint NOT NULL)")
        for statement in statements:
            end.execute(statement)
    return contextlib.closing(captures.observer(ends.cache, ends.backend, open_connection))


def looked(probe: captures.ProbeObserver) -> Any:
    found = probe.look(Tick(at_ns=0, report=True, last=False))
    return None if found is None else {reading.metric: reading.value for reading in found}


def test_the_lag_is_the_age_of_the_newest_probe_at_the_sink(ends: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock advances by 1 s at each reading: at every write of the probe, and at every report."""
    ticks = itertools.count(1)
    monkeypatch.setattr(captures, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    with probing(ends) as probe:
        assert [looked(probe)["lag.seconds"] for _ in range(3)] == [2.0, 4.0, 6.0], "nothing arrives"
        assert ends.source.execute("SELECT id, seq FROM proveout_probe").fetchall() == [(1, 3)]
        ends.sink.execute("INSERT INTO proveout_probe VALUES (1, 3)")  # in place of AWT
        assert probe.look(Tick(at_ns=0, report=False, last=False)) == []
        assert looked(probe)["lag.seconds"] == 4.0, "the third has arrived: it was sent at 6, and now is 10"
        assert looked(probe)["lag.probes_total"] == 6


def test_samples_are_lost_while_an_end_is_disconnected(ends: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proveout.agent.engines.sessions.RETRY_S", 0.0)
    with probing(ends, "INSERT INTO proveout_probe VALUES (1, 40)") as probe:
        looked(probe)
        assert ends.source.execute("SELECT seq FROM proveout_probe").fetchall() == [(41,)], "it continues the sequence"
        ended = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert ends.sink.execute(ended).fetchall() == [(True,)]
        assert looked(probe) is None
        assert looked(probe)["lag.seconds"] > 0.0


def test_the_error_without_the_probe_table_has_its_ddl(ends: Any) -> None:
    with pytest.raises(TaskFault, match="ORA-00942") as raised:
        captures.observer(ends.cache, ends.backend, open_connection)
    assert raised.value.code == "refused"
    assert "CREATE ASYNCHRONOUS WRITETHROUGH CACHE GROUP proveout_probe" in raised.value.way_out


def test_the_calls_of_ttstats(oracle: str, behind: psycopg.Connection[Any], tns_views: str) -> None:
    """A function with a result, and an array of lines out of a procedure."""
    behind.execute("TRUNCATE oracle.dba_hist_snapshot")
    session = captures.StatsSession(Endpoint(system="cache", engine="timesten", dsn=oracle), "", open_labelled)
    first, second = session.take(), session.take()
    assert [first, second] == [SnapshotMark(number=1), SnapshotMark(number=2)]
    assert list(session.report(first, second)) == ["canned", "snapshots 1 to 2"]
    behind.execute("DROP FUNCTION oracle.capture_snapshot")
    with pytest.raises(TaskFault) as fault:
        session.take()
    assert fault.value.way_out == captures.GRANT
    session.close()
    behind.execute(tns_views)
