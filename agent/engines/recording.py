"""The conversation with a server, recorded and replayed: statements, types of binds and columns, numbers of rows,
errors, times. No data, and no name that is not proveout's own.

Data flow: an adapter connects through `tapped` -> within `recording(...)` the connection is a `Recorded`, which notes
each statement in a `Conversation` -> `to_text` -> a file. Within `replaying(...)` the same call gives a `Replayed`,
which answers from the file, with as many rows as the server gave and a value of the recorded type in each column;
`UnknownStatement` for what the file does not have. Sessions of drivers that take the socket over from their client
library are recorded and replayed by the contract of drivers (`RecordedDriver`, `ReplayedDriver`).
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from types import SimpleNamespace, TracebackType
from typing import Any, Literal, NamedTuple

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.engines.table import COMMENT
from proveout.core.data_classes import dataclass, field
from proveout.core.errors import ProveoutError
from proveout.dsl.engines import Dialect
from proveout.dsl.workloads.base import Row, Statement

CONNECT = "CONNECT"
"""The name of connecting among the statements."""
FORMAT = 1


class UnknownStatement(ProveoutError):
    """A statement that the file of a conversation does not have: the code has changed since it was recorded."""


@dataclass(slots=True, kw_only=True)
class Exchange:
    """A statement and its answer. `binds`: types; `columns`: (name, the server's type, the type in Python) each;
    `rows`: returned or affected, -1 for unknown; `error`: (class, code, text), () for none. `times`: how often the
    same came in a row, `ms` the first time."""

    statement: str
    binds: tuple[str, ...] = ()
    columns: tuple[tuple[str, str, str], ...] = ()
    rows: int = -1
    error: tuple[str, ...] = ()
    ms: float = 0.0
    times: int = 1

    @property
    def content(self) -> tuple[Any, ...]:
        """All but the times."""
        return self.statement, self.binds, self.columns, self.rows, self.error


@dataclass(slots=True, kw_only=True)
class Conversation:
    """All exchanges with one server, in order. `hidden`: words that are written as `<hidden>`, such as those of the
    dsn; `facts`: the versions of the server and of its client."""

    engine: str
    facts: dict[str, str] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)
    exchanges: list[Exchange] = field(default_factory=list)
    hidden: frozenset[str] = frozenset()
    _next: dict[str, list[Exchange]] = field(default_factory=dict)

    def note(self, exchange: Exchange) -> Exchange:
        """Add an exchange."""
        self.exchanges.append(exchange)
        return exchange

    def answer(self, statement: str) -> Exchange:
        """The next answer to a statement; the last one again after it. UnknownStatement."""
        if not self._next:
            for one in reversed(self.exchanges):
                self._next.setdefault(one.statement, []).extend([one] * one.times)
        found = self._next.get(statement)
        if not found:
            raise UnknownStatement(f"the recorded conversation does not have: {statement}")
        return found.pop() if len(found) > 1 else found[0]

    def hide(self, text: str) -> str:
        """A text of the server without addresses, and without the words of the dsn."""
        text = _ADDRESS.sub("<address>", text)
        if self.hidden:
            words = "|".join(re.escape(word) for word in sorted(self.hidden, key=len, reverse=True))
            text = re.sub(rf"(?<![\w]){'(?:' + words + ')'}(?![\w])", "<hidden>", text, flags=re.I)
        return text

    def to_text(self) -> str:
        """The file: JSON, one exchange a line."""
        merged: list[Exchange] = []
        for one in self.exchanges:
            if merged and merged[-1].content == one.content:
                merged[-1].times += one.times
            else:
                merged.append(Exchange(**{name: getattr(one, name) for name in _FIELDS}))
        head = json.dumps({"format": FORMAT, "engine": self.engine, "facts": self.facts, "results": self.results})
        lines = ",\n".join(json.dumps(self._plain(one), ensure_ascii=False) for one in merged)
        return f'{head[:-1]}, "exchanges": [\n{lines}\n]}}\n'

    def _plain(self, one: Exchange) -> dict[str, Any]:
        plain = {name: getattr(one, name) for name in _FIELDS}
        plain["ms"] = round(one.ms, 2)
        plain["error"] = tuple(self.hide(text) for text in one.error)
        return {name: value for name, value in plain.items() if value not in ((), None) or name == "statement"}


_FIELDS = ("statement", "binds", "columns", "rows", "error", "ms", "times")
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\[[0-9a-f:]+\](?::\d+)?", re.I)


def from_text(text: str) -> Conversation:
    """The conversation of a file. ProveoutError for another text."""
    try:
        plain = json.loads(text)
        if plain["format"] != FORMAT:
            raise ValueError(f"format {plain['format']}")
        exchanges = [Exchange(**{name: _frozen(value) for name, value in one.items()}) for one in plain["exchanges"]]
        return Conversation(engine=plain["engine"], facts=plain["facts"], results=plain["results"], exchanges=exchanges)
    except (ValueError, KeyError, TypeError) as error:
        raise ProveoutError(f"not a recorded conversation of this release: {error}") from None


def _frozen(value: Any) -> Any:
    return tuple(_frozen(one) for one in value) if isinstance(value, list) else value


# ---- the tap ---------------------------------------------------------------------------------------------------------

_conversation: ContextVar[tuple[Literal["record", "replay"], Conversation] | None] = ContextVar("tap", default=None)


@contextlib.contextmanager
def recording(conversation: Conversation | None) -> Iterator[None]:
    """Record connections that are opened within; with None, do not."""
    token = _conversation.set(None if conversation is None else ("record", conversation))
    try:
        yield
    finally:
        _conversation.reset(token)


@contextlib.contextmanager
def replaying(conversation: Conversation) -> Iterator[None]:
    """Answer connections that are opened within from a file."""
    token = _conversation.set(("replay", conversation))
    try:
        yield
    finally:
        _conversation.reset(token)


def tapped(connect: Callable[[], Any], errors: Any) -> Any:
    """The connection that `connect` makes, recorded or replayed where that is wanted. `errors`: the module of the
    client library, whose errors a replay raises."""
    found = _conversation.get()
    if found is None:
        return connect()
    mode, conversation = found
    if mode == "replay":
        raised(conversation.answer(CONNECT), errors)
        return Replayed(conversation, errors)
    exchange = conversation.note(Exchange(statement=CONNECT))
    with _timed(exchange):
        return Recorded(connect(), conversation)


@contextlib.contextmanager
def _timed(exchange: Exchange) -> Iterator[None]:
    """Note the time, and the error of a client library as its class, code and text."""
    began = time.perf_counter()
    try:
        yield
    except Exception as error:
        exchange.error = _error(error)
        raise
    finally:
        exchange.ms = (time.perf_counter() - began) * 1e3


def _error(error: Exception) -> tuple[str, str, str]:
    if isinstance(error, StatementFailure):
        return error.kind.value, error.code, error.what
    inner: Any = error.args[0] if error.args else None
    code = getattr(error, "code", None) or getattr(error, "sqlstate", None) or getattr(inner, "full_code", None)
    code = code or (inner if isinstance(inner, int) else "")
    text = error.what if isinstance(error, ProveoutError) else str(error.args[1] if isinstance(inner, int) else error)
    return type(error).__name__, str(code), " ".join(text.split())


def raised(exchange: Exchange, errors: Any) -> None:
    """Raise the error of an exchange as the client library raised it."""
    if not exchange.error:
        return
    name, code, text = exchange.error
    lookup = getattr(getattr(errors, "errors", None), "lookup", None)  # psycopg has a class for each SQLSTATE
    kind = lookup(code) if lookup and code else getattr(errors, name, None) or errors.DatabaseError
    raise kind(*((int(code), text) if code.isdigit() and not lookup else (text,)))


_RUN = frozenset({"execute", "executemany", "parse", "callfunc", "callproc", "direct_path_load"})
_FETCH = frozenset({"fetchone", "fetchmany", "fetchall"})
_SCALARS = (str, bytes, int, float, type(None))


class Recorded:
    """A connection or a cursor of a client library, which notes what is executed; it has all that the other has."""

    _OWN = frozenset({"_real", "_noted_in", "_exchange", "_prepared"})

    def __init__(self, real: Any, conversation: Conversation) -> None:
        self._real, self._noted_in = real, conversation
        self._exchange: Exchange | None = None
        self._prepared = ""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if name in _RUN:
            return lambda *args, **kwargs: self._run(name, found, args, kwargs)
        if name in _FETCH:
            return lambda *args: self._fetched(found(*args))
        if name == "prepare":
            return partial(self._prepare, found)
        if name == "cursor":
            return lambda *args, **kwargs: Recorded(found(*args, **kwargs), self._noted_in)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._OWN:
            object.__setattr__(self, name, value)
        else:
            setattr(self._real, name, value)

    def __enter__(self) -> Recorded:
        self._real.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> Any:
        return self._real.__exit__(kind, value, at)

    def __iter__(self) -> Iterator[Any]:
        for row in self._real:
            self._fetched([row])
            yield row

    def _prepare(self, call: Callable[..., Any], text: str, *args: Any) -> Any:
        self._prepared = text
        return call(text, *args)

    def _run(self, name: str, call: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        text = statement_of(name, args, self._prepared)
        exchange = self._exchange = self._noted_in.note(Exchange(statement=text, binds=_types(name, args, kwargs)))
        with _timed(exchange):
            result = call(*args, **kwargs)
        cursor = result if hasattr(result, "description") else self._real
        described = getattr(cursor, "description", None) or ()
        exchange.columns = tuple((str(one[0]), _server_type(one[1]), "") for one in described)
        exchange.rows = 0 if exchange.columns else int(getattr(cursor, "rowcount", -1) or 0)
        if name == "callfunc":
            exchange.columns = (("result", "", type(result).__name__),)
        if cursor is self._real:
            return self if result is self._real else result
        other = Recorded(result, self._noted_in)
        other._exchange = exchange
        return other

    def _fetched(self, rows: Any) -> Any:
        exchange = self._exchange
        listed = rows if isinstance(rows, list | tuple) and (not rows or isinstance(rows[0], list | tuple)) else [rows]
        if rows is not None and exchange is not None and exchange.columns:
            exchange.rows += len(listed)
            for row in listed[:1]:
                kinds = map(_kind, row)
                exchange.columns = tuple(
                    (name, server, kind if before in ("", "NoneType") else before)
                    for (name, server, before), kind in zip(exchange.columns, kinds, strict=False)
                )
        return rows


def _kind(value: Any) -> str:
    """The type of a value, and whether it is 0: a server's switches decide what is read next."""
    if value == COMMENT:
        return "comment"
    return f"{type(value).__name__}{' 0' if isinstance(value, int) and value == 0 else ''}"


def statement_of(name: str, args: tuple[Any, ...], prepared: str) -> str:
    """The text of a call, as the conversation has it."""
    if name == "direct_path_load":
        return f"direct path load into {str(args[1]).lower()}"
    if name in ("callfunc", "callproc"):
        return f"{name} {args[0]}"
    text = prepared if args[0] is None else args[0]
    text = text.decode() if isinstance(text, bytes) else text if isinstance(text, str) else text.as_string(None)
    return f"{'parse: ' if name == 'parse' else ''}{' '.join(text.split())}"


def _types(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    given: Any = args[1] if len(args) > 1 else kwargs
    if name == "direct_path_load":
        given = args[3]
    if name in ("executemany", "direct_path_load"):
        given = given[0] if given else ()
    values = given.values() if isinstance(given, Mapping) else given if isinstance(given, list | tuple) else ()
    return tuple(type(value).__name__ for value in values)


def _server_type(code: Any) -> str:
    return str(getattr(code, "name", code))


# ---- the replay ------------------------------------------------------------------------------------------------------

_VALUES: Mapping[str, Any] = {
    "int": 1,
    "int 0": 0,
    "float": 1.0,
    "Decimal": decimal.Decimal(1),
    "bool": True,
    "bool 0": False,
    "str": "1",
    "bytes": b"1",
    "datetime": datetime.datetime(2026, 1, 1),
    "date": datetime.date(2026, 1, 1),
    "timedelta": datetime.timedelta(seconds=1),
    "list": [],
    "comment": COMMENT,  # the mark of a table of ours, by which it is dropped
}


def rows_of(exchange: Exchange) -> list[Row]:
    """As many rows as the server gave, with a value of the recorded type in each column."""
    row = tuple(_VALUES.get(kind) for _, _, kind in exchange.columns)
    return [row] * max(0, exchange.rows) if exchange.columns else []


def _number(version: str) -> int:
    """`18.4` as libpq has it: 180004."""
    found = re.match(r"(\d+)(?:\.(\d+))?", version)
    return int(found[1]) * 10_000 + int(found[2] or 0) if found else 0


class _Column(NamedTuple):
    """A column as DB-API describes it."""

    name: str
    type_code: str


class _Variable:
    def __init__(self, kind: Any) -> None:
        self._value = ["1"] if kind is list else _VALUES.get(getattr(kind, "__name__", ""), 1)

    def getvalue(self) -> Any:
        """A value of its type."""
        return self._value


class Replayed:
    """A connection or a cursor that answers from a conversation. It has what the adapters use of their clients, and
    takes any attribute."""

    def __init__(self, conversation: Conversation, errors: Any) -> None:
        self._conversation, self._errors = conversation, errors
        self._exchange = Exchange(statement="")
        self._rows: list[Row] = []
        self._prepared = ""
        self.version = conversation.facts.get("client_version", "")
        self.username = "HIDDEN"
        self.closed = False
        self.info = SimpleNamespace(server_version=_number(self.version), transaction_status=0, backend_pid=1)

    def _run(self, name: str, args: tuple[Any, ...]) -> Replayed:
        self._exchange = self._conversation.answer(statement_of(name, args, self._prepared))
        self._rows = rows_of(self._exchange)
        raised(self._exchange, self._errors)
        return self

    @property
    def description(self) -> list[_Column] | None:
        """Each column; None for a statement without."""
        return [_Column(name, server) for name, server, _ in self._exchange.columns] or None

    @property
    def rowcount(self) -> int:
        """Rows returned or affected."""
        return self._exchange.rows

    def cursor(self, *_: Any, **__: Any) -> Replayed:
        """Another cursor."""
        return Replayed(self._conversation, self._errors)

    def execute(self, *args: Any, **_: Any) -> Replayed:
        """Answer a statement."""
        return self._run("execute", args)

    def executemany(self, *args: Any, **_: Any) -> None:
        """Answer a statement with several sets of binds."""
        self._run("executemany", args)

    def parse(self, *args: Any) -> None:
        """Answer to whether the server takes a statement."""
        self._run("parse", args)

    def prepare(self, text: str, *_: Any) -> None:
        """Keep the text for `execute(None, …)`."""
        self._prepared = text

    def bindnames(self) -> list[str]:
        """The names of the binds of the prepared text, as python-oracledb gives them."""
        return list(dict.fromkeys(name.upper() for name in re.findall(r"(?<!:):(\w+)", self._prepared)))

    def direct_path_load(self, *args: Any) -> None:
        """Answer a direct path load."""
        self._run("direct_path_load", args)

    def callproc(self, *args: Any) -> None:
        """Answer the call of a procedure."""
        self._run("callproc", args)

    def callfunc(self, *args: Any) -> Any:
        """Answer the call of a function."""
        self._run("callfunc", args)
        return _VALUES.get(self._exchange.columns[0][2])

    def var(self, kind: Any, *_: Any) -> _Variable:
        """A variable for a value of a block."""
        return _Variable(kind)

    def arrayvar(self, *_: Any) -> _Variable:
        """A variable for lines of a block."""
        return _Variable(list)

    def fetchone(self) -> Row | None:
        """The next row."""
        return self._rows.pop() if self._rows else None

    def fetchall(self) -> list[Row]:
        """The rows that are left."""
        rows, self._rows = self._rows, []
        return rows

    def fetchmany(self, size: int = 1) -> list[Row]:
        """The next rows."""
        rows, self._rows = self._rows[:size], self._rows[size:]
        return rows

    def __iter__(self) -> Iterator[Row]:
        yield from self.fetchall()

    def __enter__(self) -> Replayed:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def transaction(self, *_: Any, **__: Any) -> Replayed:
        """A block."""
        return self

    def thread_id(self) -> int:
        """The number of the session, as PyMySQL has it."""
        return 1

    def getbatcherrors(self) -> list[Any]:
        """No rows were refused."""
        return []

    def nothing(self, *_: Any, **__: Any) -> None:
        """Do nothing: a replay has no server."""

    commit = rollback = close = cancel = ping = select_db = nothing


# ---- sessions of drivers ---------------------------------------------------------------------------------------------


class RecordedDriver:
    """A driver whose sessions note what they execute; `waits` is blocking, whatever the driver's own is."""

    waits: Literal["blocking"] = "blocking"

    def __init__(self, driver: Any, conversation: Conversation, execute: Callable[[Any, Any, Any, Any], None]) -> None:
        self._driver, self._conversation, self._execute = driver, conversation, execute
        self.dialect: Dialect = driver.dialect

    def connect(self, dsn: str) -> RecordedSession:
        """Connect. StatementFailure."""
        with _timed(self._conversation.note(Exchange(statement=f"session: {CONNECT}"))), recording(None):
            session = self._driver.connect(dsn)
        return RecordedSession(
            session, self.dialect, self._conversation, lambda one, args: self._execute(session, self._driver, one, args)
        )


class RecordedSession:
    """A blocking session over one of a driver."""

    def __init__(
        self, session: Any, dialect: Dialect, conversation: Conversation, execute: Callable[[Any, Any], None]
    ) -> None:
        self._session, self._dialect, self._conversation, self._run = session, dialect, conversation, execute
        self._exchange = Exchange(statement="")
        self.count = 0

    def prepare(self, statement: Statement) -> tuple[Statement, Any]:
        """Prepare a statement. StatementFailure."""
        with _timed(self._conversation.note(Exchange(statement=_named("prepare", statement, self._dialect)))):
            return statement, self._session.prepare(statement)

    def execute(self, prepared: tuple[Statement, Any], arguments: Sequence[Any]) -> None:
        """Execute a statement, and note its answer. StatementFailure."""
        statement, made = prepared
        text = _named("execute", statement, self._dialect)
        binds = tuple(type(value).__name__ for value in arguments)
        exchange = self._exchange = self._conversation.note(Exchange(statement=text, binds=binds))
        with _timed(exchange):
            self._run(made, arguments)
        exchange.rows = self.count = self._session.count

    def rows(self) -> list[Row]:
        """The rows of the last statement; their types are noted."""
        found: list[Row] = self._session.rows()
        if found and not self._exchange.columns:
            self._exchange.columns = tuple(
                (str(place), "", type(value).__name__) for place, value in enumerate(found[0], 1)
            )
        return found

    def cancel(self) -> None:
        """Break off the statement under way."""
        self._session.cancel()

    def close(self) -> None:
        """End the connection."""
        self._session.close()


class ReplayedDriver:
    """A driver of sessions that answer from a conversation."""

    waits: Literal["blocking"] = "blocking"

    def __init__(self, dialect: Dialect, conversation: Conversation) -> None:
        self.dialect, self._conversation = dialect, conversation

    def connect(self, dsn: str) -> ReplayedSession:
        """Connect to the file. StatementFailure as recorded."""
        del dsn
        _fail(self._conversation.answer(f"session: {CONNECT}"))
        return ReplayedSession(self.dialect, self._conversation)


class ReplayedSession:
    """A blocking session that answers from a conversation. UnknownStatement for what that does not have."""

    def __init__(self, dialect: Dialect, conversation: Conversation) -> None:
        self._dialect, self._conversation = dialect, conversation
        self._exchange = Exchange(statement="")
        self.count = 0

    def prepare(self, statement: Statement) -> Statement:
        """Answer whether the server takes a statement. StatementFailure."""
        _fail(self._conversation.answer(_named("prepare", statement, self._dialect)))
        return statement

    def execute(self, prepared: Statement, arguments: Sequence[Any]) -> None:
        """Answer a statement. StatementFailure."""
        del arguments
        self._exchange = self._conversation.answer(_named("execute", prepared, self._dialect))
        _fail(self._exchange)
        self.count = max(0, self._exchange.rows)

    def rows(self) -> list[Row]:
        """The rows of the last statement."""
        return rows_of(self._exchange)

    def cancel(self) -> None:
        """Nothing is under way."""

    def close(self) -> None:
        """Nothing is open."""


def _named(act: str, statement: Statement, dialect: Dialect) -> str:
    return f"session: {act} {' '.join(statement.text[dialect].split())}"


def _fail(exchange: Exchange) -> None:
    if exchange.error:
        kind, code, text = exchange.error
        raise StatementFailure(code, text, FailureKind(kind))
