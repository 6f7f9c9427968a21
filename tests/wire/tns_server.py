"""A TNS server in front of a PostgreSQL, for tests and demonstrations: `python tests/wire/tns_server.py --port 15210`.

Flow: python-oracledb (thin) -> Oracle's protocol -> seerdb.server -> `PostgresBackend.execute(sql, binds)` -> sqlglot
turns the Oracle text into PostgreSQL's (once per text) -> psycopg -> rows with Oracle's column types, or PostgreSQL's
error as the ORA- error that Oracle has for it. Transactions are PostgreSQL's; as in Oracle, a failed statement is rolled
back without its transaction. Without `--postgres CONNINFO` it starts an embedded PostgreSQL of its own and removes it at
the end. It prints one line, `dsn …`, when it is ready, and serves until its stdin ends or it is interrupted. User and
password are `hlr` and `hlr`, because it serves only test data.

It tests the driver's use of the protocol: order, binds, fetches, commits, errors. It does not prove that Oracle accepts
a statement: sqlglot may translate texts that are not valid Oracle SQL. It has no PL/SQL: for a procedure of TPROC-C it
creates the PL/pgSQL procedure of the same name and calls that one. So calls are tested, with binds, errors and the
commit in the procedure, but not the PL/SQL. Of the packages DBMS_WORKLOAD_REPOSITORY and TT_STATS it has functions with
the same names and arguments whose reports are canned: they show that snapshots are taken and which two are reported on,
not that Oracle or TimesTen has these packages in this form. An exception whose text begins with an ORA- code, which a
test's function can raise, is that error.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import re
import select
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import psycopg
import sqlglot
from psycopg import rows
from psycopg.conninfo import make_conninfo
from seerdb.common.exceptions import Truncated
from seerdb.common.tns import ColumnMeta
from seerdb.common.tns_consts import TNS_TYPE_CHAR, TNS_TYPE_CLOB, TNS_TYPE_NUMBER, TNS_TYPE_VARCHAR
from seerdb.server import BackendError, BindVar, Capability, Result
from seerdb.server import Server as TnsServer
from seerdb.server import session as tns_session
from seerdb.server.identity import ServerIdentity
from sqlglot import exp

from proveout.agent.engines.postgres.provision import Server
from proveout.agent.engines.postgres.roles import administration
from proveout.dsl.plan.topology import System
from proveout.dsl.workloads.tprocc.statements import ROLLED_BACK_STATE
from proveout.dsl.workloads.tprocc.tables import POSTGRES_FUNCTIONS

SERVICE = "HLR"
DICTIONARY = Path(__file__).with_name("dictionary.sql")
USER = "hlr"
FIELD_VERSION_19 = 13  # of the protocol: python-oracledb thin requires 12.1 or later
RELEASE = ServerIdentity(version_no=19 << 24 | 7 << 16, version_sql=b"25", version_string=b"- Production", banner=b"")
"""19.7.0.0.0, as an Oracle Database reports it at the login from 18c on: with the number of its Release Update."""

# Oracle's error for PostgreSQL's: unique, foreign key, not null, deadlock, serialization, no table, no column,
# cancelled
ERRORS = {
    "23505": (1, "unique constraint violated"),
    "23503": (2291, "integrity constraint violated - parent key not found"),
    "23502": (1400, "cannot insert NULL"),
    "40P01": (60, "deadlock detected while waiting for resource"),
    "40001": (8177, "can't serialize access for this transaction"),
    "42P01": (942, "table or view does not exist"),
    "42703": (904, "invalid identifier"),
    "42P07": (955, "name is already used by an existing object"),
    "42601": (900, "invalid SQL statement"),
    "42804": (932, "inconsistent datatypes"),
    ROLLED_BACK_STATE: (20001, "item does not exist"),
    "57014": (1013, "user requested cancel of current operation"),
    "42883": (6550, "PLS-00201: identifier must be declared"),
}
_RAISED = re.compile(r"ORA-(\d{5}): ")
_NUMBERS = frozenset({20, 21, 23, 700, 701, 1700})
_KINDS = {1042: TNS_TYPE_CHAR, 114: TNS_TYPE_CLOB}
"""The types for char and, as nothing else of PostgreSQL's is a CLOB, json; all others are VARCHAR."""
_STATS = re.compile(r"BEGIN\s+DBMS_STATS\.GATHER_TABLE_STATS\(USER, '(\w+)'.*\);\s*END;", re.I | re.S)
_SERIALIZABLE = re.compile(r"SET\s+TRANSACTION\s+ISOLATION\s+LEVEL\s+SERIALIZABLE", re.I)
_SESSION = re.compile(r"ALTER\s+SESSION\s+SET(?:\s+DDL_LOCK_TIMEOUT\s*=\s*(\d+))?(?:\s+NLS_\w+\s*=\s*'[^']*')*", re.I)
_CHECKPOINT = re.compile(r"ALTER\s+SYSTEM\s+CHECKPOINT(?:\s+GLOBAL)?|CALL\s+ttDurableCommit", re.I)
_PROCEDURE = re.compile(r"CREATE\s+OR\s+REPLACE\s+PROCEDURE\s+(\w+)\(.*", re.I | re.S)
_PROCEDURE_DROP = re.compile(r"BEGIN\s+EXECUTE IMMEDIATE 'DROP PROCEDURE (\w+)'.*END;", re.I | re.S)
_CALL = re.compile(r"BEGIN\s+(\w+)\(([^()]*)\);\s*END;", re.I | re.S)
_PACKAGED = re.compile(
    r"BEGIN\s+(?:(:\w+)\s*:=\s*)?(?:SYS\.)?(DBMS_WORKLOAD_REPOSITORY|TT_STATS)\.(\w+)(?:\(([^()]*)\))?;"
    r"\s*END;",
    re.I,
)
_TABLE = re.compile(r"TABLE\(\s*DBMS_WORKLOAD_REPOSITORY\.(\w+)(\(.*\))\)\s*$", re.I | re.S)
_SIGNATURE = re.compile(r"FUNCTION \w+\(([^)]*)\)")
_USING_INDEX = re.compile(r"\s+USING INDEX(?: LOCAL| \(.*\))?|\s+PARALLEL NOLOGGING$", re.I)
_DEGREE = re.compile(r"ALTER\s+(?:TABLE \w+ (?:NO)?PARALLEL|INDEX \w+ NOPARALLEL LOGGING)", re.I)
_DROP_TAIL = re.compile(r"\s+CASCADE CONSTRAINTS(?:\s+PURGE)?$", re.I)


@dataclass(frozen=True, slots=True)
class Translated:
    """A statement in PostgreSQL's syntax: `text` with $1 …, and the index of the bind of each."""

    text: str
    kind: str  # query, dml, ddl, call, function (its result is the first bind), lines (its result is the last bind)
    places: tuple[int, ...]
    locks: bool = False  # a query FOR UPDATE, which begins a transaction as a change does


@lru_cache(maxsize=2_000)
def translate(sql: str) -> Translated:
    """Translate an Oracle statement to PostgreSQL. BackendError (ORA-00900) when sqlglot cannot parse it."""
    if match := _STATS.fullmatch(sql.strip()):
        return Translated(f"ANALYZE {match[1].lower()}", "ddl", ())
    if match := _SESSION.fullmatch(sql.strip()):
        return Translated(f"SET lock_timeout = '{match[1]}s'" if match[1] else "SELECT 1", "ddl", ())
    if _CHECKPOINT.fullmatch(sql.strip()):
        return Translated("CHECKPOINT", "ddl", ())
    if _DEGREE.fullmatch(sql.strip()):
        return Translated("SELECT 1", "ddl", ())
    if (found := _of_procedure(sql.strip())) is not None:
        return found
    if match := _PACKAGED.fullmatch(sql.strip()):
        return _of_package(*match.groups())
    sql = _TABLE.sub(r"\1\2", sql.strip())
    text = _DROP_TAIL.sub(" CASCADE", _USING_INDEX.sub("", sql.strip().rstrip(";")))
    try:
        tree = sqlglot.parse_one(text, read="oracle")
    except sqlglot.errors.ParseError as error:
        raise BackendError(f"invalid SQL statement ({error})", ora_code=900) from None
    _as_values(tree)
    occurrences = list(tree.find_all(exp.Placeholder, bfs=False))
    names = list(dict.fromkeys(place.name for place in occurrences))
    for place in occurrences:
        place.replace(exp.Parameter(this=exp.Literal.number(names.index(place.name) + 1)))
    kind = "query" if isinstance(tree, exp.Query) else "dml" if isinstance(tree, exp.DML) else "ddl"
    order = [re.sub(r"\W", "", name) for name in re.findall(r":(\w+)", _without_literals(text))]
    places = tuple(order.index(name) for name in names)
    return Translated(tree.sql(dialect="postgres"), kind, places, locks=tree.find(exp.Lock) is not None)


def _of_procedure(sql: str) -> Translated | None:
    """Translate a statement that creates, drops or calls a procedure of TPROC-C; None for other statements."""
    if match := _PROCEDURE_DROP.fullmatch(sql):
        return Translated(f"DROP FUNCTION IF EXISTS {match[1]}", "ddl", ())
    match = _PROCEDURE.fullmatch(sql) or _CALL.fullmatch(sql)
    if match is None:
        return None
    twin = POSTGRES_FUNCTIONS.get(match[1].lower())
    if twin is None:
        raise BackendError(f"feature not supported: PL/SQL, but for TPROC-C's, as {match[1]} is not", ora_code=3001)
    if _PROCEDURE.fullmatch(sql):
        return Translated(twin, "ddl", ())
    signature = _SIGNATURE.search(twin)
    assert signature is not None
    types = [argument.split()[-1] for argument in signature[1].split(",")]
    marks = ", ".join(f"${place}::{kind}" for place, kind in enumerate(types, start=1))
    return Translated(f"SELECT {match[1]}({marks})", "call", tuple(range(len(types))))


def _of_package(result: str | None, package: str, name: str, arguments: str | None) -> Translated:
    """Translate a call of a packaged function, or of a procedure whose last argument is an array of lines."""
    count = len([argument for argument in (arguments or "").split(",") if argument.strip()])
    first, inputs = (1, count) if result else (0, count - 1)
    marks = ", ".join(f"${place}" for place in range(1, inputs + 1))
    kind = "function" if result else "lines"
    return Translated(f"SELECT {name.lower()}({marks})", kind, tuple(range(first, first + inputs)))


def _as_values(tree: exp.Expression) -> None:
    """`INSERT … SELECT :a, :b FROM dual UNION ALL …`, Oracle's way to insert rows before 23, as PostgreSQL's VALUES:
    binds in a select list have no type there, and take that of the columns in VALUES."""
    if not isinstance(tree, exp.Insert) or not isinstance(tree.expression, exp.Query):
        return
    selects = _united(tree.expression)
    if all([table.name.lower() for table in select.find_all(exp.Table)] == ["dual"] for select in selects):
        rows = [exp.Tuple(expressions=select.expressions) for select in selects]
        tree.set("expression", exp.Values(expressions=rows))


def _united(query: exp.Expression) -> list[exp.Expression]:
    """The queries that UNION ALL puts together, in order."""
    if isinstance(query, exp.Union):
        return [*_united(query.left), *_united(query.right)]
    return [query]


def _without_literals(text: str) -> str:
    return re.sub(r"'(?:[^']|'')*'", "''", text)


class PostgresBackend:
    """One Oracle session on one PostgreSQL connection. `passwords` by user name, upper case.

    A service is a database of the server at `conninfo`, or the one that `conninfo` names, for `default_service`.
    """

    capabilities = frozenset({Capability.TRANSACTIONS})
    field_version = FIELD_VERSION_19

    def __init__(self, conninfo: str, passwords: dict[str, str], default_service: str) -> None:
        self._conninfo, self._passwords, self._default = conninfo, passwords, default_service
        self._connection: Any = None
        self._in_transaction = False
        self.tracing: dict[str, Any] = {}

    def open_session(self, attributes: dict[str, Any]) -> None:
        service = str(attributes.get("service_name") or self._default)
        other = {} if service.upper() == self._default.upper() else {"dbname": service}
        try:
            self._connection = psycopg.connect(
                make_conninfo(self._conninfo, **other), autocommit=True, cursor_factory=psycopg.RawCursor
            )
        except psycopg.OperationalError as error:
            raise BackendError(f"the service is not there ({error})", ora_code=12514) from None
        self._connection.execute("SET search_path = public, oracle")

    def session_release(self) -> ServerIdentity:
        return RELEASE

    def authenticate(self, username: str) -> str | None:
        return self._passwords.get(username.upper())

    def execute(self, sql: str, binds: Sequence[Any] = ()) -> Result:
        if _SERIALIZABLE.match(sql):
            self._begin("BEGIN ISOLATION LEVEL SERIALIZABLE")
            return Result()
        statement = translate(sql)
        values = [_plain(binds[place]) for place in statement.places] if statement.places else []
        try:
            if statement.kind == "query":
                if statement.locks:
                    self._begin("BEGIN")
                return self._query(statement.text, values)
            if statement.kind == "call":
                return self._call(statement.text, values)
            if statement.kind in ("function", "lines"):
                found = self._connection.execute(statement.text, values).fetchone()[0]
                given = [_plain(bind) for bind in binds]
                return Result(out_binds=[found, *given[1:]] if statement.kind == "function" else [*given[:-1], found])
            if statement.kind == "dml":
                return Result(rowcount=self._change(statement.text, [values]))
            self.commit()
            self._connection.execute(statement.text)
        except psycopg.Error as error:
            raise self._as_oracle(error) from None
        return Result()

    def _call(self, text: str, values: list[Any]) -> Result:
        """A procedure commits by itself, and rolls back by itself before it raises the error of its own."""
        try:
            self._change(text, [values])
        except psycopg.Error as error:
            if error.sqlstate == ROLLED_BACK_STATE:
                self.rollback()
            raise
        self.commit()
        return Result()

    def execute_many(self, sql: str, batch: Sequence[Sequence[Any]]) -> int:
        statement = translate(sql)
        try:
            return self._change(statement.text, [[_plain(row[i]) for i in statement.places] for row in batch])
        except psycopg.Error as error:
            raise self._as_oracle(error) from None

    def parse(self, sql: str) -> None:
        statement = translate(sql)
        if statement.kind == "ddl":
            return
        try:
            self._connection.execute(f"PREPARE parsed AS {statement.text}")
            self._connection.execute("DEALLOCATE parsed")
        except psycopg.Error as error:
            raise self._as_oracle(error) from None

    def describe(self, sql: str) -> list[ColumnMeta]:
        """Return the columns of a query without running it."""
        statement = translate(sql)
        values = [None] * len(statement.places)
        try:
            return self._query(f"SELECT * FROM ({statement.text}) AS described LIMIT 0", values).columns
        except psycopg.Error as error:
            raise self._as_oracle(error) from None

    def set_end_to_end(self, attributes: dict[str, Any]) -> None:
        """Keep module, action and client identifier where a test can see them: in the application name, as JSON-like
        text."""
        self.tracing.update({name: value for name, value in attributes.items() if value is not None})
        told = "|".join(str(self.tracing.get(name, "")) for name in ("module", "action", "client_identifier"))
        self._connection.execute("SELECT set_config('application_name', $1, false)", [told])

    def commit(self) -> None:
        self._end("COMMIT")

    def rollback(self) -> None:
        self._end("ROLLBACK")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _query(self, text: str, values: Sequence[Any]) -> Result:
        cursor = self._connection.cursor(row_factory=rows.tuple_row)
        cursor.execute(text, values, prepare=True)
        return Result(columns=[_column(c) for c in cursor.description or ()], rows=cursor.fetchall())

    def _change(self, text: str, batch: list[list[Any]]) -> int:
        """Execute DML in a transaction; a failed statement is rolled back alone."""
        self._begin("BEGIN")
        connection, cursor = self._connection, self._connection.cursor()
        try:
            with connection.pipeline():
                connection.execute("SAVEPOINT statement")
                if len(batch) == 1:
                    cursor.execute(text, batch[0], prepare=True)
                else:
                    cursor.executemany(text, batch)
                connection.execute("RELEASE SAVEPOINT statement")
        except psycopg.Error:
            if not connection.broken:
                connection.execute("ROLLBACK TO SAVEPOINT statement")
            raise
        return int(cursor.rowcount)

    def _begin(self, text: str) -> None:
        if not self._in_transaction:
            self._connection.execute(text)
            self._in_transaction = True

    def _end(self, text: str) -> None:
        if self._in_transaction:
            self._in_transaction = False
            try:
                self._connection.execute(text)
            except psycopg.Error as error:
                self._connection.rollback()
                raise self._as_oracle(error) from None

    def _as_oracle(self, error: psycopg.Error) -> Exception:
        """Return PostgreSQL's error as Oracle's; a lost connection as ORA-03113, which clients treat as the end."""
        if self._connection.broken:
            return BackendError("end-of-file on communication channel", ora_code=3113)
        if raised := _RAISED.match(str(error)):
            return BackendError(" ".join(str(error).split("CONTEXT:")[0].split())[11:], ora_code=int(raised[1]))
        code, text = ERRORS.get(error.sqlstate or "", (900, f"invalid SQL statement (PostgreSQL: {error.sqlstate})"))
        constraint = error.diag.constraint_name
        named = f" ({USER.upper()}.{constraint.upper()})" if constraint else ""
        return BackendError(f"{text}{named} [{' '.join(str(error).split())}]", ora_code=code)


def _plain(value: Any) -> Any:
    """Convert a bind for psycopg: text types of the protocol become `str`."""
    if isinstance(value, BindVar):
        value = value.value
    return str(value) if isinstance(value, str) else value


def _column(column: Any) -> ColumnMeta:
    name = column.name.upper().encode()
    if column.type_code in _NUMBERS:
        return ColumnMeta(name=name, data_type=TNS_TYPE_NUMBER, data_length=22, max_size=22)
    width = column.display_size or 4_000
    kind = _KINDS.get(column.type_code, TNS_TYPE_VARCHAR)
    return ColumnMeta(name=name, data_type=kind, data_length=width, max_size=width)


# ---- the server ------------------------------------------------------------------------------------------------------

# The time limit for the rest of a message. The default of two seconds is too short on a machine busy with tests.
tns_session._CONTINUATION_TIMEOUT = 30.0
TNS_DATA = 6
parse_message = tns_session._complete_message


def _data_waits(stream: Any) -> bool:
    """Whether a further packet of data has arrived: its type is the fifth byte."""
    head = bytes(stream._acc[:5])
    if len(head) < 5 and select.select([stream._sock], [], [], 0.0)[0]:
        head += stream._sock.recv(5 - len(head), socket.MSG_PEEK)
    return len(head) == 5 and head[4] == TNS_DATA


def _complete_at_once(stream: Any, body: bytes, parse: Callable[[bytes], object]) -> bytes | None:
    """As `parse_message`, which parses a message again with every packet: takes the packets that have arrived
    first. A client sends nothing after a message until it is answered."""

    def patient(whole: bytes) -> object:
        if _data_waits(stream):
            raise Truncated("more packets have arrived")
        return parse(whole)

    return parse_message(stream, body, patient)


tns_session._complete_message = _complete_at_once


@contextlib.contextmanager
def postgres(conninfo: str | None) -> Iterator[str]:
    """Yield the conninfo of the given database, or of an embedded one."""
    if conninfo is not None:
        yield conninfo
        return
    settings = (("synchronous_commit", "off"),)
    system = System(name="behind", engine="postgres", host="local", provision="embedded", settings=settings)
    with tempfile.TemporaryDirectory() as folder:
        server = Server(system, Path(folder))
        try:
            yield make_conninfo(administration(server.start()), options="")
        finally:
            server.close(keep_data=False)


def main() -> None:
    """Serve until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--postgres", metavar="CONNINFO")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    # psycopg warns about each pipeline that a failed statement ends
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with postgres(arguments.postgres) as conninfo:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(DICTIONARY.read_bytes())
        server = TnsServer(
            port=arguments.port, backend_factory=lambda: PostgresBackend(conninfo, {USER.upper(): USER}, SERVICE)
        )
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(f"dsn {USER}/{USER}@//127.0.0.1:{server.port}/{SERVICE}", flush=True)
        try:
            while sys.stdin.buffer.read(1):
                pass
        finally:
            server.close()


if __name__ == "__main__":
    main()
