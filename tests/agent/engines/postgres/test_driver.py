"""The PostgreSQL driver on a real server, by libpq and by the wire: values, counts, failures, cancelling, losing it."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict

from proveout.agent.engines.driver_contract import FailureKind, Pipelines, PolledSession, StatementFailure
from proveout.agent.engines.postgres.driver import (
    PostgresDriver,
    PostgresSession,
    WireSession,
    direct_session,
    kind_of,
)
from proveout.agent.engines.wire import PURE_PYTHON
from proveout.dsl.workloads.base import Statement

Connect = Callable[[], PolledSession]


def statement(text: str, *arguments: Any, reads: bool = True, columns: tuple[Any, ...] = (), **more: Any) -> Statement:
    return Statement(
        name="tried", text={"postgres": text}, arguments=tuple(arguments), columns=columns, reads=reads, **more
    )


@pytest.fixture(params=["libpq", "wire", "compiled"])
def connect(request: pytest.FixtureRequest, database: str) -> Iterator[Connect]:
    if request.param == "compiled":
        pytest.importorskip(
            "proveout.agent.engines.postgres.wire.protocol_native", reason="the hot path was not compiled here"
        )
    request.getfixturevalue("monkeypatch").setenv(PURE_PYTHON, "1" if request.param == "wire" else "")
    direct_session.cache_clear()
    opened: list[PolledSession] = []

    def make() -> PolledSession:
        if request.param != "libpq":
            session = PostgresDriver().connect(database)
            assert isinstance(session, WireSession) == (request.param == "wire")
        else:
            conn = pq.PGconn.connect(f"{database} application_name=proveout".encode())
            conn.nonblocking = 1
            session = PostgresSession(conn)
        opened.append(session)
        return session

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE item (id int PRIMARY KEY, small int2, big int8, word varchar(15), fixed char(3))"
        )
        connection.execute(
            "INSERT INTO item SELECT i, -i, i * 10000000000, 'word ' || i, 'abc' FROM generate_series(1, 5) i"
        )
    yield make
    for session in opened:
        session.close()
    direct_session.cache_clear()


def finish(session: PolledSession) -> None:
    """Wait for the answer."""
    deadline = time.monotonic() + 60
    poll = select.poll()
    poll.register(session.fileno(), select.POLLIN)
    while not session.receive():
        assert time.monotonic() < deadline
        poll.poll(1000)


def execute(session: PolledSession, of: Statement, *arguments: Any) -> PolledSession:
    session.send(session.prepare(of), arguments)
    finish(session)
    return session


def test_values_in_and_out(connect: Connect) -> None:
    find = statement(
        "SELECT id, small, big, word, fixed FROM item WHERE id >= $1 AND word <> $2 ORDER BY id",
        int,
        str,
        columns=(int, int, int, str, str),
    )
    session = execute(connect(), find, 4, "none")
    assert session.count == 2
    assert session.rows() == [(4, -4, 40_000_000_000, "word 4", "abc"), (5, -5, 50_000_000_000, "word 5", "abc")]


@pytest.mark.parametrize(("ids", "count"), [(1, 1), (99, 0)])
def test_one_row_and_none(connect: Connect, ids: int, count: int) -> None:
    session = connect()
    prepared = session.prepare(statement("SELECT word FROM item WHERE id = $1", int, columns=(str,)))
    for _ in range(3):
        session.send(prepared, (ids,))
        finish(session)
        assert session.count == count
        assert session.rows() == ([("word 1",)] if count else [])


def test_null(connect: Connect) -> None:
    session = execute(connect(), statement("SELECT NULL::int, id FROM item WHERE id = 1", columns=(int, int)))
    assert session.rows() == [(None, 1)]


def test_types_without_a_binary_decoder_are_sent_as_text(connect: Connect) -> None:
    session = execute(
        connect(), statement("SELECT $1::numeric + 1, $2::date", int, str, columns=(int, str)), 41, "2024-02-29"
    )
    assert session.rows() == [(42, "2024-02-29")]


def test_rows_are_decoded_by_the_server_s_description(connect: Connect) -> None:
    """Statements of a plan declare no `columns`: the types come from the server's RowDescription."""
    mixed = statement("SELECT 7, 1.5::float8, 12.50::numeric, 'word', NULL::int, true, DATE '2024-02-29'")
    assert execute(connect(), mixed).rows() == [(7, 1.5, "12.50", "word", None, "t", "2024-02-29")]
    whole = statement("SELECT 7::int2, 8::int8, 'word'::varchar, NULL::text")
    assert execute(connect(), whole).rows() == [(7, 8, "word", None)]


def test_arguments_of_any_type_are_converted_by_the_server(connect: Connect) -> None:
    """Arguments are values of another statement, None included, and text for columns of other types."""
    any_of = "SELECT $1::int, $2::numeric, $3::text, $4::timestamp, $5::float8"
    given = (None, "12.50", "word", "2024-02-29 01:02:03", 0.25)
    both = statement(any_of, object, object, str, str, float)
    assert execute(connect(), both, *given).rows() == [(None, "12.50", "word", "2024-02-29 01:02:03", 0.25)]
    assert execute(connect(), both, 5, None, "x", None, 1.0).rows() == [(5, None, "x", None, 1.0)]
    alone = statement("SELECT $1::int", object)
    assert [execute(connect(), alone, value).rows() for value in (None, "17", 18)] == [[(None,)], [(17,)], [(18,)]]


@pytest.mark.parametrize(
    ("of", "code", "words"),
    [
        (statement("SELECT 1 FROM item WHERE id = $1", int, ranges=((1, 2**31),)), "22003", "1 to 2147483648"),
        (statement("SELECT 1 FROM item WHERE small = $1", int, ranges=((-32_769, 0),)), "22003", "smallint"),
        (statement("SELECT 1 FROM item WHERE id = $1", float), "22P02", "fractions"),
        (statement("SELECT 1 FROM item WHERE id = $2 AND big = $1", int), "08P01", "finds 2"),
    ],
)
def test_impossible_argument_types_are_refused_by_prepare(
    connect: Connect, of: Statement, code: str, words: str
) -> None:
    with pytest.raises(StatementFailure) as refused:
        connect().prepare(of)
    assert (refused.value.code, refused.value.kind) == (code, FailureKind.ERROR)
    assert words in refused.value.what


def test_possible_argument_types_are_accepted_by_prepare(connect: Connect) -> None:
    session = connect()
    for column, bound in (("small", 2**15 - 1), ("id", 2**31 - 1), ("big", 2**63 - 1)):
        of = statement(f"SELECT 1 FROM item WHERE {column} = $1", int, ranges=((-bound - 1, bound),))
        assert execute(session, of, bound).count == 0


def test_counts_of_rows_changed(connect: Connect) -> None:
    session = connect()
    change = session.prepare(statement("UPDATE item SET small = $1 WHERE id > $2", int, int, reads=False))
    for threshold, count in ((0, 5), (3, 2), (9, 0), (3, 2)):
        session.send(change, (7, threshold))
        finish(session)
        assert session.count == count
    begin = execute(session, statement("BEGIN", reads=False))
    assert begin.count == 0


def test_five_parameters_of_both_kinds(connect: Connect) -> None:
    insert = statement("INSERT INTO item VALUES ($1, $2, $3, $4, $5)", int, int, int, str, str, reads=False)
    session = execute(connect(), insert, 77, -7, 2**62, "naïve ☃", "xyz")
    assert session.count == 1
    find = statement("SELECT big, word FROM item WHERE id = $1", int, columns=(int, str))
    assert execute(session, find, 77).rows() == [(2**62, "naïve ☃")]


def test_an_answer_longer_than_one_read_of_the_socket(connect: Connect) -> None:
    wide = statement("SELECT repeat('x', 1000), i FROM generate_series(1, $1::int) i", int, columns=(str, int))
    session = execute(connect(), wide, 300)
    rows = session.rows()
    assert session.count == len(rows) == 300
    assert rows[-1] == ("x" * 1000, 300)


def test_a_logical_error_leaves_the_session_usable(connect: Connect) -> None:
    insert = statement("INSERT INTO item (id) VALUES ($1)", int, reads=False, logical_errors=frozenset({"23505"}))
    session = connect()
    with pytest.raises(StatementFailure, match="duplicate key") as raised:
        execute(session, insert, 1)
    assert (raised.value.code, raised.value.kind) == ("23505", FailureKind.LOGICAL)
    assert execute(session, statement("SELECT 1", columns=(int,))).count == 1


def test_an_error_inside_a_transaction_can_be_rolled_back(connect: Connect) -> None:
    session = connect()
    execute(session, statement("BEGIN", reads=False))
    with pytest.raises(StatementFailure) as raised:
        execute(session, statement("SELECT 1 / $1::int", int, columns=(int,)), 0)
    assert (raised.value.code, raised.value.kind) == ("22012", FailureKind.ERROR)
    with pytest.raises(StatementFailure) as raised:
        execute(session, statement("SELECT id FROM item", columns=(int,)))
    assert raised.value.code == "25P02"
    execute(session, statement("ROLLBACK", reads=False))
    assert execute(session, statement("SELECT id FROM item WHERE id = 1", columns=(int,))).count == 1


def test_notices_are_ignored(connect: Connect) -> None:
    noisy = statement("DO $$ BEGIN RAISE WARNING 'well'; RAISE NOTICE 'now'; END $$", reads=False)
    session = connect()
    prepared = session.prepare(noisy)
    for _ in range(3):
        session.send(prepared, ())
        finish(session)


def test_a_deadlock_is_retryable(connect: Connect) -> None:
    one, two = connect(), connect()
    lock = statement("UPDATE item SET small = 0 WHERE id = $1", int, reads=False)
    begin = statement("BEGIN", reads=False)
    prepared = {}
    for session, key in ((one, 1), (two, 2)):
        execute(session, begin)
        prepared[session.fileno()] = session.prepare(lock)
        session.send(prepared[session.fileno()], (key,))
        finish(session)
    one.send(prepared[one.fileno()], (2,))
    two.send(prepared[two.fileno()], (1,))
    failures = []
    poll = select.poll()
    pending = {session.fileno(): session for session in (one, two)}
    for fd in pending:
        poll.register(fd, select.POLLIN)
    while not failures:
        for fd, _ in poll.poll(20_000):
            try:
                pending[fd].receive()
            except StatementFailure as failure:
                failures.append(failure)
    assert (failures[0].code, failures[0].kind) == ("40P01", FailureKind.RETRYABLE)


def test_cancelling_from_another_thread(connect: Connect, database: str) -> None:
    session = connect()
    session.send(session.prepare(statement("SELECT pg_sleep(60)", columns=(str,))), ())
    with psycopg.connect(database, autocommit=True) as other:  # a cancel that comes before the statement has no effect
        deadline = time.monotonic() + 60
        while not other.execute(
            "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
        ).fetchall():
            assert time.monotonic() < deadline
    threading.Thread(target=session.cancel).start()
    with pytest.raises(StatementFailure) as raised:
        finish(session)
    assert raised.value.code == "57014"


def test_a_session_that_the_server_ends(connect: Connect, database: str) -> None:
    session = execute(connect(), statement("SELECT pg_backend_pid()", columns=(int,)))
    ((pid,),) = session.rows()
    with psycopg.connect(database, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
    with pytest.raises(StatementFailure) as raised:  # noticed while the session is idle
        finish(session)
    assert raised.value.kind is FailureKind.LOST
    assert raised.value.code in {"57P01", "08006"}
    session.close()
    session.close()


def test_a_statement_that_the_server_refuses(connect: Connect) -> None:
    with pytest.raises(StatementFailure, match=r"statement tried: .*nowhere") as raised:
        connect().prepare(statement("SELECT * FROM nowhere"))
    assert raised.value.kind is FailureKind.ERROR


def test_an_invalid_conninfo_is_refused() -> None:
    with pytest.raises(StatementFailure) as raised:
        PostgresDriver().connect("this is not one")
    assert raised.value.kind is FailureKind.LOST


def test_the_error_for_a_missing_database_quotes_no_password(database: str) -> None:
    with pytest.raises(StatementFailure) as raised:
        PostgresDriver().connect(f"{database} dbname=absent")
    assert "absent" in raised.value.what
    password = conninfo_to_dict(database)["password"]
    assert str(password) not in raised.value.what


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("40001", FailureKind.RETRYABLE),
        ("40P01", FailureKind.RETRYABLE),
        ("57P01", FailureKind.LOST),
        ("08003", FailureKind.LOST),
        ("53100", FailureKind.ERROR),
        ("23505", FailureKind.LOGICAL),
    ],
)
def test_kinds_of_failures_by_sqlstate(code: str, kind: FailureKind) -> None:
    assert kind_of(code, frozenset({"23505"})) is kind


# ---- groups --------------------------------------------------------------------------------------------------------


def named(name: str, text: str, *arguments: Any, reads: bool = False, columns: tuple[Any, ...] = ()) -> Statement:
    return Statement(name=name, text={"postgres": text}, arguments=arguments, reads=reads, columns=columns)


FIND_ITEMS = named("find", "SELECT id, word FROM item WHERE id >= $1 ORDER BY id", int, reads=True, columns=(int, str))
RENAME = named("rename", "UPDATE item SET word = $1 WHERE id = $2", str, int)
HALVE = named("halve", "SELECT 1 / $1::int", int, reads=True, columns=(int,))
REST = named("rest", "SELECT pg_sleep($1::int)", int, reads=True, columns=(str,))
TO_BEGIN, TO_COMMIT, TO_ROLL_BACK = named("begin", "BEGIN"), named("commit", "COMMIT"), named("rollback", "ROLLBACK")


class Grouping:
    """A session that sends groups of these statements."""

    def __init__(self, connect: Connect) -> None:
        self.session: Any = connect()
        assert isinstance(self.session, Pipelines)
        every = (FIND_ITEMS, RENAME, HALVE, REST, TO_BEGIN, TO_COMMIT, TO_ROLL_BACK)
        self.prepared = {one.name: self.session.prepare(one) for one in every}
        self.pipeline = self.session.pipeline(self.prepared)

    def send(self, *requests: tuple[Statement, tuple[Any, ...]]) -> None:
        self.session.send(self.pipeline, requests)

    def group(self, *requests: tuple[Statement, tuple[Any, ...]]) -> list[tuple[int, list[Any]]]:
        self.send(*requests)
        finish(self.session)
        return [(result.count, result.rows()) for result in self.session.results()]

    def one(self, statement: Statement, *arguments: Any) -> tuple[int, list[Any]]:
        self.session.send(self.prepared[statement.name], arguments)
        finish(self.session)
        return self.session.count, self.session.rows() if statement.reads else []


def test_a_group_has_the_answers_of_single_statements(connect: Connect) -> None:
    grouping = Grouping(connect)
    requests = (
        (TO_BEGIN, ()),
        (FIND_ITEMS, (4,)),
        (RENAME, ("other", 5)),
        (FIND_ITEMS, (99,)),
        (RENAME, ("none", 99)),
        (FIND_ITEMS, (5,)),
        (TO_ROLL_BACK, ()),
    )
    together = grouping.group(*requests)
    single = [grouping.one(statement, *arguments) for statement, arguments in requests]
    assert together == single
    assert together[1:6] == [(2, [(4, "word 4"), (5, "word 5")]), (1, []), (0, []), (0, []), (1, [(5, "other")])]
    assert grouping.group((FIND_ITEMS, (5,))) == [(1, [(5, "word 5")])]


def test_an_error_ends_a_group_and_commits_nothing(connect: Connect) -> None:
    grouping = Grouping(connect)
    for _ in range(2):
        grouping.send((TO_BEGIN, ()), (RENAME, ("lost", 1)), (HALVE, (0,)), (RENAME, ("lost", 2)), (TO_COMMIT, ()))
        with pytest.raises(StatementFailure, match=r"by zero.*statement halve, 3 of 5 sent together") as raised:
            finish(grouping.session)
        assert (raised.value.code, raised.value.kind) == ("22012", FailureKind.ERROR)
        with pytest.raises(StatementFailure, match="aborted"):
            grouping.group((FIND_ITEMS, (4,)))
        grouping.one(TO_ROLL_BACK)
        assert grouping.one(FIND_ITEMS, 1)[1][:2] == [(1, "word 1"), (2, "word 2")]


def test_a_deadlock_between_groups(connect: Connect) -> None:
    """One of the two is chosen by the server; the other one commits."""
    first, second = Grouping(connect), Grouping(connect)
    first.group((TO_BEGIN, ()), (RENAME, ("first", 1)))
    second.group((TO_BEGIN, ()), (RENAME, ("second", 2)))
    first.send((FIND_ITEMS, (5,)), (RENAME, ("first", 2)), (TO_COMMIT, ()))
    second.send((FIND_ITEMS, (5,)), (RENAME, ("second", 1)), (TO_COMMIT, ()))
    failures = []
    for grouping in (first, second):
        try:
            finish(grouping.session)
        except StatementFailure as failure:
            failures.append(failure)
            grouping.one(TO_ROLL_BACK)
    (failure,) = failures
    assert (failure.code, failure.kind) == ("40P01", FailureKind.RETRYABLE)
    assert "statement rename, 2 of 3 sent together" in failure.what
    words = {word for _, word in first.one(FIND_ITEMS, 1)[1][:2]}
    assert words in ({"first"}, {"second"})


def test_a_group_can_be_cancelled(connect: Connect, database: str) -> None:
    grouping = Grouping(connect)
    grouping.send((RENAME, ("undone", 1)), (REST, (60,)), (RENAME, ("never", 2)))
    sleeps = "SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
    with psycopg.connect(database, autocommit=True) as connection:
        while not connection.execute(sleeps).rowcount:
            pass
    with pytest.raises(StatementFailure, match="statement rest, 2 of 3 sent together") as raised:
        while True:
            grouping.session.cancel()
            poll = select.poll()
            poll.register(grouping.session.fileno(), select.POLLIN)
            poll.poll(100)
            if grouping.session.receive():
                break
    assert raised.value.code == "57014"
    assert grouping.one(FIND_ITEMS, 1)[1][:2] == [(1, "word 1"), (2, "word 2")]


def test_a_server_process_that_ends_in_a_group(connect: Connect, database: str) -> None:
    grouping = Grouping(connect)
    grouping.send((TO_BEGIN, ()), (RENAME, ("undone", 1)), (REST, (60,)), (TO_COMMIT, ()))
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep($1%' AND pid <> pg_backend_pid() AND datname = current_database()"
    with psycopg.connect(database, autocommit=True) as connection:
        while not connection.execute(kill).rowcount:
            pass
        with pytest.raises(StatementFailure) as raised:
            finish(grouping.session)
        assert raised.value.kind is FailureKind.LOST
        assert connection.execute("SELECT word FROM item WHERE id = 1").fetchone() == ("word 1",)
