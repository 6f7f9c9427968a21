"""The conversation with a server, recorded: statements, types of binds and columns, numbers of rows, errors, times. No
data, and no name that is not proveout's own.

Data flow: an adapter connects through `tapped` -> within `recording(...)` the connection is a `Recorded`, which notes
each statement in a `Conversation` -> `to_text` -> a file, which stands in for the server in tests
(`tests/cli/replayed.py`). Sessions of drivers that take the socket over from their client library are recorded by the
contract of drivers (`RecordedDriver`).
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import fields
from functools import partial
from types import TracebackType
from typing import Any, Literal, TypeAlias

from proveout.agent.engines.driver_contract import StatementFailure
from proveout.agent.engines.sessions import execute
from proveout.agent.engines.table import COMMENT
from proveout.core.data_classes import dataclass, field
from proveout.core.errors import ProveoutError
from proveout.dsl.engines import Dialect
from proveout.dsl.workloads.base import Row, Statement

CONNECT = "CONNECT"
"""The name of connecting among the statements."""
FORMAT = 1


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

    def note(self, exchange: Exchange) -> Exchange:
        self.exchanges.append(exchange)
        return exchange

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


_FIELDS = tuple(one.name for one in fields(Exchange))
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\[[0-9a-f:]+\](?::\d+)?", re.I)


# ---- the tap ---------------------------------------------------------------------------------------------------------

Tap: TypeAlias = Callable[[Callable[[], Any], Any], Any]
"""(connect, the module of the client library with its errors) -> the connection."""
TAP: ContextVar[Tap | None] = ContextVar("tap", default=None)
"""The maker of connections in place of `connect` itself: a recording, or in tests a file."""


@contextlib.contextmanager
def recording(conversation: Conversation | None) -> Iterator[None]:
    """Record connections that are opened within; with None, do not."""
    token = TAP.set(None if conversation is None else partial(_recorded, conversation))
    try:
        yield
    finally:
        TAP.reset(token)


def tapped(connect: Callable[[], Any], errors: Any) -> Any:
    """The connection that `connect` makes, recorded where that is wanted. `errors`: the module of the client library,
    whose errors it raises."""
    tap = TAP.get()
    return connect() if tap is None else tap(connect, errors)


def _recorded(conversation: Conversation, connect: Callable[[], Any], _: Any) -> Recorded:
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


_RUN = frozenset({"execute", "executemany", "parse", "callfunc", "callproc", "direct_path_load"})
_FETCH = frozenset({"fetchone", "fetchmany", "fetchall"})


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


# ---- sessions of drivers ---------------------------------------------------------------------------------------------


class RecordedDriver:
    """A driver whose sessions note what they execute; `waits` is blocking, whatever the driver's own is."""

    waits: Literal["blocking"] = "blocking"

    def __init__(self, driver: Any, conversation: Conversation) -> None:
        self._driver, self._conversation = driver, conversation
        self.dialect: Dialect = driver.dialect

    def connect(self, dsn: str) -> RecordedSession:
        """Connect. StatementFailure."""
        with _timed(self._conversation.note(Exchange(statement=f"session: {CONNECT}"))), recording(None):
            session = self._driver.connect(dsn)
        return RecordedSession(session, self._driver, self._conversation)


class RecordedSession:
    """A blocking session over one of a driver."""

    def __init__(self, session: Any, driver: Any, conversation: Conversation) -> None:
        self._session, self._driver, self._conversation = session, driver, conversation
        self.cancel, self.close = session.cancel, session.close
        self._exchange = Exchange(statement="")
        self.count = 0

    def prepare(self, statement: Statement) -> tuple[Statement, Any]:
        with _timed(self._conversation.note(Exchange(statement=named("prepare", statement, self._driver.dialect)))):
            return statement, self._session.prepare(statement)

    def execute(self, prepared: tuple[Statement, Any], arguments: Sequence[Any]) -> None:
        """Execute a statement, and note its answer. StatementFailure."""
        statement, made = prepared
        text = named("execute", statement, self._driver.dialect)
        binds = tuple(type(value).__name__ for value in arguments)
        exchange = self._exchange = self._conversation.note(Exchange(statement=text, binds=binds))
        with _timed(exchange):
            execute(self._session, self._driver, made, arguments)
        exchange.rows = self.count = self._session.count

    def rows(self) -> list[Row]:
        """The rows of the last statement; their types are noted."""
        found: list[Row] = self._session.rows()
        if found and not self._exchange.columns:
            self._exchange.columns = tuple(
                (str(place), "", type(value).__name__) for place, value in enumerate(found[0], 1)
            )
        return found


def named(act: str, statement: Statement, dialect: Dialect) -> str:
    return f"session: {act} {' '.join(statement.text[dialect].split())}"
