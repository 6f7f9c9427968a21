"""Replay the conversations that `proveout prove` has recorded: a file stands in for the server.

`replay(conversation)` asks the recorded questions again. Each connection, cursor and session answers from the file, with
as many rows as the server gave and a value of the recorded type in each column; `UnknownStatement` for what the file
does not have.
"""

from __future__ import annotations

import datetime
import decimal
import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partialmethod
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

from proveout.agent.engine_proof import OWN_CLIENT, SCALES, Check, Differs, LeftOut, Prover, Result, behind, prove
from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.engines.recording import CONNECT, FORMAT, TAP, Conversation, Exchange, named, statement_of
from proveout.agent.engines.table import COMMENT
from proveout.core.errors import ProveoutError
from proveout.dsl.engines import Dialect
from proveout.dsl.workloads.base import Row, Statement
from proveout.proto.wire.tasks import Endpoint


class UnknownStatement(Exception):
    """A statement that the file of a conversation does not have: the code has changed since it was recorded."""


class Answers:
    """The answers of a conversation, in order."""

    def __init__(self, conversation: Conversation) -> None:
        self.facts = conversation.facts
        self._next: dict[str, list[Exchange]] = {}
        for one in reversed(conversation.exchanges):
            self._next.setdefault(one.statement, []).extend([one] * one.times)

    def answer(self, statement: str) -> Exchange:
        """The next answer to a statement; the last one again after it. UnknownStatement."""
        found = self._next.get(statement)
        if not found:
            raise UnknownStatement(f"the recorded conversation does not have: {statement}")
        return found.pop() if len(found) > 1 else found[0]


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


def raised(exchange: Exchange, errors: Any) -> None:
    """Raise the error of an exchange as the client library raised it."""
    if not exchange.error:
        return
    name, code, text = exchange.error
    lookup = getattr(getattr(errors, "errors", None), "lookup", None)  # psycopg has a class for each SQLSTATE
    kind = lookup(code) if lookup and code else getattr(errors, name, None) or errors.DatabaseError
    raise kind(*((int(code), text) if code.isdigit() and not lookup else (text,)))


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
        return self._value


class Replayed:
    """A connection or a cursor that answers from a conversation. It has what the adapters use of their clients, and
    takes any attribute."""

    def __init__(self, conversation: Answers, errors: Any) -> None:
        self._conversation, self._errors = conversation, errors
        self._exchange = Exchange(statement="")
        self._rows: list[Row] = []
        self._prepared = ""
        self.version = conversation.facts.get("client_version", "")
        self.username = "HIDDEN"
        self.closed = False
        self.info = SimpleNamespace(server_version=_number(self.version), transaction_status=0, backend_pid=1)

    def _run(self, name: str, *args: Any, **_: Any) -> Replayed:
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
        return self._exchange.rows

    def cursor(self, *_: Any, **__: Any) -> Replayed:
        return Replayed(self._conversation, self._errors)

    execute, executemany = partialmethod(_run, "execute"), partialmethod(_run, "executemany")
    parse, callproc = partialmethod(_run, "parse"), partialmethod(_run, "callproc")
    direct_path_load = partialmethod(_run, "direct_path_load")

    def prepare(self, text: str, *_: Any) -> None:
        self._prepared = text

    def bindnames(self) -> list[str]:
        """The names of the binds of the prepared text, as python-oracledb gives them."""
        return list(dict.fromkeys(name.upper() for name in re.findall(r"(?<!:):(\w+)", self._prepared)))

    def callfunc(self, *args: Any) -> Any:
        self._run("callfunc", *args)
        return _VALUES.get(self._exchange.columns[0][2])

    def var(self, kind: Any, *_: Any) -> _Variable:
        return _Variable(kind)

    def arrayvar(self, *_: Any) -> _Variable:
        return _Variable(list)

    def fetchone(self) -> Row | None:
        return self._rows.pop() if self._rows else None

    def fetchall(self) -> list[Row]:
        rows, self._rows = self._rows, []
        return rows

    def fetchmany(self, size: int = 1) -> list[Row]:
        rows, self._rows = self._rows[:size], self._rows[size:]
        return rows

    def __iter__(self) -> Iterator[Row]:
        yield from self.fetchall()

    def __enter__(self) -> Replayed:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def transaction(self, *_: Any, **__: Any) -> Replayed:
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


class ReplayedDriver:
    """A driver of sessions that answer from a conversation."""

    waits: Literal["blocking"] = "blocking"

    def __init__(self, dialect: Dialect, conversation: Answers) -> None:
        self.dialect, self._conversation = dialect, conversation

    def connect(self, dsn: str) -> ReplayedSession:
        del dsn
        _fail(self._conversation.answer(f"session: {CONNECT}"))
        return ReplayedSession(self.dialect, self._conversation)


class ReplayedSession:
    """A blocking session that answers from a conversation. UnknownStatement for what that does not have."""

    def __init__(self, dialect: Dialect, conversation: Answers) -> None:
        self._dialect, self._conversation = dialect, conversation
        self._exchange = Exchange(statement="")
        self.count = 0

    def prepare(self, statement: Statement) -> Statement:
        _fail(self._conversation.answer(named("prepare", statement, self._dialect)))
        return statement

    def execute(self, prepared: Statement, arguments: Sequence[Any]) -> None:
        del arguments
        self._exchange = self._conversation.answer(named("execute", prepared, self._dialect))
        _fail(self._exchange)
        self.count = max(0, self._exchange.rows)

    def rows(self) -> list[Row]:
        return rows_of(self._exchange)

    def cancel(self) -> None:
        """Nothing is under way."""

    def close(self) -> None:
        """Nothing is open."""


def _fail(exchange: Exchange) -> None:
    if exchange.error:
        kind, code, text = exchange.error
        raise StatementFailure(code, text, FailureKind(kind))


@contextmanager
def replaying(answers: Answers) -> Iterator[None]:
    """Answer connections that are opened within from a file."""

    def tap(_: Callable[[], Any], errors: Any) -> Replayed:
        raised(answers.answer(CONNECT), errors)
        return Replayed(answers, errors)

    token = TAP.set(tap)
    try:
        yield
    finally:
        TAP.reset(token)


NOT_RECORDED = "not a part of the recorded conversation"
LOADING = ("tables", "rows", "keys, indexes, statistics", "number of rows", "removal")
"""The steps of a workload that a loader makes, past the client library."""
DSNS = {
    "mysql": "mysql://hidden@hidden/hidden",
    "oracle": "hidden/hidden@hidden",
    "postgres": "host=hidden user=hidden",
    "timesten": "hidden/hidden@hidden:timesten_direct",
}
"""The dsns of replays, which lead nowhere."""


class ReplayedProver(Prover):
    """The questions to a recorded conversation: those that it answers. Rows have other numbers than the server's."""

    def __init__(self, conversation: Conversation, **asked: Any) -> None:
        super().__init__(_nowhere(conversation.engine), conversation, **asked)
        self._answers = Answers(conversation)

    def tap(self) -> Any:
        return replaying(self._answers)

    def checks(self) -> Generator[Check, None, None]:
        with closing(super().checks()) as checks:
            for name, ask in checks:
                if name in self.conversation.results:  # else it is newer than the file
                    yield name, ask if self._is_recorded(name) else _left_out

    def _is_recorded(self, name: str) -> bool:
        """Whether the question goes through a client library, or the contract of drivers."""
        if self._adapter.stated.in_files:
            return name == "connection" or (": " in name and name.partition(": ")[2] not in LOADING)
        if name == "version and settings" and self._adapter.stated.own_process:
            return False
        if self._end.engine in OWN_CLIENT:
            return True
        return name not in ("version and settings", "checkpoint") and name.partition(": ")[2] not in LOADING

    def _driver(self) -> Any:
        if self._end.engine in OWN_CLIENT:
            return super()._driver()
        return ReplayedDriver(self._adapter.stated.dialect, self._answers)

    def _connection(self) -> str:
        self._driver().connect(self._end.dsn).close()
        return ""

    def _count(self, loader: Any, kind: Any) -> str:
        for table in kind.population.expected:
            loader.count(table)
        return ""

    def _invariant(self, invariant: Any) -> str:
        with suppress(Differs):
            super()._invariant(invariant)
        return ""


def _left_out() -> str:
    raise LeftOut(NOT_RECORDED)


def _nowhere(engine: str) -> Endpoint:
    return Endpoint(system="target", engine=engine, dsn=DSNS.get(engine, "/hidden"))


def replay(conversation: Conversation) -> list[Result]:
    """Run the checks of a recorded conversation again. UnknownStatement where a statement has changed since."""
    asked = [name.partition(":")[0] for name, answer in conversation.results.items() if answer != "left out"]
    return prove(
        ReplayedProver(
            conversation,
            sink=_nowhere(behind(conversation.engine)) if "lag" in asked else None,
            writes=any(name in SCALES for name in asked),
            licences=("diagnostics_pack",) if "report awr" in asked else (),
            workloads=tuple(name for name in SCALES if name in conversation.results or name in asked),
        )
    )
