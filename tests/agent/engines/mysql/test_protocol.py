"""MySQL's wire session, in Python and compiled, against a peer that splits its answers at any byte, and sends invalid answers."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.engines.mysql.binary_values import execution, lenenc, length, message, placeholders
from proveout.agent.engines.mysql.driver import failure_of, kind_of
from proveout.agent.engines.mysql.protocol import (
    Failures,
    TlsFile,
    WirePrepared,
    WireSocket,
    file_of,
    lost,
    send_rest,
)
from proveout.dsl.workloads.base import Statement

FIND = Statement(name="find", text={"mysql": "SELECT"}, arguments=(int,), columns=(str, int))
TEXT, LONG = 253, 3


def packets(*payloads: bytes, first: int = 1) -> bytes:
    """Payloads as packets of one answer, in sequence."""
    return b"".join(
        len(body).to_bytes(3, "little") + bytes([(first + number) % 256]) + body for number, body in enumerate(payloads)
    )


def definition(kind: int, flags: int = 0) -> bytes:
    names = b"\3def" + b"\1d" + b"\1t" + b"\1t" + b"\1c" + b"\1c"
    return names + b"\x0c" + struct.pack("<HIBHB", 45, 40, kind, flags, 0) + b"\0\0"


def eof(status: int = 2) -> bytes:
    return b"\xfe" + struct.pack("<HH", 0, status)


def ok(affected: int, status: int = 2) -> bytes:
    return b"\0" + length(affected) + b"\0" + struct.pack("<HH", status, 0)


def row(text: str | None, number: int) -> bytes:
    nulls = bytes([0b100 if text is None else 0])
    value = b"" if text is None else length(len(text.encode())) + text.encode()
    return b"\0" + nulls + value + struct.pack("<i", number)


def answer(*rows: bytes, status: int = 2) -> bytes:
    return packets(b"\2", definition(TEXT), definition(LONG), eof(), *rows, eof(status))


class InPython:
    """The session in Python, and its prepared statements."""

    @staticmethod
    def session(here: socket.socket) -> Any:
        return WireSocket(file_of(here), failure_of)

    @staticmethod
    def prepared(statement: Statement, number: int, order: tuple[int, ...]) -> Any:
        return WirePrepared(statement, message(execution(number), statement.arguments, order))


class Compiled:
    """The same, compiled."""

    @staticmethod
    def session(here: socket.socket) -> Any:
        from proveout.agent.engines.mysql.protocol_native import Wire

        here.setblocking(False)
        return Wire(here.fileno(), Failures(failure_of).of, lost, send_rest)

    @staticmethod
    def prepared(statement: Statement, number: int, order: tuple[int, ...]) -> Any:
        from proveout.agent.engines.mysql.protocol_native import Prepared

        return Prepared(statement, execution(number), order)


Way = type[InPython | Compiled]


class Peer:
    def __init__(self, way: Way) -> None:
        self.way = way
        self.here, self.there = socket.socketpair()
        self.session = way.session(self.here)
        self.prepared = way.prepared(FIND, 7, (0,))

    def sent(self, number: int, kinds: tuple[type, ...], order: tuple[int, ...], values: Any) -> bytes:
        """The bytes that the session sends for these arguments."""
        statement = Statement(name="sent", text={"mysql": "S"}, arguments=kinds)
        self.session.send(self.way.prepared(statement, number, order), values)
        return self.there.recv(1 << 17)

    def ask(self) -> bytes:
        self.session.send(self.prepared, (41,))
        return self.there.recv(1000)

    def close(self) -> None:
        self.here.close()
        self.there.close()


@pytest.fixture(params=[InPython, Compiled])
def way(request: pytest.FixtureRequest) -> Way:
    if request.param is Compiled:
        pytest.importorskip("proveout.agent.engines.mysql.protocol_native", reason="the hot path was not compiled here")
    return cast("Way", request.param)


@pytest.fixture
def peer(way: Way) -> Iterator[Peer]:
    peer = Peer(way)
    yield peer
    peer.close()


def test_the_message_is_the_protocol_s(peer: Peer) -> None:
    """COM_STMT_EXECUTE, written out by hand from the protocol's description."""
    body = b"\x17" + struct.pack("<IBI", 7, 0, 1) + b"\0" + b"\1" + b"\x08\0" + struct.pack("<q", 41)
    assert peer.ask() == struct.pack("<I", len(body)) + body


def test_arguments_of_all_kinds(peer: Peer) -> None:
    types = b"\x08\0" + b"\x06\0" + b"\xfd\0" + b"\x06\0"
    body = b"\x17" + struct.pack("<IBI", 1, 0, 1) + bytes([0b1010]) + b"\1" + types
    text = "né☃".encode()
    body += struct.pack("<q", -5) + bytes([len(text)]) + text
    assert peer.sent(1, (int, str, int), (2, 0, 1, 0), (None, "né☃", -5)) == struct.pack("<I", len(body)) + body


@pytest.mark.parametrize("count", range(9, 18))
def test_any_number_of_integers_and_nulls(peer: Peer, count: int) -> None:
    order = tuple(range(count))
    values: list[int | None] = list(range(count))
    types = b"\x08\0" * count
    whole = b"\x17" + struct.pack("<IBI", 1, 0, 1) + bytes((count + 7) // 8) + b"\1" + types
    whole += struct.pack(f"<{count}q", *range(count))
    assert peer.sent(1, (int,) * count, order, values) == struct.pack("<I", len(whole)) + whole
    values[8] = None
    assert peer.sent(1, (int,) * count, order, values)[4 + 10 : 4 + 12] == b"\0\1"  # the ninth of the NULL bits


@pytest.mark.parametrize("size", [0, 250, 251, 65_535, 65_536])
def test_texts_of_any_length(peer: Peer, size: int) -> None:
    text = "x" * size
    body = b"\x17" + struct.pack("<IBI", 1, 0, 1) + b"\0\1" + b"\xfd\0" + b"\x08\0"
    body += length(size) + text.encode() + struct.pack("<q", 2**63 - 1)
    assert peer.sent(1, (str, int), (0, 1), (text, 2**63 - 1)) == struct.pack("<I", len(body)) + body


@given(st.integers(0, 2**63 - 1))
def test_lengths_are_decoded_as_encoded(number: int) -> None:
    assert lenenc(length(number) + b"rest", 0) == (number, len(length(number)))


def test_placeholders() -> None:
    text = "SELECT '$1 it''s', \"$2\", `$3` FROM t WHERE a = $2 AND b = $1 AND c = $2"
    assert placeholders(text) == ("SELECT '$1 it''s', \"$2\", `$3` FROM t WHERE a = ? AND b = ? AND c = ?", (1, 0, 1))


@pytest.mark.slow
@given(
    st.lists(st.integers(1, 300), max_size=12),
    st.lists(st.tuples(st.none() | st.text(max_size=300), st.integers(-(2**31), 2**31 - 1)), max_size=3),
    st.sampled_from([2, 3]),
    st.integers(0, 2),
)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_answer_split_at_any_byte_is_the_same_answer(
    way: Way, cuts: list[int], rows: list[tuple[str | None, int]], status: int, warm: int
) -> None:
    """Also when the session has read answers of the statement before (`warm`) and uses its cached path."""
    peer = Peer(way)
    try:
        for _ in range(warm):
            peer.ask()
            peer.there.sendall(answer(row("x", 1)))
            assert peer.session.receive()
        whole = answer(*(row(text, number) for text, number in rows), status=status)
        peer.ask()
        edges = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
        ended = []
        for begin, end in pairwise(edges):
            peer.there.sendall(whole[begin:end])
            ended.append(peer.session.receive())
        assert ended == [False] * (len(ended) - 1) + [True]
        assert peer.session.count == len(rows)
        assert peer.session.rows() == rows
    finally:
        peer.close()


def test_an_answer_with_changed_columns(peer: Peer) -> None:
    """As after an ALTER TABLE: the column definitions of this answer apply, not those of the previous one."""
    for _ in range(2):
        peer.ask()
        peer.there.sendall(answer(row("a", 1)))
        assert peer.session.receive()
        assert peer.session.rows() == [("a", 1)]
        peer.ask()
        swapped = (definition(LONG), definition(TEXT), eof(), b"\0\0" + struct.pack("<i", 5) + b"\x017", eof())
        peer.there.sendall(packets(b"\2", *swapped))
        assert peer.session.receive()
        assert peer.session.rows() == [("5", 7)]


def test_counts_of_rows_changed_and_nothing_of_older_rows(peer: Peer) -> None:
    for affected in (1, 300, 70_000, 1):
        peer.ask()
        peer.there.sendall(answer(row("a", 1)))
        assert peer.session.receive()
        peer.ask()
        peer.there.sendall(packets(ok(affected)))
        assert peer.session.receive()
        assert (peer.session.count, peer.session.rows()) == (affected, [])


def test_several_results_of_a_procedure(peer: Peer) -> None:
    """The last result with rows counts; its final OK ends the call."""
    more = 2 | 8
    first = [b"\1", definition(LONG), eof(more), b"\0\0" + struct.pack("<i", 1), eof(more)]
    second = [b"\2", definition(TEXT), definition(LONG), eof(more), row("z", 2), row("y", 3), eof(more)]
    whole = packets(*first, *second, ok(0))
    for _ in range(3):
        peer.ask()
        for half in (whole[:70], whole[70:-11], whole[-11:]):
            assert not peer.session.receive()
            peer.there.sendall(half)
        assert peer.session.receive()
        assert (peer.session.count, peer.session.rows()) == (2, [("z", 2), ("y", 3)])


def error(code: int, text: bytes = b"no\nway") -> bytes:
    return packets(b"\xff" + struct.pack("<H", code) + b"#40001" + text)


def test_an_error_and_then_good_answers(peer: Peer) -> None:
    peer.ask()
    peer.there.sendall(error(1213))
    with pytest.raises(StatementFailure, match=r"no way \(SQLSTATE 40001\)") as raised:
        peer.session.receive()
    assert (raised.value.code, raised.value.kind) == ("1213", FailureKind.RETRYABLE)
    peer.ask()
    peer.there.sendall(answer())
    assert peer.session.receive()
    assert peer.session.count == 0


def test_an_error_among_the_rows(peer: Peer) -> None:
    peer.ask()
    peer.there.sendall(packets(b"\2", definition(TEXT), definition(LONG), eof(), row("a", 1)))
    assert not peer.session.receive()
    peer.there.sendall(packets(b"\xff" + struct.pack("<H", 1317) + b"#70100interrupted", first=6))
    with pytest.raises(StatementFailure, match="interrupted") as raised:
        peer.session.receive()
    assert raised.value.kind is FailureKind.ERROR
    peer.ask()
    peer.there.sendall(answer(row("a", 1), row("b", 2)))
    assert peer.session.receive()
    assert peer.session.rows() == [("a", 1), ("b", 2)]


def test_repeated_expected_errors(peer: Peer) -> None:
    insert = Statement(name="in", text={"mysql": "I"}, arguments=(int,), logical_errors=frozenset({"1062"}))
    prepared = peer.way.prepared(insert, 9, (0,))
    for number in range(3):
        peer.session.send(prepared, (number,))
        peer.there.sendall(error(1062, b"twice"))
        with pytest.raises(StatementFailure, match="twice") as raised:
            peer.session.receive()
        assert (raised.value.code, raised.value.kind) == ("1062", FailureKind.LOGICAL)
        assert len(raised.traceback) < 6
    peer.ask()  # another statement does not expect it
    peer.there.sendall(error(1062, b"other"))
    with pytest.raises(StatementFailure, match="other") as raised:
        peer.session.receive()
    assert raised.value.kind is FailureKind.ERROR


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (b"", "closed the connection"),
        (packets(b"\xfb/etc/passwd"), "requested a file"),
        (b"\xff\xff\xff\1more", "more than 16 MB"),
        (b"\0\0\0\1x", "not its protocol"),
        (packets(b"\xff" + struct.pack("<H", 1927) + b"#70100Connection was killed", first=0), "killed"),
    ],
    ids=["end", "local-infile", "huge", "empty", "killed"],
)
def test_invalid_packets_lose_the_session(peer: Peer, sent: bytes, says: str) -> None:
    peer.ask()
    if sent:
        peer.there.sendall(sent)
    else:
        peer.there.close()
    with pytest.raises(StatementFailure, match=says) as raised:
        peer.session.receive()
    assert raised.value.kind is FailureKind.LOST


def test_sending_on_a_closed_connection_loses_the_session(peer: Peer) -> None:
    peer.there.close()
    with pytest.raises(StatementFailure) as raised:
        for _ in range(3):
            peer.session.send(peer.prepared, (1,))
    assert (raised.value.code, raised.value.kind) == ("2006", FailureKind.LOST)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("1213", FailureKind.RETRYABLE),
        ("1205", FailureKind.RETRYABLE),
        ("1053", FailureKind.LOST),
        ("2013", FailureKind.LOST),
        ("1927", FailureKind.LOST),
        ("1317", FailureKind.ERROR),
        ("1062", FailureKind.LOGICAL),
    ],
)
def test_kinds_of_failures_by_error_number(code: str, kind: FailureKind) -> None:
    assert kind_of(code, frozenset({"1062"})) is kind


# ---- encrypted ------------------------------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "both.pem"
    plain = serialization.NoEncryption()
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return file


def test_an_encrypted_session_reads_all_that_is_decrypted(certificate: Path) -> None:
    """A TLS record holds more bytes than one read takes, and poll() does not report the decrypted rest."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate)
    asking = ssl.create_default_context(cafile=str(certificate))
    asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
    here, there = socket.socketpair()
    wrapped: list[Any] = []
    thread = threading.Thread(target=lambda: wrapped.append(serving.wrap_socket(there, server_side=True)))
    thread.start()
    client = asking.wrap_socket(here)
    thread.join(20)
    (server,) = wrapped
    try:
        file = file_of(client)
        assert isinstance(file, TlsFile)
        session = WireSocket(file, failure_of)
        session.send(InPython.prepared(FIND, 7, (0,)), (41,))
        assert len(server.recv(1000)) == 26
        assert session.receive() is False
        rows = [("x" * 120, number) for number in range(100)]
        server.sendall(answer(*(row(*values) for values in rows)))
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
