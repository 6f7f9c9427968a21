"""The wire session, in Python and compiled, against a peer that splits its answers at any byte and sends invalid
answers."""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.engines.postgres.driver import binary_integer, failure_of
from proveout.agent.engines.postgres.wire.protocol import (
    Failures,
    WirePrepared,
    WireSocket,
    around,
    connection_lost,
    message,
    send_rest,
)
from proveout.dsl.workloads.base import Statement

FIND = Statement(name="find", text={"postgres": "SELECT"}, arguments=(int,), columns=(str, str))


def part(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!I", 4 + len(body)) + body


def row(*values: bytes | None) -> bytes:
    columns = b"".join(b"\xff" * 4 if v is None else struct.pack("!I", len(v)) + v for v in values)
    return part(b"D", struct.pack("!H", len(values)) + columns)


def answer(*rows: bytes, status: bytes = b"I") -> bytes:
    tag = part(b"C", b"SELECT %d\0" % len(rows))
    return part(b"2") + b"".join(rows) + tag + part(b"Z", status)


class InPython:
    """The session in Python, and its prepared statements."""

    @staticmethod
    def session(fd: int) -> Any:
        return WireSocket(fd, failure_of)

    @staticmethod
    def prepared(statement: Statement, name: bytes, kinds: list[str | None], columns: int = 0) -> Any:
        return WirePrepared(statement, message(name, kinds, 1), (bytes.decode,) * columns)

    integer = staticmethod(binary_integer)


class Compiled:
    """The same, compiled."""

    @staticmethod
    def session(fd: int) -> Any:
        from proveout.agent.engines.postgres.wire.protocol_native import Wire

        os.set_blocking(fd, False)  # as libpq leaves it
        return Wire(fd, Failures(failure_of).of, connection_lost, send_rest)

    @staticmethod
    def prepared(statement: Statement, name: bytes, kinds: list[str | None], columns: int = 0) -> Any:
        from proveout.agent.engines.postgres.wire.protocol_native import Prepared

        head, tail = around(name, kinds, 1)
        return Prepared(statement, head, tuple(kinds), tail, (bytes.decode,) * columns)

    integer = None


class Peer:
    def __init__(self, way: type[InPython | Compiled]) -> None:
        self.way = way
        self.here, self.there = socket.socketpair()
        self.session = way.session(self.here.fileno())
        self.prepared = way.prepared(FIND, b"s0", ["i"], 2)

    def sent(self, kinds: list[str | None], values: tuple[Any, ...], name: bytes = b"s1") -> bytes:
        """The bytes that the session sends for these arguments."""
        self.session.send(self.way.prepared(FIND, name, kinds), values)
        return self.there.recv(1 << 20)

    def ask(self) -> bytes:
        self.session.send(self.prepared, (7,))
        return self.there.recv(1000)

    def close(self) -> None:
        self.here.close()
        self.there.close()


@pytest.fixture(params=[InPython, Compiled])
def way(request: pytest.FixtureRequest) -> type[InPython | Compiled]:
    if request.param is Compiled:
        pytest.importorskip(
            "proveout.agent.engines.postgres.wire.protocol_native", reason="the hot path was not compiled here"
        )
    return cast("type[InPython | Compiled]", request.param)


@pytest.fixture
def peer(way: type[InPython | Compiled]) -> Iterator[Peer]:
    peer = Peer(way)
    yield peer
    peer.close()


def test_the_message_is_the_protocol_s(peer: Peer) -> None:
    """Bind, Execute, Sync, written out by hand from the protocol's description."""
    bind = (
        b"\0s0\0"
        + struct.pack("!HH", 1, 1)
        + struct.pack("!H", 1)
        + struct.pack("!ii", 4, 7)
        + struct.pack("!HH", 1, 1)
    )
    assert peer.ask() == part(b"B", bind) + part(b"E", b"\0" + struct.pack("!I", 0)) + part(b"S")


def test_text_and_integers_in_one_message(peer: Peer) -> None:
    bind = (
        b"\0s1\0"
        + struct.pack("!HHH", 2, 0, 1)
        + struct.pack("!H", 2)
        + struct.pack("!I", 3)
        + "né".encode()
        + struct.pack("!ih", 2, -5)
        + struct.pack("!HH", 1, 1)
    )
    expected = part(b"B", bind) + part(b"E", b"\0" + struct.pack("!I", 0)) + part(b"S")
    assert peer.sent([None, "h"], ("né", -5)) == expected


@pytest.mark.parametrize("count", range(1, 7))
def test_any_number_of_integers(peer: Peer, count: int) -> None:
    values = tuple(range(-1, count - 1))
    packed = b"".join(struct.pack("!iq", 8, value) for value in values)
    formats = struct.pack(f"!H{count}HH", count, *[1] * count, count)
    bind = b"\0n\0" + formats + packed + struct.pack("!HH", 1, 1)
    expected = part(b"B", bind) + part(b"E", b"\0" + struct.pack("!I", 0)) + part(b"S")
    assert peer.sent(["q"] * count, values, b"n") == expected


@pytest.mark.parametrize("text", ["", "one", "x" * 70_000, "☃"])
def test_one_text(peer: Peer, text: str) -> None:
    value = text.encode()
    bind = b"\0t\0" + struct.pack("!HHH", 1, 0, 1) + struct.pack("!I", len(value)) + value + struct.pack("!HH", 1, 1)
    expected = part(b"B", bind) + part(b"E", b"\0" + struct.pack("!I", 0)) + part(b"S")
    assert peer.sent([None], (text,), b"t") == expected == peer.sent([None], (text,), b"t")


def test_no_parameters(peer: Peer) -> None:
    bind = b"\0b\0" + struct.pack("!HH", 0, 0) + struct.pack("!HH", 1, 1)
    assert peer.sent([], (), b"b") == part(b"B", bind) + part(b"E", b"\0" + struct.pack("!I", 0)) + part(b"S")


@given(st.lists(st.integers(1, 400), max_size=12), st.integers(0, 3), st.sampled_from([b"I", b"T"]))
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_an_answer_split_at_any_byte_is_the_same_answer(
    way: type[InPython | Compiled], cuts: list[int], rows: int, status: bytes
) -> None:
    peer = Peer(way)
    try:
        # the second column contains the bytes of the end of an answer
        values = [(b"one", answer(status=status)), (b"two", None), (b"", b"x" * 60)][:rows]
        whole = answer(*(row(*value) for value in values), status=status)
        peer.ask()
        edges = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
        ended = []
        for begin, end in pairwise(edges):
            peer.there.sendall(whole[begin:end])
            ended.append(peer.session.receive())
        assert ended == [False] * (len(ended) - 1) + [True]
        assert peer.session.count == rows
        decoded = [(a.decode(), None if b is None else b.decode()) for a, b in values]
        assert peer.session.rows() == decoded
    finally:
        peer.close()


@given(st.lists(st.tuples(st.sampled_from([2, 4, 8]), st.integers(-(2**15), 2**15 - 1), st.integers()), max_size=4))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_binary_integers(way: type[InPython | Compiled], drawn: list[tuple[int, int, int]]) -> None:
    """Of two, four and eight bytes, negative ones too, beside text and NULL."""
    peer = Peer(way)
    try:
        values = [small if size == 2 else wide % 2 ** (8 * size) - 2 ** (8 * size - 1) for size, small, wide in drawn]
        packed = [value.to_bytes(size, "big", signed=True) for value, (size, _, _) in zip(values, drawn, strict=True)]
        statement = way.prepared(FIND, b"s0", ["i"], 0)
        decoders = (way.integer,) * len(values) + (bytes.decode, bytes.decode)
        if way is InPython:
            statement.decoders = decoders
        else:
            head, tail = around(b"s0", ["i"], 1)
            statement = type(statement)(FIND, head, ("i",), tail, decoders)
        peer.session.send(statement, (7,))
        peer.there.sendall(answer(row(*packed, b"text", None)))
        assert peer.session.receive()
        assert peer.session.rows() == [(*values, "text", None)]
    finally:
        peer.close()


def test_receive_without_data_is_not_the_end(peer: Peer) -> None:
    assert peer.session.receive() is False


def test_a_notice_after_the_answer_does_not_change_it(peer: Peer) -> None:
    for _ in range(2):
        peer.ask()
        peer.there.sendall(answer(row(b"a", b"b")) + part(b"N", b"Mnote\0\0"))
        assert peer.session.receive()
        assert peer.session.rows() == [("a", "b")]


def test_an_error_and_then_good_answers(peer: Peer) -> None:
    peer.ask()
    peer.there.sendall(part(b"E", b"SERROR\0VERROR\0C40001\0Mno\nway\0\0") + part(b"Z", b"E"))
    with pytest.raises(StatementFailure, match="no way") as raised:
        peer.session.receive()
    assert raised.value.kind is FailureKind.RETRYABLE
    peer.ask()
    peer.there.sendall(answer())
    assert peer.session.receive()
    assert peer.session.count == 0


def test_repeated_expected_errors(peer: Peer) -> None:
    insert = Statement(name="in", text={"postgres": "I"}, arguments=(int,), logical_errors=frozenset({"23505"}))
    prepared = peer.way.prepared(insert, b"s1", ["i"])
    for number in range(3):
        peer.session.send(prepared, (number,))
        peer.there.sendall(part(b"E", b"SERROR\0VERROR\0C23505\0Mtwice\0DKey C4 V\0\0") + part(b"Z", b"T"))
        with pytest.raises(StatementFailure, match="twice") as raised:
            peer.session.receive()
        assert (raised.value.code, raised.value.kind) == ("23505", FailureKind.LOGICAL)
        assert len(raised.traceback) < 6
    peer.ask()  # another statement does not expect it
    peer.there.sendall(part(b"E", b"VERROR\0C23505\0Mother\0\0") + part(b"Z", b"T"))
    with pytest.raises(StatementFailure, match="other") as raised:
        peer.session.receive()
    assert raised.value.kind is FailureKind.ERROR


def test_an_expected_error_and_then_the_end_is_a_lost_connection(peer: Peer) -> None:
    """A server that stops between the error and ReadyForQuery: the result is a lost connection, not a logical failure."""
    insert = Statement(name="in", text={"postgres": "I"}, arguments=(int,), logical_errors=frozenset({"23505"}))
    peer.session.send(peer.way.prepared(insert, b"s1", ["i"]), (1,))
    peer.there.sendall(part(b"E", b"SERROR\0VERROR\0C23505\0Mtwice\0\0"))
    assert peer.session.receive() is False
    peer.there.close()
    with pytest.raises(StatementFailure) as raised:
        peer.session.receive()
    assert (raised.value.code, raised.value.kind) == ("08006", FailureKind.LOST)


def test_a_fatal_error_and_the_end(peer: Peer) -> None:
    peer.ask()
    peer.there.sendall(part(b"E", b"VFATAL\0C53300\0Mtoo many\0\0"))
    assert peer.session.receive() is False
    peer.there.close()
    with pytest.raises(StatementFailure, match="too many") as raised:
        peer.session.receive()
    assert (raised.value.code, raised.value.kind) == ("53300", FailureKind.LOST)


def test_a_closed_connection_without_a_message_is_a_lost_connection(peer: Peer) -> None:
    peer.ask()
    peer.there.close()
    with pytest.raises(StatementFailure) as raised:
        peer.session.receive()
    assert raised.value.kind is FailureKind.LOST
    with pytest.raises(StatementFailure):
        peer.session.send(peer.prepared, (1,))


def test_garbage_is_a_lost_connection(peer: Peer) -> None:
    peer.ask()
    peer.there.sendall(b"HTTP\0\0\0\0 and so on")
    with pytest.raises(StatementFailure, match="protocol") as raised:
        for _ in range(3):
            peer.session.receive()
    assert raised.value.kind is FailureKind.LOST


def test_a_message_longer_than_the_kernel_s_buffer(peer: Peer) -> None:
    long = "x" * 3_000_000
    got = bytearray()

    def swallow() -> None:
        while len(got) < len(long):
            got.extend(peer.there.recv(1 << 16))

    reader = threading.Thread(target=swallow)
    reader.start()
    peer.session.send(peer.way.prepared(FIND, b"s0", [None]), (long,))
    reader.join(10)
    assert long.encode() in got


@pytest.mark.parametrize(("kind", "value"), [("h", 2**15), ("i", 2**31), ("i", -(2**31) - 1), ("I", -1), ("q", 2**63)])
def test_an_integer_that_does_not_fit_is_refused(peer: Peer, kind: str, value: int) -> None:
    with pytest.raises((OverflowError, struct.error)):
        peer.sent([kind], (value,))


def test_the_bounds_of_integers(peer: Peer) -> None:
    values = (-(2**15), 2**15 - 1, -(2**31), 2**31 - 1, 0, 2**32 - 1, -(2**63), 2**63 - 1)
    kinds = ["h", "h", "i", "i", "I", "I", "q", "q"]
    packed = b"".join(struct.pack(f"!i{k}", struct.calcsize(f"!{k}"), v) for k, v in zip(kinds, values, strict=True))
    assert packed in peer.sent(list(kinds), values)


def test_an_error_before_anything_was_sent(peer: Peer) -> None:
    peer.there.sendall(part(b"E", b"VFATAL\0C57P01\0Mgoing down\0\0"))
    assert peer.session.receive() is False
    peer.there.close()
    with pytest.raises(StatementFailure, match="going down") as raised:
        peer.session.receive()
    assert raised.value.kind is FailureKind.LOST


def test_too_few_arguments(peer: Peer) -> None:
    with pytest.raises((ValueError, IndexError, struct.error)):
        peer.sent(["i", "i"], (1,))


@pytest.mark.parametrize(("kinds", "values"), [([None], (None,)), ([None, "h"], (None, 7)), (["h", None], (7, None))])
def test_null_is_a_length_of_minus_one(peer: Peer, kinds: list[str | None], values: tuple[Any, ...]) -> None:
    parts = [struct.pack("!i", -1) if value is None else struct.pack("!ih", 2, value) for value in values]
    assert struct.pack("!H", len(values)) + b"".join(parts) + struct.pack("!HH", 1, 1) in peer.sent(kinds, values)


# ---- groups --------------------------------------------------------------------------------------------------------

CHANGE = Statement(name="change", text={"postgres": "UPDATE"}, arguments=(int,), reads=False)


def grouped(peer: Peer) -> Any:
    """The group's stand-in for a prepared statement, with FIND and CHANGE."""
    return peer.session.pipeline({"find": peer.prepared, "change": peer.way.prepared(CHANGE, b"s1", ["i"])})


def test_a_group_is_one_message_with_one_sync(peer: Peer) -> None:
    sync = part(b"S")
    change = peer.way.prepared(CHANGE, b"s1", ["i"])
    single = [peer.ask(), b""]
    peer.session.send(change, (8,))
    single[1] = peer.there.recv(1000)
    peer.session.send(grouped(peer), ((FIND, (7,)), (CHANGE, (8,)), (FIND, (7,))))
    assert peer.there.recv(1000) == b"".join(one.removesuffix(sync) for one in (*single, single[0])) + sync
    assert peer.ask() == single[0]


def test_a_group_without_requests_is_refused(peer: Peer) -> None:
    with pytest.raises(ValueError, match="without requests"):
        peer.session.send(grouped(peer), ())


@given(st.lists(st.integers(1, 300), max_size=12))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_the_answer_to_a_group_split_at_any_byte(way: type[InPython | Compiled], cuts: list[int]) -> None:
    peer = Peer(way)
    try:
        two = [(b"one", answer()), (b"two", None)]
        whole = part(b"2") + row(*two[0]) + row(*two[1]) + part(b"C", b"SELECT 2\0")
        whole += part(b"2") + part(b"N", b"Mnote\0\0") + part(b"C", b"UPDATE 12\0")
        whole += part(b"2") + part(b"C", b"SELECT 0\0") + part(b"Z", b"T")
        peer.session.send(grouped(peer), ((FIND, (7,)), (CHANGE, (8,)), (FIND, (9,))))
        edges = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
        ended = []
        for begin, end in pairwise(edges):
            peer.there.sendall(whole[begin:end])
            ended.append(peer.session.receive())
        assert ended == [False] * (len(ended) - 1) + [True]
        results = peer.session.results()
        peer.ask()
        peer.there.sendall(answer(row(b"a", b"b")))  # of another statement: the group's results stay
        assert peer.session.receive()
        assert (peer.session.count, peer.session.rows(), peer.session.results()) == (1, [("a", "b")], [])
        assert [result.count for result in results] == [2, 12, 0]
        decoded = [(a.decode(), None if b is None else b.decode()) for a, b in two]
        assert [result.rows() for result in results] == [decoded, [], []]
    finally:
        peer.close()


def test_an_error_in_a_group_names_its_statement(peer: Peer) -> None:
    requests = ((FIND, (7,)), (CHANGE, (8,)), (FIND, (9,)))
    error = part(b"E", b"SERROR\0VERROR\0C40P01\0Mdeadlock\0\0")
    for _ in range(2):  # the second time after a failed group
        peer.session.send(grouped(peer), requests)
        peer.there.sendall(part(b"2") + part(b"C", b"SELECT 0\0") + error)
        assert peer.session.receive() is False
        peer.there.sendall(part(b"Z", b"E"))
        with pytest.raises(StatementFailure, match=r"deadlock \(statement change, 2 of 3 sent together\)") as raised:
            peer.session.receive()
        assert raised.value.kind is FailureKind.RETRYABLE
    peer.ask()
    peer.there.sendall(error + part(b"Z", b"E"))
    with pytest.raises(StatementFailure) as raised:
        peer.session.receive()
    assert raised.value.what == "deadlock"


def test_a_group_longer_than_the_kernel_s_buffers_both_ways(peer: Peer) -> None:
    """A server that answers while it reads, and stops reading while its answers are not read."""
    say = Statement(name="say", text={"postgres": "SELECT"}, arguments=(str,), columns=(str,))
    pipeline = peer.session.pipeline({"say": peer.way.prepared(say, b"s2", [None], 1)})
    words = [letter * 400_000 for letter in "abcdefgh"]

    def echo() -> None:
        got = 0
        for number, word in enumerate(words, start=1):
            while got < number * len(word):
                got += len(peer.there.recv(1 << 20))
            peer.there.sendall(part(b"2") + row(word.encode()) + part(b"C", b"SELECT 1\0"))
        peer.there.sendall(part(b"Z", b"I"))

    server = threading.Thread(target=echo)
    server.start()
    peer.session.send(pipeline, tuple((say, (word,)) for word in words))
    while not peer.session.receive():
        select.select([peer.here], [], [], 10)
    server.join(10)
    assert [result.rows() for result in peer.session.results()] == [[(word,)] for word in words]
