"""PostgreSQL on libpq through `psycopg.pq`: prepared statements, pipelines, binary parameters and results."""

from __future__ import annotations

import contextlib
import operator
import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from struct import Struct
from typing import Any, Literal, TypeAlias

from psycopg import Error, OperationalError, ProgrammingError, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from proveout.agent.engines.driver_contract import PURE_PYTHON, FailureKind, PolledSession, StatementFailure, only
from proveout.agent.engines.postgres.protocol import CONNECTION_LOST, among, await_room, lost
from proveout.agent.engines.sessions import Members
from proveout.agent.engines.statement_errors import line_of
from proveout.core.data_classes import dataclass
from proveout.dsl.engines import Dialect
from proveout.dsl.workloads.base import Request, Result, Row, Statement

# The server reports the types when a statement is prepared. A whole number for an integer parameter is sent in binary;
# other values are sent as text, which the server converts. Types that can never match are refused here, before the
# load, so that they do not fail in every transaction.

AS_TEXT = 0  # no type's oid
_OID = 26  # the type of oids, the only integer without a sign
# oid -> (name, smallest, largest)
_INTEGER_TYPES = {
    21: ("smallint", -(2**15), 2**15 - 1),
    23: ("integer", -(2**31), 2**31 - 1),
    20: ("bigint", -(2**63), 2**63 - 1),
    _OID: ("oid", 0, 2**32 - 1),
}
# oid of float4, float8. numeric is left as text: it may hold more digits than a float, and is sent back just as it
# came.
_FLOATS = frozenset({700, 701})
NUMERIC_OUT_OF_RANGE, INVALID_TEXT = "22003", "22P02"


def travels(statement: Statement, oids: Sequence[int]) -> list[int]:
    """The oid of each parameter that travels as what it is, AS_TEXT for the others. StatementFailure for a misfit."""
    ranges = statement.ranges or (None,) * len(oids)
    kinds = statement.arguments
    if len(kinds) != len(oids):
        what = f"statement {statement.name} has {len(kinds)} arguments, but the server finds {len(oids)} in it"
        raise StatementFailure("08P01", what, FailureKind.ERROR)
    for number, (oid, kind, bounds) in enumerate(zip(oids, kinds, ranges, strict=True), 1):
        _check(statement, number, oid, kind, bounds)
    return [oid if kind is int else AS_TEXT for oid, kind in zip(oids, kinds, strict=True)]


def described(oids: Sequence[int]) -> tuple[Callable[[bytes], Any], ...]:
    """Decoders of columns that come as text: int, float, or the text itself."""
    return tuple(int if oid in _INTEGER_TYPES else float if oid in _FLOATS else bytes.decode for oid in oids)


def _check(statement: Statement, number: int, oid: int, kind: type[object], bounds: tuple[int, int] | None) -> None:
    if oid not in _INTEGER_TYPES:
        return
    name, low, high = _INTEGER_TYPES[oid]
    if kind is float:
        what = f"argument {number} has fractions, but the server takes {name} there"
        raise StatementFailure(INVALID_TEXT, f"statement {statement.name}: {what}", FailureKind.ERROR)
    if bounds is not None and not low <= bounds[0] <= bounds[1] <= high:
        what = f"argument {number} goes from {bounds[0]} to {bounds[1]}, but the server takes {name} there"
        raise StatementFailure(NUMERIC_OUT_OF_RANGE, f"statement {statement.name}: {what}", FailureKind.ERROR)


Described: TypeAlias = pq.abc.PGresult
"""The types of a statement's parameters and columns; or the error of the statement that was refused, which is the
last."""


def prepare_group(conn: pq.abc.PGconn, texts: Sequence[tuple[bytes, bytes]]) -> list[Described]:
    """Prepare (name, text) pairs, and wait for the server with the GIL released. The texts of a group fit into the
    buffers of a socket. Raises StatementFailure (lost) and psycopg.OperationalError."""
    conn.enter_pipeline_mode()
    for name, text in texts:
        conn.send_prepare(name, text)
        conn.send_describe_prepared(name)
    conn.pipeline_sync()
    _flush(conn)
    found: list[Described] = []
    for _ in texts:
        parsed = _answer(conn)
        if parsed.status == pq.ExecStatus.FATAL_ERROR and conn.status != pq.ConnStatus.OK:
            return [*found, parsed]
        described = _answer(conn)
        failed = next((one for one in (parsed, described) if one.status == pq.ExecStatus.FATAL_ERROR), None)
        if failed is not None:
            found.append(failed)
            if conn.status != pq.ConnStatus.OK:
                return found
        elif described.status == pq.ExecStatus.COMMAND_OK:
            found.append(described)
    _answer(conn)  # of the Sync
    conn.exit_pipeline_mode()
    return found


def _flush(conn: pq.abc.PGconn) -> None:
    """Send what libpq holds; a server that cannot send its answers does not read either, so they are taken in.
    StatementFailure (lost) and OperationalError."""
    while conn.flush():
        await_room(conn.socket, b"", conn.consume_input)


def _answer(conn: pq.abc.PGconn) -> pq.abc.PGresult:
    """Wait for the answer to a request. StatementFailure (lost)."""
    result: pq.abc.PGresult | None = None
    ready = select.poll()
    ready.register(conn.socket, select.POLLIN)
    while True:
        while conn.is_busy():
            ready.poll()
            conn.consume_input()
        following = conn.get_result()
        if following is None:
            break
        result = following
        if result.status == pq.ExecStatus.PIPELINE_SYNC:
            break
    if result is None:
        raise lost("the server sent no answer")
    return result


_FAILED = (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE)


@dataclass(slots=True)
class LibpqAnswer:
    """The result of one statement of a group."""

    count: int
    result: pq.abc.PGresult
    decoders: Sequence[Callable[[bytes], Any]]

    def rows(self) -> list[Row]:
        return decoded(self.result, self.decoders)


class LibpqPipeline:
    """The prepared statements (`driver.PostgresPrepared`) of a session by name; takes the place of one of them."""

    __slots__ = ("_conn", "_members", "_prepared", "answers", "error")

    def __init__(self, conn: pq.abc.PGconn, prepared: Mapping[str, Any]) -> None:
        self._conn, self._prepared = conn, prepared
        self._members: list[Any] = []
        self.answers: list[LibpqAnswer] = []
        self.error: pq.abc.PGresult | None = None
        """The error that has ended the group: of the statement after those that have `answers`."""

    def send(self, requests: Sequence[Request]) -> None:
        """Send the group. ValueError without a request; OperationalError and StatementFailure (lost)."""
        if not requests:
            raise ValueError("a group without requests")
        self._members = [self._prepared[statement.name] for statement, _ in requests]
        encoded = [each.encode(values) for each, (_, values) in zip(self._members, requests, strict=True)]
        self.answers, self.error = [], None
        self._conn.enter_pipeline_mode()
        for each, values in zip(self._members, encoded, strict=True):
            self._conn.send_query_prepared(each.name, values, each.formats, each.result_format)
        self._conn.pipeline_sync()
        _flush(self._conn)

    def received(self) -> bool:
        """Take the results that have been read; whether that was all. StatementFailure (lost)."""
        while not self._conn.is_busy():
            result = self._conn.get_result()
            if result is None:
                if self._conn.status != pq.ConnStatus.OK:
                    raise lost("the server closed the connection")
                continue
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                self._conn.exit_pipeline_mode()
                return True
            if result.status in _FAILED:
                self.error = self.error or result
                if self._conn.status != pq.ConnStatus.OK:
                    return True
            elif self.error is None:
                member = self._members[len(self.answers)]
                count = _counted(result)
                self.answers.append(LibpqAnswer(count, result, member.decoders))
        return False

    def failed(self) -> tuple[Statement, int, int]:
        """The statement of the `error`: itself, its number in the group, from 1, and the size of the group."""
        count = len(self._members)
        number = min(len(self.answers) + 1, count)
        return self._members[number - 1].statement, number, count


def decoded(result: pq.abc.PGresult, decoders: Sequence[Callable[[bytes], Any]]) -> list[Row]:
    """The rows of a result, decoded."""
    get = result.get_value
    return [
        tuple(None if (value := get(row, column)) is None else decode(value) for column, decode in enumerate(decoders))
        for row in range(result.ntuples)
    ]


# `send` -> `PQsendQueryPrepared`; the loop waits on `fileno`; `receive` -> `PQconsumeInput`, `PQisBusy`, `PQgetResult`.
# Where it was compiled, statements bypass libpq (`postgres.protocol`), which then only connects, prepares and cancels.
# Parameters and columns travel in binary where their type is an integer or text, which the server reports when a
# statement is prepared, else as text.

_DEFAULTS: dict[str, Any] = {"application_name": "proveout", "gssencmode": "disable"}
CONNECT_S = 5.0
_ATTRIBUTES = {"any": "any", "read_write": "read-write", "read_only": "read-only"}
CANCEL_S = 2.0
TEXT, BINARY = 0, 1
RETRYABLE = frozenset({"40001", "40P01"})
CANNOT_CONNECT = "08001"

# oid of int2, int4, int8, oid -> network byte order
_INTEGERS = {21: Struct("!h"), 23: Struct("!i"), 20: Struct("!q"), _OID: Struct("!I")}
# oid of text, varchar, bpchar, name: their binary form is their text
_TEXTS = frozenset({25, 1043, 1042, 19})
# the server is going down, or has cut us off: 57P01 admin_shutdown, 57P02 crash_shutdown, 57P03 cannot_connect_now
_LOST_CODES = frozenset({"57P01", "57P02", "57P03", "57P05"})
_GOOD_STATUS_MAX = int(pq.ExecStatus.TUPLES_OK)
_COPIES = (pq.ExecStatus.COPY_IN, pq.ExecStatus.COPY_OUT)
_NO_COPY = "a session through libpq passes no rows of COPY: use SELECT or INSERT, or COPY with a file of the server"
_AWAITED: dict[int, int] = {pq.PollingStatus.READING: select.POLLIN, pq.PollingStatus.WRITING: select.POLLOUT}

Encode = Callable[[Sequence[Any]], Sequence[bytes | None]]


@dataclass(slots=True)
class PostgresPrepared:
    """A statement that is prepared on one connection: its server-side name, its parameters' oids, how values travel."""

    statement: Statement
    name: bytes
    parameters: list[int]
    encode: Encode
    formats: list[int] | None
    result_format: int
    decoders: tuple[Callable[[bytes], Any], ...]


class PostgresSession:
    """One libpq connection (a `PolledSession`); see the module."""

    __slots__ = (
        "_arrived", "_busy", "_conn", "_consume", "_get", "_group", "_names", "_result", "_send", "_sent", "count",
    )  # fmt: skip

    def __init__(self, conn: pq.abc.PGconn) -> None:
        self._conn = conn
        self._send = conn.send_query_prepared
        self._consume, self._busy, self._get = conn.consume_input, conn.is_busy, conn.get_result
        self._sent: PostgresPrepared | None = None
        self._result: pq.abc.PGresult | None = None
        self._arrived: pq.abc.PGresult | None = None
        """The result of an answer whose end has not come."""
        self._names = 0
        self._group: LibpqPipeline | None = None
        self.count = 0

    @property
    def connection(self) -> pq.abc.PGconn:
        """libpq's."""
        return self._conn

    def fileno(self) -> int:
        return self._conn.socket

    def prepare(self, statement: Statement) -> PostgresPrepared:
        return only(self.prepare_all((statement,)))

    def prepare_all(self, statements: Sequence[Statement]) -> list[PostgresPrepared | StatementFailure]:
        """Prepare, and request the types of parameters and columns, in one round trip. See `PreparesTogether`."""
        first = self._names
        self._names += len(statements)
        names = [b"s%d" % number for number in range(first, self._names)]
        texts = [statement.text["postgres"].encode() for statement in statements]
        try:
            answers = prepare_group(self._conn, list(zip(names, texts, strict=True)))
        except OperationalError as error:
            raise lost(_one_line(str(error))) from None
        return [self._prepared(*each) for each in zip(statements, names, answers, strict=False)]

    def _prepared(
        self, statement: Statement, name: bytes, described: pq.abc.PGresult
    ) -> PostgresPrepared | StatementFailure:
        if described.status > _GOOD_STATUS_MAX:
            return self._refused(described, statement)
        parameters = travels(statement, [described.param_type(i) for i in range(described.nparams)])
        columns = [described.ftype(i) for i in range(described.nfields)]
        binary = all(oid in _INTEGERS or oid in _TEXTS for oid in columns)
        return PostgresPrepared(
            statement=statement,
            name=name,
            parameters=parameters,
            encode=encoder(parameters),
            formats=[TEXT if oid not in _INTEGERS else BINARY for oid in parameters] or None,
            result_format=BINARY if binary else TEXT,
            decoders=decoders(columns, statement, binary=binary),
        )

    def send(self, prepared: PostgresPrepared | LibpqPipeline, arguments: Sequence[Any]) -> None:
        try:
            if isinstance(prepared, LibpqPipeline):
                self._sent, self._group = None, prepared
                prepared.send(arguments)
                return
            self._sent, self._group = prepared, None
            self._send(prepared.name, prepared.encode(arguments), prepared.formats, prepared.result_format)
            _flush(self._conn)
        except OperationalError as error:
            raise lost(_one_line(str(error))) from None

    def receive(self) -> bool:
        """Read; True when the statement has ended and `count` stands."""
        try:
            self._consume()
        except OperationalError as error:
            raise lost(_one_line(str(error))) from None
        if self._group is not None:
            return self._received(self._group)
        while not self._busy():  # where it is, `_get` would wait for the server, and hold the GIL
            result, earlier, self._arrived = self._get(), self._arrived, None
            if result is None:
                if earlier is None or self._sent is None:
                    return False
                self._result = earlier
                self.count = _counted(earlier)
                return True
            if result.status > _GOOD_STATUS_MAX:
                self._fail(result)
            if earlier is not None:
                raise lost("the server sent a second answer")
            self._arrived = result
        return False

    def _received(self, group: LibpqPipeline) -> bool:
        """The part of `receive` for a group."""
        try:
            if not group.received():
                return False
        except OperationalError as error:
            raise lost(_one_line(str(error))) from None
        if group.error is not None:
            raise self._failure(group.error, *group.failed())
        self.count = group.answers[-1].count
        return True

    def exchange(self, prepared: PostgresPrepared | LibpqPipeline, arguments: Sequence[Any]) -> bool:
        """Send, and read at once."""
        self.send(prepared, arguments)
        return self.receive()

    def rows(self) -> list[Row]:
        """Decode the rows of the last statement."""
        if self._result is None or self._sent is None:
            return []
        return decoded(self._result, self._sent.decoders)

    def pipeline(self, prepared: dict[str, PostgresPrepared]) -> LibpqPipeline:
        return LibpqPipeline(self._conn, prepared)

    def results(self) -> list[Result]:
        return [] if self._group is None else list(self._group.answers)

    def cancel(self) -> None:
        """Send a cancel request over a connection of its own; gives up after CANCEL_S when the server does not take
        it."""
        try:
            request = self._conn.cancel_conn()
            request.start()
            deadline = time.monotonic() + CANCEL_S
            while (status := request.poll()) in _AWAITED and _wait_until(request.socket, _AWAITED[status], deadline):
                pass
            request.finish()
        except Error:
            return  # the connection is gone, and with it the statement

    def close(self) -> None:
        """Close the socket; the server ends the session when it notices."""
        self._conn.finish()

    def _fail(self, result: pq.abc.PGresult) -> None:
        """Raise what went wrong, with the connection drained, so that it can be used again."""
        statement = self._sent.statement if self._sent else None
        failure = self._failure(result, statement)
        if statement is not None and result.status in _COPIES:
            failure = StatementFailure("0A000", f"statement {statement.name}: {_NO_COPY}", FailureKind.ERROR)
        if failure.kind is not FailureKind.LOST:
            try:
                following: pq.abc.PGresult | None = result
                while following is not None:
                    if following.status == pq.ExecStatus.COPY_IN:
                        self._conn.put_copy_end(b"a load sends no rows")
                    while following.status == pq.ExecStatus.COPY_OUT and self._conn.get_copy_data(0)[0] > 0:
                        pass
                    following = self._get()
            except OperationalError as error:
                raise lost(_one_line(str(error))) from None
        raise failure

    def _failure(
        self, result: pq.abc.PGresult, statement: Statement | None, number: int = 0, count: int = 0
    ) -> StatementFailure:
        state = result.error_field(pq.DiagnosticField.SQLSTATE)
        text = _one_line(result.get_error_message())
        if count and statement is not None:
            text += among(statement, number, count)
        if self._conn.status != pq.ConnStatus.OK:
            return lost(text, state.decode() if state else CONNECTION_LOST)
        return failure_of(state.decode() if state else "XX000", text, statement)

    def _refused(self, result: pq.abc.PGresult, statement: Statement) -> StatementFailure:
        """The failure of a statement that the server did not prepare."""
        failure = self._failure(result, None)
        position = result.error_field(pq.DiagnosticField.STATEMENT_POSITION)
        line = line_of(statement.text["postgres"], int(position) - 1) if position else 0
        return StatementFailure(failure.code, f"statement {statement.name}: {failure.what}", failure.kind, line)


class PostgresDriver:
    """Connects with a libpq conninfo."""

    dialect: Dialect = "postgres"
    waits: Literal["polled"] = "polled"

    def connect(self, dsn: str) -> PolledSession:
        """A new connection to the first host of the conninfo that accepts it."""
        session: PolledSession = Members(self, (dsn,), "").connect(0)
        return session

    def members(self, dsn: str) -> tuple[str, ...]:
        """A conninfo for each host, as libpq tries them: in order; with `prefer-standby`, all of them twice."""
        return hosts_of(_given(dsn))

    def open(self, dsn: str, *, access: str, within_s: float | None) -> PolledSession:
        """A new connection to one host, within its `connect_timeout`, or `within_s`, or 5 s. The password is in no
        message of libpq's."""
        parameters = {**_DEFAULTS, **_given(dsn)}
        given = parameters.pop("connect_timeout", None) or "0"
        try:
            limit_s = max(int(float(given)), 0) or within_s or CONNECT_S
        except (ValueError, OverflowError):
            raise lost(f"bad value for connect_timeout: {given!r}", CANNOT_CONNECT) from None
        parameters["client_encoding"] = "UTF8"
        if access:
            parameters["target_session_attrs"] = _ATTRIBUTES[access]
        conn = _connected(make_conninfo("", **parameters), limit_s)
        conn.nonblocking = 1
        session = PostgresSession(conn)
        return session_of(session) if parameters["gssencmode"] == "disable" else session


def _given(dsn: str) -> dict[str, Any]:
    try:
        return conninfo_to_dict(dsn)
    except ProgrammingError as error:
        raise lost(_one_line(str(error)), CANNOT_CONNECT) from None


def _connected(conninfo: str, limit_s: float) -> pq.abc.PGconn:
    """Connect, with the GIL released while waiting: `PGconn.connect` would hold it, and stop every other terminal."""
    deadline_s = time.monotonic() + limit_s
    conn = pq.PGconn.connect_start(conninfo.encode())
    waits_for = select.POLLOUT
    try:
        while conn.status != pq.ConnStatus.BAD:
            if not _wait_until(conn.socket, waits_for, deadline_s):
                text = f"connection to {_place(conn)} failed: no answer within {limit_s:g} s"
                raise lost(text, CANNOT_CONNECT)
            if (status := conn.connect_poll()) == pq.PollingStatus.OK:
                return conn
            if status not in _AWAITED:
                break
            waits_for = _AWAITED[status]
        raise lost(_one_line(conn.get_error_message()), CANNOT_CONNECT)
    except OperationalError as error:
        conn.finish()
        raise lost(_one_line(str(error)), CANNOT_CONNECT) from None
    except BaseException:
        conn.finish()
        raise


def _place(conn: pq.abc.PGconn) -> str:
    """The host and port that a connection is made to."""
    host, port = conn.host.decode(), conn.port.decode()
    return f'server on socket "{host}/.s.PGSQL.{port}"' if host.startswith("/") else f'server at "{host}", port {port}'


def _wait_until(fd: int, event: int, deadline_s: float) -> bool:
    """Wait until a descriptor can be read or written. Returns False after the deadline."""
    ready = select.poll()
    ready.register(fd, event)
    return bool(ready.poll(max(deadline_s - time.monotonic(), 0.0) * 1000))


def hosts_of(given: dict[str, Any]) -> tuple[str, ...]:
    """The parts of a conninfo with several hosts, as conninfos with one each.

    >>> hosts_of({"host": "a,b", "port": "1", "dbname": "x"})
    ('dbname=x host=a port=1', 'dbname=x host=b port=1')
    """
    lists = {key: str(given[key]).split(",") for key in ("host", "hostaddr", "port") if given.get(key)}
    count = max((len(lists[key]) for key in ("host", "hostaddr") if key in lists), default=1)
    rest = {key: value for key, value in given.items() if key not in lists and key != "load_balance_hosts"}
    ways = ("standby", "any") if rest.get("target_session_attrs") == "prefer-standby" else ("",)
    found = []
    for way in ways:
        for index in range(count):
            own = {key: each[index] if len(each) == count else given[key] for key, each in lists.items()}
            parts = {**rest, **own, **({"target_session_attrs": way} if way else {})}
            found.append(make_conninfo("", **parts))
    return tuple(found)


def session_of(libpq: PostgresSession) -> PolledSession:
    """The fastest session over a connection: the compiled one where it was built and, for TLS, OpenSSL is within reach;
    else libpq's."""
    if not os.environ.get(PURE_PYTHON):
        with contextlib.suppress(ImportError):
            native = import_module("proveout.agent.engines.postgres.native_session")
            compiled: PolledSession | None = native.session_over(libpq)
            return compiled or libpq
    return libpq


def kinds_of(prepared: PostgresPrepared) -> list[str | None]:
    """The format of each parameter: struct's letter of a binary integer, or None for text."""
    return [_INTEGERS[oid].format[-1:] if oid in _INTEGERS else None for oid in prepared.parameters]


def failure_of(code: str, text: str, statement: Statement | None) -> StatementFailure:
    """The failure of a statement (None: of the connection) with an SQLSTATE and the server's words."""
    is_lost = code in _LOST_CODES or code.startswith("08")
    kind = FailureKind.of(code, statement, retryable=code in RETRYABLE, lost=is_lost)
    return StatementFailure(code, _one_line(text), kind)


def encoder(oids: Sequence[int]) -> Encode:
    """A function from argument values to what goes into the Bind message, for parameters of these types."""
    each = [_INTEGERS[oid].pack if oid in _INTEGERS else _text for oid in oids]
    if len(each) == 1:
        (only,) = each
        return lambda arguments: (only(arguments[0]),)
    if len(each) == 2:
        first, second = each
        return lambda arguments: (first(arguments[0]), second(arguments[1]))
    return lambda arguments: [*map(operator.call, each, arguments)]


def decoders(oids: Sequence[int], statement: Statement, *, binary: bool) -> tuple[Callable[[bytes], Any], ...]:
    """A function per column from the bytes of a value to it."""
    if binary:
        return tuple(_unsigned if oid == _OID else binary_integer if oid in _INTEGERS else bytes.decode for oid in oids)
    if not statement.columns:
        return described(oids)
    return tuple(int if kind is int else bytes.decode for kind in statement.columns)


def _counted(result: pq.abc.PGresult) -> int:
    """The count of a command; the rows where it has none, as SHOW and EXPLAIN."""
    count = result.command_tuples
    return result.ntuples if count is None else count


def _text(value: Any) -> bytes | None:
    """StatementFailure in the server's words for a text that libpq would end at its first zero."""
    text = None if value is None else str(value).encode()
    if text is not None and b"\0" in text:
        raise failure_of("22021", 'invalid byte sequence for encoding "UTF8": 0x00', None)
    return text


def binary_integer(value: bytes) -> int:
    """An integer as the server sends it in binary, of any size."""
    return int.from_bytes(value, "big", signed=True)


def _unsigned(value: bytes) -> int:
    return int.from_bytes(value, "big")


def _one_line(text: str) -> str:
    """libpq's message without its line breaks and without the word ERROR before it."""
    return " ".join(text.replace("\n", " ").split()).removeprefix("ERROR: ").removeprefix("FATAL: ")
