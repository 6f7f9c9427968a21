"""Populations of a real MariaDB: LOAD DATA LOCAL and INSERT give the same rows, with special characters in texts;
refusals."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pymysql
import pytest

from proveout.agent.engines.mysql import dsn as mysql_dsn
from proveout.agent.engines.mysql.populate import LoadConnection, MysqlLoader
from proveout.agent.errors import TaskFault
from proveout.agent.load.population.handler import populate
from proveout.dsl.workloads.base import Population, Table
from proveout.dsl.workloads.hlr.parameters import Hlr
from proveout.dsl.workloads.hlr.workload import build

pytestmark = pytest.mark.server

TABLES = ("subscriber", "access_info", "special_facility", "call_forwarding")
WORDS = [
    "plain",
    'with "quotes"',
    "back\\slash",
    "two\nlines",
    "comma, comma",
    "naïve ☃",
    "",
    "'",
    "\\N",
    "NULL",
    "tab\t",
]


def ask(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(mysql_dsn.connect(mysql_dsn.parse(dsn))) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


@pytest.fixture
def without_local_infile(mysql_database: str) -> Iterator[None]:
    ask(mysql_database, "SET GLOBAL local_infile = OFF")
    yield
    ask(mysql_database, "SET GLOBAL local_infile = ON")


def one_table() -> Population:
    words = np.array(WORDS)
    columns = (("id", "int4"), ("word", "any"), ("code", "char(3)"), ("part", "any"))

    def rows(first: int, count: int) -> list[Any]:
        keys = np.arange(first, first + count)
        return [keys, words[(keys - 1) % len(words)], np.full(count, b"abc", "S3"), keys / 4]

    return Population(
        units=len(WORDS),
        tables=(Table(name="odd", columns=columns, rows=rows),),
        before={
            "mysql": ("CREATE TABLE odd (id int PRIMARY KEY, word text, code char(3), part double) CHARSET utf8mb4",)
        },
        after={"mysql": ()},
        drop={"mysql": ("DROP TABLE IF EXISTS odd",)},
        expected={"odd": (len(WORDS), len(WORDS))},
    )


def load_odd(dsn: str) -> list[tuple[Any, ...]]:
    loader = MysqlLoader(dsn, one_table())
    loader.prepare()
    progress: list[int] = []
    assert loader.load(one_table().tables[0], 1, len(WORDS), progress.append) == len(WORDS) == sum(progress)
    assert loader.count("odd") == len(WORDS)
    loader.settle()
    loader.close()
    return ask(dsn, "SELECT id, word, code, part FROM odd ORDER BY id")


EXPECTED = [(number, word, "abc", number / 4) for number, word in enumerate(WORDS, start=1)]


def test_any_text_by_load_data(mysql_database: str) -> None:
    assert load_odd(mysql_database) == EXPECTED


@pytest.mark.usefixtures("without_local_infile")
def test_any_text_by_insert(mysql_database: str) -> None:
    with (
        contextlib.closing(mysql_dsn.connect(mysql_dsn.parse(mysql_database), kind=LoadConnection)) as connection,
        pytest.raises(pymysql.err.MySQLError),  # the server refuses LOAD DATA LOCAL
    ):
        connection.load("LOAD DATA LOCAL INFILE 'rows' INTO TABLE odd", b"")
    assert load_odd(mysql_database) == EXPECTED


def test_a_slice_is_repeated_after_a_lock_timeout(mysql_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another session locks the key of a row: the whole slice is rolled back, and inserted after the lock is released.

    The test provokes a lock timeout. A deadlock takes the same code path, but InnoDB chooses which transaction it rolls
    back.
    """
    loader = MysqlLoader(mysql_database, one_table())
    loader.prepare()
    loader.execute("SET SESSION innodb_lock_wait_timeout = 1")
    progress: list[int] = []
    with contextlib.closing(mysql_dsn.connect(mysql_dsn.parse(mysql_database))) as other:
        other.begin()
        other.cursor().execute("INSERT INTO odd VALUES (3, 'in the way', 'no', 0)")
        pauses: list[float] = []

        def free_it(seconds: float) -> None:
            pauses.append(seconds)
            other.rollback()

        monkeypatch.setattr("proveout.agent.engines.mysql.populate.time.sleep", free_it)
        assert loader.load(one_table().tables[0], 1, len(WORDS), progress.append) == len(WORDS) == sum(progress)
        assert len(pauses) == 1
    assert loader.count("odd") == len(WORDS)
    loader.close()


async def test_both_ways_give_the_same_hlr_population(mysql_database: str, context: Any, spec: Any) -> None:
    """The checksums of all tables are equal; keys, foreign keys and statistics exist afterwards."""
    sums = []
    for switch, workers in (("ON", 2), ("OFF", 1)):
        ask(mysql_database, f"SET GLOBAL local_infile = {switch}")
        try:
            await populate(context, spec(mysql_database, engine="mysql", workers=workers, population=3_000, seed=5))
        finally:
            ask(mysql_database, "SET GLOBAL local_infile = ON")
        sums.append([row[1] for row in ask(mysql_database, f"CHECKSUM TABLE {', '.join(TABLES)}")])
    assert sums[0] == sums[1]
    assert all(sums[0])
    query = "SELECT constraint_type, count(*) FROM information_schema.table_constraints WHERE table_schema = database() GROUP BY 1"
    assert dict(ask(mysql_database, query)) == {"PRIMARY KEY": 4, "UNIQUE": 1, "FOREIGN KEY": 3}
    orphans = (
        "SELECT count(*) FROM call_forwarding c LEFT JOIN special_facility s ON s.s_id = c.s_id AND s.sf_type = c.sf_type"
        " WHERE s.s_id IS NULL"
    )
    assert ask(mysql_database, orphans) == [(0,)]


def test_lookups_use_their_keys(mysql_database: str) -> None:
    """A text is compared in the column's own collation, so the index on the number is used."""
    workload = build(Hlr(population=100))
    loader = MysqlLoader(mysql_database, workload.population)
    loader.prepare()
    for table in workload.population.tables:
        loader.load(table, 1, 100, lambda _: None)
    for phase in workload.population.after["mysql"]:
        for statement in phase:
            loader.execute(statement)
    loader.close()
    (plan,) = ask(mysql_database, "EXPLAIN SELECT s_id FROM subscriber WHERE sub_nbr = '000000000000042'")
    assert plan[5] == "subscriber_sub_nbr"


async def test_a_table_of_others_is_not_dropped(mysql_database: str, context: Any, spec: Any) -> None:
    ask(mysql_database, "CREATE TABLE access_info (mine int)")
    with pytest.raises(TaskFault, match="access_info that proveout did not make") as raised:
        await populate(context, spec(mysql_database, engine="mysql", population=100))
    assert raised.value.code == "refused"
    assert ask(mysql_database, "SELECT count(*) FROM access_info") == [(0,)]
    assert ask(mysql_database, "SHOW TABLES") == [("access_info",)]


async def test_a_server_that_cannot_be_reached(context: Any, spec: Any) -> None:
    with pytest.raises(TaskFault, match="Connection refused") as raised:
        await populate(context, spec("mysql://x:hunter2@127.0.0.1:1/none", engine="mysql", population=100))
    assert (raised.value.code, "hunter2" in str(raised.value)) == ("unreachable", False)


async def test_an_invalid_dsn_is_refused(context: Any, spec: Any) -> None:
    with pytest.raises(TaskFault, match="does not begin with mysql://") as raised:
        await populate(context, spec("host=x password=hunter2", engine="mysql", population=100))
    assert (raised.value.code, "hunter2" in str(raised.value)) == ("invalid", False)
