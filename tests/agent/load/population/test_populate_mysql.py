"""Populations of a real MariaDB: LOAD DATA LOCAL and INSERT give the same rows, with special characters in texts;
refusals."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pymysql
import pytest

from proveout.agent.engines.mysql import dsn as mysql_dsn
from proveout.agent.engines.mysql.populate import LoadConnection, MysqlLoader
from proveout.agent.load.populate import populate
from proveout.dsl.workloads.base import Population, Table

pytestmark = pytest.mark.server

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


@pytest.mark.parametrize("by", ["LOAD DATA", "LOAD DATA without pyarrow", "INSERT"])
def test_any_text(
    by: str, mysql_database: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by.endswith("without pyarrow"):
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    if by == "INSERT":
        request.getfixturevalue("without_local_infile")
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


async def test_keys_and_the_collation_of_texts(mysql_database: str, task_context: Any, spec: Any) -> None:
    """A text is compared in the column's own collation, so the index on the number is used."""
    await populate(task_context, spec(mysql_database, engine="mysql", workers=1, population=100))
    query = "SELECT constraint_type, count(*) FROM information_schema.table_constraints WHERE table_schema = database() GROUP BY 1"
    assert dict(ask(mysql_database, query)) == {"PRIMARY KEY": 4, "UNIQUE": 1, "FOREIGN KEY": 3}
    (plan,) = ask(mysql_database, "EXPLAIN SELECT s_id FROM subscriber WHERE sub_nbr = '000000000000042'")
    assert plan[5] == "subscriber_sub_nbr"
