"""Oracle Database through python-oracledb: blocking sessions, and the codes of its errors."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import oracledb

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.engines.recording import tapped
from proveout.core.data_classes import dataclass, record
from proveout.dsl.engines import Dialect
from proveout.dsl.workloads import sql_text
from proveout.dsl.workloads.base import Row, Statement

oracledb.defaults.fetch_lobs = False  # a LOB is read with its row, and not a locator, which a load would never follow

NO_LISTENER = "ORA-12541"
END_OF_FILE = "ORA-03113"
NO_TABLE = "ORA-00942"

# 08177 can't serialize, 00060 deadlock, 04068 a package was replaced under the session, 14403 a partition moved
RETRYABLE = frozenset({"ORA-08177", "ORA-00060", "ORA-04068", "ORA-14403"})
# The session or the instance is gone or not available: the load connects again.
LOST = frozenset(
    {
        "ORA-00018", "ORA-00020", "ORA-00028", "ORA-00031", "ORA-00600", "ORA-00603", "ORA-01012", "ORA-01017",
        "ORA-01033", "ORA-01034", "ORA-01041", "ORA-01089", "ORA-01090", "ORA-01092", "ORA-02391", "ORA-02396",
        "ORA-03113", "ORA-03114", "ORA-03135", "ORA-12153", "ORA-12170", "ORA-12505", "ORA-12514", "ORA-12516",
        "ORA-12518", "ORA-12519", "ORA-12520", "ORA-12528", "ORA-12537", "ORA-12541", "ORA-12545", "ORA-12547",
        "ORA-12570",
        "ORA-12583", "ORA-28000", "ORA-28001",
        "DPY-1001", "DPY-4011", "DPY-4024", "DPY-6000", "DPY-6001", "DPY-6003", "DPY-6005",
    }
)  # fmt: skip
ERRORS = (oracledb.Error, UnicodeDecodeError)
"""Those of a statement; the latter where a text in the database is not in its character set."""
_HELP = re.compile(r"\s*Help: https?://\S+")
_ORA = re.compile(r"ORA-\d{5}")


@record
class ErrorText:
    """An error: its code as a DBA looks it up (`ORA-00942`), and its message on one line, with its codes."""

    code: str
    text: str


def error_text(error: BaseException) -> ErrorText:
    """Return the code and the text of one of `ERRORS`."""
    inner: Any = error.args[0] if error.args else None
    text = words(str(error)) or type(error).__name__
    if isinstance(error, UnicodeDecodeError):
        return ErrorText(code=type(error).__name__, text=text)
    match = re.match(r"(?:ORA|DPY|DPI|TT)-?\d+", text)
    code = str(getattr(inner, "full_code", "")) or (match[0] if match else "ORA-00600")
    number = int(getattr(inner, "code", 0) or 0)
    if code.startswith("DPY-") and number:
        code = f"ORA-{number:05d}"
    elif code == "DPY-4011":
        code = END_OF_FILE
    elif code == "DPY-6005" and "refused" in text:
        code = NO_LISTENER
    elif code.startswith("DPY-6") and (similar := _ORA.search(text)):  # "(Similar to ORA-12514)"
        code = similar[0]
    if code in {END_OF_FILE, NO_LISTENER} and code not in text:
        named = "end-of-file on communication channel" if code == END_OF_FILE else "no listener"
        text = f"{code}: {named} ({text})"
    return ErrorText(code=code, text=text)


def words(message: str) -> str:
    """A message on one line, without the address of its help page."""
    return " ".join(_HELP.sub("", message).split())


# A transaction begins by itself. A single statement carries its COMMIT along (autocommit); BEGIN turns that off. The
# last statement of a transaction carries it along too, where the load allows that (`execute_committing`); else COMMIT,
# and always ROLLBACK, is a call of its own and turns autocommit on again. `label` names the session for AWR and ASH.
#
# Thin mode holds the GIL but for socket I/O, so a load wants a process per core and threads within it, which is what a
# load does by itself. A call that times out leaves a connection that must not be touched again (python-oracledb 26.1
# may crash when a timeout is set on a dead one): such a session is lost, and the timeout is set once, when it is new.

CONNECT_S = 5.0
CALL_TIMEOUT_MS = 60_000
STATEMENT_CACHE = 60
ROWS_UNKNOWN = 100
ATTRIBUTE_MAX = 64  # V$SESSION.MODULE, ACTION and CLIENT_IDENTIFIER from 12.2
PROGRAM = "proveout"
# Generators of a plan give moments as these texts; without the formats the server's territory decides, and a column of
# type DATE or TIMESTAMP refuses them (ORA-01843). A fraction may be left out at the end.
MOMENTS = (
    "NLS_DATE_FORMAT = 'YYYY-MM-DD HH24:MI:SS' NLS_TIMESTAMP_FORMAT = 'YYYY-MM-DD HH24:MI:SS.FF'"
    " NLS_TIMESTAMP_TZ_FORMAT = 'YYYY-MM-DD HH24:MI:SS.FF'"
)
CLIENT = "PROVEOUT_ORACLE_CLIENT"
"""The variable with the folder of Oracle's client libraries; a process with it is in thick mode, else in thin mode."""
# The server requires native network encryption (12660, 3001), is older than 12.1, or has only a 10G password verifier.
THICK_ONLY = frozenset({"ORA-12660", "DPY-3001", "DPY-3010", "DPY-3015"})
THICK = (
    f"thin mode cannot reach this server: install Oracle Instant Client, have ldconfig know its folder, and start the "
    f"agent with {CLIENT}=FOLDER (thick mode)"
)
_AS = re.compile(r"(\S+) as (sysdba|sysasm|sysoper)", re.I)
_CONTROLS = frozenset({"BEGIN", "COMMIT", "ROLLBACK"})
_PARSED_AHEAD = re.compile(r"\s*(?:SELECT|WITH|INSERT|UPDATE|DELETE|MERGE)\b", re.I)


@dataclass(slots=True)
class OraclePrepared:
    """A statement on its own open cursor; `control` for BEGIN, COMMIT and ROLLBACK.

    `execute` and `fetchall` are the cursor's own, the latter where rows come back. Arguments are bound by position,
    where each is used once: `places` are then their order in the text, and None where it is the arguments' own. Else
    they are bound by `names`.
    """

    statement: Statement
    names: tuple[str, ...] = ()
    places: tuple[int, ...] | None = None
    cursor: Any = None
    execute: Any = None
    fetchall: Any = None
    control: str = ""


class CursorSession:
    """One connection of python-oracledb (a `BlockingSession`): what Oracle and TimesTen have in common.

    `parses_ahead`: the server parses a statement when it is prepared, so that a mistake shows before T0. `by_position`:
    arguments are bound by position where that is possible, which costs the client less than by name.
    """

    __slots__ = ("_broken", "_by_position", "_connection", "_parses_ahead", "_rows", "count")

    def __init__(self, connection: Any, *, parses_ahead: bool, by_position: bool) -> None:
        self._connection = connection
        self._connection.autocommit = True
        self._parses_ahead, self._by_position = parses_ahead, by_position
        self._rows: list[Row] = []
        self._broken = False
        self.count = 0

    def prepare(self, statement: Statement) -> OraclePrepared:
        """Open its cursor; where the server parses it now, no hard parse is measured later."""
        text = statement.text["oracle"]
        if text in _CONTROLS:
            return OraclePrepared(statement, control=text)
        cursor = self._connection.cursor()
        if statement.reads:
            expected = statement.rows_max or ROWS_UNKNOWN
            cursor.arraysize, cursor.prefetchrows = expected, expected + 1
        named = binds(text)
        try:
            cursor.prepare(named)
            if self._parses_ahead and _PARSED_AHEAD.match(named):
                cursor.parse(named)
        except oracledb.Error as error:
            raise self._failure(error, statement) from None
        names = tuple(f"p{number}" for number in range(1, len(statement.arguments) + 1))  # as `binds` gives them
        prepared = OraclePrepared(statement, names=names, cursor=cursor, execute=cursor.execute)
        if statement.reads:
            prepared.fetchall = cursor.fetchall
        order = positions(text) if self._by_position else None
        if order is not None and cursor.bindnames() == [f"P{place + 1}" for place in order]:  # in comments are none
            prepared.names = ()
            prepared.places = None if order == tuple(range(len(order))) else order
        return prepared

    def execute(self, prepared: OraclePrepared, arguments: Sequence[Any]) -> None:
        """Execute, fetch all, and count; or begin, commit, roll back."""
        if self._broken:
            raise StatementFailure(END_OF_FILE, "the connection has been given up", FailureKind.LOST)
        try:
            if prepared.control:
                self._control(prepared.control)
                return
            if prepared.names:
                prepared.execute(None, dict(zip(prepared.names, arguments, strict=True)))
            elif prepared.places is None:
                prepared.execute(None, arguments)
            else:
                prepared.execute(None, [arguments[place] for place in prepared.places])
            if prepared.fetchall is None:
                self.count = prepared.cursor.rowcount
            else:
                rows = self._rows = prepared.fetchall()
                self.count = len(rows)
        except ERRORS as error:
            raise self._failure(error, prepared.statement) from None

    def execute_committing(self, prepared: OraclePrepared, arguments: Sequence[Any]) -> None:
        """See `driver_contract.CarriesCommit`. Oracle's clients call it "commit on success"."""
        if not self._broken:
            try:
                self._connection.autocommit = True
            except oracledb.Error as error:  # the client has closed the connection
                raise self._failure(error, prepared.statement) from None
        self.execute(prepared, arguments)

    def rows(self) -> list[Row]:
        """The rows of the last reading statement."""
        return self._rows

    def cancel(self) -> None:
        """Send a break, from another thread."""
        with contextlib.suppress(oracledb.Error, OSError):
            self._connection.cancel()

    def close(self) -> None:
        """Close and roll back. A connection that is given up is only dropped."""
        if not self._broken:
            self._broken = True
            with contextlib.suppress(oracledb.Error, OSError):
                self._connection.close()

    def _control(self, control: str) -> None:
        connection = self._connection
        self.count = 0
        if control == "BEGIN":
            connection.autocommit = False
            return
        try:
            connection.commit() if control == "COMMIT" else connection.rollback()
        finally:
            connection.autocommit = True

    def _failure(self, error: Exception, statement: Statement) -> StatementFailure:
        what = error_text(error)
        kind = FailureKind.of(what.code, statement, retryable=what.code in RETRYABLE, lost=what.code in LOST)
        if kind is FailureKind.LOST:
            self._give_up()
        return StatementFailure(what.code, f"statement {statement.name}: {what.text}", kind)

    def _give_up(self) -> None:
        """Close what is left of a dead connection, from a thread: closing may itself wait for the network."""
        if self._broken:
            return
        self._broken = True
        threading.Thread(target=_close, args=(self._connection,), daemon=True, name="oracle-close").start()


class OracleSession(CursorSession):
    """One connection to an Oracle Database."""

    __slots__ = ()

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, parses_ahead=True, by_position=True)

    def label(self, run: str, work: str) -> None:
        """Module, action and client identifier, for V$SESSION, AWR and ASH; they travel with the next call."""
        self._connection.module = PROGRAM
        self._connection.action = work[:ATTRIBUTE_MAX]
        self._connection.client_identifier = f"{run}/{work}"[:ATTRIBUTE_MAX]


class OracleDriver:
    """Connects with `user/password@connect-string`; the connect string is EZConnect, a TNS alias or a full
    descriptor."""

    dialect: Dialect = "oracle"
    waits: Literal["blocking"] = "blocking"

    def connect(self, dsn: str) -> OracleSession:
        """A new connection, within 5 s unless the connect string says otherwise. The password is in no message."""
        try:
            connection = open_connection(dsn)
            connection.call_timeout = CALL_TIMEOUT_MS
            with connection.cursor() as cursor:  # before the plan's own settings of a session
                cursor.execute(f"ALTER SESSION SET {MOMENTS}")
        except oracledb.Error as error:
            what = error_text(error)
            text = f"{what.text}: {THICK}" if what.code in THICK_ONLY else what.text
            raise StatementFailure(what.code, text, FailureKind.LOST) from None
        return OracleSession(connection)


def open_connection(dsn: str) -> Any:
    """A connection, thick where `CLIENT` is set. Raises oracledb.Error."""
    user, password, target = parts(dsn)
    if (folder := os.environ.get(CLIENT)) and oracledb.is_thin_mode():
        oracledb.init_oracle_client(lib_dir=folder)
    user, mode = role_of(user)
    connect = partial(
        oracledb.connect,
        user=user,
        mode=mode,
        password=password,
        dsn=target,
        program=PROGRAM,
        stmtcachesize=STATEMENT_CACHE,
        tcp_connect_timeout=CONNECT_S,
    )
    try:
        return tapped(connect, oracledb)
    except OSError as error:  # python-oracledb resolves the name of the host before it handles errors
        raise oracledb.OperationalError(f"ORA-12545: the host of the dsn does not exist: {error}") from None


def role_of(user: str) -> tuple[str, Any]:
    """(user, mode) of `sys as sysasm`: an ASM instance, or one that is not open, takes administrators only."""
    found = _AS.fullmatch(user)
    if found is None:
        return user, oracledb.AUTH_MODE_DEFAULT
    return found[1], getattr(oracledb, f"AUTH_MODE_{found[2].upper()}")


def parts(dsn: str) -> tuple[str, str, str]:
    """User, password and connect string of a dsn: the last `@` and the first `/` divide them, so a password may hold
    both."""
    credentials, at, target = dsn.strip().rpartition("@")
    user, slash, password = credentials.partition("/")
    if not (at and slash and user and target):
        raise StatementFailure("ORA-12154", "the dsn is not of the form user/password@connect-string", FailureKind.LOST)
    return user, password, target


def binds(text: str) -> str:
    """`$1` written as `:p1`."""
    return sql_text.placed(text, ":p{}", "oracle")[0]


def positions(text: str) -> tuple[int, ...] | None:
    """The arguments of a text in the order in which it uses them, from 0; None if it uses one more often than once, as
    SQL and PL/SQL then differ in what a position is."""
    order = tuple(number - 1 for number in sql_text.placed(text, ":p{}", "oracle")[1])
    return order if len(set(order)) == len(order) else None


def _close(connection: Any) -> None:
    with contextlib.suppress(oracledb.Error, OSError):
        connection.close()
