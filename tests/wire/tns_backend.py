"""The backend of the TNS server of the tests: one Oracle session on a real PostgreSQL.

Flow: seerdb.server decodes a call -> `PostgresBackend.execute(sql, binds)` -> sqlglot turns the Oracle text into
PostgreSQL's (once per text) -> psycopg -> rows with Oracle's column types, or PostgreSQL's error as the ORA- error that
Oracle has for it. Transactions are PostgreSQL's; as in Oracle, a failed statement is rolled back without its
transaction.

It tests the driver's use of the protocol: order, binds, fetches, commits, errors. It does not prove that Oracle accepts
a statement: sqlglot may translate texts that are not valid Oracle SQL. It has no PL/SQL: for a procedure of TPROC-C it
creates the PL/pgSQL procedure of the same name and calls that one. So calls are tested, with binds, errors and the
commit in the procedure, but not the PL/SQL. Of the packages DBMS_WORKLOAD_REPOSITORY and TT_STATS it has functions with
the same names and arguments whose reports are canned: they show that snapshots are taken and which two are reported on,
not that Oracle or TimesTen has these packages in this form. An exception whose text begins with an ORA- code, which a
test's function can raise, is that error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import psycopg
import sqlglot
from psycopg import rows
from psycopg.conninfo import make_conninfo
from seerdb.common.tns import ColumnMeta
from seerdb.common.tns_consts import TNS_TYPE_CHAR, TNS_TYPE_NUMBER, TNS_TYPE_VARCHAR
from seerdb.server import BackendError, BindVar, Capability, Result
from seerdb.server.identity import ServerIdentity
from sqlglot import exp

from proveout.dsl.workloads.tprocc.statements import ROLLED_BACK_STATE
from proveout.dsl.workloads.tprocc.tables import POSTGRES_FUNCTIONS

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
_BPCHAR = 1042
_STATS = re.compile(r"BEGIN\s+DBMS_STATS\.GATHER_TABLE_STATS\(USER, '(\w+)'.*\);\s*END;", re.I | re.S)
_SERIALIZABLE = re.compile(r"SET\s+TRANSACTION\s+ISOLATION\s+LEVEL\s+SERIALIZABLE", re.I)
_LOCK_TIMEOUT = re.compile(r"ALTER\s+SESSION\s+SET\s+DDL_LOCK_TIMEOUT\s*=\s*(\d+)", re.I)
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

DICTIONARY = """
CREATE SCHEMA IF NOT EXISTS oracle;
CREATE TABLE IF NOT EXISTS oracle.dual AS SELECT 'X'::char(1) AS dummy;
CREATE OR REPLACE VIEW oracle.user_tab_comments AS
  SELECT upper(relname)::varchar(128) AS table_name, obj_description(oid, 'pg_class')::varchar(4000) AS comments
  FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace;
CREATE OR REPLACE VIEW oracle.v$parameter AS
  SELECT name::varchar(80), value::varchar(4000), isdefault::varchar(9)
  FROM (VALUES ('commit_wait', 'WAIT', 'TRUE'), ('nls_sort', 'BINARY', 'TRUE')) AS p (name, value, isdefault);
CREATE OR REPLACE FUNCTION oracle.sys_context(text, text) RETURNS varchar(80) LANGUAGE sql AS $$ SELECT '1' $$;
CREATE TABLE IF NOT EXISTS oracle.gv$instance (inst_id int, startup_time timestamp);
CREATE TABLE IF NOT EXISTS oracle.gv$system_event
  (inst_id int, wait_class varchar(64), event varchar(64), total_waits_fg bigint, time_waited_micro_fg bigint);
CREATE TABLE IF NOT EXISTS oracle.gv$sys_time_model (inst_id int, stat_name varchar(64), value bigint);
CREATE TABLE IF NOT EXISTS oracle.gv$osstat (inst_id int, stat_name varchar(64), value bigint, cumulative varchar(3));
CREATE TABLE IF NOT EXISTS oracle.gv$sysstat (inst_id int, name varchar(64), value bigint);
CREATE OR REPLACE VIEW oracle.v$instance AS SELECT 1 AS instance_number, coalesce(
  (SELECT startup_time FROM oracle.gv$instance WHERE inst_id = 1), '2026-01-01 00:00:00'::timestamp) AS startup_time;
CREATE OR REPLACE VIEW oracle.v$system_event AS SELECT * FROM oracle.gv$system_event WHERE inst_id = 1;
CREATE OR REPLACE VIEW oracle.v$sys_time_model AS SELECT * FROM oracle.gv$sys_time_model WHERE inst_id = 1;
CREATE OR REPLACE VIEW oracle.v$osstat AS SELECT * FROM oracle.gv$osstat WHERE inst_id = 1;
CREATE OR REPLACE VIEW oracle.v$sysstat AS SELECT * FROM oracle.gv$sysstat WHERE inst_id = 1;
CREATE TABLE IF NOT EXISTS oracle.v$sql
  (sql_id varchar(13), child_number int, sql_text varchar(1000), executions bigint, elapsed_time bigint,
   rows_processed bigint, parsing_schema_name varchar(128));
CREATE TABLE IF NOT EXISTS oracle.v$sqlarea
  (executions bigint, sql_fulltext varchar(4000), command_type int, parsing_schema_name varchar(128));
CREATE TABLE IF NOT EXISTS oracle.v$sql_plan
  (sql_id varchar(13), child_number int, id int, depth int, operation varchar(30), options varchar(30),
   object_name varchar(128), cardinality bigint);
CREATE OR REPLACE VIEW oracle.v$database AS SELECT 4242::bigint AS con_dbid;
CREATE TABLE IF NOT EXISTS oracle.dba_hist_snapshot
  (snap_id int, dbid bigint, instance_number int, startup_time timestamp, taken timestamp DEFAULT clock_timestamp());
CREATE OR REPLACE FUNCTION oracle.create_snapshot() RETURNS int LANGUAGE sql AS $$
  INSERT INTO oracle.dba_hist_snapshot (snap_id, dbid, instance_number, startup_time)
    SELECT coalesce(max(snap_id), 0) + 1, 4242, 1, '2026-01-01 00:00:00' FROM oracle.dba_hist_snapshot
    RETURNING snap_id $$;
CREATE OR REPLACE FUNCTION oracle.awr_report_html(dbid bigint, instance bigint, first_snap bigint, last_snap bigint)
  RETURNS TABLE (output varchar(8000)) LANGUAGE sql AS $$
  VALUES ('<html><title>canned</title>'),
         ('<p>database ' || dbid || ', instance ' || instance || ', snapshots ' || first_snap || ' to ' || last_snap),
         (NULL), ('</html>') $$;
CREATE OR REPLACE FUNCTION oracle.awr_global_report_html(dbid bigint, instances text, first_snap bigint, last_snap bigint)
  RETURNS TABLE (output varchar(8000)) LANGUAGE sql AS $$
  VALUES ('<p>database ' || dbid || ', all instances, snapshots ' || first_snap || ' to ' || last_snap) $$;
CREATE OR REPLACE FUNCTION oracle.capture_snapshot(level text) RETURNS int LANGUAGE sql AS $$
  SELECT oracle.create_snapshot() $$;
CREATE OR REPLACE FUNCTION oracle.generate_report_text(first_snap bigint, last_snap bigint) RETURNS text[]
  LANGUAGE sql AS $$ SELECT ARRAY['canned', 'snapshots ' || first_snap || ' to ' || last_snap] $$;
"""
"""The views of Oracle's dictionary that proveout queries. Those of gv$ are tables, which tests fill; v$ is instance 1."""


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
    if match := _LOCK_TIMEOUT.fullmatch(sql.strip()):
        return Translated(f"SET lock_timeout = '{match[1]}s'", "ddl", ())
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
    kind = TNS_TYPE_CHAR if column.type_code == _BPCHAR else TNS_TYPE_VARCHAR
    return ColumnMeta(name=name, data_type=kind, data_length=width, max_size=width)
