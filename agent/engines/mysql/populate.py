"""Loading a population into MySQL: LOAD DATA LOCAL INFILE out of memory, multi-row INSERTs where the server does not
allow it.

Flow: numpy columns -> pyarrow's CSV writer, without it Python's -> the server, a chunk of subscribers at a time,
a slice in one transaction. Primary and foreign keys are there from the start, as InnoDB clusters a table on its key and
the rows come in key order; checking them is off for the load, as they are right by construction, and so is writing to
the binary log where the user may ask for that. The text index comes after the load. A table that proveout made carries
a comment that marks it, and only such tables are ever dropped; how a killed `prepare` is recognised is in
`engines.table`.
"""

from __future__ import annotations

import csv
import io
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pymysql
from pymysql.connections import Connection
from pymysql.constants import CLIENT, COMMAND

from proveout.agent.engines.adapter import RangeMark
from proveout.agent.engines.mysql.dsn import MalformedDsn, connect, one_line, parse
from proveout.agent.engines.row_values import plain, scaled
from proveout.agent.engines.table import COMMENT, intention_of, probe
from proveout.agent.errors import TaskFault
from proveout.dsl import engines
from proveout.dsl.workloads.base import Population, Table

Columns = Sequence[npt.NDArray[np.generic]]

CHUNK_UNITS = 5_000
PACKET_BYTES = 1 << 20
COMMENT_OF = "SELECT table_comment FROM information_schema.tables WHERE table_schema = database() AND table_name ="
SETTINGS = (
    "SET SESSION foreign_key_checks = 0",
    "SET SESSION unique_checks = 0",
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    "SET SESSION lock_wait_timeout = 60",
)
REFUSED = frozenset({"1044", "1045", "1142", "1143", "1227", "1370", "1419", "1290"})
DEADLOCK = frozenset({"1213", "1205"})
DEADLOCKS_MAX = 8
GONE = frozenset({"1053", "1927", "2002", "2003", "2006", "2013"})


class LoadConnection(Connection):  # type: ignore[misc]  # PyMySQL has no types
    """A connection that can give LOAD DATA LOCAL its rows from memory, and never gives the server any file of this
    host.

    PyMySQL itself would open any file that the server requests, so its `local_infile` stays off.
    """

    def load(self, statement: str, rows: bytes) -> int:
        """Run a LOAD DATA LOCAL INFILE whose file is `rows`; how many the server took. Raises
        pymysql.err.MySQLError."""
        self._execute_command(COMMAND.COM_QUERY, statement)
        if not self._read_packet().is_load_local_packet():
            raise pymysql.err.OperationalError(1148, "the server did not ask for the rows of LOAD DATA LOCAL INFILE")
        view = memoryview(rows)
        for start in range(0, len(rows), PACKET_BYTES):
            self.write_packet(bytes(view[start : start + PACKET_BYTES]))
        self.write_packet(b"")
        answer = pymysql.connections.OKPacketWrapper(self._read_packet())
        return int(answer.affected_rows)

    def wait_for_ever(self) -> None:
        """Once connected, an answer may take as long as an ALTER TABLE does."""
        self._read_timeout = None


class MysqlLoader:
    """One connection. Methods block; a database error comes out as a TaskFault with the server's own words."""

    whole_number = "bigint"

    def __init__(self, dsn: str, population: Population) -> None:
        self._population = population
        self._intention = intention_of(population)
        try:
            self._connection: Any = connect(
                parse(dsn), kind=LoadConnection, read_timeout_s=10.0, client_flag=CLIENT.LOCAL_FILES
            )
            self._connection.wait_for_ever()
        except MalformedDsn as error:
            raise TaskFault("invalid", error.what, way_out=error.way_out) from None
        except pymysql.err.MySQLError as error:
            raise fault("connect to the database", error) from None
        for setting in SETTINGS:
            self.execute(setting)
        # keep the population out of the binary log; without the right to do so, it is replicated
        try:
            self.execute("SET SESSION sql_log_bin = 0")
        except TaskFault as refusal:
            if refusal.code != "refused":
                raise
        self._streams = bool(self._one("SELECT @@global.local_infile")[0])

    def prepare(self) -> None:
        """Drop our earlier tables, create new ones, empty."""
        self._drop_ours()
        self.execute(f"CREATE TABLE IF NOT EXISTS {self._intention} (nothing int) COMMENT = '{COMMENT}'")
        for statement in self._population.before["mysql"]:
            self.execute(statement)
        for table in self._population.tables:
            self.execute(f"ALTER TABLE {table.name} COMMENT = '{COMMENT}'")
        self.execute(f"DROP TABLE {self._intention}")

    def load(
        self, table: Table, first: int, count: int, progress: Callable[[int], None], mark: RangeMark | None = None
    ) -> int:
        """Send one slice in one transaction; return the number of rows that the server took.

        Two slices that meet in the gap of an index may deadlock. InnoDB has then rolled one of them back, whole, and
        that one is sent again.
        """
        for attempt in range(DEADLOCKS_MAX + 1):
            reported = 0
            try:
                self._connection.begin()
                taken = 0
                if mark is not None:
                    self._connection.query(mark.claim)
                for sent, accepted in self._chunks(table, first, count):
                    taken += accepted
                    reported += sent
                    progress(sent)
                if mark is not None:
                    self._connection.query(mark.record.format(rows=taken))
                self._connection.commit()
            except pymysql.err.MySQLError as error:
                if one_line(error)[0] not in DEADLOCK or attempt == DEADLOCKS_MAX:
                    raise fault(f"load table {table.name}", error) from None
                self._connection.rollback()
                progress(-reported)
                time.sleep(random.uniform(0.0, 0.1 * (attempt + 1)))  # noqa: S311 - so that the two do not meet again
            else:
                return taken
        raise AssertionError  # the last attempt returns or raises

    def _chunks(self, table: Table, first: int, count: int) -> Iterator[tuple[int, int]]:
        """Send the rows of a slice; (rows sent, rows taken) of each chunk of it."""
        send = self._streamed if self._streams else self._inserted
        for start in range(first, first + count, CHUNK_UNITS):
            rows = table.rows(start, min(CHUNK_UNITS, first + count - start))
            if len(rows[0]):  # a small table has none in most of its slices
                yield len(rows[0]), send(table, rows)

    def execute(self, statement: str) -> None:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement)
        except pymysql.err.MySQLError as error:
            raise fault(f"run {statement[:100]!r}", error) from None

    def count(self, table: str) -> int:
        return int(self._one(f"SELECT count(*) FROM {table}")[0])  # noqa: S608 - a name of ours

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._rows(query)

    def table_exists(self, name: str) -> bool:
        return bool(self._rows(f"{COMMENT_OF} '{name}'"))

    def settle(self) -> None:
        """Have the log on disk. Where each commit waits for it, as MySQL is shipped, it is there already."""
        if int(self._one("SELECT @@global.innodb_flush_log_at_trx_commit")[0]) != 1:
            self.execute("FLUSH ENGINE LOGS")

    def undo(self) -> None:
        self._drop_ours()
        self.execute(f"DROP TABLE IF EXISTS {self._intention}")

    def close(self) -> None:
        self._connection.close()

    def _streamed(self, table: Table, rows: Columns) -> int:
        nullable = [
            name for name, values in zip(names_of(table), rows, strict=True) if isinstance(values, np.ma.MaskedArray)
        ]
        places = ", ".join(f"@{name}" if name in nullable else name for name in names_of(table))
        setting = ", ".join(f"{name} = NULLIF(@{name}, '')" for name in nullable)  # CSV has no NULL
        statement = (
            f"LOAD DATA LOCAL INFILE 'rows' INTO TABLE {table.name} CHARACTER SET utf8mb4"
            f" FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"' ESCAPED BY '' ({places})"
            + (f" SET {setting}" if setting else "")
        )
        return int(self._connection.load(statement, as_csv(table.columns, rows)))

    def _inserted(self, table: Table, rows: Columns) -> int:
        """As many rows to a statement as PyMySQL puts into one, about 1 MB."""
        names = ", ".join(names_of(table))
        marks = ", ".join("%s" for _ in table.columns)
        bound = (plain(kind, values) for (_, kind), values in zip(table.columns, rows, strict=True))
        with self._connection.cursor() as cursor:
            text = f"INSERT INTO {table.name} ({names}) VALUES ({marks})"  # noqa: S608 - names of ours
            return int(cursor.executemany(text, list(zip(*bound, strict=True))) or 0)

    def _drop_ours(self) -> None:
        """Drop the tables where they are; TaskFault `refused` when one of them is not ours."""
        self._refuse_foreign_tables()
        for statement in self._population.drop["mysql"]:
            self.execute(statement)

    def _refuse_foreign_tables(self) -> None:
        making = self._rows(f"{COMMENT_OF} '{self._intention}'") == [(COMMENT,)]
        for table in self._population.tables:
            found = self._rows(f"{COMMENT_OF} '{table.name}'")
            if found and found[0][0] != COMMENT and not (making and self._is_new(table)):
                raise TaskFault(
                    "refused",
                    f"the database has a table {table.name} that proveout did not make, and a load would replace it",
                    way_out="point the system at an empty database, or drop the table yourself",
                )

    def _is_new(self, table: Table) -> bool:
        """Whether it is as a killed `prepare` leaves it."""
        try:
            return not self._rows(f"{probe(table)} LIMIT 1")
        except TaskFault:
            return False

    def _one(self, query: str) -> tuple[Any, ...]:
        return self._rows(query)[0]

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(query)
                return list(cursor.fetchall())
        except pymysql.err.MySQLError as error:
            raise fault("read the catalogue or count rows", error) from None


def names_of(table: Table) -> list[str]:
    """Its columns' names, in the order of the rows."""
    return [name for name, _ in table.columns]


def as_csv(columns: tuple[tuple[str, str], ...], rows: Columns) -> bytes:
    """Rows as text: numbers bare, texts in double quotes, which stand twice inside one, nothing or an empty text
    for NULL."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra: a fifth of the time
        import pyarrow.csv as arrow_csv  # noqa: PLC0415
    except ModuleNotFoundError:
        text = io.StringIO(newline="")
        plain_columns = (plain(kind, values) for (_, kind), values in zip(columns, rows, strict=True))
        lines = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        lines.writerows(zip(*plain_columns, strict=True))
        return text.getvalue().encode()
    out = io.BytesIO()
    arrays = [pa.array(scaled(kind, values)) for (_, kind), values in zip(columns, rows, strict=True)]
    table = pa.table(arrays, names=[name for name, _ in columns])
    arrow_csv.write_csv(table, out, arrow_csv.WriteOptions(include_header=False))
    return out.getvalue()


def fault(doing: str, error: pymysql.err.MySQLError) -> TaskFault:
    """A database error as a TaskFault: which code by MySQL's number, the server's words, what to do."""
    code, text = one_line(error)
    what = f"cannot {doing}: {text}" + (f" (MySQL error {code})" if code != "0" else "")
    if code in REFUSED:
        return TaskFault("refused", what, way_out="grant the user of the system's dsn what the load needs")
    if code in engines.of("mysql").disk_full_codes:
        return TaskFault("disk_full", what, way_out="give the database's host more room, or load a smaller population")
    if code in GONE:
        return TaskFault("unreachable", what, way_out="see that the server runs, and look into its log")
    return TaskFault("fault", what)
