"""The Oracle driver on a TNS server: values, counts, transactions, and failures with their ORA codes.

The client is the real python-oracledb; the server is seerdb in front of PostgreSQL (tests/wire). The tests show which
statements the driver sends and how it interprets answers, not that Oracle Database accepts the same texts.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import oracledb
import psycopg
import pytest

from proveout.agent.engines.driver_contract import FailureKind, Labelled, StatementFailure
from proveout.agent.engines.oracle.driver import OracleDriver, OracleSession, binds, parts, positions
from proveout.agent.engines.oracle.errors import error_text, kind_of
from proveout.agent.engines.table import driver
from proveout.agent.load.loop.transaction import BEGIN_WRITE, COMMIT, ROLLBACK
from proveout.dsl.workloads.base import Statement


def statement(text: str, *arguments: Any, reads: bool = True, **rest: Any) -> Statement:
    return Statement(name="tried", text={"oracle": text}, arguments=arguments, reads=reads, **rest)


READ = statement("SELECT id, word FROM item WHERE id = $1", int, rows_max=1)
UPDATE = statement("UPDATE item SET word = $1 WHERE id = $2", str, int, reads=False)
INSERT = statement("INSERT INTO item (id, word) VALUES ($1, $2)", int, str, reads=False)


@pytest.fixture
def item(tns_database: str, oracle: str) -> Iterator[str]:
    """A dsn, with a table `item` of two rows."""
    with psycopg.connect(tns_database, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS item")
        connection.execute("CREATE TABLE item (id int CONSTRAINT item_pk PRIMARY KEY, word varchar(15) NOT NULL)")
        connection.execute("INSERT INTO item VALUES (1, 'one'), (2, 'two')")
        yield oracle
        connection.execute("DROP TABLE item")


@pytest.fixture
def session(item: str) -> Iterator[OracleSession]:
    session = OracleDriver().connect(item)
    yield session
    session.close()


@pytest.fixture
def other(item: str) -> Iterator[OracleSession]:
    session = OracleDriver().connect(item)
    yield session
    session.close()


def run(session: OracleSession, of: Statement, *arguments: Any) -> OracleSession:
    session.execute(session.prepare(of), arguments)
    return session


def failure(session: OracleSession, of: Statement, *arguments: Any) -> StatementFailure:
    with pytest.raises(StatementFailure) as raised:
        run(session, of, *arguments)
    return raised.value


def test_values_and_counts(session: OracleSession) -> None:
    assert (run(session, READ, 1).count, session.rows()) == (1, [(1, "one")])
    assert (run(session, READ, 9).count, session.rows()) == (0, [])
    assert run(session, statement("UPDATE item SET word = $1", str, reads=False), "x").count == 2
    assert run(session, statement("DELETE FROM item WHERE id = $1", int, reads=False), 9).count == 0


def test_a_bind_may_occur_twice_and_out_of_order(session: OracleSession) -> None:
    twice = statement("SELECT id FROM item WHERE word = $2 AND id >= $1 AND id <= $1", int, str)
    assert run(session, twice, 2, "two").rows() == [(2,)]


def test_more_rows_than_expected_are_all_fetched(session: OracleSession) -> None:
    prepared = session.prepare(INSERT)
    for number in range(10, 310):
        session.execute(prepared, (number, "many"))
    assert run(session, statement("SELECT id FROM item WHERE word = $1", str, rows_max=3), "many").count == 300
    assert run(session, statement("SELECT id FROM item WHERE word = $1", str), "many").count == 300


def test_a_known_number_of_rows_takes_one_round_trip(session: OracleSession) -> None:
    """Rows and their end arrive with the execute."""
    trips = 0

    def count(*_: Any) -> None:
        nonlocal trips
        trips += 1

    session._connection.round_trip_callback = count
    prepared = session.prepare(statement("SELECT id FROM item WHERE id <= $1", int, rows_max=2))
    before = trips
    session.execute(prepared, (2,))
    assert (session.count, trips - before) == (2, 1)


def test_commit_travels_with_a_statement(session: OracleSession, other: OracleSession) -> None:
    """One round trip; the transaction before it is committed too, and the next one begins as always."""
    trips = []
    update, read = session.prepare(UPDATE), other.prepare(READ)
    session.execute(update, ("warm", 1))
    session._connection.round_trip_callback = lambda *_: trips.append(1)
    run(session, BEGIN_WRITE)
    session.execute(update, ("first", 1))
    session.execute_committing(update, ("last", 2))
    assert (session.count, len(trips)) == (1, 2)
    for number, word in ((1, "first"), (2, "last")):
        other.execute(read, (number,))
        assert other.rows() == [(number, word)]
    run(session, BEGIN_WRITE)
    session.execute(update, ("open", 1))
    other.execute(read, (1,))
    assert other.rows() == [(1, "first")]
    run(session, ROLLBACK)


def test_a_statement_that_fails_commits_nothing(session: OracleSession, other: OracleSession) -> None:
    run(session, BEGIN_WRITE)
    run(session, UPDATE, "open", 2)
    insert = session.prepare(INSERT)
    with pytest.raises(StatementFailure, match="ORA-00001"):
        session.execute_committing(insert, (1, "again"))
    assert run(other, READ, 2).rows() == [(2, "two")]
    run(session, ROLLBACK)
    assert run(other, READ, 2).rows() == [(2, "two")]
    session._connection.close()
    with pytest.raises(StatementFailure) as lost:
        session.execute_committing(insert, (3, "three"))
    assert lost.value.kind is FailureKind.LOST


def test_a_single_statement_autocommits_and_a_transaction_commits_at_commit(
    session: OracleSession, other: OracleSession
) -> None:
    run(session, UPDATE, "single", 1)
    assert run(other, READ, 1).rows() == [(1, "single")]
    run(session, BEGIN_WRITE)
    run(session, UPDATE, "within", 1)
    assert run(other, READ, 1).rows() == [(1, "single")]
    run(session, COMMIT)
    assert run(other, READ, 1).rows() == [(1, "within")]
    run(session, BEGIN_WRITE)
    run(session, UPDATE, "undone", 1)
    run(session, ROLLBACK)
    assert run(session, READ, 1).rows() == [(1, "within")]
    run(session, UPDATE, "alone again", 1)
    assert run(other, READ, 1).rows() == [(1, "alone again")]


def test_ora_00942_and_ora_00904_are_raised_by_prepare(session: OracleSession) -> None:
    for text, code in (("SELECT a FROM nothere", "ORA-00942"), ("UPDATE item SET nothere = 1", "ORA-00904")):
        with pytest.raises(StatementFailure) as raised:
            session.prepare(statement(text, reads=text.startswith("SELECT")))
        assert (raised.value.code, raised.value.kind) == (code, FailureKind.ERROR)
        assert raised.value.what.startswith(f"statement tried: {code}: ")
        assert "Help:" not in raised.value.what
    assert run(session, READ, 2).count == 1


def test_ora_00001_is_logical_where_the_workload_declares_it(session: OracleSession) -> None:
    found = failure(session, INSERT, 1, "again")
    assert (found.code, found.kind) == ("ORA-00001", FailureKind.ERROR)
    assert "HLR.ITEM_PK" in found.what
    expected = statement(INSERT.text["oracle"], int, str, reads=False, logical_errors=frozenset({"ORA-00001"}))
    assert failure(session, expected, 1, "again").kind is FailureKind.LOGICAL
    assert run(session, INSERT, 3, "three").count == 1


def test_a_failed_statement_leaves_its_transaction_as_it_was(session: OracleSession, other: OracleSession) -> None:
    run(session, BEGIN_WRITE)
    run(session, UPDATE, "kept", 2)
    assert failure(session, INSERT, 1, "again").code == "ORA-00001"
    run(session, COMMIT)
    assert run(other, READ, 2).rows() == [(2, "kept")]


def test_ora_00060_and_ora_08177_are_run_again(session: OracleSession, other: OracleSession) -> None:
    for one, number in ((session, 1), (other, 2)):
        run(one, BEGIN_WRITE)
        run(one, UPDATE, "mine", number)
    codes: list[StatementFailure] = []

    def cross(one: OracleSession, number: int) -> None:
        try:
            run(one, UPDATE, "yours", number)
        except StatementFailure as raised:
            codes.append(raised)
        run(one, ROLLBACK)

    threads = [threading.Thread(target=cross, args=pair) for pair in ((session, 2), (other, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [(one.code, one.kind) for one in codes] == [("ORA-00060", FailureKind.RETRYABLE)]

    run(session, BEGIN_WRITE)
    run(session, statement("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", reads=False))
    run(session, READ, 1)
    run(other, UPDATE, "ahead", 1)
    late = failure(session, UPDATE, "late", 1)
    assert (late.code, late.kind) == ("ORA-08177", FailureKind.RETRYABLE)
    run(session, ROLLBACK)


def test_ora_03113_loses_the_session_and_a_new_one_works(item: str, tns_database: str) -> None:
    session = OracleDriver().connect(item)
    session.label("run", "doomed")
    prepared = session.prepare(READ)
    with psycopg.connect(tns_database, autocommit=True) as connection:
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '%doomed%'"
        assert connection.execute(ended).fetchall() == [(True,)]
    with pytest.raises(StatementFailure) as raised:
        session.execute(prepared, (1,))
    assert (raised.value.code, raised.value.kind) == ("ORA-03113", FailureKind.LOST)
    with pytest.raises(StatementFailure) as again:
        session.execute(prepared, (1,))
    assert again.value.kind is FailureKind.LOST
    session.close()
    fresh = OracleDriver().connect(item)
    assert run(fresh, READ, 1).count == 1
    fresh.close()


def test_a_call_that_times_out_loses_the_session(
    session: OracleSession, item: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proveout.agent.engines.oracle.driver.CALL_TIMEOUT_MS", 300)
    waiting = OracleDriver().connect(item)
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
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        with pytest.raises(StatementFailure) as raised:
            OracleDriver().connect(f"{credentials}@//127.0.0.1:{port}/HLR")
    assert (raised.value.code, raised.value.kind) == ("ORA-12541", FailureKind.LOST)
    assert raised.value.what.startswith("ORA-12541: no listener")


def test_the_label_reaches_the_server(session: OracleSession, tns_database: str) -> None:
    assert isinstance(session, Labelled)
    session.label("0123-run", "baseline/4/1/1")
    run(session, READ, 1)
    deadline = time.monotonic() + 60
    with psycopg.connect(tns_database) as connection:
        names: set[str] = set()
        while not any("baseline" in name for name in names):
            assert time.monotonic() < deadline, names
            names = {row[0] for row in connection.execute("SELECT application_name FROM pg_stat_activity").fetchall()}
            connection.rollback()
    assert "proveout|baseline/4/1/1|0123-run/baseline/4/1/1" in names


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("a = $1 AND b = $2", (0, 1)),
        ("a = $2 AND b = '$3' AND c = $1", (1, 0)),
        ("a = $1 AND b >= $1", None),
        ("SELECT 1 FROM dual", ()),
    ],
)
def test_the_order_of_binds(text: str, order: tuple[int, ...] | None) -> None:
    assert positions(text) == order


def test_a_bind_in_a_comment_is_not_counted(session: OracleSession) -> None:
    commented = statement("SELECT word FROM item /* not $2 */ WHERE id = $1", int, int)
    assert session.prepare(commented).names == ("p1", "p2")
    swapped = statement("SELECT id FROM item WHERE word = $2 AND id = $1", int, str)
    assert run(session, swapped, 2, "two").rows() == [(2,)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = $1 AND b = $12", "a = :p1 AND b = :p12"),
        ("a = '$1' AND \"$2\" = $2", "a = '$1' AND \"$2\" = :p2"),
        ("a = 'it''s $1' || $3", "a = 'it''s $1' || :p3"),
    ],
)
def test_binds(text: str, expected: str) -> None:
    assert binds(text) == expected


def test_a_password_may_contain_the_separators_of_a_dsn() -> None:
    assert parts("hlr/p@ss/word@//db1:1521/HLR") == ("hlr", "p@ss/word", "//db1:1521/HLR")
    for wrong in ("db1/HLR", "hlr@db1", "/secret@db1"):
        with pytest.raises(StatementFailure) as raised:
            parts(wrong)
        assert "secret" not in raised.value.what


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ORA-00060", FailureKind.RETRYABLE),
        ("ORA-08177", FailureKind.RETRYABLE),
        ("ORA-03113", FailureKind.LOST),
        ("ORA-12541", FailureKind.LOST),
        ("DPY-4024", FailureKind.LOST),
        ("ORA-01555", FailureKind.ERROR),
        ("ORA-02291", FailureKind.LOGICAL),
    ],
)
def test_kinds(code: str, kind: FailureKind) -> None:
    assert kind_of(code, frozenset({"ORA-02291"})) is kind


def test_an_unknown_service_has_oracles_code_ora_12514() -> None:
    text = 'DPY-6001: Service "X" is not registered with the listener at host "db1" port 1521. (Similar to ORA-12514)'
    assert error_text(oracledb.DatabaseError(text)).code == "ORA-12514"


def test_the_driver_is_in_the_table() -> None:
    assert isinstance(driver("oracle"), OracleDriver)


def test_closing_twice_has_no_effect(item: str) -> None:
    session = OracleDriver().connect(item)
    session.close()
    with contextlib.suppress(StatementFailure):
        session.close()
