"""The meaning of a refused statement, and the queries of preflight checks, as data for each engine.

Data flow: code and text of an error -> `kind_of` -> the cause: the plan, a missing table, a missing right, the server.
A refused statement of the plan gets its place in the plan (`text_of_plan`), so that the coordinator can name it.

Sources: PostgreSQL manual, appendix A; MariaDB Server Error Codes; sqlite3 result codes; the exceptions of DuckDB;
Oracle Database Error Messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

from proveout.agent.errors import TaskFault
from proveout.core.data_classes import field, record

Kind: TypeAlias = Literal["syntax", "missing", "rights", "server", "unchecked", "statement"]
"""`syntax`: wrong whatever the tables are; `missing`: it names what is not there; `server`: the plan is not the cause;
`unchecked`: the engine cannot prepare such a statement; `statement`: any other refusal of it."""

NEVER = r"(?!)"


@record
class RightsCheck:
    """A query whose first value is true where the user may do something, and the way out where it is not.

    `warns`: what follows works without it, with less to be seen.
    """

    query: str
    what: str
    way_out: str
    warns: bool = False


@record
class StatementRules:
    """Patterns for `CODE text`, matched at its start, and queries.

    `explain`: the words in front of a statement that make the server check the rights on its tables without running it;
    "" where preparing it checks them. `columns`: name and type of the columns of `{table}`; "" where they are not read.
    `some_rows`: the number of its rows, at most `{most}`. `connections`: what limits connections, the most, and those
    that others have, a row for each limit; "" where it is not read. `rights` by use or kind of capture.
    """

    syntax: str = NEVER
    missing: str = NEVER
    rights_missing: str = NEVER
    server: str = NEVER
    unchecked: str = NEVER
    explain: str = ""
    columns: str = ""
    some_rows: str = "SELECT count(*) FROM (SELECT 1 FROM {table} LIMIT {most}) AS proveout_rows"
    connections: str = ""
    """(who limits, the limit, the connections of others, the server's number of this connection)."""
    rights: Mapping[str, RightsCheck] = field(default_factory=dict)
    keys: str = ""
    """(table, column, type, `primary` or `foreign`) of the user's keys of one column; "" where they are not read."""
    statements: str = ""
    """(calls, text) of the server's own statistics, the most called first; "" where it has none."""
    plan: str = ""
    """The words in front of a statement with values that give its plan as rows; "" where scans are not looked for."""
    scan: str = NEVER
    """Matches a row of the plan, its values separated by tabs, where a table is read whole; its group is the table."""

    def kind_of(self, code: str, text: str) -> Kind:
        """The meaning of an error."""
        words = f"{code} {text}"
        patterns: tuple[tuple[Kind, str], ...] = (
            ("unchecked", self.unchecked),
            ("server", self.server),
            ("rights", self.rights_missing),
            ("syntax", self.syntax),
            ("missing", self.missing),
        )
        return next((kind for kind, pattern in patterns if re.match(pattern, words, re.DOTALL)), "statement")


_SUPERUSER = "SELECT rolsuper OR {} FROM pg_roles WHERE rolname = current_user"

POSTGRES = StatementRules(
    syntax=r"426(01|02|22)|42939",
    missing=r"42P01|42703|42883|42704|3F000|3D000|42P02",
    rights_missing=r"42501",
    server=r"08|28|40|53|55|57|58|F0|HV|XX|25006",
    explain="EXPLAIN ",
    columns=(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = to_regclass('{table}') AND attnum > 0 AND NOT attisdropped"
    ),
    connections=(
        "SELECT 'the server', current_setting('max_connections')::int - CASE WHEN rolsuper THEN 0 ELSE "
        "current_setting('superuser_reserved_connections')::int + "
        "coalesce(current_setting('reserved_connections', true), '0')::int END, "
        "(SELECT count(*)::int - 1 FROM pg_stat_activity WHERE usesysid IS NOT NULL AND datid IS NOT NULL), "
        "pg_backend_pid() FROM pg_roles WHERE rolname = current_user "
        "UNION ALL SELECT 'its user', rolconnlimit, "
        "(SELECT count(*)::int - 1 FROM pg_stat_activity WHERE usesysid = pg_roles.oid), pg_backend_pid() "
        "FROM pg_roles WHERE rolname = current_user AND rolconnlimit >= 0 AND NOT rolsuper "
        "UNION ALL SELECT 'its database', datconnlimit, numbackends - 1, pg_backend_pid() FROM pg_database "
        "JOIN pg_stat_database USING (datname) WHERE datname = current_database() AND datconnlimit >= 0"
    ),
    rights={
        "populate": RightsCheck(
            query=(
                "SELECT coalesce(has_schema_privilege(current_schema(), 'CREATE'), "
                "has_database_privilege(current_database(), 'CREATE'))"  # the plan makes the schema first
            ),
            what="the user may not create tables in the schema that comes first in its search_path",
            way_out="GRANT CREATE ON SCHEMA public TO the user of its dsn",
        ),
        "checkpoint": RightsCheck(
            query=_SUPERUSER.format(
                "EXISTS (SELECT FROM pg_roles one WHERE one.rolname = 'pg_checkpoint' "
                "AND pg_has_role(one.oid, 'USAGE'))"
            ),
            what="the user may not run CHECKPOINT, which a reset does",
            way_out="GRANT pg_checkpoint to the user of its dsn, or give the reset `checkpoint: false`",
        ),
        "propagate": RightsCheck(
            query=_SUPERUSER.format("rolreplication"),
            what="the user may not replicate, which `propagates_to` needs",
            way_out="ALTER ROLE of the user of its dsn WITH REPLICATION",
        ),
        "waits": RightsCheck(
            query=_SUPERUSER.format(
                "EXISTS (SELECT FROM pg_roles one WHERE one.rolname = 'pg_read_all_stats' "
                "AND pg_has_role(one.oid, 'USAGE'))"
            ),
            what="the user does not see the wait events of other users' sessions",
            way_out="GRANT pg_monitor TO the user of its dsn",
            warns=True,  # a load that connects as the same user is seen
        ),
    },
    keys=(
        "SELECT c.conrelid::regclass::text, a.attname, format_type(a.atttypid, a.atttypmod), "
        "CASE c.contype WHEN 'p' THEN 'primary' ELSE 'foreign' END "
        "FROM pg_constraint c JOIN pg_class t ON t.oid = c.conrelid AND t.relkind IN ('r', 'p') "
        "JOIN pg_namespace n ON n.oid = t.relnamespace AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' "
        "JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1] "
        "WHERE c.contype IN ('p', 'f') AND array_length(c.conkey, 1) = 1 AND NOT t.relispartition "
        "AND has_table_privilege(c.conrelid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE') ORDER BY 1, 4 DESC, 2"
    ),
    statements=(
        "SELECT calls, query FROM pg_stat_statements WHERE dbid = "
        "(SELECT oid FROM pg_database WHERE datname = current_database()) ORDER BY calls DESC LIMIT 200"
    ),
    plan="EXPLAIN ",
    scan=r'.*\bSeq Scan on "?(\w+)',
)

MYSQL = StatementRules(
    syntax=r"(1064|1149) ",
    missing=r"(1146|1054|1049|1305|1051|1091) ",
    rights_missing=r"(1044|1045|1142|1143|1227|1290|1370|1419) ",
    server=r"(1021|1030|1037|1038|1040|1041|1053|1114|1194|1203|1205|1213|1226|1317|1927|2\d{3}|0800\d) ",
    unchecked=r"1295 ",
    columns=(
        "SELECT column_name, column_type FROM information_schema.columns "
        "WHERE table_schema = database() AND table_name = '{table}'"
    ),
    connections=(
        "SELECT 'the server', @@max_connections, (SELECT count(*) - 1 FROM information_schema.processlist "
        "WHERE user NOT IN ('system user', 'event_scheduler')), connection_id() "
        "UNION ALL SELECT 'its user', @@max_user_connections, 0, connection_id() FROM dual "
        "WHERE @@max_user_connections > 0"
    ),
    rights={
        "populate": RightsCheck(
            query=(
                "SELECT count(*) > 0 OR current_role() IS NOT NULL FROM ("
                "SELECT 1 FROM information_schema.user_privileges WHERE privilege_type = 'CREATE' "
                "AND grantee = concat('''', replace(current_user(), '@', '''@'''), '''') UNION ALL "
                "SELECT 1 FROM information_schema.schema_privileges WHERE privilege_type = 'CREATE' "
                "AND database() LIKE table_schema) AS creating"
            ),
            what="the user may not create tables in the database of its dsn",
            way_out="GRANT CREATE, DROP, INDEX, INSERT, SELECT ON the database TO the user of its dsn",
        ),
    },
    keys=(
        "SELECT k.table_name, k.column_name, c.column_type, "
        "CASE WHEN k.constraint_name = 'PRIMARY' THEN 'primary' ELSE 'foreign' END "
        "FROM information_schema.key_column_usage k JOIN information_schema.columns c "
        "ON c.table_schema = k.table_schema AND c.table_name = k.table_name AND c.column_name = k.column_name "
        "WHERE k.table_schema = database() AND (k.constraint_name = 'PRIMARY' OR k.referenced_table_name IS NOT NULL) "
        "AND NOT EXISTS (SELECT 1 FROM information_schema.key_column_usage o WHERE o.table_schema = k.table_schema "
        "AND o.table_name = k.table_name AND o.constraint_name = k.constraint_name AND o.ordinal_position > 1) "
        "ORDER BY 1, 4 DESC, 2"
    ),
    statements=(
        "SELECT count_star, digest_text FROM performance_schema.events_statements_summary_by_digest "
        "WHERE schema_name = database() AND digest_text IS NOT NULL ORDER BY count_star DESC LIMIT 200"
    ),
    plan="EXPLAIN ",
    scan=r"\w+\t[\w ]+\t(\w+)\t(?:[^\t]*\t)?ALL\t",  # MySQL has a column of partitions before the type
)

SQLITE = StatementRules(
    syntax=r"\S+ .*(syntax error|incomplete input|unrecognized token)",
    missing=r"\S+ .*(no such (table|column|function|index|view|savepoint)|has no column named)",
    rights_missing=r"SQLITE_(READONLY|PERM|CANTOPEN)",
    server=r"SQLITE_(BUSY|LOCKED|FULL|IOERR|NOMEM|INTERRUPT|CORRUPT|NOTADB|PROTOCOL|INTERNAL)",
    columns="SELECT name, type FROM pragma_table_info('{table}')",
    keys=(
        "SELECT m.name, i.name, i.type, 'primary' FROM sqlite_schema m, pragma_table_info(m.name) i "
        "WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite^_%' ESCAPE '^' AND i.pk = 1 "
        "AND NOT EXISTS (SELECT 1 FROM pragma_table_info(m.name) o WHERE o.pk > 1) "
        "UNION ALL SELECT m.name, f.\"from\", i.type, 'foreign' FROM sqlite_schema m, "
        "pragma_foreign_key_list(m.name) f, pragma_table_info(m.name) i WHERE m.type = 'table' AND f.seq = 0 "
        'AND i.name = f."from" AND NOT EXISTS '
        "(SELECT 1 FROM pragma_foreign_key_list(m.name) o WHERE o.id = f.id AND o.seq > 0) ORDER BY 1, 4 DESC, 2"
    ),
    plan="EXPLAIN QUERY PLAN ",
    scan=r".*\t(?:SCAN (?!.* USING )|SEARCH (?=\w+ USING AUTOMATIC ))(?:TABLE )?(\w+)",
)

DUCKDB = StatementRules(
    syntax=r"(ParserException|SyntaxException) ",
    missing=r"CatalogException |BinderException .*(not found|does not exist|Referenced)",
    rights_missing=r"PermissionException |\S+ .*read-only",
    server=(
        r"(IOException|FatalException|InternalException|OutOfMemoryException|ConnectionException|"
        r"SerializationException|TransactionException|InterruptException|DUCKDB_FULL) "
    ),
    columns="SELECT column_name, data_type FROM information_schema.columns WHERE lower(table_name) = lower('{table}')",
    keys=(
        "SELECT k.table_name, c.column_name, c.data_type, "
        "CASE k.constraint_type WHEN 'PRIMARY KEY' THEN 'primary' ELSE 'foreign' END "
        "FROM duckdb_constraints() k JOIN duckdb_columns() c ON c.table_oid = k.table_oid "
        "AND c.column_name = k.constraint_column_names[1] WHERE k.schema_name = 'main' "
        "AND k.constraint_type IN ('PRIMARY KEY', 'FOREIGN KEY') AND len(k.constraint_column_names) = 1 "
        "ORDER BY 1, 4 DESC, 2"
    ),
)

ORACLE = StatementRules(
    syntax=r"ORA-009(?!04|13|18|32|42|47|55|79|80)\d\d",
    missing=r"ORA-(00904|00942|00980|02289|04043|06550)",
    rights_missing=r"ORA-(01031|01045|01950)",
    server=(
        r"ORA-(00018|00020|00054|00060|00600|01012|01017|01033|01034|01089|01092|01536|01652|01653|01654|03113|"
        r"03114|03135|04031|07445|12\d{3}|25408|28000|30006)|DPY-|DPI-"
    ),
    columns=(
        "SELECT column_name, data_type FROM all_tab_columns "
        "WHERE owner = sys_context('userenv', 'current_schema') AND table_name = upper('{table}')"
    ),
    some_rows="SELECT count(*) AS proveout_rows FROM (SELECT 1 FROM {table} WHERE ROWNUM <= {most})",
    keys=(
        "SELECT lower(k.table_name), lower(c.column_name), t.data_type, "
        "CASE k.constraint_type WHEN 'P' THEN 'primary' ELSE 'foreign' END "
        "FROM user_constraints k JOIN user_cons_columns c ON c.constraint_name = k.constraint_name AND c.position = 1 "
        "JOIN user_tab_columns t ON t.table_name = k.table_name AND t.column_name = c.column_name "
        "WHERE k.constraint_type IN ('P', 'R') AND NOT EXISTS (SELECT 1 FROM user_cons_columns o "
        "WHERE o.constraint_name = k.constraint_name AND o.position > 1) ORDER BY 1, 4 DESC, 2"
    ),
    statements=(
        "SELECT executions, sql_fulltext FROM v$sqlarea "  # of v$sql all children of a statement together
        "WHERE parsing_schema_name = sys_context('userenv', 'current_schema') AND command_type IN (2, 3, 6, 7) "
        "ORDER BY executions DESC FETCH FIRST 200 ROWS ONLY"
    ),
)

RULES: Mapping[str, StatementRules] = {
    "postgres": POSTGRES, "mysql": MYSQL, "sqlite": SQLITE, "duckdb": DUCKDB, "oracle": ORACLE,
    "timesten": StatementRules(syntax=r"TT1001|ORA-00900", server=r"TT(0|8|12)|ORA-(01|12)|DPI-|DPY-"),
}  # fmt: skip
"""Rules by engine; one that is not here has none, and every refusal of a statement that leaves the connection open is
the statement's."""


def rules_of(engine: str) -> StatementRules:
    return RULES.get(engine, StatementRules())


def blames_plan(engine: str, code: str, text: str) -> bool:
    """Whether the plan is the cause of a refused statement, and not the server or a missing right."""
    return rules_of(engine).kind_of(code, text) in ("syntax", "missing", "statement")


@contextmanager
def text_of_plan(engine: str, subject: str) -> Iterator[None]:
    """Give a TaskFault of a block that executes a text of the plan its place there, where the plan is the cause."""
    try:
        yield
    except TaskFault as fault:
        if fault.refusal and blames_plan(engine, fault.refusal, fault.what):
            fault.subject = subject
        raise


@contextmanager
def as_faults(
    errors: type[Exception] | tuple[type[Exception], ...], fault: Callable[[Any], TaskFault]
) -> Iterator[None]:
    """A block whose errors of a client library become TaskFaults."""
    try:
        yield
    except errors as error:
        raise fault(error) from None


_LINE = re.compile(r"^LINE (\d+): | at line (\d+)(?: \(SQLSTATE \w+\))?\Z", re.MULTILINE)
"""PostgreSQL and DuckDB, and at its end MySQL, which quotes the statement before."""


def line_in(text: str) -> int:
    """The line of a statement that an error names, from 1; 0 where it names none.

    >>> line_in("error in your SQL syntax near 'at line 9 (or 10)' at line 2 (SQLSTATE 42000)")
    2
    """
    found = _LINE.search(text)
    return int(found[1] or found[2]) if found else 0


def line_of(text: str, offset: int | None) -> int:
    """The line of the character `offset` (from 0) of a text, from 1; 0 where it is not known."""
    return 0 if offset is None or offset < 0 else text.count("\n", 0, offset) + 1
