"""The wire sessions of PostgreSQL (compiled) and MySQL (in Python and compiled) against a peer that shows more than a
server does: answers that are split at any byte, and invalid ones."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest
from eventually import PATIENCE_S
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg import pq

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.engines.mysql import protocol as mysql
from proveout.agent.engines.mysql.driver import MysqlSession
from proveout.agent.engines.mysql.driver import failure_of as mysql_failure
from proveout.agent.engines.mysql.dsn import Address
from proveout.agent.engines.mysql.protocol import execution, lenenc, length, placeholders
from proveout.agent.engines.postgres import protocol as postgres
from proveout.agent.engines.postgres.driver import PostgresPrepared, PostgresSession, binary_integer
from proveout.agent.engines.postgres.driver import failure_of as postgres_failure
from proveout.agent.load.loop.transaction_loop import TerminalState
from proveout.coordinator.certificates import Authority
from proveout.dsl.workloads.base import Statement

TEXT: Any = {"postgres": "S", "mysql": "S"}
FIND = Statement(name="find", text=TEXT, arguments=(int,), columns=(str, int))
INSERT = Statement(name="in", text=TEXT, arguments=(int,), logical_errors=frozenset({"23505", "1062"}))
Row = tuple[str | None, int]


# ---- PostgreSQL's messages -------------------------------------------------------------------------------------------


def part(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!I", 4 + len(body)) + body


def row(text: str | None, number: int) -> bytes:
    value = b"\xff" * 4 if text is None else struct.pack("!I", len(text.encode())) + text.encode()
    return part(b"D", struct.pack("!H", 2) + value + struct.pack("!ii", 4, number))


def reported(code: str, text: bytes = b"no\nway", severity: bytes = b"ERROR") -> bytes:
    return part(b"E", b"V" + severity + b"\0C" + code.encode() + b"\0M" + text + b"\0DKey C4 V\0\0")


class Postgres:
    """The session, which is compiled, and its prepared statements."""

    native = "proveout.agent.engines.postgres.protocol_native"
    expected = "23505"
    decoders: tuple[Any, ...] = (bytes.decode, None)  # it decodes integers itself

    @staticmethod
    def session(here: socket.socket) -> Any:
        from proveout.agent.engines.postgres.protocol_native import Wire

        os.set_blocking(here.fileno(), False)  # as libpq leaves it
        failures = postgres.Failures(postgres_failure).of
        return Wire(here.fileno(), failures, postgres.connection_lost, postgres.send_rest)

    @classmethod
    def prepared(cls, statement: Statement, name: bytes = b"s0", kinds: Sequence[str | None] = ("i",)) -> Any:
        from proveout.agent.engines.postgres.protocol_native import Prepared

        head, tail = postgres.around(name, list(kinds), 1)
        return Prepared(statement, head, tuple(kinds), tail, cls.decoders[: len(statement.columns)])

    @staticmethod
    def answer(*rows: Row) -> bytes:
        tag = part(b"C", b"SELECT %d\0" % len(rows))
        return part(b"2") + b"".join(row(*one) for one in rows) + tag + part(b"Z", b"I")

    @staticmethod
    def error(code: str, text: bytes = b"no\nway") -> bytes:
        return reported(code, text) + part(b"Z", b"T")


# ---- MySQL's packets -------------------------------------------------------------------------------------------------

VARCHAR, LONG = 253, 3


def packets(*payloads: bytes, first: int = 1) -> bytes:
    """Payloads as packets of one answer, in sequence."""
    return b"".join(
        len(body).to_bytes(3, "little") + bytes([(first + number) % 256]) + body for number, body in enumerate(payloads)
    )


def definition(kind: int, flags: int = 0, digits: int = 0, charset: int = 45) -> bytes:
    names = b"\3def" + b"\1d" + b"\1t" + b"\1t" + b"\1c" + b"\1c"
    return names + b"\x0c" + struct.pack("<HIBHB", charset, 40, kind, flags, digits) + b"\0\0"


def eof(status: int = 2) -> bytes:
    return b"\xfe" + struct.pack("<HH", 0, status)


def ok(affected: int, status: int = 2) -> bytes:
    return b"\0" + length(affected) + b"\0" + struct.pack("<HH", status, 0)


def packed(text: str | None, number: int) -> bytes:
    nulls = bytes([0b100 if text is None else 0])
    value = b"" if text is None else length(len(text.encode())) + text.encode()
    return b"\0" + nulls + value + struct.pack("<i", number)


class MysqlInPython:
    """The session in Python, and its prepared statements."""

    native = ""
    expected = "1062"

    @staticmethod
    def session(here: socket.socket) -> Any:
        return mysql.WireSocket(mysql.Stream(here), mysql_failure)

    @staticmethod
    def prepared(statement: Statement, number: int = 7, order: tuple[int, ...] = (0,)) -> Any:
        return mysql.WirePrepared(statement, mysql.message(execution(number), order))

    @staticmethod
    def answer(*rows: Row) -> bytes:
        return packets(b"\2", definition(VARCHAR), definition(LONG), eof(), *(packed(*one) for one in rows), eof())

    @staticmethod
    def error(code: str, text: bytes = b"no\nway") -> bytes:
        return packets(b"\xff" + struct.pack("<H", int(code)) + b"#40001" + text)


class MysqlCompiled(MysqlInPython):
    """The same, compiled."""

    native = "proveout.agent.engines.mysql.protocol_native"

    @staticmethod
    def session(here: socket.socket) -> Any:
        from proveout.agent.engines.mysql.protocol_native import Wire

        stream = mysql.Stream(here)
        encrypted = stream if stream.is_encrypted else None
        failures = mysql.Failures(mysql_failure).of
        return Wire(here.fileno(), failures, mysql.lost, lambda _, rest: mysql.send_all(stream, rest), encrypted)

    @staticmethod
    def prepared(statement: Statement, number: int = 7, order: tuple[int, ...] = (0,)) -> Any:
        from proveout.agent.engines.mysql.protocol_native import Prepared

        return Prepared(statement, execution(number), order)


# ---- every session ---------------------------------------------------------------------------------------------------

POSTGRES, MYSQL = (Postgres,), (MysqlInPython, MysqlCompiled)
on_postgres = pytest.mark.parametrize("way", POSTGRES, indirect=True)
on_mysql = pytest.mark.parametrize("way", MYSQL, indirect=True)


class Peer:
    def __init__(self, way: Any) -> None:
        self.way = way
        self.here, self.there = socket.socketpair()
        self.session = way.session(self.here)
        self.prepared = way.prepared(FIND)

    def sent(self, prepared: Any, values: Any) -> bytes:
        """The bytes that the session sends for these arguments."""
        self.session.send(prepared, values)
        return self.there.recv(1 << 20)

    def ask(self) -> bytes:
        return self.sent(self.prepared, (7,))

    def answer(self, whole: bytes, cuts: Sequence[int] = (), between: Callable[[], None] = lambda: None) -> None:
        """In pieces; only the last one ends the answer."""
        edges = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
        for begin, end in pairwise(edges):
            self.there.sendall(whole[begin:end])
            assert self.session.receive() is (end == len(whole))
            if end < len(whole):
                between()

    def close(self) -> None:
        self.here.close()
        self.there.close()


@pytest.fixture(params=(*POSTGRES, *MYSQL))
def way(request: pytest.FixtureRequest) -> Any:
    if request.param.native:
        pytest.importorskip(request.param.native, reason="the hot path was not compiled here")
    return request.param


@pytest.fixture
def peer(way: Any) -> Iterator[Peer]:
    with closing(Peer(way)) as peer:
        yield peer


TEXTS = st.none() | st.text(max_size=300) | st.just(Postgres.answer().decode())
ROWS = st.lists(st.tuples(TEXTS, st.integers(-(2**31), 2**31 - 1)), max_size=3)
CUTS = st.lists(st.integers(1, 400), max_size=12)
at_any_byte = settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@given(CUTS, ROWS, st.integers(0, 2))
@at_any_byte
def test_an_answer_split_at_any_byte_is_the_same_answer(way: Any, cuts: list[int], rows: list[Row], warm: int) -> None:
    """Also when the session has read answers of the statement before (`warm`) and uses its cached path."""
    with closing(Peer(way)) as peer:
        for _ in range(warm):
            peer.ask()
            assert peer.session.receive() is False
            peer.answer(way.answer(("x", 1)))
        peer.ask()
        peer.answer(way.answer(*rows), cuts)
        assert (peer.session.count, peer.session.rows()) == (len(rows), rows)


@given(CUTS, ROWS)
@at_any_byte
def test_sessions_of_a_loop_do_not_take_parts_of_each_other(way: Any, cuts: list[int], rows: list[Row]) -> None:
    """Their buffers are one, also where a part of a notice has come with the end of an answer."""
    notice = part(b"N", b"SNOTICE\0\0") if way is Postgres else b""
    with closing(Peer(way)) as peer, closing(Peer(way)) as other:
        for one in (peer, other):
            TerminalState().session = one.session

        def between() -> None:
            other.ask()
            other.answer(way.answer(("other", 1)))

        for sent, found in ((way.answer() + notice[:5], []), (notice[5:] + way.answer(*rows), rows)):
            peer.ask()
            peer.answer(sent, cuts if found else (), between)
            assert (peer.session.count, peer.session.rows()) == (len(found), found)
            between()


def test_expected_errors_collect_no_tracebacks(peer: Peer) -> None:
    insert = peer.way.prepared(INSERT)
    for number in range(3):
        peer.session.send(insert, (number,))
        peer.there.sendall(peer.way.error(peer.way.expected, b"twice"))
        with pytest.raises(StatementFailure, match="twice") as raised:
            peer.session.receive()
        assert (raised.value.code, raised.value.kind) == (peer.way.expected, FailureKind.LOGICAL)
        assert len(raised.traceback) < 6


ENDS = {
    "PostgreSQL's": (POSTGRES, b"", "08006", "closed the connection"),
    "an expected error": (POSTGRES, reported("23505"), "08006", "closed the connection"),
    "a fatal error": (POSTGRES, reported("53300", b"too many", b"FATAL"), "53300", "too many"),
    "a code that is no text": (POSTGRES, part(b"E", b"VFATAL\0C\xff\0Mno\0\0"), "\ufffd", "no"),
    "garbage": (POSTGRES, b"HTTP\0\0\0\0 and so on", "08006", "protocol"),
    "MySQL's": (MYSQL, b"", "", "closed the connection"),
    "LOCAL INFILE": (MYSQL, packets(b"\xfb/etc/passwd"), "", "requested a file"),
    "a huge packet": (MYSQL, b"\xff\xff\xff\1more", "", "more than 16 MB"),
    "an empty packet": (MYSQL, b"\0\0\0\1x", "", "not its protocol"),
    "a kill": (MYSQL, packets(b"\xff" + struct.pack("<H", 1927) + b"#70100was killed", first=0), "1927", "killed"),
}


@pytest.mark.parametrize(
    ("way", "sent", "code", "words"),
    [
        pytest.param(way, sent, code, words, id=f"{way.__name__}-{name}")
        for name, (ways, sent, code, words) in ENDS.items()
        for way in ways
    ],
    indirect=["way"],
)
def test_what_ends_a_session(peer: Peer, sent: bytes, code: str, words: str) -> None:
    """The next statement finds the session lost too."""
    peer.sent(peer.way.prepared(INSERT), (1,))
    with pytest.raises(StatementFailure, match=words) as raised:
        if sent:
            peer.there.sendall(sent)
            peer.session.receive()
        peer.there.close()
        peer.session.receive()
    assert raised.value.kind is FailureKind.LOST
    assert raised.value.code == (code or raised.value.code)
    peer.there.close()
    with pytest.raises(StatementFailure) as raised:
        for _ in range(3):
            peer.session.send(peer.prepared, (1,))
    assert raised.value.kind is FailureKind.LOST


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        *((code, FailureKind.RETRYABLE) for code in ("40001", "40P01", "1213", "1205")),
        *((code, FailureKind.LOST) for code in ("57P01", "08003", "1053", "2013", "1927")),
        *((code, FailureKind.ERROR) for code in ("53100", "1317")),
        *((code, FailureKind.LOGICAL) for code in ("23505", "1062")),
    ],
)
def test_kinds_of_failures_by_code(code: str, kind: FailureKind) -> None:
    fail = postgres_failure if len(code) == 5 else mysql_failure
    assert fail(code, "no", INSERT).kind is kind


# ---- PostgreSQL ------------------------------------------------------------------------------------------------------


@on_postgres
def test_the_rows_of_a_statement_whose_tag_has_no_count(peer: Peer) -> None:
    peer.ask()
    peer.answer(part(b"2") + row("4MB", 1) + part(b"C", b"SHOW\0") + part(b"Z", b"I"), [20])
    assert (peer.session.count, peer.session.rows()) == (1, [("4MB", 1)])


@on_postgres
@pytest.mark.parametrize("columns", [b"", struct.pack("!I", 2**31 - 256) + b"text", struct.pack("!I", 4) + b"text\0\0"])
def test_a_row_that_does_not_hold_its_columns_loses_the_session(peer: Peer, columns: bytes) -> None:
    """No byte beyond it is read."""
    peer.ask()
    peer.answer(part(b"2") + part(b"D", b"\0\2" + columns) + part(b"C", b"SELECT 1\0") + part(b"Z", b"I"))
    with pytest.raises(StatementFailure, match="not its protocol") as raised:
        peer.session.rows()
    assert raised.value.kind is FailureKind.LOST


@on_postgres
def test_a_fatal_error_before_anything_was_sent(peer: Peer) -> None:
    peer.there.sendall(reported("57P01", b"going down", b"FATAL"))
    assert peer.session.receive() is False
    peer.there.close()
    with pytest.raises(StatementFailure, match="going down") as raised:
        peer.session.receive()
    assert raised.value.kind is FailureKind.LOST


def test_libpq_is_not_asked_for_the_end_of_an_answer_that_has_not_come() -> None:
    """It would wait for it, and no thread of the process would run."""
    result: Any = SimpleNamespace(status=pq.ExecStatus.TUPLES_OK, ntuples=1, command_tuples=1, get_value=None)
    conn: Any = SimpleNamespace(
        send_query_prepared=lambda *_: None,
        flush=lambda: 0,
        consume_input=lambda: None,
        is_busy=iter([True, False, True, False]).__next__,  # until its row has come, until its end has
        get_result=iter([result, None]).__next__,
    )
    session = PostgresSession(conn)
    session.send(PostgresPrepared(FIND, b"s0", [], list, None, 1, ()), ())
    assert [session.receive() for _ in range(3)] == [False, False, True]
    assert (session.count, session.rows()) == (1, [()])


def test_sessions_of_postgres_share_what_is_the_same_for_a_statement() -> None:
    """It is read for each message; sixty copies would not stay in the processor's caches."""
    native = pytest.importorskip("proveout.agent.engines.postgres.native_session", reason="not compiled here")

    def wired(statement: Statement, name: bytes) -> Any:
        described = PostgresPrepared(statement, name, [20], tuple, None, 1, (binary_integer,))
        return native.wired(described)

    assert wired(FIND, b"s0") is wired(FIND, b"s0")
    assert len({id(each) for each in (wired(FIND, b"s0"), wired(FIND, b"s1"), wired(INSERT, b"s0"))}) == 3


@on_postgres
@pytest.mark.parametrize(
    ("kinds", "values"),
    [
        (["h"], (2**15,)),
        (["i"], (2**31,)),
        (["i"], (-(2**31) - 1,)),
        (["I"], (-1,)),
        (["q"], (2**63,)),
        (["i", "i"], (1,)),
    ],
)
def test_arguments_that_do_not_fit_are_refused(peer: Peer, kinds: list[str | None], values: tuple[Any, ...]) -> None:
    with pytest.raises((OverflowError, ValueError, IndexError, struct.error)):
        peer.sent(peer.way.prepared(FIND, b"s1", kinds), values)


CHANGE = Statement(name="change", text=TEXT, arguments=(int,), reads=False)


def grouped(peer: Peer) -> Any:
    """The group's stand-in for a prepared statement, with FIND and CHANGE."""
    return peer.session.pipeline({"find": peer.prepared, "change": peer.way.prepared(CHANGE, b"s1")})


@on_postgres
def test_a_group_is_one_message_with_one_sync(peer: Peer) -> None:
    sync = part(b"S")
    change = peer.way.prepared(CHANGE, b"s1")
    single = [peer.ask(), peer.sent(change, (8,))]
    together = peer.sent(grouped(peer), ((FIND, (7,)), (CHANGE, (8,)), (FIND, (7,))))
    assert together == b"".join(one.removesuffix(sync) for one in (*single, single[0])) + sync
    assert peer.ask() == single[0]
    with pytest.raises(ValueError, match="without requests"):
        peer.session.send(grouped(peer), ())


@on_postgres
@given(CUTS)
@at_any_byte
def test_the_answer_to_a_group_split_at_any_byte(way: Any, cuts: list[int]) -> None:
    two: list[Row] = [("one" + way.answer().decode(), 1), (None, 2)]
    whole = part(b"2") + row(*two[0]) + row(*two[1]) + part(b"C", b"SELECT 2\0")
    whole += part(b"2") + part(b"N", b"Mnote\0\0") + part(b"C", b"UPDATE 12\0")
    whole += part(b"2") + part(b"C", b"SELECT 0\0") + part(b"Z", b"T")
    with closing(Peer(way)) as peer:
        peer.session.send(grouped(peer), ((FIND, (7,)), (CHANGE, (8,)), (FIND, (9,))))
        peer.answer(whole, cuts)
        results = peer.session.results()
        peer.ask()
        peer.answer(way.answer(("a", 1)))  # of another statement: the group's results stay
        assert (peer.session.count, peer.session.rows(), peer.session.results()) == (1, [("a", 1)], [])
        assert [(result.count, result.rows()) for result in results] == [(2, two), (12, []), (0, [])]


# ---- MySQL -----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**63 - 1))
@example(251)
@example(65_536)
@example(1 << 24)
def test_lengths_are_decoded_as_encoded(number: int) -> None:
    assert lenenc(length(number) + b"rest", 0) == (number, len(length(number)))


def test_placeholders() -> None:
    quoted = "SELECT '$1 it''s', \"$2\", `$3` /* that's $4 */ FROM t WHERE 'x' = "
    assert placeholders(f"{quoted}$2 AND b = $1 AND c = $2") == (f"{quoted}? AND b = ? AND c = ?", (1, 0, 1))


@on_mysql
def test_an_answer_with_changed_columns_and_one_without_rows(peer: Peer) -> None:
    """As after an ALTER TABLE: the column definitions of this answer apply, not those of the previous one."""
    swapped = (definition(LONG), definition(VARCHAR), eof(), b"\0\0" + struct.pack("<i", 5) + b"\x017", eof())
    for affected in (1, 300, 70_000):
        for answer, count, rows in (
            (peer.way.answer(("a", 1)), 1, [("a", 1)]),
            (packets(b"\2", *swapped), 1, [("5", 7)]),
            (packets(ok(affected)), affected, []),
        ):
            peer.ask()
            peer.answer(answer)
            assert (peer.session.count, peer.session.rows()) == (count, rows)


@on_mysql
def test_moments_are_as_the_server_prints_them_and_a_bigint_may_have_no_sign(peer: Peer) -> None:
    """Of a moment the server leaves out what is zero at its end."""
    day, hours = struct.pack("<HBB", 2024, 2, 29), struct.pack("<BIBBB", 0, 1, 2, 3, 4)
    kinds = [(12, 0), (12, 3), (7, 3), (10, 0), (11, 0), (11, 2), (12, 0)]
    values = [day, day, day + bytes((1, 2, 3)) + struct.pack("<I", 450_000), day, hours, hours, b""]
    defined = (definition(kind, digits=digits) for kind, digits in kinds)
    one = b"\0" + bytes(2) + b"".join(bytes((len(value),)) + value for value in values)
    taken = peer.way.prepared(Statement(name="any", text=TEXT, arguments=(object,)))
    assert b"\x08\x80" + b"\xff" * 8 in peer.sent(taken, (2**64 - 1,))
    peer.answer(packets(bytes((len(kinds),)), *defined, eof(), one, eof()))
    midnight = "2024-02-29 00:00:00"
    moments = (midnight, f"{midnight}.000", "2024-02-29 01:02:03.450", "2024-02-29")
    assert peer.session.rows() == [(*moments, "26:03:04", "26:03:04.00", "0000-00-00 00:00:00")]


@on_mysql
@pytest.mark.parametrize(
    ("defined", "one"),
    [
        (definition(LONG), b"\0\0\1\2"),
        (definition(5), bytes(2 + 7)),
        (definition(12), b"\0\0\x0b\1"),
        (definition(VARCHAR), b"\0\0\x09abc"),
        (definition(LONG)[:9], b"\0\0\1\2\3\4"),
    ],
    ids=["whole number", "fraction", "moment", "text", "definition"],
)
def test_a_row_of_mysql_that_does_not_hold_its_columns_loses_the_session(
    peer: Peer, defined: bytes, one: bytes
) -> None:
    peer.sent(peer.way.prepared(Statement(name="any", text=TEXT, arguments=(int,))), (7,))
    peer.answer(packets(b"\1", defined, eof(), one, eof()))
    with pytest.raises(StatementFailure, match="not its protocol") as raised:
        peer.session.rows()
    assert raised.value.kind is FailureKind.LOST


@on_mysql
def test_octets_come_and_go_as_they_are(peer: Peer) -> None:
    """Those of a column `BINARY(16)` or `POINT`, which a later statement takes, and the number of a `BIT(9)`."""
    octets, taken = b"\xff\0\xc3", peer.way.prepared(Statement(name="any", text=TEXT, arguments=(object,)))
    assert b"\xfc\0\3" + octets in peer.sent(taken, (octets,))
    one = b"\0\0\3" + octets + b"\3\xc3\xa9x\3" + octets + b"\2\1\xc8"
    columns = definition(254, charset=63), definition(254), definition(255, charset=63), definition(16, charset=63)
    peer.answer(packets(b"\4", *columns, eof(), one, eof()))
    assert peer.session.rows() == [(octets, "éx", octets, 456)]


@pytest.mark.parametrize("way", [MysqlCompiled], indirect=True)
def test_texts_of_mysql_are_decoded_without_a_function_of_python(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql, "string", None)
    peer.ask()
    peer.answer(peer.way.answer(("x", 1), (None, 2)))
    assert peer.session.rows() == [("x", 1), (None, 2)]


@on_mysql
def test_several_results_of_a_procedure(peer: Peer) -> None:
    """The last result with rows counts; its final OK ends the call."""
    more = 2 | 8
    first = [b"\1", definition(LONG), eof(more), b"\0\0" + struct.pack("<i", 1), eof(more)]
    second = [b"\2", definition(VARCHAR), definition(LONG), eof(more), packed("z", 2), packed("y", 3), eof(more)]
    whole = packets(*first, *second, ok(0))
    for _ in range(3):
        peer.ask()
        peer.answer(whole, [70, len(whole) - 11])
        assert (peer.session.count, peer.session.rows()) == (2, [("z", 2), ("y", 3)])


def test_a_session_of_mysql_is_closed_at_once_where_the_server_does_not_read() -> None:
    connection = pymysql.connections.Connection(defer_connect=True)
    here, there = socket.socketpair()
    connection._sock, connection._closed, connection.server_thread_id = here, False, (1,)
    connection._current_timeout = 5.0  # of what was read while it connected
    session = MysqlSession(connection, Address())
    with contextlib.suppress(BlockingIOError):
        while True:
            here.send(bytes(1 << 16))
    closes = threading.Thread(target=session.close, daemon=True)
    closes.start()
    closes.join(PATIENCE_S)
    assert not closes.is_alive()
    assert here.fileno() < 0
    there.close()


@on_mysql
def test_an_error_among_the_rows(peer: Peer) -> None:
    peer.ask()
    peer.there.sendall(packets(b"\2", definition(VARCHAR), definition(LONG), eof(), packed("a", 1)))
    assert not peer.session.receive()
    peer.there.sendall(packets(b"\xff" + struct.pack("<H", 1317) + b"#70100interrupted", first=6))
    with pytest.raises(StatementFailure, match="interrupted") as raised:
        peer.session.receive()
    assert raised.value.kind is FailureKind.ERROR
    peer.ask()
    peer.answer(peer.way.answer(("a", 1), ("b", 2)))
    assert peer.session.rows() == [("a", 1), ("b", 2)]


@on_mysql
def test_an_encrypted_session_reads_all_that_is_decrypted(way: Any, tmp_path: Path) -> None:
    """A TLS record holds more bytes than one read takes, and poll() does not report the decrypted rest."""
    shown, certificate = Authority.create().issue("agent/db", ["127.0.0.1"]), tmp_path / "both.pem"
    certificate.write_bytes(shown.key + shown.certificate)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate)
    asking = ssl.create_default_context()
    asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
    here, there = socket.socketpair()
    wrapped: list[Any] = []
    thread = threading.Thread(target=lambda: wrapped.append(serving.wrap_socket(there, server_side=True)))
    thread.start()
    client = asking.wrap_socket(here)
    thread.join(PATIENCE_S)
    (server,) = wrapped
    try:
        session = way.session(client)
        session.send(way.prepared(FIND), (41,))
        assert len(server.recv(1000)) == 26
        assert session.receive() is False
        rows: list[Row] = [("x" * 120, number) for number in range(100)]
        server.sendall(way.answer(*rows))
        ended = False
        while not ended:
            ended = session.receive()
        assert session.rows() == rows
        server.close()
        with pytest.raises(StatementFailure) as raised:
            session.receive()
        assert raised.value.kind is FailureKind.LOST
    finally:
        client.close()
        server.close()
