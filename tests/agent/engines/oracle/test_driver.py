"""The Oracle driver on a TNS server, beyond what the conformance suite shows: round trips, the commit that travels with a
statement, and failures with their ORA codes.

The client is the real python-oracledb; the server is seerdb in front of PostgreSQL (tests/wire). The tests show which
statements the driver sends and how it interprets answers, not that Oracle Database accepts the same texts.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import oracledb
import psycopg
import pytest
from eventually import eventually

from proveout.agent.engines.driver_contract import FailureKind, Labelled, StatementFailure
from proveout.agent.engines.oracle.driver import (
    CLIENT,
    CursorSession,
    OracleDriver,
    OracleSession,
    binds,
    error_text,
    open_connection,
    parts,
    positions,
)
from proveout.agent.engines.oracle.populate import OracleLoader
from proveout.agent.engines.oracle.sql import OracleQueries, connected
from proveout.agent.engines.recording import CONNECT, Conversation, recording
from proveout.agent.errors import TaskFault
from proveout.agent.load.loop.transaction import BEGIN_WRITE, ROLLBACK
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.base import Statement
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.tasks import Endpoint


def statement(text: str, *arguments: Any, reads: bool = True, **rest: Any) -> Statement:
    return Statement(name="tried", text={"oracle": text}, arguments=arguments, reads=reads, **rest)


READ = statement("SELECT id, word FROM item WHERE id = $1", int, rows_max=1)
UPDATE = statement("UPDATE item SET word = $1 WHERE id = $2", str, int, reads=False)
INSERT = statement("INSERT INTO item (id, word) VALUES ($1, $2)", int, str, reads=False)


@pytest.fixture
def behind(tns_database: str, oracle: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to the database behind the server, with a table `item` of two rows."""
    with psycopg.connect(tns_database, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS item")
        connection.execute("CREATE TABLE item (id int CONSTRAINT item_pk PRIMARY KEY, word varchar(15) NOT NULL)")
        connection.execute("INSERT INTO item VALUES (1, 'one'), (2, 'two')")
        yield connection
        connection.execute("DROP TABLE item")


@pytest.fixture
def session(oracle: str, behind: object) -> Iterator[OracleSession]:
    session = OracleDriver().connect(oracle)
    yield session
    session.close()


def word(connection: psycopg.Connection[Any], number: int) -> str:
    (found,) = connection.execute("SELECT word FROM item WHERE id = %s", [number]).fetchone() or ("",)
    return str(found)


def run(session: OracleSession, of: Statement, *arguments: Any) -> OracleSession:
    session.execute(session.prepare(of), arguments)
    return session


def test_a_known_number_of_rows_takes_one_round_trip(session: OracleSession) -> None:
    """Rows and their end arrive with the execute; more rows than expected are all fetched."""
    trips: list[int] = []
    session._connection.round_trip_callback = lambda *_: trips.append(1)
    prepared = session.prepare(statement("SELECT id FROM item WHERE id <= $1", int, rows_max=2))
    trips.clear()
    session.execute(prepared, (2,))
    assert (session.count, len(trips)) == (2, 1)
    insert = session.prepare(INSERT)
    for number in range(10, 310):
        session.execute(insert, (number, "many"))
    for expected in ({"rows_max": 3}, {}):
        assert run(session, statement("SELECT id FROM item WHERE word = $1", str, **expected), "many").count == 300


def test_commit_travels_with_a_statement(session: OracleSession, behind: psycopg.Connection[Any]) -> None:
    """One round trip; the transaction before it is committed too, and the next one begins as always."""
    trips: list[int] = []
    update = session.prepare(UPDATE)
    session.execute(update, ("warm", 1))
    session._connection.round_trip_callback = lambda *_: trips.append(1)
    run(session, BEGIN_WRITE)
    session.execute(update, ("first", 1))
    session.execute_committing(update, ("last", 2))
    assert (session.count, len(trips)) == (1, 2)
    assert (word(behind, 1), word(behind, 2)) == ("first", "last")
    run(session, BEGIN_WRITE)
    session.execute(update, ("open", 1))
    assert word(behind, 1) == "first"
    run(session, ROLLBACK)


def test_a_text_that_is_not_in_the_character_set_is_an_error_of_its_statement(session: OracleSession) -> None:
    prepared = session.prepare(READ)
    prepared.fetchall = b"\xff".decode  # as the client fails
    with pytest.raises(StatementFailure, match="statement tried: 'utf-8' codec") as failed:
        session.execute(prepared, (1,))
    assert (failed.value.kind, failed.value.code) == (FailureKind.ERROR, "UnicodeDecodeError")


def test_a_statement_that_fails_commits_nothing(session: OracleSession, behind: psycopg.Connection[Any]) -> None:
    run(session, BEGIN_WRITE)
    run(session, UPDATE, "open", 2)
    insert = session.prepare(INSERT)
    with pytest.raises(StatementFailure, match="ORA-00001"):
        session.execute_committing(insert, (1, "again"))
    assert word(behind, 2) == "two"
    run(session, ROLLBACK)
    assert word(behind, 2) == "two"
    session._connection.close()
    with pytest.raises(StatementFailure) as lost:
        session.execute_committing(insert, (3, "three"))
    assert lost.value.kind is FailureKind.LOST


def test_a_call_that_times_out_loses_the_session(
    session: OracleSession, oracle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proveout.agent.engines.oracle.driver.CALL_TIMEOUT_MS", 300)
    waiting = OracleDriver().connect(oracle)
    prepared = waiting.prepare(UPDATE)
    run(session, BEGIN_WRITE)
    run(session, UPDATE, "locked", 1)
    with pytest.raises(StatementFailure) as raised:
        waiting.execute(prepared, ("late", 1))
    assert raised.value.kind is FailureKind.LOST
    assert raised.value.code in {"DPY-4024", "ORA-03113"}
    run(session, ROLLBACK)
    waiting.close()


def test_ora_01017_and_ora_12541(oracle: str) -> None:
    credentials, _, target = oracle.rpartition("@")
    with pytest.raises(StatementFailure) as raised:
        OracleDriver().connect(f"hlr/wrong@{target}")
    assert (raised.value.code, raised.value.kind) == ("ORA-01017", FailureKind.LOST)
    assert "wrong" not in raised.value.what
    endpoint = Endpoint(system="db", engine="oracle", dsn=f"hlr/wrong@{target}")
    with pytest.raises(TaskFault, match="ORA-01017") as refused, connected(endpoint, "sql"):
        pass
    assert (refused.value.code, "CREATE SESSION" in refused.value.way_out) == ("refused", True)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        with pytest.raises(StatementFailure) as raised:
            OracleDriver().connect(f"{credentials}@//127.0.0.1:{port}/HLR")
    assert (raised.value.code, raised.value.kind) == ("ORA-12541", FailureKind.LOST)
    assert raised.value.what.startswith("ORA-12541: no listener")


def test_the_label_reaches_the_server(session: OracleSession, behind: psycopg.Connection[Any]) -> None:
    assert isinstance(session, Labelled)
    session.label("0123-run", "baseline/4/1/1")
    run(session, READ, 1)
    label = "proveout|baseline/4/1/1|0123-run/baseline/4/1/1"
    query = "SELECT 1 FROM pg_stat_activity WHERE application_name = %s"
    eventually(lambda: behind.execute(query, (label,)).fetchall(), "the label")


def test_a_clob_is_read_as_its_text(oracle: str, behind: psycopg.Connection[Any]) -> None:
    behind.execute("ALTER TABLE item ADD note json DEFAULT '\"SELECT 1\"'")
    with closing(OracleQueries(Endpoint(system="db", engine="oracle", dsn=oracle))) as queries:
        assert queries.rows("SELECT note FROM item WHERE id = 1", 1)[1] == [("SELECT 1",)]
    # the server here cannot parse a statement with a CLOB ahead
    with closing(CursorSession(open_connection(oracle), parses_ahead=False, by_position=False)) as load:
        load.execute(load.prepare(statement("SELECT note FROM item WHERE id = 1")), ())
        assert load.rows() == [("SELECT 1",)], "not a locator"


def test_sessions_of_loads_and_populations_set_the_formats_of_moments(oracle: str, behind: object) -> None:
    """They are the first statement of both. The server here is PostgreSQL: that Oracle then takes the texts for a DATE
    and a TIMESTAMP is not shown."""
    conversation = Conversation(engine="oracle")
    with recording(conversation):
        OracleDriver().connect(oracle).close()
        OracleLoader(oracle, build(Workload(name="hlr", kind="hlr", parameters=())).population).close()
    connected, load, _, population = (one.statement for one in conversation.exchanges)
    assert connected == CONNECT
    formats = load.removeprefix("ALTER SESSION SET ")
    assert formats.startswith("NLS_DATE_FORMAT = 'YYYY-MM-DD HH24:MI:SS' NLS_TIMESTAMP_FORMAT = ")
    assert population == f"ALTER SESSION SET DDL_LOCK_TIMEOUT = 3600 {formats}"


@pytest.mark.parametrize(
    ("text", "order", "bound"),
    [
        ("a = $1 AND b = $12", (0, 11), "a = :p1 AND b = :p12"),
        ("a = $1 AND b = $2", (0, 1), "a = :p1 AND b = :p2"),
        ("a = $2 AND b = '$3' AND c = $1", (1, 0), "a = :p2 AND b = '$3' AND c = :p1"),
        ("a = $1 AND b >= $1", None, "a = :p1 AND b >= :p1"),
        ("a = 'it''s $1' || \"$2\"", (), "a = 'it''s $1' || \"$2\""),
    ],
)
def test_binds_and_their_order(text: str, order: tuple[int, ...] | None, bound: str) -> None:
    assert (binds(text), positions(text)) == (bound, order)


def test_binds_in_comments_are_none(session: OracleSession) -> None:
    prepared = session.prepare(statement("SELECT word FROM item /* isn't $2 */ WHERE id = $1", int))
    assert (prepared.names, prepared.places) == ((), None)
    session.execute(prepared, [1])
    assert session.count == 1


def test_a_password_may_contain_the_separators_of_a_dsn() -> None:
    assert parts("hlr/p@ss/word@//db1:1521/HLR") == ("hlr", "p@ss/word", "//db1:1521/HLR")
    for wrong in ("db1/HLR", "hlr@db1", "/secret@db1"):
        with pytest.raises(StatementFailure) as raised:
            parts(wrong)
        assert "secret" not in raised.value.what


def test_an_unknown_service_has_oracles_code_ora_12514() -> None:
    text = 'DPY-6001: Service "X" is not registered with the listener at host "db1" port 1521. (Similar to ORA-12514)'
    assert error_text(oracledb.DatabaseError(text)).code == "ORA-12514"


@pytest.mark.parametrize(
    "text",
    [
        "DPY-6000: cannot connect to database. Listener refused connection. (Similar to ORA-12660)",
        "DPY-3015: password verifier type 0x939 is not supported by python-oracledb in thin mode",
        "DPY-3010: connections to this database server version are not supported by python-oracledb in thin mode",
    ],
)
def test_a_server_that_thin_mode_cannot_reach_names_thick_mode(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: object) -> None:
        raise oracledb.DatabaseError(text)

    monkeypatch.setattr(oracledb, "connect", refused)
    with pytest.raises(StatementFailure, match=r"Instant Client.*PROVEOUT_ORACLE_CLIENT=FOLDER"):
        OracleDriver().connect("hlr/secret@//db1:1521/HLR")
    with pytest.raises(TaskFault) as raised, connected(Endpoint(system="db", engine="oracle", dsn="u/p@db1"), "sql"):
        pass
    assert raised.value.code == "refused"
    assert "PROVEOUT_ORACLE_CLIENT" in raised.value.way_out


def test_a_host_that_does_not_exist_is_a_lost_connection() -> None:
    with pytest.raises(StatementFailure, match="ORA-12545: the host of the dsn does not exist") as raised:
        OracleDriver().connect("hlr/secret@//nowhere.invalid:1521/HLR")
    assert raised.value.kind is FailureKind.LOST


def test_thick_mode_is_taken_where_a_folder_of_the_client_is_given() -> None:
    """In a process of its own, as a process has one mode; this host has no client library."""
    code = (
        "from proveout.agent.engines.oracle.driver import OracleDriver\n"
        "try: OracleDriver().connect('u/p@//127.0.0.1:1/X')\n"
        "except Exception as e: print(e.code)"
    )
    environment = {**os.environ, CLIENT: "/nowhere"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout == "DPI-1047\n"
