"""Loading a population into MySQL: LOAD DATA LOCAL INFILE out of memory, multi-row INSERTs where the server does not
allow it.

Flow: numpy columns -> CSV -> the server, a chunk of subscribers at a time,
a slice in one transaction. Primary and foreign keys are there from the start, as InnoDB clusters a table on its key and
the rows come in key order; checking them is off for the load, as they are right by construction, and so is writing to
the binary log where the user may ask for that. The text index comes after the load. A table that proveout made carries
a comment that marks it, and only such tables are ever dropped; how a killed `prepare` is recognised is in
`engines.table`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pymysql
from pymysql.connections import Connection
from pymysql.constants import CLIENT, COMMAND

from proveout.agent.engines.adapter import RangeMark
from proveout.agent.engines.mysql.dsn import UNREACHABLE, MalformedDsn, connect, one_line, parse
from proveout.agent.engines.row_values import as_csv, plain
from proveout.agent.engines.statement_errors import MYSQL, as_faults
from proveout.agent.engines.table import COMMENT, TableLoader, column_names
from proveout.agent.errors import TaskFault
from proveout.dsl import engines
from proveout.dsl.workloads.base import Population, Table

Columns = Sequence[npt.NDArray[np.generic]]

CHUNK_UNITS = 5_000
PACKET_BYTES = 1 << 20
COMMENT_OF = (
    "SELECT 'table', table_comment FROM information_schema.tables WHERE table_schema = database() AND table_name ="
)
SETTINGS = (
    "SET SESSION foreign_key_checks = 0",
    "SET SESSION unique_checks = 0",
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    "SET SESSION lock_wait_timeout = 60",
    "SET SESSION sql_notes = 0, max_error_count = 1",
)
DEADLOCK = frozenset({"1213", "1205"})
DEADLOCKS_MAX = 8


class LoadConnection(Connection):  # type: ignore[misc]  # PyMySQL has no types
    """A connection that can give LOAD DATA LOCAL its rows from memory, and never gives the server any file of this
    host.

    PyMySQL itself would open any file that the server requests, so its `local_infile` stays off.
    """

    def load(self, statement: str, rows: bytes) -> int:
        """Run a LOAD DATA LOCAL INFILE whose file is `rows`; how many the server took. Raises
        pymysql.err.MySQLError, also for a value that does not fit its column: LOCAL makes that a warning."""
        self._execute_command(COMMAND.COM_QUERY, statement)
        if not self._read_packet().is_load_local_packet():
            raise pymysql.err.OperationalError(1148, "the server did not ask for the rows of LOAD DATA LOCAL INFILE")
        view = memoryview(rows)
        for start in range(0, len(rows), PACKET_BYTES):
            self.write_packet(bytes(view[start : start + PACKET_BYTES]))
        self.write_packet(b"")
        answer = pymysql.connections.OKPacketWrapper(self._read_packet())
        if answer.warning_count:
            _, code, text = self.show_warnings()[0]
            raise pymysql.err.DataError(code, text)
        return int(answer.affected_rows)


class MysqlLoader(TableLoader):
    """See `TableLoader`."""

    whole_number = "bigint"
    DIALECT = "mysql"
    ELSEWHERE = "point the system at an empty database"
    MARK = f"ALTER TABLE {{}} COMMENT = '{COMMENT}'"
    INTENTION = (
        f"CREATE TABLE IF NOT EXISTS {{}} (nothing int) COMMENT = '{COMMENT}'",
        "DROP TABLE IF EXISTS {}",
    )

    def __init__(self, dsn: str, population: Population) -> None:
        super().__init__(population)
        try:
            with self._doing("connect to the database"):
                self._connection = connect(
                    parse(dsn), kind=LoadConnection, read_timeout_s=10.0, client_flag=CLIENT.LOCAL_FILES
                )
        except MalformedDsn as error:
            raise TaskFault("invalid", error.what, way_out=error.way_out) from None
        self._connection._read_timeout = None  # an answer may take as long as an ALTER TABLE does
        for setting in SETTINGS:
            self.execute(setting)
        # keep the population out of the binary log; without the right to do so, it is replicated
        try:
            self.execute("SET SESSION sql_log_bin = 0")
        except TaskFault as refusal:
            if refusal.code != "refused":
                raise
        self._streams = bool(self.rows("SELECT @@global.local_infile")[0][0])

    def load(
        self, table: Table, first: int, count: int, progress: Callable[[int], None], mark: RangeMark | None = None
    ) -> int:
        """Send one slice in one transaction; return the number of rows that the server took.

        Two slices that meet in the gap of an index may deadlock. InnoDB has then rolled one of them back, whole, and
        that one is sent again.
        """
        reported: list[int] = []

        def counted(rows: int) -> None:
            reported.append(rows)
            progress(rows)

        for attempt in range(DEADLOCKS_MAX):
            try:
                return super().load(table, first, count, counted, mark)
            except TaskFault as fault:
                if fault.refusal not in DEADLOCK:
                    raise
            progress(-sum(reported))
            reported.clear()
            time.sleep(random.uniform(0.0, 0.1 * (attempt + 1)))  # noqa: S311 - so that the two do not meet again
        return super().load(table, first, count, progress, mark)

    def settle(self) -> None:
        """Have the log on disk. Where each commit waits for it, as MySQL is shipped, it is there already."""
        if int(self.rows("SELECT @@global.innodb_flush_log_at_trx_commit")[0][0]) != 1:
            self.execute("FLUSH ENGINE LOGS")

    def _doing(self, what: str) -> AbstractContextManager[None]:
        return as_faults(pymysql.err.MySQLError, partial(fault, what))

    def _run(self, statement: str) -> None:
        self._connection.query(statement)

    def _ask(self, query: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.begin()
        try:
            yield
            self._connection.commit()
        except pymysql.err.MySQLError as error:
            if one_line(error)[0] in DEADLOCK:
                self._connection.rollback()
            raise

    def _sent(self, table: Table, first: int, count: int) -> Iterator[int]:
        send = self._streamed if self._streams else self._inserted
        for start in range(first, first + count, CHUNK_UNITS):
            rows = table.rows(start, min(CHUNK_UNITS, first + count - start))
            if len(rows[0]):  # a small table has none in most of its slices
                yield send(table, rows)

    def _objects(self, name: str) -> list[tuple[Any, ...]]:
        return self.rows(f"{COMMENT_OF} '{name}'")

    def _is_making(self) -> bool:
        return self._objects(self._intention) == [("table", COMMENT)]

    def _streamed(self, table: Table, rows: Columns) -> int:
        names = [name for name, _ in table.columns]
        nullable = [name for name, values in zip(names, rows, strict=True) if isinstance(values, np.ma.MaskedArray)]
        places = ", ".join(f"@{name}" if name in nullable else name for name in names)
        setting = ", ".join(f"{name} = NULLIF(@{name}, '')" for name in nullable)  # CSV has no NULL
        statement = (
            f"LOAD DATA LOCAL INFILE 'rows' INTO TABLE {table.name} CHARACTER SET utf8mb4"
            f" FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"' ESCAPED BY '' ({places})"
            + (f" SET {setting}" if setting else "")
        )
        return int(self._connection.load(statement, as_csv(table.columns, rows)))

    def _inserted(self, table: Table, rows: Columns) -> int:
        """As many rows to a statement as PyMySQL puts into one, about 1 MB."""
        marks = ", ".join("%s" for _ in table.columns)
        bound = (plain(kind, values) for (_, kind), values in zip(table.columns, rows, strict=True))
        with self._connection.cursor() as cursor:
            text = f"INSERT INTO {table.name} ({column_names(table)}) VALUES ({marks})"  # noqa: S608 - names of ours
            return int(cursor.executemany(text, list(zip(*bound, strict=True))) or 0)


def fault(doing: str, error: pymysql.err.MySQLError) -> TaskFault:
    """A database error as a TaskFault: which code by MySQL's number, the server's words, what to do."""
    code, text = one_line(error)
    what = f"cannot {doing}: {text}" + (f" (MySQL error {code})" if code != "0" else "")
    if MYSQL.kind_of(code, text) == "rights":
        return TaskFault("refused", what, way_out="grant the user of the system's dsn what the load needs")
    if code in engines.of("mysql").disk_full_codes:
        return TaskFault("disk_full", what, way_out="give the database's host more room, or load a smaller population")
    if code in UNREACHABLE:
        return TaskFault("unreachable", what, way_out="see that the server runs, and look into its log")
    return TaskFault("fault", what, refusal=code)
